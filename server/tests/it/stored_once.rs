//! How much of the log one text takes.

use std::fs;

use serde_json::{Value, json};

use crate::world::{World, id};

/// What a record takes besides its texts: ids, times, and the batch around it.
const BESIDE: u64 = 1_500;

/// The bytes that the log grew by since the last look.
struct Growth<'a>(&'a World, u64);

impl Growth<'_> {
    async fn since(&mut self, what: &str) -> u64 {
        let archives = self.0.get("operator", "/v1/archives").await.is(200);
        let bytes = archives["bytes"].as_u64().unwrap();
        let grown = bytes - std::mem::replace(&mut self.1, bytes);
        eprintln!("{what}: {grown} bytes");
        grown
    }

    #[track_caller]
    fn assert_once(grown: u64, text: &str) {
        let text = text.len() as u64;
        assert!((text..text + BESIDE).contains(&grown), "{grown} bytes for a text of {text}");
    }
}

/// Returns a text of this length without a repetition that could be left out.
fn text(bytes: usize) -> String {
    let words: String =
        (0..).map(|n: u64| format!("w{:x} ", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).take(bytes / 8).collect();
    words[..bytes].to_owned()
}

#[tokio::test]
async fn a_body_is_in_the_log_once_and_not_in_the_read_model() {
    let world = World::with(&["kilo"]).await;
    let body = text(100_000);
    let mut log = Growth(&world, 0);
    log.since("a new log").await;
    world.send("operator", "kilo", "T-1", &body).await.is(201);
    Growth::assert_once(log.since("100 kB sent").await, &body);
    let delivery = world.take("kilo").await;
    assert_eq!(delivery["message"]["body"], body);
    assert!(log.since("taken").await < BESIDE);
    world.finish("kilo", &delivery, "done").await.is(200);
    world.take("operator").await;
    assert!(log.since("answered, and the answer read").await < 2 * BESIDE);

    // The words are in the index; a row of them as it was written is not.
    let word = body.split(' ').nth(1_000).unwrap();
    while world.get("operator", &format!("/v1/messages?q={word}")).await.is(200)["items"] == json!([]) {
        tokio::task::yield_now().await;
    }
    for file in fs::read_dir(world.dir.path()).unwrap().map(|file| file.unwrap().path()) {
        if file.file_name().unwrap().to_str().unwrap().starts_with("index.db") {
            let bytes = fs::read(&file).unwrap();
            let found = bytes.windows(200).any(|window| window == &body.as_bytes()[50_000..50_200]);
            assert!(!found, "{} has the text", file.display());
        }
    }
    // Not shared with the first one: each segment of the log is verified by itself.
    world.send("operator", "kilo", "T-2", &body).await.is(201);
    Growth::assert_once(log.since("the same 100 kB sent again").await, &body);
}

#[tokio::test]
async fn the_arguments_of_a_held_call_are_in_the_log_once() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "clean up").await.is(201);
    world.take("kilo").await;
    let mut log = Growth(&world, 0);
    log.since("a new log").await;
    let script = text(200_000);
    let hold = async || {
        world.post("kilo", "/v1/approvals", json!({ "tool": "rm", "arguments": { "script": script } })).await.is(201)
    };
    let held: Value = hold().await;
    Growth::assert_once(log.since("200 kB held").await, &script);
    let path = format!("/v1/approvals/{}", id(&held, "id"));
    let decision = json!({ "decision": "approve", "digest": held["digest"] });
    world.post("operator", &format!("{path}/decision"), decision).await.is(200);
    assert!(log.since("approved").await < BESIDE);
    world
        .post("kilo", &format!("{path}/use"), json!({ "tool": "rm", "arguments": { "script": script } }))
        .await
        .is(200);
    assert!(log.since("used").await < BESIDE);
    hold().await;
    Growth::assert_once(log.since("the same 200 kB held again").await, &script);
}
