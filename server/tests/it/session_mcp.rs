//! MCP in a session: the tools of `/mcp` by the call `mcp`.

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::session::{LATE, Raw, request};
use crate::world::World;

const VERSION: &str = "2026-07-28";

fn carried(id: &Value, method: &str, params: &Value) -> Value {
    json!({ "call": "mcp", "body": { "jsonrpc": "2.0", "id": id, "method": method, "params": params } })
}

fn tool(id: u64, name: &str, arguments: &Value) -> Value {
    carried(&id.into(), "tools/call", &json!({ "name": name, "arguments": arguments }))
}

fn listen(id: &Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "_meta": meta, "notifications": { "resourceSubscriptions": ["lastword://inbox"] } });
    carried(id, "subscriptions/listen", &params)
}

fn cancel(id: &Value) -> Value {
    let body = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } });
    json!({ "call": "mcp", "body": body })
}

/// Waits until an agent counts as connected, or no more.
async fn connected(world: &World, who: &str, wanted: bool) {
    let path = format!("/v1/agents/{who}");
    let waited = async {
        while world.get("operator", &path).await.is(200)["connected"] != wanted {
            tokio::task::yield_now().await;
        }
    };
    timeout(LATE, waited).await.unwrap_or_else(|_| panic!("{who}: connected is not {wanted}"));
}

#[tokio::test]
async fn a_session_has_the_tools_of_mcp_with_the_same_results_and_refusals() {
    let world = World::with(&["alice"]).await;
    let (mut alice, mut human) = (Raw::of(&world, "alice").await, Raw::of(&world, "operator").await);
    let named = |answer: &Value| answer["result"]["tools"].as_array().unwrap().len();
    let list = |query: Value| {
        let mut call = carried(&json!("a"), "tools/list", &json!({}));
        call["query"] = query;
        call
    };
    assert_eq!(named(&alice.ok(list(json!({}))).await), 6);
    assert_eq!(named(&alice.ok(list(json!({ "tools": "all" }))).await), 15);
    world.send("operator", "alice", "T-1", "hello").await.is(201);
    let taken = alice.ok(tool(1, "next_message", &json!({}))).await;
    assert_eq!((&taken["id"], &taken["result"]["structuredContent"]["message"]["body"]), (&json!(1), &json!("hello")));
    let refused = alice.ok(tool(2, "finish_turn", &json!({ "answer": "x", "turn": "turn-9.00" }))).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    let mut bare = carried(&json!("b"), "tools/list", &json!({}));
    bare["body"]["params"] = Value::Null;
    assert_eq!(named(&alice.ok(bare).await), 6);
    let unknown = alice.ok(carried(&json!(3), "none/such", &json!({}))).await;
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // A human's token serves a model only by name.
    assert_eq!(human.call(list(json!({}))).await["problem"]["code"], "forbidden");
    assert_eq!(named(&human.ok(list(json!({ "as_human": "yes" }))).await), 6);
    for wrong in [
        list(json!({ "tool": "all" })),
        json!({ "call": "mcp" }),
        json!({ "call": "mcp", "body": "x" }),
        carried(&json!(4), "initialize", &json!({})),
        tool_of_meta(&json!("a\nb")),
    ] {
        assert_eq!(alice.call(wrong.clone()).await["problem"]["code"], "malformed", "{wrong}");
    }
    assert_eq!(alice.ok(json!({ "call": "agents" })).await["items"].as_array().unwrap().len(), 2);
}

/// A call whose revision is no header.
fn tool_of_meta(version: &Value) -> Value {
    let params = json!({ "name": "list_agents", "_meta": { "io.modelcontextprotocol/protocolVersion": version } });
    carried(&json!(5), "tools/call", &params)
}

#[tokio::test]
async fn what_mcp_says_before_the_answer_is_pushed_until_the_call_is_cancelled() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    let call = alice.start(listen(&json!("watch"))).await;
    let accepted = alice.which(|frame| frame["mcp"] == call).await;
    assert!(accepted["message"]["method"].is_string(), "{accepted}");
    connected(&world, "alice", true).await;
    world.send("operator", "alice", "T-1", "hello").await.is(201);
    let told = alice.which(|frame| frame["mcp"] == call).await;
    assert_eq!(told["message"]["method"], "notifications/resources/updated", "{told}");
    // Another one's cancellation changes nothing.
    let mut other = Raw::of(&world, "alice").await;
    assert_eq!(other.call(cancel(&json!("watch"))).await["status"], 204);
    assert_eq!(alice.call(cancel(&json!("other"))).await["status"], 204);
    connected(&world, "alice", true).await;
    assert_eq!(alice.call(cancel(&json!("watch"))).await["status"], 204);
    assert_eq!(alice.reply(call).await["status"], 204);
    connected(&world, "alice", false).await;
}

#[tokio::test]
async fn a_wait_that_is_cancelled_takes_nothing() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    let call = alice.start(tool(7, "next_message", &json!({ "wait_ms": 300_000 }))).await;
    connected(&world, "alice", true).await;
    assert_eq!(alice.call(cancel(&json!(7))).await["status"], 204);
    assert_eq!(alice.reply(call).await["status"], 204);
    connected(&world, "alice", false).await;
    let sent = world.send("operator", "alice", "T-1", "hello").await.is(201);
    let path = format!("/v1/requests/{}", sent["request_id"].as_str().unwrap());
    assert_eq!(world.get("operator", &path).await.is(200)["queue_position"], 0);
    let mut human = Raw::of(&world, "operator").await;
    human.ok(json!({ "call": "send", "body": request("alice", "T-2") })).await;
}

#[tokio::test]
async fn subscriptions_hold_no_places_of_the_brokers_queue() {
    let world = World::with(&["alice"]).await;
    let mut sessions = Vec::new();
    // More than the places that one agent has.
    for _ in 0..3 {
        let mut alice = Raw::of(&world, "alice").await;
        for n in 0..200 {
            let call = alice.start(listen(&json!(n))).await;
            alice.which(|frame| frame["mcp"] == call).await;
        }
        sessions.push(alice);
    }
    for alice in &mut sessions {
        assert_eq!(alice.ok(json!({ "call": "agents" })).await["items"].as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn a_shutdown_ends_subscriptions_and_says_why_the_session_ends() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    let watching = alice.start(listen(&json!("watch"))).await;
    alice.which(|frame| frame["mcp"] == watching).await;
    let waiting = alice.start(tool(7, "next_message", &json!({ "wait_ms": 300_000 }))).await;
    connected(&world, "alice", true).await;
    let mut stopping = JoinSet::new();
    stopping.spawn(world.server.shutdown());
    for call in [watching, waiting] {
        alice.reply(call).await;
    }
    assert!(alice.ended().await.contains("connect again"), "a session that holds up the shutdown is cut");
    drop(alice);
    stopping.join_all().await;
}
