//! Streams: every reader gets the same events in the same order.

use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Stream, World, state};

/// What an event says, without what differs between two looks at one state.
fn told(event: &Value) -> (String, String) {
    let status = &event["statusUpdate"]["status"];
    let text = status["message"]["parts"][0]["text"].as_str();
    let text = text.or_else(|| event["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str());
    let kind = event.as_object().unwrap().keys().next().unwrap();
    (format!("{kind} {}", state(event)), text.unwrap_or_default().to_owned())
}

async fn hold(world: &World, delivery: &Value, tool: &str) -> Value {
    let turn = delivery["turn"]["token"].as_str().unwrap();
    let held = world.request("coder", Method::POST, "/v1/approvals").header("lastword-turn", turn);
    let held = held.json(&json!({ "tool": tool, "arguments": { "x": 1 } })).send().await.unwrap();
    held.json().await.unwrap()
}

#[tokio::test]
async fn all_streams_of_a_task_have_the_same_events_in_the_same_order() {
    let call = CallPattern::parse("read").unwrap();
    let rule = ApprovalRule { call, agents: vec![], ruling: Ruling::Allow, tier: None, who: None, timeout_ms: None };
    let world = World::with(|config| config.settings.policy = Policy { rules: vec![rule] }).await;
    let params = json!({ "message": world.message("Do it.") });
    let mut first = world.stream("caller", "SendStreamingMessage", params).await;
    let begun = first.next().await.unwrap();
    assert_eq!(state(&begun), "TASK_STATE_SUBMITTED");
    let id = begun["task"]["id"].clone();
    let second = world.stream("caller", "SubscribeToTask", json!({ "id": id })).await;
    let path = format!("/a2a/coder/tasks/{}:subscribe", id.as_str().unwrap());
    let mut streams = vec![second];
    for method in [Method::GET, Method::POST] {
        let response = world.request("caller", method, &path).header("a2a-version", "1.0").send().await.unwrap();
        streams.push(Stream::of(response));
    }
    let delivery = world.take("coder").await;
    world.note("coder", &delivery, "half of it").await;
    // The policy decides this one at once, so nobody waits for it.
    assert_eq!(hold(&world, &delivery, "read").await["state"], "approved");
    let held = hold(&world, &delivery, "deploy").await;
    let decision = json!({ "decision": "approve", "digest": held["digest"] });
    let path = format!("/v1/approvals/{}/decision", held["id"].as_str().unwrap());
    world.api("operator", Method::POST, &path, Some(decision)).await;
    let late = world.stream("caller", "SubscribeToTask", json!({ "id": id })).await;
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    let events = first.rest().await;
    let said: Vec<(String, String)> = events.iter().map(told).collect();
    let kinds: Vec<&str> = said.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        kinds,
        [
            "statusUpdate TASK_STATE_WORKING",
            "statusUpdate TASK_STATE_WORKING",
            "statusUpdate TASK_STATE_AUTH_REQUIRED",
            "statusUpdate TASK_STATE_WORKING",
            "artifactUpdate none",
            "statusUpdate TASK_STATE_COMPLETED",
        ]
    );
    assert_eq!(said[1].1, "half of it");
    assert!(said[2].1.contains("deploy") && said[2].1.contains(held["id"].as_str().unwrap()), "{}", said[2].1);
    assert!(!said[2].1.contains("\"x\""), "the arguments aren't the caller's");
    for stream in streams {
        let mut all = stream.rest().await;
        assert_eq!(state(&all.remove(0)), "TASK_STATE_SUBMITTED");
        assert_eq!(all, events);
    }
    let mut late = late.rest().await;
    assert_eq!(state(&late.remove(0)), "TASK_STATE_WORKING");
    assert_eq!(late, events[4..], "a stream that began later goes on with the same events");
    let over = world.rpc("caller", "SubscribeToTask", json!({ "id": id })).await.unwrap_err();
    assert_eq!(over["code"], -32004);
    // What A2A's own types make of it is the same again.
    for event in [&[begun], &events[..]].concat() {
        let parsed: a2a::StreamResponse = serde_json::from_value(event.clone()).unwrap();
        let written = serde_json::to_value(&parsed).unwrap();
        assert_eq!(state(&written), state(&event));
    }
}

#[tokio::test]
async fn a_call_that_waits_returns_when_a_human_has_to_decide() {
    let world = World::new().await;
    let params = json!({ "message": world.message("Deploy.") });
    let (waited, delivery) = tokio::join!(world.rpc("caller", "SendMessage", params), async {
        let delivery = world.take("coder").await;
        hold(&world, &delivery, "deploy").await;
        delivery
    });
    let task = waited.unwrap()["task"].take();
    assert_eq!(state(&task), "TASK_STATE_AUTH_REQUIRED");
    let mut word = world.message("I approve it.");
    word["taskId"] = task["id"].clone();
    let refused = world.rpc("caller", "SendMessage", json!({ "message": word })).await.unwrap_err();
    assert_eq!(refused["code"], -32004, "a caller's word decides nothing");
    let mut forged = world.message("");
    forged["taskId"] = task["id"].clone();
    forged["parts"] = json!([{ "data": { "decision": "approve", "digest": "0".repeat(64) } }]);
    let refused = world.rpc("caller", "SendMessage", json!({ "message": forged })).await.unwrap_err();
    assert_eq!(refused["data"][0]["domain"], "lastword", "the policy names no caller: {refused}");
    world.finish("coder", &delivery, json!({ "answer": "", "status": "failed", "reason": "Nobody decided." })).await;
    assert_eq!(state(&world.task("caller", &task["id"]).await), "TASK_STATE_FAILED");
}

#[tokio::test]
async fn a_stream_ends_with_the_server_and_another_one_goes_on() {
    let world = World::new().await;
    let mut stream = world.stream("caller", "SendStreamingMessage", json!({ "message": world.message("Go.") })).await;
    let id = stream.next().await.unwrap()["task"]["id"].clone();
    let delivery = world.take("coder").await;
    let world = world.restarted().await;
    let mut again = world.stream("caller", "SubscribeToTask", json!({ "id": id })).await;
    assert_eq!(state(&again.next().await.unwrap()), "TASK_STATE_WORKING");
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    let kinds: Vec<String> = again.rest().await.iter().map(|event| told(event).0).collect();
    assert_eq!(kinds, ["artifactUpdate none", "statusUpdate TASK_STATE_COMPLETED"]);
}
