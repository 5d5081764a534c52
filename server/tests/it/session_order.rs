//! What a session is pushed, and in which order.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::session::{LATE, Raw, request};
use crate::world::World;

#[tokio::test]
async fn all_that_queued_up_during_a_pause_is_pushed_after_it_and_so_is_a_burst() {
    let world = World::with(&["alice"]).await;
    let several = world.request("operator", Method::PATCH, "/v1/agents/alice").json(&json!({ "turns_max": 200 }));
    assert_eq!(several.send().await.unwrap().status(), 200);
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(256).await;
    world.post("operator", "/v1/workspace/pause", json!({})).await.is(204);
    for n in 0..7 {
        world.send("operator", "alice", &format!("T-{n}"), "please").await.is(201);
    }
    world.post("operator", "/v1/workspace/resume", json!({})).await.is(204);
    let expect = async |alice: &mut Raw, refs: std::ops::Range<usize>| {
        for n in refs {
            let pushed = timeout(LATE, alice.delivery()).await.unwrap();
            assert_eq!(pushed["delivery"]["message"]["ref"], format!("T-{n}"));
        }
    };
    expect(&mut alice, 0..7).await;
    // More than the broker takes for a session before that asks again.
    let burst: Vec<Value> = (7..160).map(|n| request("alice", &format!("T-{n}"))).collect();
    world.post("operator", "/v1/messages", json!(burst)).await.is(200);
    expect(&mut alice, 7..160).await;
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_human_gets_the_answer_right_behind_the_notes_before_it() {
    let world = World::with(&["alice"]).await;
    let mut human = Raw::of(&world, "operator").await;
    human.watch(64).await;
    human.ok(json!({ "call": "send", "body": request("alice", "T-1") })).await;
    let taken = world.take("alice").await;
    let progress = format!("/v1/turns/{}/progress", taken["turn"]["id"].as_str().unwrap());
    world.post("alice", &progress, json!({ "note": "half of it" })).await.is(200);
    world.finish("alice", &taken, "done").await.is(200);
    // Long before a session looks by itself.
    let kinds = [human.delivery().await, human.delivery().await].map(|one| one["delivery"]["message"]["type"].clone());
    assert_eq!(kinds, [json!("status"), json!("response")]);
    world.server.shutdown().await;
}

#[tokio::test]
async fn all_answers_that_can_join_a_turn_are_pushed_into_it() {
    let world = World::with(&["alice", "bob", "carol", "dave"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(8).await;
    world.send("operator", "alice", "T-1", "please").await.is(201);
    let pushed = alice.delivery().await;
    let turn = pushed["delivery"]["turn"]["token"].clone();
    let helpers = ["bob", "carol", "dave"];
    for helper in helpers {
        let ask = json!({ "type": "request", "to": helper, "body": format!("part of {helper}") });
        alice.ok(json!({ "call": "send", "turn": turn, "body": ask })).await;
    }
    let tasks = futures_util::future::join_all(helpers.map(|helper| world.take(helper))).await;
    // All at once, so that one look finds several.
    let finishes = helpers.iter().zip(&tasks).map(|(helper, task)| world.finish(helper, task, helper));
    for finished in futures_util::future::join_all(finishes).await {
        finished.is(200);
    }
    let mut heard = Vec::new();
    for _ in helpers {
        let joined = alice.delivery().await;
        assert_eq!(joined["delivery"]["turn"]["id"], pushed["delivery"]["turn"]["id"]);
        heard.push(joined["delivery"]["message"]["body"].as_str().unwrap().to_owned());
    }
    heard.sort_unstable();
    assert_eq!(heard, helpers);
    world.server.shutdown().await;
}

#[tokio::test]
async fn no_turn_is_opened_for_a_session_without_room() {
    let world = World::with(&["alice"]).await;
    let several = world.request("operator", Method::PATCH, "/v1/agents/alice").json(&json!({ "turns_max": 8 }));
    assert_eq!(several.send().await.unwrap().status(), 200);
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(2).await;
    for n in 0..5 {
        world.send("operator", "alice", &format!("T-{n}"), "please").await.is(201);
    }
    let first = alice.delivery().await;
    alice.delivery().await;
    let turns = async || world.get("operator", "/v1/agents/alice").await.is(200)["turns"].as_array().unwrap().len();
    assert_eq!(turns().await, 2);
    alice.finish(&first, "done").await;
    assert_eq!(alice.delivery().await["delivery"]["message"]["ref"], "T-2");
    assert_eq!(turns().await, 2);
    world.server.shutdown().await;
}
