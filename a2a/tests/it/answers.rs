//! What a caller says to a task that waits for it: it is taken once, and changes the task.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, state};

/// Starts a workspace whose `caller` answers in the seat of the operator, and decides if `asker`.
async fn seated(asker: bool) -> World {
    World::with(|config| {
        config.settings.seats.insert("caller".into(), "operator".into());
        config.settings.limits.approvers.asker = asker;
    })
    .await
}

/// Makes a call in the turn of a delivery.
async fn in_turn(world: &World, delivery: &Value, path: &str, body: Value) -> Value {
    let turn = delivery["turn"]["token"].as_str().unwrap();
    let made = world.request("coder", Method::POST, path).header("lastword-turn", turn).json(&body);
    made.send().await.unwrap().error_for_status().unwrap().json().await.unwrap()
}

/// Asks in the turn of a delivery, and waits for the answer in the next one.
async fn ask(world: &World, delivery: &Value, question: &str) {
    in_turn(world, delivery, "/v1/escalations", json!({ "message": question })).await;
    world.finish("coder", delivery, json!({ "answer": "", "status": "waiting" })).await;
}

/// Returns a message to a task.
fn to(task: &Value, id: &str, part: &Value) -> Value {
    let message = json!({ "messageId": id, "role": "ROLE_USER", "taskId": task["id"], "parts": [part] });
    json!({ "message": message, "configuration": { "returnImmediately": true } })
}

async fn say(world: &World, message: Value) -> Result<Value, Value> {
    world.rpc("caller", "SendMessage", message).await.map(|mut sent| sent["task"].take())
}

