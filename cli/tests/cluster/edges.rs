//! Every edge is served through any node, and no call reaches another workspace.

use std::time::Duration;

use lastword_client::wire::session::{SessionCall, Watch, WatchDeliveries, WatchEvents};
use lastword_client::{Endpoint, Pushed, Session, Token, plain_http};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::nats_server::{runtime, until};
use crate::world::World;

const REVISION: &str = "2025-06-18";

/// A call of MCP.
fn mcp(url: &str, token: &str, session: Option<&str>, body: &Value) -> RequestBuilder {
    let request = plain_http().unwrap().post(format!("{url}/mcp")).bearer_auth(token).json(body);
    let request = request.header("accept", "application/json, text/event-stream");
    match session {
        Some(id) => request.header("mcp-session-id", id).header("mcp-protocol-version", REVISION),
        None => request,
    }
}

/// Reads a stream until it has this text.
async fn read_until(stream: &mut Response, wanted: &str) -> String {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await;
        let chunk = chunk.unwrap_or_else(|_| panic!("{wanted} never came: {text}")).unwrap();
        text.push_str(&String::from_utf8_lossy(&chunk.expect("the stream goes on")));
    }
    text
}

/// Returns the open turn of an agent.
async fn taken_turn(url: &str, token: &str) -> String {
    let me = plain_http().unwrap().get(format!("{url}/v1/agents/me")).bearer_auth(token).send().await.unwrap();
    let me: Value = me.json().await.unwrap();
    me["turns"][0].as_str().unwrap().to_owned()
}

#[test]
fn events_sessions_of_mcp_and_of_the_wire_and_pages_are_served_through_any_node() {
    let Some(world) = World::start("edges of a cluster") else { return };
    let human = world.operator();
    let leader = world.led("main");
    let [one, other] = [1, 2].map(|n| world.nodes[(leader + n) % 3].url.clone());
    runtime().block_on(async {
        let client = plain_http().unwrap();
        let agent = client.post(format!("{one}/v1/agents")).bearer_auth(&human).json(&json!({ "name": "kilo" }));
        let made: Value = agent.send().await.unwrap().json().await.unwrap();
        let kilo = made["token"].as_str().unwrap();
        // Events, followed on one node, of what is sent to another.
        let events = client.get(format!("{one}/v1/events")).bearer_auth(&human);
        let mut events = events.send().await.unwrap();
        assert_eq!(events.headers()[CONTENT_TYPE], "text/event-stream");
        let request = json!({ "to": "kilo", "type": "request", "ref": "T-1", "body": "look" });
        let sent = client.post(format!("{other}/v1/messages")).bearer_auth(&human).json(&request).send().await.unwrap();
        assert_eq!(sent.status(), 201);
        read_until(&mut events, "T-1").await;
        // A session of MCP that begins on one node and goes on through another.
        let params =
            json!({ "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
        let begun = mcp(&one, kilo, None, &begin).send().await.unwrap();
        assert_eq!(begun.status(), 200);
        let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert!(mcp(&other, kilo, Some(&session), &ready).send().await.unwrap().status().is_success());
        let take = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call",
                           "params": { "name": "next_message", "arguments": { "wait_ms": 5000 } } });
        let mut taken = mcp(&other, kilo, Some(&session), &take).send().await.unwrap();
        assert_eq!(taken.status(), 200);
        read_until(&mut taken, "look").await;
        // A session through a node that doesn't lead: its calls, and what is pushed there; another workspace's token opens none.
        let token = Token::new(kilo).unwrap();
        let (session, mut pushes) = Session::open(&Endpoint::new(&one), &token).await.unwrap();
        let working = vec![taken_turn(&other, kilo).await];
        let deliveries = Some(WatchDeliveries { window: None, working });
        session.watch(&Watch { deliveries, events: Some(WatchEvents::default()) }).await.unwrap();
        let me = SessionCall { call: "agent".into(), path: Some("me".into()), ..SessionCall::default() };
        assert!(session.call(me).await.unwrap().json.contains("kilo"));
        let info = json!({ "to": "kilo", "type": "info", "ref": "T-1", "body": "by the way" });
        let sent = client.post(format!("{other}/v1/messages")).bearer_auth(&human).json(&info).send().await.unwrap();
        assert_eq!(sent.status(), 201);
        let told = async {
            while let Some(pushed) = pushes.next().await {
                if let Pushed::Event(pushed) = pushed
                    && pushed.event.message.is_some_and(|message| message.body == "by the way")
                {
                    return;
                }
            }
            panic!("the session ended");
        };
        tokio::time::timeout(Duration::from_secs(20), told).await.expect("the event is pushed");
        let elsewhere = Endpoint::new(&format!("{one}/w/nowhere"));
        assert!(Session::open(&elsewhere, &token).await.is_err());
        // The console, by the name of its workspace's host.
        let port = other.rsplit(':').next().unwrap();
        let page = client.get(format!("{other}/sign-in")).header("Host", format!("main.localhost:{port}"));
        let page = page.send().await.unwrap();
        assert_eq!(page.status(), 200);
        assert!(page.text().await.unwrap().contains("Lastword"));
    });
}

