//! Schedules tick once by the broker's clock, also across restarts (D13).

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::world::World;

const HOUR: u64 = 3_600_000;

async fn set(world: &World, name: &str, cron: &str) -> Value {
    let new = json!({ "name": name, "cron": cron, "to": "hive", "body": "run the tests", "ref": "RUN-{date}-{n}" });
    world.post("operator", "/v1/schedules", new).await.is(201)
}

async fn listed(world: &World, name: &str) -> Value {
    let page = world.get("operator", "/v1/schedules").await.is(200);
    page["items"].as_array().unwrap().iter().find(|item| item["name"] == name).cloned().unwrap()
}

/// Waits until the schedule has ticked `times` times.
async fn ticked(world: &World, name: &str, times: u64) -> Value {
    loop {
        let schedule = listed(world, name).await;
        if schedule["ticks"] == times || schedule["skipped_at"].is_string() {
            return schedule;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_tick_asks_once_also_over_a_restart_and_what_was_missed_is_made_up_once() {
    let machine = Machine::new();
    let world = machine.world(&["hive"], Limits::default()).await;
    set(&world, "nightly", "0 2 * * *").await;
    // Three nights without the server make one tick.
    machine.sleep(3 * 24 * HOUR);
    let world = machine.restart(world, Limits::default()).await;
    let schedule = ticked(&world, "nightly", 1).await;
    assert_eq!((&schedule["ticks"], &schedule["open"]), (&json!(1), &json!(true)));
    let delivery = world.get("hive", "/v1/inbox").await.is(200);
    assert_eq!(delivery["message"]["from"], "operator");
    assert!(delivery["message"]["ref"].as_str().unwrap().ends_with("-1"), "{delivery}");
    let world = machine.restart(world, Limits::default()).await;
    assert_eq!(listed(&world, "nightly").await["ticks"], 1, "it is not made twice");
    // The last tick's grant is still open, so the next tick is skipped and recorded as such.
    machine.sleep(24 * HOUR);
    let world = machine.restart(world, Limits::default()).await;
    let schedule = ticked(&world, "nightly", 2).await;
    assert_eq!((&schedule["ticks"], schedule["skipped_at"].is_string()), (&json!(1), true));
    assert!(schedule["skipped"].is_null());
}

#[tokio::test]
async fn a_schedule_that_can_not_tick_is_refused_with_the_member_that_is_wrong() {
    let world = Machine::new().world(&["hive"], Limits::default()).await;
    for (member, new) in [
        ("cron", json!({ "name": "n", "cron": "often", "to": "hive", "body": "x" })),
        ("cron", json!({ "name": "n", "cron": "* * * * *", "to": "hive", "body": "x" })),
        ("time_zone", json!({ "name": "n", "cron": "0 2 * * *", "time_zone": "Mars", "to": "hive", "body": "x" })),
        ("ref", json!({ "name": "n", "cron": "0 2 * * *", "to": "hive", "body": "x", "ref": "a b" })),
        ("to", json!({ "name": "n", "cron": "0 2 * * *", "to": "all", "body": "x" })),
    ] {
        let problem = world.post("operator", "/v1/schedules", new).await.is(400);
        assert!(problem["detail"].as_str().unwrap().contains(member), "{member}: {problem}");
    }
    let new = json!({ "name": "n", "cron": "0 2 * * *", "to": "hive", "body": "x" });
    world.post("hive", "/v1/schedules", new).await.is(403);
}

#[tokio::test]
async fn a_human_runs_a_schedule_between_its_ticks_and_takes_it_away() {
    let world = Machine::new().world(&["hive"], Limits::default()).await;
    set(&world, "nightly", "0 2 * * *").await;
    let ran = world.post("operator", "/v1/schedules/nightly/run", json!({})).await.is(200);
    assert_eq!(ran["ticks"], 1);
    world.get("hive", "/v1/inbox").await.is(200);
    let gone = world.request("operator", Method::DELETE, "/v1/schedules/nightly").send().await.unwrap();
    assert_eq!(gone.status(), 204);
    world.post("operator", "/v1/schedules/nightly/run", json!({})).await.is(404);
}