/// Returns what the status of a task says.
fn said(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

#[tokio::test]
async fn an_answer_that_is_sent_again_is_taken_once_and_answers_no_later_question() {
    let world = seated(false).await;
    let task = world.sent("caller", world.message("Deploy it.")).await;
    ask(&world, &world.take("coder").await, "Which one?").await;
    let first = to(&task, "answer-1", &json!({ "text": "The second." }));
    for _ in 0..2 {
        assert_eq!(state(&say(&world, first.clone()).await.unwrap()), "TASK_STATE_WORKING");
    }
    let delivery = world.take("coder").await;
    assert_eq!(delivery["message"]["body"], "The second.");
    ask(&world, &delivery, "And where?").await;
    let world = world.restarted().await;
    let again = say(&world, first.clone()).await.unwrap();
    assert_eq!((state(&again), said(&again)), ("TASK_STATE_INPUT_REQUIRED", "And where?"));
    let other = say(&world, to(&task, "answer-1", &json!({ "text": "Here." }))).await.unwrap_err();
    assert_eq!(other["data"][0]["reason"], "IDEMPOTENCY_CONFLICT", "{other}");
    // The same words under an id of their own answer it.
    let second = to(&task, "answer-2", &json!({ "text": "The second." }));
    assert_eq!(state(&say(&world, second).await.unwrap()), "TASK_STATE_WORKING");
    let delivery = world.take("coder").await;
    world.finish("coder", &delivery, json!({ "answer": "Deployed." })).await;
    assert_eq!(state(&say(&world, first).await.unwrap()), "TASK_STATE_COMPLETED");
}

/// Returns who said what in the history of a task, or of its last messages.
async fn history(world: &World, task: &Value, length: Option<u32>) -> Vec<(String, String)> {
    let found = world.rpc("caller", "GetTask", json!({ "id": task["id"], "historyLength": length })).await.unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let said = found["history"].as_array().unwrap().iter();
    said.map(|one| (text(&one["role"]), text(&one["parts"][0]["text"]))).collect()
}

#[tokio::test]
async fn the_history_of_a_task_has_what_was_asked_and_answered_in_order() {
    let mut world = seated(false).await;
    world.register_human("uma").await;
    let task = world.sent("caller", world.message("Deploy it.")).await;
    let mut all = vec![("ROLE_USER".to_owned(), "Deploy it.".to_owned())];
    let mut delivery = world.take("coder").await;
    for (question, answer) in [("Which one?", "The second."), ("And where?", "Here.")] {
        ask(&world, &delivery, question).await;
        say(&world, to(&task, answer, &json!({ "text": answer }))).await.unwrap();
        all.extend([("ROLE_AGENT".to_owned(), question.to_owned()), ("ROLE_USER".to_owned(), answer.to_owned())]);
        assert_eq!(history(&world, &task, None).await, all);
        delivery = world.take("coder").await;
    }
    // What another person answers isn't said in the caller's seat.
    let asked = in_turn(&world, &delivery, "/v1/escalations", json!({ "message": "With which password?" })).await;
    world.finish("coder", &delivery, json!({ "answer": "", "status": "waiting" })).await;
    let path = format!("/v1/escalations/{}/answer", asked["id"].as_str().unwrap());
    world.api("uma", Method::POST, &path, Some(json!({ "answer": "A secret." }))).await;
    let delivery = world.take("coder").await;
    assert_eq!(delivery["message"]["body"], "A secret.");
    world.finish("coder", &delivery, json!({ "answer": "Deployed." })).await;
    let world = world.restarted().await;
    assert_eq!(history(&world, &task, Some(10)).await, all);
    assert_eq!(history(&world, &task, Some(2)).await, all[3..]);
    let done = world.task("caller", &task["id"]).await;
    let listed = world.rpc("caller", "ListTasks", json!({ "includeArtifacts": true })).await.unwrap();
    assert_eq!(listed["tasks"][0], done);
    let ids: std::collections::BTreeSet<&str> =
        done["history"].as_array().unwrap().iter().map(|one| one["messageId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), all.len());
}

#[tokio::test]
async fn a_decision_that_is_sent_again_decides_no_later_call_not_even_the_same_one() {
    let world = seated(true).await;
    let task = world.sent("caller", world.message("Deploy it.")).await;
    let delivery = world.take("coder").await;
    let call = json!({ "tool": "deploy", "arguments": {} });
    let held = in_turn(&world, &delivery, "/v1/approvals", call.clone()).await;
    let decision = json!({ "data": { "decision": "approve", "digest": held["digest"] } });
    let first = to(&task, "decision-1", &decision);
    for _ in 0..2 {
        assert_eq!(state(&say(&world, first.clone()).await.unwrap()), "TASK_STATE_WORKING");
    }
    let next = in_turn(&world, &delivery, "/v1/approvals", call).await;
    assert_eq!((&next["state"], &next["digest"]), (&json!("pending"), &held["digest"]));
    assert_eq!(state(&say(&world, first).await.unwrap()), "TASK_STATE_AUTH_REQUIRED");
    assert_eq!(state(&say(&world, to(&task, "decision-2", &decision)).await.unwrap()), "TASK_STATE_WORKING");
}

#[tokio::test]
async fn a_task_shows_what_its_stream_told_of_it_under_the_same_id() {
    let world = seated(false).await;
    let params = json!({ "message": world.message("Deploy it.") });
    let mut stream = world.stream("caller", "SendStreamingMessage", params).await;
    let task = stream.next().await.unwrap()["task"].take();
    let delivery = world.take("coder").await;
    assert_eq!(state(&stream.next().await.unwrap()), "TASK_STATE_WORKING");
    let held = in_turn(&world, &delivery, "/v1/approvals", json!({ "tool": "deploy", "arguments": {} })).await;
    let waits = stream.next().await.unwrap();
    assert_eq!(state(&waits), "TASK_STATE_AUTH_REQUIRED");
    // Others work meanwhile, and what the task shows is the same.
    for _ in 0..2 {
        assert_eq!(world.task("caller", &task["id"]).await["status"], waits["statusUpdate"]["status"]);
        world.sent("other", world.message("Wait.")).await;
    }
    let decision = json!({ "decision": "approve", "digest": held["digest"] });
    let path = format!("/v1/approvals/{}/decision", held["id"].as_str().unwrap());
    world.api("operator", Method::POST, &path, Some(decision)).await;
    assert_eq!(state(&stream.next().await.unwrap()), "TASK_STATE_WORKING");
    ask(&world, &delivery, "Which one?").await;
    let asks = stream.next().await.unwrap();
    assert_eq!(state(&asks), "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(world.task("caller", &task["id"]).await["status"], asks["statusUpdate"]["status"]);
    assert_ne!(
        asks["statusUpdate"]["status"]["message"]["messageId"],
        waits["statusUpdate"]["status"]["message"]["messageId"]
    );
}

#[tokio::test]
async fn a_decision_and_an_answer_are_changes_that_a_list_finds() {
    let world = seated(false).await;
    let params = json!({ "message": world.message("Deploy it.") });
    let mut stream = world.stream("caller", "SendStreamingMessage", params).await;
    let task = stream.next().await.unwrap()["task"].take();
    let newer = world.sent("caller", world.message("A newer one.")).await;
    let delivery = world.take("coder").await;
    let held = in_turn(&world, &delivery, "/v1/approvals", json!({ "tool": "deploy", "arguments": {} })).await;
    let mut changed = Vec::new();
    while changed.last() != Some(&"TASK_STATE_AUTH_REQUIRED".to_owned()) {
        changed.push(state(&stream.next().await.unwrap()).to_owned());
    }
    let decision = json!({ "decision": "approve", "digest": held["digest"] });
    let path = format!("/v1/approvals/{}/decision", held["id"].as_str().unwrap());
    world.api("operator", Method::POST, &path, Some(decision)).await;
    is_as_told(&world, &task, &stream.next().await.unwrap()).await;
    ask(&world, &delivery, "Which one?").await;
    assert_eq!(state(&stream.next().await.unwrap()), "TASK_STATE_INPUT_REQUIRED");
    say(&world, to(&task, "answer-1", &json!({ "text": "The second." }))).await.unwrap();
    is_as_told(&world, &task, &stream.next().await.unwrap()).await;
    let listed = world.rpc("caller", "ListTasks", json!({})).await.unwrap();
    let order: Vec<&Value> = listed["tasks"].as_array().unwrap().iter().map(|task| &task["id"]).collect();
    assert_eq!(order, [&task["id"], &newer["id"]]);
}

/// A task works since the moment that its stream told, also in a list.
async fn is_as_told(world: &World, task: &Value, event: &Value) {
    let status = &event["statusUpdate"]["status"];
    assert_eq!(state(event), "TASK_STATE_WORKING");
    assert_eq!(&world.task("caller", &task["id"]).await["status"], status);
    let after = json!({ "statusTimestampAfter": status["timestamp"] });
    let listed = world.rpc("caller", "ListTasks", after).await.unwrap();
    assert_eq!((&listed["tasks"][0]["id"], &listed["tasks"][0]["status"]), (&task["id"], status), "{listed}");
}

#[tokio::test]
async fn a_successor_of_the_same_name_has_none_of_the_tasks() {
    let mut world = World::new().await;
    let task = world.sent("caller", world.message("Do it.")).await;
    let removed = world.request("operator", Method::DELETE, "/v1/agents/coder").send().await.unwrap();
    assert!(removed.status().is_success(), "{}", removed.status());
    let seen = async |world: &World| {
        let listed = world.rpc("caller", "ListTasks", json!({})).await.unwrap();
        let found = world.rpc("caller", "GetTask", json!({ "id": task["id"] })).await;
        (listed["totalSize"].as_u64().unwrap(), found.map_err(|error| error["code"].clone()).map(|_| ()))
    };
    assert_eq!(seen(&world).await, (1, Ok(())), "a removed agent keeps its name until another one has it");
    world.register(json!({ "name": "coder" })).await;
    assert_eq!(seen(&world).await, (0, Err(json!(-32001))));
}
