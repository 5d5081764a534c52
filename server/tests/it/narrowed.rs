//! Narrowed tokens: which calls they make, and when they end.

use std::path::Path;

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::world::{Answer, World};

const SCOPES: [&str; 7] = ["read", "send", "work", "ask", "decide", "control", "manage"];
const MINUTE: u64 = 60_000;

/// Makes a narrowed token with another one.
async fn narrow(world: &World, token: &str, scopes: &[&str], expires_in_ms: u64) -> Answer {
    let body = json!({ "scopes": scopes, "expires_in_ms": expires_in_ms });
    let request = world.http.post(world.url("/v1/token")).bearer_auth(token).json(&body);
    Answer::of(request.send().await.unwrap()).await
}

async fn narrowed(world: &World, who: &str, scopes: &[&str]) -> String {
    let made = narrow(world, world.token(who), scopes, 10 * MINUTE).await.is(201);
    assert_eq!((&made["name"], &made["scopes"]), (&json!(who), &json!(scopes)));
    made["token"].as_str().unwrap().to_owned()
}

async fn ask(world: &World, token: &str) -> Answer {
    Answer::of(world.http.get(world.url("/v1/agents/me")).bearer_auth(token).send().await.unwrap()).await
}

async fn rpc(world: &World, token: &str, method: &str, params: Value) -> Value {
    let request = world.http.post(world.url("/mcp")).header("accept", "application/json, text/event-stream");
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    Answer::of(request.bearer_auth(token).json(&body).send().await.unwrap()).await.is(200)
}

/// Every call of the OpenAPI document: its method, its path, and the scope that it needs, if any.
fn calls() -> Vec<(Method, String, Option<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut calls = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            let scope = call["security"][0]["token"][0].as_str().map(str::to_owned);
            calls.push((Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), path.clone(), scope));
        }
    }
    calls
}

#[tokio::test]
async fn a_narrowed_token_makes_exactly_the_calls_of_its_scopes() {
    let calls = calls();
    assert!(calls.len() > 60, "{}", calls.len());
    for who in ["operator", "kilo"] {
        for scope in SCOPES {
            let world = World::with(&["kilo"]).await;
            for (n, (method, path, needed)) in (1_u64..).zip(&calls) {
                // One of the calls ends its own token.
                let made = narrow(&world, world.token(who), &[scope], n * MINUTE).await.is(201);
                let token = made["token"].as_str().unwrap();
                let path = path.replace("{name}", "nobody").replace(['{', '}'], "");
                let mut request = world.http.request(method.clone(), world.url(&path)).bearer_auth(token);
                if method == Method::POST || method == Method::PATCH {
                    request = request.json(&json!({}));
                }
                let response = request.send().await.unwrap();
                let stopped = response.status() == 403 && response.text().await.unwrap().contains("was narrowed to");
                let allowed = needed.as_deref().is_none_or(|needed| needed == scope);
                assert_eq!(stopped, !allowed, "{who} {scope}: {method} {path} needs {needed:?}");
            }
        }
    }
}

#[tokio::test]
async fn each_scope_is_needed_somewhere_and_a_path_in_disguise_gets_no_further() {
    let calls = calls();
    for scope in SCOPES {
        assert!(calls.iter().any(|call| call.2.as_deref() == Some(scope)), "{scope}");
    }
    let world = World::with(&["kilo"]).await;
    let token = narrowed(&world, "operator", &["control"]).await;
    for path in ["/v1/agents/kilo/%74oken", "/v1/agents/kilo/token/", "/v1//agents/kilo/token", "/V1/agents/kilo/token"]
    {
        let request = world.http.post(world.url(path)).bearer_auth(&token).json(&json!({}));
        let status = request.send().await.unwrap().status().as_u16();
        assert!(matches!(status, 403 | 404), "{path}: {status}");
    }
    world.get("kilo", "/v1/agents/me").await.is(200);
}

#[tokio::test]
async fn over_mcp_a_narrowed_token_lists_and_calls_its_own_tools_alone() {
    let world = World::with(&["kilo", "hive"]).await;
    let token = narrowed(&world, "kilo", &["send"]).await;
    let call = async |method: &str, params: Value| rpc(&world, &token, method, params).await;
    let listed = call("tools/list", json!({})).await;
    let tools: Vec<&str> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(tools, ["send_agent_message"]);
    let arguments = json!({ "target_agent_id": "hive", "message": "go", "ref": "T-1" });
    let sent = call("tools/call", json!({ "name": "send_agent_message", "arguments": arguments })).await;
    assert_eq!(sent["result"]["isError"], false, "{sent}");
    for (name, arguments) in [
        ("next_message", json!({ "wait_ms": 0 })),
        ("escalate_to_user", json!({ "message": "why?", "ref": "T-1" })),
        ("list_agents", json!({})),
        ("approve_tool_use", json!({ "tool_name": "Bash", "input": {} })),
    ] {
        let refused = call("tools/call", json!({ "name": name, "arguments": arguments })).await;
        assert!(refused.to_string().contains("was narrowed to send"), "{name}: {refused}");
    }
    let read = call("resources/read", json!({ "uri": "lastword://limits" })).await;
    assert!(read["error"]["message"].as_str().unwrap().contains("was narrowed to send"), "{read}");
}

