//! Receipts: a send that doesn't return the sender's own text.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::session::{Raw, request};
use crate::world::World;

#[tokio::test]
async fn a_sender_gets_a_receipt_if_it_asks_for_no_more() {
    let world = World::with(&["alice", "bob"]).await;
    let mut human = Raw::of(&world, "operator").await;
    let members = |sent: &Value| sent.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let receipt = BTreeSet::from(["id", "seq", "request_id", "delivery_state"].map(str::to_owned));
    let send = |envelope: Value, query: Value| json!({ "call": "send", "body": envelope, "query": query });
    let over_http = world.post("operator", "/v1/messages?return=minimal", request("alice", "T-1")).await.is(201);
    assert_eq!(members(&over_http), receipt);
    let again = human.ok(send(request("alice", "T-2"), json!({ "return": "minimal" }))).await;
    assert_eq!(members(&again), receipt);
    let stored = human.ok(json!({ "call": "message", "path": again["id"] })).await;
    for member in &receipt {
        assert_eq!(again[member], stored[member], "{member}");
    }
    let whole = human.ok(send(request("alice", "T-3"), json!({ "return": "representation" }))).await;
    assert_eq!(whole["body"], "please");

    // Of several, each has its receipt.
    let to = json!({ "type": "request", "to": ["alice", "bob"], "ref": "T-4", "body": "please" });
    let both = human.ok(send(to, json!({ "return": "minimal" }))).await;
    assert!(both["items"].as_array().unwrap().iter().all(|item| members(item) == receipt), "{both}");
    let list = json!([request("alice", "T-5"), request("bob", "T-6")]);
    let list = world.post("operator", "/v1/messages?return=minimal", list).await.is(200);
    assert!(list["items"].as_array().unwrap().iter().all(|item| members(&item["body"]) == receipt), "{list}");

    // The answer is whole.
    let mut bob = Raw::of(&world, "bob").await;
    bob.watch(8).await;
    let asked = human.start(send(request("bob", "T-7"), json!({ "return": "minimal", "wait": "60s" }))).await;
    loop {
        let pushed = bob.delivery().await;
        bob.finish(&pushed, "done").await;
        if pushed["delivery"]["message"]["ref"] == "T-7" {
            break;
        }
    }
    let answered = human.reply(asked).await;
    assert_eq!((&answered["body"]["response"]["body"], &answered["body"]["body"]), (&json!("done"), &Value::Null));

    // Another value, or another call, has none.
    let over_http = world.post("operator", "/v1/messages?return=none", request("alice", "T-8")).await;
    assert!(over_http.refused(400, "malformed")["detail"].as_str().unwrap().contains("minimal"));
    let refused = human.call(send(request("alice", "T-8"), json!({ "return": "none" }))).await;
    assert!(refused["problem"]["detail"].as_str().unwrap().contains("minimal"), "{refused}");
    let refused = bob.call(json!({ "call": "next", "query": { "return": "minimal" } })).await;
    assert!(refused["problem"]["detail"].as_str().unwrap().contains("known: wait"), "{refused}");
    world.server.shutdown().await;
}
