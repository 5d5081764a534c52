//! The oldest part of the log moves to its archive, and everything that is left goes on.

use std::fs;
use std::path::Path;

use lastword_facts::{Limits, Time};
use lastword_server::backup::restore;
use lastword_server::{Config, Server};
use lastword_store::DataDir;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::world::World;

const DAY: u64 = 86_400_000;

/// Has `kilo` answer a request of the operator.
async fn exchange(world: &World, reference: &str, body: &str) {
    world.send("operator", "kilo", reference, body).await.is(201);
    let delivery = world.take("kilo").await;
    world.finish("kilo", &delivery, &format!("{body}: done")).await.is(200);
    world.take("operator").await;
}

/// Starts a server, and has requests served on three days, a month apart.
async fn three_months(machine: &Machine) -> World {
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    for (month, body) in [("OLD-1", "the oldest apricot"), ("OLD-2", "a banana"), ("NEW-1", "the newest cherry")] {
        exchange(&world, month, body).await;
        machine.run(30 * DAY);
    }
    exchange(&world, "NEW-2", "today's damson").await;
    world
}

async fn three_months_archived(machine: &Machine) -> World {
    let world = three_months(machine).await;
    move_older_than(&world, 45).await;
    world
}

async fn found(world: &World, word: &str) -> usize {
    world.get("operator", &format!("/v1/messages?q={word}")).await.is(200)["items"].as_array().unwrap().len()
}

async fn move_older_than(world: &World, days: u64) -> Value {
    world.post("operator", "/v1/archives", json!({ "after_ms": days * DAY })).await.is(200)
}

#[tokio::test]
async fn what_is_old_leaves_the_log_and_the_lookups_and_the_rest_goes_on_over_restarts() {
    let machine = Machine::new();
    let world = three_months(&machine).await;
    let before = world.get("operator", "/v1/archives").await.is(200);
    assert_eq!(found(&world, "apricot").await, 2);
    assert_eq!((&before["first"], &before["segments"]), (&json!(1), &json!([])));
    assert!(before["bytes_per_day"].as_u64().unwrap() > 0, "{before}");
    let moved = move_older_than(&world, 45).await;
    assert_eq!(moved["segments"].as_array().unwrap().len(), 1, "{moved}");
    let after = world.get("operator", "/v1/archives").await.is(200);
    let first = after["first"].as_u64().unwrap();
    assert_eq!(moved["segments"][0]["last"].as_u64().unwrap() + 1, first);
    assert!(after["bytes"].as_u64() < before["bytes"].as_u64());
    // An act makes the read model take its next step.
    exchange(&world, "NEW-3", "an elderberry").await;
    let words = ["apricot", "banana", "cherry", "damson"];
    for (word, there) in words.into_iter().zip([false, false, true, true]) {
        // The read model may take one more step to let go.
        while (found(&world, word).await > 0) != there {
            exchange(&world, "NEW-4", "a grape").await;
        }
    }
    let over = world.get("operator", "/v1/events?after=0&until=5").await.refused(410, "archived");
    assert_eq!(over["limit"].as_u64(), Some(first - 1));
    world.get("operator", &format!("/v1/events?after={}&until={first}", first - 1)).await.is(200);
    // The state comes from the snapshot, from the base, or from the archive.
    let state = world.get("operator", "/v1/agents/kilo").await.is(200);
    let mut world = machine.restart(world, Limits::default()).await;
    for gone in [&["snapshot"][..], &["snapshot", "index.db"], &["snapshot", "base"]] {
        let lost = |dir: &Path| gone.iter().for_each(|name| fs::remove_file(dir.join(name)).unwrap());
        world = machine.restart_after(world, Limits::default(), lost).await;
        assert_eq!(world.get("operator", "/v1/agents/kilo").await.is(200)["turns"], state["turns"], "without {gone:?}");
        exchange(&world, "NEW-9", "a fig").await;
        assert!(found(&world, "cherry").await == 2 && found(&world, "apricot").await == 0, "without {gone:?}");
    }
    // That start made a new base: the segments may go elsewhere.
    let carried_off = |dir: &Path| {
        fs::remove_file(dir.join("snapshot")).unwrap();
        fs::rename(dir.join("archive"), dir.join("elsewhere")).unwrap();
    };
    let world = machine.restart_after(world, Limits::default(), carried_off).await;
    exchange(&world, "NEW-10", "a guava").await;
}

#[tokio::test]
async fn without_a_state_and_without_the_archive_the_start_says_what_is_missing() {
    let machine = Machine::new();
    let World { server, dir, .. } = three_months_archived(&machine).await;
    server.shutdown().await;
    let dir = dir.path();
    fs::remove_file(dir.join("snapshot")).unwrap();
    fs::remove_file(dir.join("base")).unwrap();
    fs::rename(dir.join("archive"), dir.join("elsewhere")).unwrap();
    let Err(error) = Server::start(Config::local(dir)).await else { panic!("it started from nothing") };
    let error = error.to_string();
    assert!(error.contains(".segment is not in the folder `archive`"), "{error}");
    fs::rename(dir.join("elsewhere"), dir.join("archive")).unwrap();
    Server::start(Config::local(dir)).await.unwrap().shutdown().await;
}

