//! The other direction: an agent elsewhere is an agent of the workspace.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::partner::{run, scripted};
use crate::world::{World, until};

/// A workspace whose `partner` is the `coder` of another one.
async fn two() -> (World, World, JoinSet<()>, tempfile::TempDir) {
    let (mut ours, theirs) = (World::new().await, World::new().await);
    ours.register(json!({ "name": "partner", "turns_max": 4 })).await;
    let dir = tempfile::tempdir().unwrap();
    let token = dir.path().join("token");
    std::fs::write(&token, theirs.token("caller")).unwrap();
    let mut running = JoinSet::new();
    run(&ours, &theirs.url("/a2a/coder/"), Some(&token), &mut running);
    (ours, theirs, running, dir)
}

async fn ask(world: &World, reference: &str) -> Value {
    let ask = json!({ "type": "request", "to": "partner", "ref": reference, "body": "Do it.", "payload": { "n": 1 } });
    world.api("operator", Method::POST, "/v1/messages", Some(ask)).await
}

async fn response(world: &World, request: &Value) -> Value {
    let path = format!("/v1/requests/{}", request["request_id"].as_str().unwrap());
    let mut found = Value::Null;
    until(async || {
        found = world.api("operator", Method::GET, &path, None).await;
        found["response"].is_object()
    })
    .await;
    found["response"].take()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_becomes_a_task_there_and_its_answer_the_turns() {
    let (ours, theirs, mut running, _dir) = two().await;
    let request = ask(&ours, "T-1").await;
    let delivery = theirs.take("coder").await;
    assert_eq!((&delivery["message"]["body"], &delivery["message"]["payload"]), (&json!("Do it."), &json!({ "n": 1 })));
    theirs.note("coder", &delivery, "half of it").await;
    theirs.finish("coder", &delivery, json!({ "answer": "Done.", "payload": { "ok": true } })).await;
    let answer = response(&ours, &request).await;
    assert_eq!((&answer["body"], &answer["status"]), (&json!("Done.\n\n{\"ok\":true}"), &json!("completed")));
    for (finish, status, said) in [
        (json!({ "answer": "", "status": "failed", "reason": "It broke." }), "failed", "It broke."),
        (json!({ "answer": "", "status": "rejected", "reason": "Not mine." }), "rejected", "Not mine."),
    ] {
        let request = ask(&ours, &format!("T-{status}")).await;
        let delivery = theirs.take("coder").await;
        theirs.finish("coder", &delivery, finish).await;
        let answer = response(&ours, &request).await;
        assert_eq!(answer["status"], status);
        assert!(answer["reason"].as_str().unwrap().contains(said), "{answer}");
    }
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_request_cancels_the_task_there() {
    let (ours, theirs, mut running, _dir) = two().await;
    let request = ask(&ours, "T-1").await;
    let delivery = theirs.take("coder").await;
    let path = format!("/v1/requests/{}/cancel", request["request_id"].as_str().unwrap());
    ours.api("operator", Method::POST, &path, None).await;
    let id = delivery["message"]["request_id"].as_str().unwrap();
    until(async || {
        let found = theirs.api("operator", Method::GET, &format!("/v1/requests/{id}"), None).await;
        found["status"] == "cancelled"
    })
    .await;
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_agent_there_needs_is_asked_of_a_human_here() {
    let (ours, theirs, mut running, _dir) = two().await;
    let request = ask(&ours, "T-1").await;
    let delivery = theirs.take("coder").await;
    let turn = delivery["turn"]["token"].as_str().unwrap();
    let held = theirs.request("coder", Method::POST, "/v1/approvals").header("lastword-turn", turn);
    let held: Value =
        held.json(&json!({ "tool": "deploy", "arguments": {} })).send().await.unwrap().json().await.unwrap();
    until(async || {
        let asked = ours.api("operator", Method::GET, "/v1/escalations", None).await;
        let text = asked["items"][0]["message"].as_str().unwrap_or_default();
        text.contains("deploy") && text.contains("waits for an approval")
    })
    .await;
    // Decided there: the answer comes without another word here.
    let decision = json!({ "decision": "approve", "digest": held["digest"] });
    let path = format!("/v1/approvals/{}/decision", held["id"].as_str().unwrap());
    theirs.api("operator", Method::POST, &path, Some(decision)).await;
    theirs.finish("coder", &delivery, json!({ "answer": "Deployed." })).await;
    assert_eq!(response(&ours, &request).await["body"], "Deployed.");
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_agent_is_down_ends_when_it_is_stopped() {
    let mut ours = World::new().await;
    ours.register(json!({ "name": "partner" })).await;
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut running = JoinSet::new();
    run(&ours, &format!("http://{free}/"), None, &mut running);
    let first = ask(&ours, "T-1").await;
    let path = format!("/v1/requests/{}", first["request_id"].as_str().unwrap());
    until(async || ours.api("operator", Method::GET, &path, None).await["state"] == "waiting").await;
    ours.api("operator", Method::POST, &format!("{path}/cancel"), None).await;
    // Its only place is free for the next one.
    let second = ask(&ours, "T-2").await;
    let path = format!("/v1/requests/{}", second["request_id"].as_str().unwrap());
    until(async || ours.api("operator", Method::GET, &path, None).await["state"] == "waiting").await;
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn several_approvals_there_cost_one_question_here() {
    let (ours, theirs, mut running, _dir) = two().await;
    let request = ask(&ours, "T-1").await;
    let delivery = theirs.take("coder").await;
    let turn = delivery["turn"]["token"].as_str().unwrap();
    for n in 0..5 {
        let held = theirs.request("coder", Method::POST, "/v1/approvals").header("lastword-turn", turn);
        let held = held.json(&json!({ "tool": "deploy", "arguments": { "n": n } })).send().await.unwrap();
        let held: Value = held.json().await.unwrap();
        until(async || {
            let asked = ours.api("operator", Method::GET, "/v1/escalations", None).await;
            asked["items"].as_array().unwrap().len() == 1
        })
        .await;
        let decision = json!({ "decision": "approve", "digest": held["digest"] });
        let path = format!("/v1/approvals/{}/decision", held["id"].as_str().unwrap());
        theirs.api("operator", Method::POST, &path, Some(decision)).await;
    }
    theirs.finish("coder", &delivery, json!({ "answer": "Deployed." })).await;
    assert_eq!(response(&ours, &request).await["body"], "Deployed.");
    running.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_asks_for_a_pause_gets_it_up_to_a_bound() {
    let mut ours = World::new().await;
    ours.register(json!({ "name": "partner", "turns_max": 4 })).await;
    let refused = |ms: u64| {
        let info =
            json!({ "domain": "lastword", "reason": "SATURATED", "metadata": { "retryAfterMs": ms.to_string() } });
        json!({ "jsonrpc": "2.0", "id": 1, "error": { "code": -32000, "message": "Not now", "data": [info] } })
    };
    let artifact = json!({ "artifactId": "a", "parts": [{ "text": "Done." }] });
    let task = json!({
        "id": "t", "contextId": "c", "status": { "state": "TASK_STATE_COMPLETED" }, "artifacts": [artifact],
    });
    let done = json!({ "jsonrpc": "2.0", "id": 1, "result": { "task": task } });
    let answers = vec![
        (200, "", refused(1_200)),
        (503, "2", json!("no answer of JSON-RPC")),
        (200, "", done),
        // More than an agent may ask for.
        (200, "", refused(3_600_000)),
    ];
    let mut running = JoinSet::new();
    let agent = scripted(answers, &mut running).await;
    run(&ours, &agent.url, None, &mut running);
    let first = ask(&ours, "T-1").await;
    assert_eq!(response(&ours, &first).await["body"], "Done.");
    let second = ask(&ours, "T-2").await;
    let failed = response(&ours, &second).await;
    assert_eq!(failed["status"], "failed");
    assert!(failed["reason"].as_str().unwrap().contains("Not now"), "{failed}");
    let calls = agent.calls.lock().unwrap().clone();
    let pauses: Vec<u128> = calls.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    assert!(pauses.len() == 3 && pauses[0] >= 1_200 && pauses[1] >= 2_000, "{pauses:?}");
    running.shutdown().await;
}