/// A call of A2A at an agent.
async fn a2a(url: &str, token: &str, method: &str, params: &Value) -> Response {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = plain_http().unwrap().post(format!("{url}/a2a/kilo/")).bearer_auth(token).json(&body);
    request.header("a2a-version", "1.0").send().await.unwrap()
}

#[test]
fn a_task_of_a2a_is_the_same_through_any_node_and_under_the_next_leader() {
    let Some(mut world) = World::start_with("A2A of a cluster", "[a2a]\npublish = [\"kilo\"]\n", &[]) else { return };
    let human = world.operator();
    let leader = world.led("main");
    let [one, other] = [1, 2].map(|n| world.nodes[(leader + n) % 3].url.clone());
    let agents = ["kilo", "caller"].map(|name| {
        let made = plain_http().unwrap().post(format!("{one}/v1/agents")).bearer_auth(&human);
        let made = made.json(&json!({ "name": name }));
        let made: Value = runtime().block_on(async { made.send().await.unwrap().json().await.unwrap() });
        made["token"].as_str().unwrap().to_owned()
    });
    let [kilo, caller] = &agents;
    let id = runtime().block_on(async {
        let card = plain_http().unwrap().get(format!("{one}/a2a/kilo/.well-known/agent-card.json"));
        let card: Value = card.send().await.unwrap().json().await.unwrap();
        assert_eq!(card["supportedInterfaces"][0]["url"], format!("{one}/a2a/kilo/"), "the node that was asked");
        let message = json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "look" }] });
        let now = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let sent: Value = a2a(&one, caller, "SendMessage", &now).await.json().await.unwrap();
        let id = sent["result"]["task"]["id"].clone();
        assert!(id.is_string(), "{sent}");
        // Followed through one node, taken through another.
        let mut events = a2a(&other, caller, "SubscribeToTask", &json!({ "id": id })).await;
        assert_eq!(events.headers()[CONTENT_TYPE], "text/event-stream");
        read_until(&mut events, "TASK_STATE_SUBMITTED").await;
        let taken = plain_http().unwrap().get(format!("{one}/v1/inbox?wait=20s&turns=true")).bearer_auth(kilo);
        assert_eq!(taken.send().await.unwrap().status(), 200);
        read_until(&mut events, "TASK_STATE_WORKING").await;
        id
    });
    // The next leader knows whose task it is, and that a message was taken.
    world.nodes[leader].kill();
    until("the task is there", || {
        let found = runtime().block_on(async {
            a2a(&one, caller, "GetTask", &json!({ "id": id })).await.json::<Value>().await.unwrap_or_default()
        });
        found["result"]["status"]["state"] == "TASK_STATE_WORKING"
    });
    runtime().block_on(async {
        let message = json!({ "messageId": "m-1", "role": "ROLE_USER", "parts": [{ "text": "look" }] });
        let again = json!({ "message": message, "configuration": { "returnImmediately": true } });
        let again: Value = a2a(&other, caller, "SendMessage", &again).await.json().await.unwrap();
        assert_eq!(again["result"]["task"]["id"], id);
        let turn = taken_turn(&other, kilo).await;
        let done = plain_http().unwrap().post(format!("{other}/v1/turns/{turn}/finish")).bearer_auth(kilo);
        assert!(done.json(&json!({ "answer": "Looked." })).send().await.unwrap().status().is_success());
        let found: Value = a2a(&one, caller, "GetTask", &json!({ "id": id })).await.json().await.unwrap();
        assert_eq!(found["result"]["artifacts"][0]["parts"][0]["text"], "Looked.", "{found}");
    });
}

#[test]
fn no_call_reaches_another_workspace() {
    // The calls are failed authentications, all of one address.
    let config = "auth_failures_max = 1000\n";
    let Some(world) = World::start_with("calls of another workspace", config, &[]) else { return };
    world.run(&["cluster", "add", "team-b"]).ok();
    let (main, _) = (world.operator(), world.token("team-b"));
    let openapi: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    let mut calls = 0;
    runtime().block_on(async {
        let client = plain_http().unwrap();
        for (path, methods) in openapi["paths"].as_object().unwrap() {
            for (method, call) in methods.as_object().unwrap() {
                // What needs no token says nothing of the workspace.
                if call["security"].as_array().is_some_and(Vec::is_empty) {
                    continue;
                }
                let filled = path.split('/').map(|part| if part.starts_with('{') { "T-1" } else { part });
                let filled = filled.collect::<Vec<_>>().join("/");
                let node = &world.nodes[calls % 3].url;
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
                let request = client.request(method.clone(), format!("{node}/w/team-b{filled}")).bearer_auth(&main);
                let answered = request.json(&json!({})).send().await.unwrap();
                assert_eq!(answered.status(), 401, "{method} {path}");
                calls += 1;
            }
        }
    });
    assert!(calls > 50, "{calls} calls");
}