#[tokio::test]
async fn what_open_work_needs_stays() {
    let machine = Machine::new();
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    exchange(&world, "OLD-1", "done long ago").await;
    machine.run(30 * DAY);
    let question = json!({ "type": "request", "to": "user", "ref": "ASK-1", "body": "which one?" });
    world.send("operator", "kilo", "ASK-1", "choose one").await.is(201);
    let delivery = world.take("kilo").await;
    let token = delivery["turn"]["token"].as_str().unwrap();
    world
        .request("kilo", reqwest::Method::POST, "/v1/messages")
        .header("Lastword-Turn", token)
        .json(&question)
        .send()
        .await
        .unwrap();
    machine.run(3 * DAY);
    let moved = move_older_than(&world, 1).await;
    let held = moved["held_back_at"].as_u64().unwrap();
    assert!(moved["segments"][0]["last"].as_u64().unwrap() < held, "{moved}");
    let open = world.get("operator", "/v1/escalations").await.is(200);
    assert_eq!(open["items"][0]["message"], "which one?", "{open}");
}

#[tokio::test]
async fn the_partial_result_that_a_waiting_answer_goes_on_from_stays() {
    let machine = Machine::new();
    let limits = Limits { retention_ms: 60_000, ..Limits::default() };
    let world = machine.world(&["kilo", "hive"], limits.clone()).await;
    world.send("operator", "kilo", "HALF-1", "both halves").await.is(201);
    let first = world.take("kilo").await;
    let partial = json!({ "status": "partial", "answer": "the first half", "completed": ["a"], "failed": ["b"] });
    let turn = first["turn"]["id"].as_str().unwrap();
    world.post("kilo", &format!("/v1/turns/{turn}/finish"), partial).await.is(200);
    machine.run(DAY / 24);
    let second = world.take("kilo").await;
    world.finish("kilo", &second, "the second half").await.is(200);
    // Its request is forgotten, and the answer still waits for the human.
    machine.run(DAY / 48);
    world.send("operator", "hive", "NEW-1", "goes on").await.is(201);
    world.post("operator", "/v1/archives", json!({ "after_ms": DAY / 32 })).await.is(200);
    // What moved is nowhere in memory.
    let world = machine.restart(world, limits).await;
    let notice = world.take("operator").await;
    let body = notice["message"]["body"].as_str().unwrap();
    assert!(body.contains("the first half") && body.contains("the second half"), "{notice}");
}

#[tokio::test]
async fn a_backup_without_a_usable_base_is_restored_beside_its_segments() {
    let machine = Machine::new();
    let World { server, dir, .. } = three_months_archived(&machine).await;
    server.shutdown().await;
    let dir = dir.path();
    let mut backup = Vec::new();
    // As a later version sees a base that it can't read.
    fs::remove_file(dir.join("base")).unwrap();
    DataDir::at(dir).back_up(&[], &mut backup, &mut |_, _| {}).unwrap();
    let restored = restore(dir, &mut backup.as_slice(), Time(1_800_000_000_000), &mut |_| {}).unwrap();
    assert!(restored.first > restored.backed_up.end.at);
    assert!(dir.join("archive").is_dir() && fs::symlink_metadata(dir.join("archive")).unwrap().is_dir());
    Server::start(Config::local(dir)).await.unwrap().shutdown().await;
    let moved = tempfile::tempdir().unwrap();
    let failed = restore(moved.path(), &mut backup.as_slice(), Time(1_800_000_000_000), &mut |_| {}).unwrap_err();
    assert!(failed.to_string().contains(".segment is not in the folder `archive`"), "{failed}");
}

#[tokio::test]
async fn only_an_owner_moves_anything_and_only_humans_look() {
    let mut world = World::with(&["kilo"]).await;
    world.register_human("olga", "operator").await;
    let wanted = json!({ "after_ms": DAY });
    world.post("kilo", "/v1/archives", wanted.clone()).await.refused(403, "forbidden");
    world.post("olga", "/v1/archives", wanted).await.refused(403, "forbidden");
    world.get("kilo", "/v1/archives").await.refused(403, "forbidden");
    world.get("olga", "/v1/archives").await.is(200);
    let nothing = world.post("operator", "/v1/archives", json!({})).await.refused(422, "malformed");
    assert!(nothing["detail"].as_str().unwrap().contains("after_ms"), "{nothing}");
}

#[tokio::test]
async fn a_log_above_its_size_is_shortened_to_what_is_needed() {
    let machine = Machine::new();
    let world = three_months(&machine).await;
    machine.run(30 * DAY);
    let moved = world.post("operator", "/v1/archives", json!({ "above_bytes": 1 })).await.is(200);
    assert_eq!(moved["segments"].as_array().unwrap().len(), 1, "{moved}");
    assert!(moved["held_back_at"].is_u64(), "the last batch never leaves: {moved}");
    exchange(&world, "NEW-3", "goes on").await;
}
