//! The tools, over streamable HTTP.

use lastword_server::edges::mcp::{Remote, serve_pipe};
use lastword_server::identity::Secret;
use reqwest::Method;
use serde_json::{Value, json};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

use crate::exchange::id;
use crate::world::{Answer, World};

async fn rpc(world: &World, who: &str, method: &str, params: Value) -> Value {
    let request = world.request(who, Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Answer::of(request.json(&body).send().await.unwrap()).await.is(200)["result"].clone()
}

pub(crate) async fn tool(world: &World, who: &str, name: &str, arguments: Value) -> (Value, bool) {
    let result = rpc(world, who, "tools/call", json!({ "name": name, "arguments": arguments })).await;
    (result["structuredContent"].clone(), result["isError"] == true)
}

pub(crate) async fn done(world: &World, who: &str, name: &str, arguments: Value) -> Value {
    let (value, error) = tool(world, who, name, arguments).await;
    assert!(!error, "{value}");
    value
}

#[tokio::test]
async fn a_client_shakes_hands_and_sees_the_tools() {
    let world = World::with(&["kilo"]).await;
    let hello =
        json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let info = rpc(&world, "kilo", "initialize", hello).await;
    assert_eq!(info["serverInfo"]["name"], "lastword");
    let tools = rpc(&world, "kilo", "tools/list", json!({})).await;
    let names: Vec<_> = tools["tools"].as_array().unwrap().iter().map(|tool| id(tool, "name")).collect();
    assert_eq!(names.len(), 15, "{names:?}");
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mcp.md")).unwrap();
    for name in names {
        assert!(told.contains(&format!("| `{name}` |")), "docs/mcp.md has no {name}");
    }
    let request = world.http.post(world.url("/mcp")).json(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
    Answer::of(request.send().await.unwrap()).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn two_models_work_together() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "compare").await.is(201);
    let task = done(&world, "kilo", "next_message", json!({})).await;
    assert_eq!(task["message"]["body"], "compare");
    let asked = json!({"target_agent_id": "hive", "message": "your half", "payload": {"n": 1}});
    let sent = done(&world, "kilo", "send_agent_message", asked).await;
    assert_eq!(sent["ref"], "T-1/1");
    done(&world, "kilo", "finish_turn", json!({"answer": "asked hive"})).await;
    let half = done(&world, "hive", "next_message", json!({})).await;
    assert_eq!(half["message"]["payload"], json!({"n": 1}));
    done(&world, "hive", "report_progress", json!({"note": "reading"})).await;
    done(&world, "hive", "finish_turn", json!({"answer": "same", "status": "completed"})).await;
    let answer = done(&world, "kilo", "next_message", json!({})).await;
    assert_eq!(answer["message"]["body"], "same");
    assert_eq!(answer["notices"][0]["body"], "reading", "{answer}");
    done(&world, "kilo", "finish_turn", json!({"answer": "equal"})).await;
    let none = done(&world, "kilo", "next_message", json!({"wait_ms": 0})).await;
    assert_eq!(none, json!({"message": null}));
    let request = done(&world, "kilo", "check_request", json!({"request_id": sent["request_id"]})).await;
    assert_eq!(request["status"], "completed");
}

#[tokio::test]
async fn a_refusal_is_a_result_that_a_model_can_act_on() {
    let world = World::with(&["kilo"]).await;
    let (refusal, error) =
        tool(&world, "kilo", "send_agent_message", json!({"target_agent_id": "kilo", "message": "x", "ref": "A"}))
            .await;
    assert!(error);
    assert_eq!(refusal["code"], "self_send");
    assert!(!id(&refusal, "hint").is_empty());
    let (refusal, error) = tool(&world, "kilo", "finish_turn", json!({"answr": "x"})).await;
    assert!(error && id(&refusal, "detail").contains("answr"), "{refusal}");
}

#[tokio::test]
async fn approvals_and_claims_are_tools_too() {
    let world = World::with(&["kilo"]).await;
    let held = done(&world, "kilo", "request_approval", json!({"tool_name": "rm", "input": {"path": "/"}})).await;
    let seen = done(&world, "kilo", "check_request", json!({"request_id": held["id"]})).await;
    assert_eq!(seen["state"], "pending");
    let (refusal, error) = tool(
        &world,
        "kilo",
        "resolve_agent_approval",
        json!({"approval_id": held["id"], "decision": "approve", "digest": held["digest"]}),
    )
    .await;
    assert!(error && refusal["code"] == "approver_not_allowed", "{refusal}");
    let lease = done(&world, "kilo", "claim_resource", json!({"resource": "repo:x"})).await;
    done(&world, "kilo", "release_resource", json!({"claim_id": lease["id"]})).await;
    let agents = done(&world, "kilo", "list_agents", json!({})).await;
    assert_eq!(agents["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn the_newest_revision_needs_no_handshake() {
    let world = World::with(&["kilo"]).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = async |method: &str, name: Option<&str>, params: Value| {
        let mut request = world
            .request("kilo", Method::POST, "/mcp")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", method);
        if let Some(name) = name {
            request = request.header("mcp-name", name);
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Answer::of(request.json(&body).send().await.unwrap()).await.is(200)["result"].clone()
    };
    let found = call("server/discover", None, json!({ "_meta": meta })).await;
    assert!(found["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")), "{found}");
    let params = json!({ "name": "list_agents", "arguments": {}, "_meta": meta });
    let agents = call("tools/call", Some("list_agents"), params).await;
    assert_eq!(agents["structuredContent"]["items"][0]["name"], "kilo", "{agents}");
}

#[tokio::test]
async fn a_client_on_a_pipe_reaches_the_running_server() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "hello").await.is(201);
    let remote = Remote::new(&world.url(""), Secret::new(world.token("kilo").to_owned()));
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(theirs);
    let talk = async {
        let (read, mut write) = tokio::io::split(ours);
        let mut lines = BufReader::new(read).lines();
        let mut say = async |message: Value| write.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        let mut hear = async || serde_json::from_str::<Value>(&lines.next_line().await.unwrap().unwrap()).unwrap();
        let hello =
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        say(json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})).await;
        assert_eq!(hear().await["result"]["serverInfo"]["name"], "lastword");
        say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        let call = json!({"name": "next_message", "arguments": {}});
        say(json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})).await;
        assert_eq!(hear().await["result"]["structuredContent"]["message"]["body"], "hello");
        let call = json!({"name": "send_agent_message", "arguments": {"target_agent_id": "nobody", "message": "x"}});
        say(json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})).await;
        let refused = hear().await["result"].clone();
        assert_eq!(
            (&refused["isError"], id(&refused["structuredContent"], "code")),
            (&json!(true), "unknown_recipient")
        );
    };
    tokio::select! {
        ended = serve_pipe(remote, read, write) => panic!("{ended:?}"),
        () = talk => {}
    }
}