#[tokio::test]
async fn a_narrowed_token_only_narrows_and_ends_with_what_it_was_made_of() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let token = narrowed(&world, "kilo", &["read", "send"]).await;
    ask(&world, &token).await.is(200);
    let refused = narrow(&world, &token, &["read"], MINUTE).await.refused(403, "forbidden");
    assert!(refused["detail"].as_str().unwrap().contains("makes no other"), "{refused}");
    for (scopes, expires_in_ms) in [(&[][..], 1), (&["read"][..], 0), (&["read"][..], u64::MAX), (&["all"][..], 1)] {
        narrow(&world, world.token("kilo"), scopes, expires_in_ms).await.refused(400, "malformed");
    }
    // Neither more scopes, nor a longer life, nor another owner, nor another spelling.
    let parts: Vec<&str> = token.trim_start_matches("lwn_").split('.').collect();
    let [agent, scopes, until, mac] = parts[..] else { panic!("{token}") };
    for forged in [
        format!("lwn_{agent}.127.{until}.{mac}"),
        format!("lwn_{agent}.{scopes}.{until}0.{mac}"),
        format!("lwn_0.{scopes}.{until}.{mac}"),
        format!("lwn_{agent}.+{scopes}.{until}.{mac}"),
        format!("lwn_{agent}.{scopes}.{until}.{}", mac.to_uppercase()),
        format!("lws_{agent}.{until}.{mac}"),
        format!("{token}.0"),
    ] {
        ask(&world, &forged).await.refused(401, "unauthenticated");
    }
    let world = machine.restart(world, Limits::default()).await;
    ask(&world, &token).await.is(200);
    machine.run(10 * MINUTE + 1);
    let detail = ask(&world, &token).await.refused(401, "unauthenticated")["detail"].clone();
    assert!(detail.as_str().unwrap().contains("lastword token"), "{detail}");
    let token = narrowed(&world, "kilo", &["read"]).await;
    world.post("operator", "/v1/agents/kilo/token", json!({})).await.is(201);
    ask(&world, &token).await.refused(401, "unauthenticated");
}

#[tokio::test]
async fn a_token_that_was_replaced_makes_nothing_that_outlives_it() {
    let world = World::with(&["kilo"]).await;
    let replaced = json!({ "overlap_ms": 10 * MINUTE });
    let new = world.post("operator", "/v1/agents/kilo/token", replaced).await.is(201);
    ask(&world, world.token("kilo")).await.is(200);
    let refused = narrow(&world, world.token("kilo"), &["read"], 99 * MINUTE).await.refused(403, "forbidden");
    assert!(refused["detail"].as_str().unwrap().contains("was replaced"), "{refused}");
    narrow(&world, new["token"].as_str().unwrap(), &["read"], MINUTE).await.is(201);
}

#[tokio::test]
async fn only_sign_ins_are_ended_so_that_nobody_fills_the_list() {
    let world = World::with(&["kilo"]).await;
    let narrow = narrowed(&world, "operator", &["read"]).await;
    for token in [narrow.as_str(), world.token("operator"), world.token("kilo")] {
        let request = world.http.delete(world.url("/v1/token")).bearer_auth(token);
        Answer::of(request.send().await.unwrap()).await.refused(422, "malformed");
    }
    ask(&world, &narrow).await.is(200);
}

#[tokio::test]
async fn the_scope_send_neither_finishes_work_nor_asks_a_human() {
    let mut world = World::with(&["kilo", "hive"]).await;
    world.register(json!({ "name": "ops", "kind": "human", "groups": ["desk"] })).await;
    let token = narrowed(&world, "kilo", &["send"]).await;
    let sent = world.send("operator", "kilo", "T-1", "do it").await.is(201);
    world.take("kilo").await;
    let post = async |body: Value| {
        let request = world.http.post(world.url("/v1/messages")).bearer_auth(&token).json(&body);
        Answer::of(request.send().await.unwrap()).await
    };
    let request = &sent["request_id"];
    for (kind, to) in [("response", "operator"), ("status", "operator"), ("request", "operator"), ("request", "user")] {
        let body = json!({ "type": kind, "to": to, "ref": "T-1", "request_id": request, "body": "x" });
        let refused = post(body).await.refused(403, "forbidden");
        assert!(refused["detail"].as_str().unwrap().contains("was narrowed to send"), "{kind} {to}: {refused}");
    }
    post(json!({ "type": "request", "to": ["hive", "@desk"], "ref": "T-9", "body": "x" }))
        .await
        .refused(403, "forbidden");
    post(json!({ "type": "request", "to": "hive", "ref": "T-9", "body": "x" })).await.is(201);
    post(json!({ "type": "info", "to": "operator", "ref": "T-1", "body": "x" })).await.is(201);
}

#[tokio::test]
async fn an_open_stream_ends_with_the_token_of_its_owner_whatever_the_overlap() {
    let world = World::with(&["kilo", "hive"]).await;
    let token = narrowed(&world, "operator", &["read"]).await;
    let mut stream = world.http.get(world.url("/v1/events")).bearer_auth(&token).send().await.unwrap();
    world.post("operator", "/v1/agents/operator/token", json!({ "overlap_ms": 10 * MINUTE })).await.is(201);
    world.send("kilo", "hive", "T-1", "after the rotation").await.is(201);
    let mut text = String::new();
    while let Some(part) = stream.chunk().await.unwrap() {
        text.push_str(&String::from_utf8_lossy(&part));
    }
    assert!(!text.contains("after the rotation"), "{text}");
}
