//! Jumps of the machine's clocks, none of which breaks anything (L6).

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::machine::{DAY, HOUR, Machine, SECOND, YEAR};
use crate::world::World;

/// Returns the clocks' difference, the clock's view and the readiness report.
async fn clock(world: &World) -> (i64, Value, Value) {
    let clock = world.get("operator", "/v1/clock").await.is(200);
    let ready = world.get("operator", "/readyz").await.is(200);
    assert_eq!((&ready["ready"], &ready["clock"]["note"]), (&json!(true), &clock["note"]));
    (clock["difference_ms"].as_i64().unwrap(), clock["state"].clone(), clock["note"].clone())
}

/// Fills `kilo`'s window with ten messages to `hive`.
async fn fill(world: &World) {
    for n in 0..10 {
        info(world, n).await.is(201);
    }
}

async fn info(world: &World, n: u64) -> crate::world::Answer {
    let envelope = json!({ "type": "info", "to": "hive", "ref": "W-1", "body": format!("{n}") });
    world.post("kilo", "/v1/messages", envelope).await
}

/// Returns how long `kilo`'s window remains full, in ms.
async fn full(world: &World) -> u64 {
    info(world, 11).await.refused(429, "pair_rate")["retry_after_ms"].as_u64().unwrap()
}

#[tokio::test]
async fn an_hour_ahead_and_back_freezes_no_window_and_no_lease() {
    let machine = Machine::new();
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    let task = world.take("kilo").await;
    fill(&world).await;

    machine.ahead(HOUR);
    machine.run(SECOND);
    assert_eq!(full(&world).await, 59_000 - 100, "the window is as it was");
    assert_eq!(clock(&world).await.1, "catching_up");
    machine.run(SECOND);
    assert_eq!(clock(&world).await.0, (HOUR - 200).cast_signed());
    machine.back(HOUR);
    machine.run(SECOND);
    assert_eq!(clock(&world).await, (0, json!("in_step"), Value::Null));

    machine.run(57 * SECOND);
    info(&world, 11).await.is(201);
    machine.run(500 * SECOND);
    world.finish("kilo", &task, "done").await.is(200);
}

#[tokio::test]
async fn a_lease_ends_and_work_goes_on_after_the_clock_was_an_hour_ahead() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    machine.ahead(HOUR);
    machine.run(SECOND);
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    world.take("kilo").await;
    machine.back(HOUR);
    machine.run(601 * SECOND);
    assert_eq!(world.take("kilo").await["turn"]["attempt"], 2, "the lease was lost after its ten minutes");
}

#[tokio::test]
async fn an_hour_back_is_told_and_runs_at_half_speed() {
    let machine = Machine::new();
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    fill(&world).await;
    machine.back(HOUR);
    machine.run(30 * SECOND);
    assert_eq!(full(&world).await, 45_000);
    let (difference, state, note) = clock(&world).await;
    assert_eq!((difference, state), (15_000 - HOUR.cast_signed(), json!("half_speed")));
    assert!(note.as_str().unwrap().starts_with("system clock 1 h behind; "), "{note}");
    let accepted = world.post("operator", "/v1/clock/accept", json!({})).await.is(200);
    assert_eq!(accepted["state"], "half_speed", "time never goes back");
    machine.run(91 * SECOND);
    info(&world, 11).await.is(201);
}

#[tokio::test]
async fn twenty_years_ahead_are_not_followed_until_a_human_accepts_them() {
    let machine = Machine::new();
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    fill(&world).await;
    machine.ahead(20 * YEAR);
    machine.run(10 * SECOND);
    assert_eq!(full(&world).await, 50_000);
    let (_, state, note) = clock(&world).await;
    assert_eq!(state, "waiting");
    assert!(note.as_str().unwrap().contains("7300 d ahead"), "{note}");
    let metrics = world.http.get(world.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("\nlastword_clock_difference_seconds 630720000\n"), "{metrics}");

    world.post("kilo", "/v1/clock/accept", json!({})).await.refused(403, "forbidden");
    assert_eq!(clock(&world).await.1, "waiting");
    for _ in 0..2 {
        let accepted = world.post("operator", "/v1/clock/accept", json!({})).await.is(200);
        assert_eq!((&accepted["difference_ms"], &accepted["state"]), (&json!(0), &json!("in_step")));
    }
    assert_eq!(full(&world).await, 50_000, "the window stood still");
    machine.run(50 * SECOND);
    info(&world, 11).await.is(201);
}

