//! R5 over HTTP: what becomes of exchanges that are held, as counters, and their curve as an explanation.

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::machine::Machine;
use crate::world::World;

const SAME: &str = "please run the tests again";
const HOUR: u64 = 3_600_000;
const DAY: u64 = 24 * HOUR;

fn enforced() -> Limits {
    let mut limits = Limits { depth_max: 39, ..Limits::default() };
    limits.observed.enforce("no_progress");
    limits
}

fn observed() -> Limits {
    Limits { depth_max: 39, ..Limits::default() }
}

/// Has kilo work on something, so that it can ask hive.
async fn begin(world: &World) -> Value {
    world.send("operator", "kilo", "T-1", "why is the build red?").await.is(201);
    world.take("kilo").await
}

/// One request of kilo and hive's answer to it. Returns the request.
async fn round(world: &World, answer: &str) -> Value {
    let asked =
        world.post("kilo", "/v1/messages", json!({ "type": "request", "to": "hive", "body": SAME })).await.is(201);
    let taken = world.take("hive").await;
    world.finish("hive", &taken, answer).await.is(200);
    // In the turn of its task, if that still runs; otherwise the answer opens the next turn.
    world.take("kilo").await;
    asked
}

async fn counter(world: &World, labelled: &str) -> u64 {
    let text = world.get("operator", "/metrics").await.is(200);
    let text = text.as_str().unwrap();
    let line = text.lines().find(|line| line.starts_with(labelled)).unwrap_or_else(|| panic!("{labelled}: {text}"));
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

const HELD: &str = "lastword_no_progress_total{level=\"held\",reason=\"stuck\",mode=\"enforce\"}";
const LIFTED: &str = "lastword_no_progress_lifted_total{reason=\"stuck\",mode=\"enforce\"}";
const WOULD_HOLD: &str = "lastword_no_progress_total{level=\"held\",reason=\"stuck\",mode=\"observe\"}";
const WOULD_LIFT: &str = "lastword_no_progress_lifted_total{reason=\"stuck\",mode=\"observe\"}";
const SAID_AFTER: &str = "lastword_no_progress_said_after_tokens_total{reason=\"stuck\"}";
const READ_AFTER: &str = "lastword_no_progress_read_after_tokens_total{reason=\"stuck\"}";

async fn hold(world: &World) {
    for n in 0..3 {
        round(world, &format!("run {n} failed")).await;
    }
}

#[tokio::test]
async fn a_hold_that_a_human_lifts_is_counted_and_one_whose_task_ends_is_not() {
    let world = World::within(enforced(), &["kilo", "hive"]).await;
    let task = begin(&world).await;
    let request = task["message"]["request_id"].as_str().unwrap();
    hold(&world).await;
    assert_eq!((counter(&world, HELD).await, counter(&world, LIFTED).await), (1, 0));
    world.post("operator", "/v1/escalations/esc-1/answer", json!({ "lift": "lift-1" })).await.is(200);
    assert_eq!((counter(&world, HELD).await, counter(&world, LIFTED).await), (1, 1), "the lift");
    hold(&world).await;
    world.post("operator", "/v1/escalations/esc-2/answer", json!({ "answer": "once more, then" })).await.is(200);
    assert_eq!((counter(&world, HELD).await, counter(&world, LIFTED).await), (2, 2), "words");
    hold(&world).await;
    world.post("operator", &format!("/v1/requests/{request}/cancel"), json!({})).await.is(200);
    world.send("operator", "kilo", "T-1/1", "leave it").await.is(201);
    assert_eq!((counter(&world, HELD).await, counter(&world, LIFTED).await), (3, 2), "the task ended first");
}

#[tokio::test]
async fn a_hold_from_before_a_restart_is_counted_when_a_human_lifts_it() {
    let world = World::within(enforced(), &["kilo", "hive"]).await;
    begin(&world).await;
    hold(&world).await;
    let world = world.restart().await;
    assert_eq!((counter(&world, HELD).await, counter(&world, LIFTED).await), (0, 0));
    world.post("operator", "/v1/escalations/esc-1/answer", json!({ "lift": "lift-1" })).await.is(200);
    assert_eq!(counter(&world, LIFTED).await, 1);
}

#[tokio::test]
async fn what_is_said_after_an_exchange_would_have_been_held_is_counted_until_a_human_speaks() {
    let world = World::within(observed(), &["kilo", "hive"]).await;
    begin(&world).await;
    let (mut last, before) = (Value::Null, counter(&world, READ_AFTER).await);
    for n in 0..4 {
        last = round(&world, &format!("run {n} failed")).await;
    }
    assert_eq!((counter(&world, WOULD_HOLD).await, counter(&world, WOULD_LIFT).await, before), (1, 0, 0));
    let id = last["id"].as_str().unwrap();
    let told = world.get("hive", &format!("/v1/explanations/{id}")).await.is(200);
    let lines = told["exchange"]["lines"].as_array().unwrap_or_else(|| panic!("{told}"));
    assert_eq!((lines.len(), &lines[4]["verdict"]), (8, &json!("would_hold")), "{told}");
    let contexts: Vec<u64> = lines.iter().map(|line| line["context_tokens"].as_u64().unwrap()).collect();
    assert_eq!(counter(&world, SAID_AFTER).await, contexts[7] - contexts[4], "{told}");
    assert_eq!(counter(&world, READ_AFTER).await, contexts[5..].iter().sum::<u64>(), "{told}");

    world
        .post(
            "operator",
            "/v1/messages",
            json!({ "type": "info", "to": "kilo", "ref": "T-1/1", "body": "look at worker 7" }),
        )
        .await
        .is(201);
    assert_eq!(counter(&world, WOULD_LIFT).await, 1);
    let after = counter(&world, READ_AFTER).await;
    round(&world, "run 5 failed").await;
    assert_eq!(counter(&world, READ_AFTER).await, after, "the exchange starts anew");
}

#[tokio::test]
async fn an_exchange_is_explained_to_those_who_may_read_it_and_says_what_moved_to_the_archive() {
    let machine = Machine::new();
    let mut world = machine.world(&["kilo", "hive"], enforced()).await;
    world.register(json!({ "name": "mallory" })).await;
    let task = begin(&world).await;
    round(&world, "run 0 failed").await;
    machine.run(2 * HOUR);
    round(&world, "run 1 failed").await;
    let last = round(&world, "run 2 failed").await;
    for id in ["esc-1", last["id"].as_str().unwrap()] {
        world.get("mallory", &format!("/v1/explanations/{id}")).await.refused(404, "unknown_request");
    }
    let request = task["message"]["request_id"].as_str().unwrap();
    world.post("operator", &format!("/v1/requests/{request}/cancel"), json!({})).await.is(200);
    machine.run(8 * DAY);
    // The state forgets the work with the next inputs; then its oldest entries may move.
    world.send("operator", "mallory", "T-2", "hello").await.is(201);
    world.send("operator", "mallory", "T-2", "hello again").await.is(201);
    let after_ms = 8 * DAY + HOUR;
    let moved = world.post("operator", "/v1/archives", json!({ "after_ms": after_ms })).await.is(200);
    assert_eq!(moved["segments"].as_array().unwrap().len(), 1, "{moved}");
    // The read model lets go of them with its next step.
    world.send("operator", "mallory", "T-2", "hello once more").await.is(201);
    let told = world.get("operator", &format!("/v1/explanations/{}", last["id"].as_str().unwrap())).await.is(200);
    let exchange = &told["exchange"];
    assert_eq!((&exchange["messages"], &exchange["unread"]), (&json!(5), &json!(2)), "{told}");
    let lines = exchange["lines"].as_array().unwrap();
    assert_eq!(
        (lines.len(), &lines[2]["verdict"], &lines[2]["repeats"]["id"]),
        (3, &json!("held"), &lines[0]["id"]),
        "{told}"
    );
}

#[tokio::test]
async fn a_model_reads_the_warning_in_the_reply_to_its_tool_call_also_to_a_list() {
    for target in [json!("hive"), json!(["hive"])] {
        let world = World::within(enforced(), &["kilo", "hive"]).await;
        begin(&world).await;
        for n in 0..2 {
            round(&world, &format!("run {n} failed")).await;
        }
        let send = json!({ "target_agent_id": target, "message": SAME });
        let sent = crate::mcp::done(&world, "kilo", "send_agent_message", send).await;
        let reply = if target.is_array() { &sent["items"][0] } else { &sent };
        let warning = reply["warning"].as_str().unwrap_or_else(|| panic!("{sent}"));
        assert!(warning.starts_with("Your 5 messages with hive in this task made both of you read"), "{warning}");
    }
}

#[tokio::test]
async fn the_console_shows_what_was_said_again_and_again() {
    let world = World::within(enforced(), &["kilo", "hive"]).await;
    begin(&world).await;
    hold(&world).await;
    let again = json!({ "type": "request", "to": "hive", "body": SAME });
    let refused = world.post("kilo", "/v1/messages", again).await.refused(422, "no_progress");
    let browser = Browser::signed_in(&world).await;
    let inbox = browser.get("/inbox").await.is(200).text;
    assert!(inbox.contains("<a href=\"/questions/esc-1\">"), "{inbox}");
    for path in
        ["/escalations/esc-1".to_owned(), refused["record"].as_str().unwrap().replace("refused-", "/messages/msg-")]
    {
        let page = browser.get(&path).await.is(200).text;
        for part in ["The exchange of kilo and hive", "the same text as ", SAME, "tokens read again for "] {
            assert!(page.contains(part), "{path} has {part}: {page}");
        }
    }
    browser.get("/escalations/esc-7").await.is(404);
}

#[tokio::test]
async fn the_waterfall_has_the_curve_of_an_exchange_that_makes_no_progress() {
    let world = World::within(enforced(), &["kilo", "hive"]).await;
    begin(&world).await;
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/T-1?view=waterfall").await.is(200).text;
    assert!(!page.contains("No progress with"), "{page}");
    hold(&world).await;
    let page = browser.get("/conversations/T-1?view=waterfall").await.is(200).text;
    let parts = [
        "No progress with <b>hive</b>",
        "R5 warns",
        "R5 holds",
        "<polyline points=",
        "class=\"verdict\"",
        "dry, 0 new",
    ];
    for part in parts {
        assert!(page.contains(part), "{part}: {page}");
    }
}
