//! Sessions over long silences and jumps of the clock: none ends, and nothing is lost or pushed twice.

use std::time::Duration;

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::machine::{DAY, Machine, SECOND};
use crate::session::{Raw, request};
use crate::world::World;

/// Limits under which a week's silence ends no grant.
fn patient() -> Limits {
    Limits { grant_age_ms: 30 * DAY, ..Limits::default() }
}

async fn sent(world: &World, reference: &str) {
    world.send("operator", "alice", reference, "please").await.is(201);
}

/// A session that has had a delivery, and works on another one that it didn't acknowledge.
async fn at_work(world: &World) -> (Raw, Value) {
    let mut alice = Raw::of(world, "alice").await;
    alice.watch(4).await;
    sent(world, "T-1").await;
    let first = alice.delivery().await;
    alice.finish(&first, "done").await;
    sent(world, "T-2").await;
    let second = alice.delivery().await;
    assert_eq!(second["delivery"]["turn"]["attempt"], 1);
    (alice, second)
}

/// Works on: the next request is pushed once, and nothing else is.
async fn goes_on(world: &World, alice: &mut Raw, reference: &str) {
    sent(world, reference).await;
    let next = alice.delivery().await;
    assert_eq!(next["delivery"]["message"]["ref"], reference, "{next}");
    alice.ok(json!({ "call": "ack", "body": { "cursor": next["cursor"] } })).await;
    alice.finish(&next, "done").await;
    assert_eq!(alice.call(json!({ "call": "next" })).await["status"], 204, "there is nothing else");
}

#[tokio::test]
async fn a_session_lives_through_a_quiet_week() {
    let machine = Machine::new();
    let world = machine.world(&["alice"], patient()).await;
    let (mut alice, second) = at_work(&world).await;
    let mut human = Raw::of(&world, "operator").await;
    human.watch(4).await;
    machine.run(8 * DAY);
    // The lease of ten minutes was lost in the second of the eight days in which it ended.
    let again = alice.delivery().await;
    assert_eq!(again["delivery"]["message"]["id"], second["delivery"]["message"]["id"]);
    assert_eq!(again["delivery"]["turn"]["attempt"], 2, "{again}");
    alice.finish(&again, "done late").await;
    goes_on(&world, &mut alice, "T-3").await;
    for answer in ["done", "done late", "done"] {
        // Beside the alert that no human has acted for a week.
        human.which(|frame| frame["delivery"]["message"]["body"] == answer).await;
    }
}

#[tokio::test]
async fn a_machine_that_sleeps_for_a_week_leaves_the_turns_of_a_session_open() {
    let machine = Machine::new();
    let world = machine.world(&["alice"], patient()).await;
    let (mut alice, second) = at_work(&world).await;
    machine.sleep(8 * DAY);
    alice.finish(&second, "done").await;
    goes_on(&world, &mut alice, "T-3").await;
}

#[tokio::test]
async fn a_clock_that_is_set_back_takes_nothing_from_a_session() {
    let machine = Machine::new();
    let world = machine.world(&["alice"], patient()).await;
    let (mut alice, second) = at_work(&world).await;
    machine.back(8 * DAY);
    machine.run(SECOND);
    alice.finish(&second, "done").await;
    goes_on(&world, &mut alice, "T-3").await;
    sent(&world, "T-4").await;
    let left = alice.delivery().await;
    drop(alice);
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(4).await;
    let again = alice.delivery().await;
    assert_eq!(again["delivery"]["delivery"], left["delivery"]["delivery"], "what wasn't acknowledged is given again");
    alice.finish(&again, "done").await;
    goes_on(&world, &mut alice, "T-5").await;
}

#[tokio::test]
async fn a_silent_session_is_pinged_for_hours_and_stays() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(4).await;
    let hours = 6;
    tokio::time::pause();
    let pings = alice.idle(Duration::from_secs(hours * 3_600)).await;
    tokio::time::resume();
    // A look every 15 s finds that 60 s have passed since the last pong.
    assert!((hours * 48..=hours * 60).contains(&pings), "{pings} pings");
    goes_on(&world, &mut alice, "T-1").await;
    let mut human = Raw::of(&world, "operator").await;
    human.ok(json!({ "call": "send", "body": request("alice", "T-2") })).await;
    alice.delivery().await;
}