#[tokio::test]
async fn twenty_years_between_two_starts_are_not_followed() {
    let machine = Machine::new();
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    fill(&world).await;
    machine.ahead(20 * YEAR);
    let world = machine.restart(world, Limits::default()).await;
    machine.run(10 * SECOND);
    assert_eq!(full(&world).await, 50_000);
    assert_eq!(clock(&world).await.1, "waiting");
    machine.back(20 * YEAR);
    machine.run(SECOND);
    assert_eq!(clock(&world).await, (0, json!("in_step"), Value::Null));
}

#[tokio::test]
async fn a_log_of_a_time_when_the_clock_was_twenty_years_ahead_goes_on() {
    let machine = Machine::new();
    machine.ahead(20 * YEAR);
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    machine.back(20 * YEAR);
    let world = machine.restart(world, Limits::default()).await;
    assert_eq!(clock(&world).await.1, "half_speed");
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    world.take("kilo").await;
    fill(&world).await;
    machine.run(20 * SECOND);
    assert_eq!(full(&world).await, 50_000);
    machine.run(2 * 600 * SECOND);
    info(&world, 11).await.is(201);
    assert_eq!(world.take("kilo").await["turn"]["attempt"], 2, "the lease was lost");
}

/// Whether off or asleep: a lease keeps its remaining time, and a grant is three days older.
#[tokio::test]
async fn three_days_off_or_asleep_leave_leases_and_windows_as_they_were() {
    for off in [true, false] {
        let machine = Machine::new();
        let limits = Limits { grant_age_ms: 4 * DAY, ..Limits::default() };
        let mut world = machine.world(&["kilo", "hive"], limits.clone()).await;
        world.send("operator", "kilo", "T-1", "x").await.is(201);
        world.take("kilo").await;
        fill(&world).await;
        machine.sleep(3 * DAY);
        if off {
            world = machine.restart(world, limits).await;
        }
        assert_eq!(clock(&world).await, (0, json!("in_step"), Value::Null));
        assert!((59_999..=60_000).contains(&full(&world).await), "the window is as it was");
        let again = world.take("kilo").await;
        assert_eq!(again["turn"]["attempt"], 1, "the lease runs");
        machine.run(601 * SECOND);
        info(&world, 11).await.is(201);
        let second = world.take("kilo").await;
        assert_eq!(second["turn"]["attempt"], 2, "and is lost after its ten minutes");
        machine.sleep(DAY);
        let incidents = world.get("operator", "/v1/incidents").await.is(200);
        assert_eq!(incidents["items"][0]["code"], "grant_expired", "the grant is four days old: {incidents}");
        let page = Browser::signed_in(&world).await.get("/inbox").await.is(200);
        page.has("gets 96 more hours. The held request continues.").has("name=\"hours\" min=\"0\"");
        world.finish("kilo", &second, "done").await.is(200);
        let request = format!("/v1/requests/{}", second["message"]["request_id"].as_str().unwrap());
        let ended = world.get("operator", &request);
        assert_eq!(ended.await.is(200)["status"], "completed", "a turn that lives finishes");
    }
}

#[tokio::test]
async fn the_console_tells_of_a_difference_and_accepts_it() {
    const NOTICE: &str = "The clocks differ: system clock 2 h ahead";
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let browser = Browser::signed_in(&world).await;
    assert!(!browser.get("/").await.is(200).text.contains("Accept the system clock"));
    machine.ahead(2 * HOUR);
    machine.run(SECOND);
    browser.get("/agents").await.is(200).has(NOTICE);
    browser.get("/clock").await.is(200).has(NOTICE).has("Accept the system clock");
    browser.post("/clock/accept", &[]).await.is(200).has("matches the system clock");
    assert!(!browser.get("/clock").await.is(200).text.contains(NOTICE));
    let events = world.get("operator", "/v1/events?until=1000&after=0").await.is(200);
    assert!(events.as_str().unwrap().contains(r#""by":"operator""#), "{events}");
}
