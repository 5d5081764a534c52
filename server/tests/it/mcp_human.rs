//! A human's token over MCP: refused, unless the client asks for a human's tools by name.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{Answer, World, id};

/// The header by which a person gives a model their own token.
const AS_HUMAN: &str = "lastword-as-human";

fn call(name: &str, arguments: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": arguments } })
}

async fn post(world: &World, headers: &[(&str, &str)], body: Value) -> Answer {
    let mut request =
        world.request("operator", Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request.json(&body).send().await.unwrap()).await
}

async fn as_human(world: &World, name: &str, arguments: Value) -> Value {
    post(world, &[(AS_HUMAN, "yes")], call(name, &arguments)).await.is(200)
}

#[tokio::test]
async fn a_model_with_a_humans_token_is_refused_and_told_what_to_do() {
    let world = World::with(&["kilo"]).await;
    let send = call("send_agent_message", &json!({"target_agent_id": "kilo", "message": "x", "ref": "A"}));
    for body in [send, json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})] {
        let refused = post(&world, &[], body).await.refused(403, "forbidden");
        assert!(id(&refused, "hint").contains("lastword agent add"), "{refused}");
        assert!(id(&refused, "hint").contains("Lastword-As-Human"), "{refused}");
    }
    let inbox = world.get("kilo", "/v1/inbox").await;
    assert_eq!(inbox.status, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_human_by_name_looks_and_decides_and_sends_nothing() {
    let world = World::with(&["kilo"]).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    let tools = post(&world, &[(AS_HUMAN, "yes")], list).await.is(200);
    let names: Vec<_> = tools["result"]["tools"].as_array().unwrap().iter().map(|tool| id(tool, "name")).collect();
    let told = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/mcp.md")).unwrap();
    for name in &names {
        assert!(told.contains(&format!("| `{name}` |")), "docs/mcp.md has no {name}");
    }
    for acting in ["send_agent_message", "escalate_to_user", "next_message", "finish_turn", "approve_tool_use"] {
        assert!(!names.contains(&acting), "{names:?}");
        let refused = as_human(&world, acting, json!({"target_agent_id": "kilo", "message": "x", "ref": "A"})).await;
        assert!(refused["error"].is_object(), "{refused}");
    }
    let held = json!({"tool": "rm", "arguments": {"path": "/"}});
    let held = world.post("kilo", "/v1/approvals", held).await.is(201);
    let waiting = as_human(&world, "check_request", json!({})).await;
    assert_eq!(waiting["result"]["structuredContent"]["items"][0]["id"], held["id"], "{waiting}");
    let reject = json!({"approval_id": held["id"], "decision": "reject"});
    let decided = as_human(&world, "resolve_agent_approval", reject).await;
    assert_eq!(decided["result"]["structuredContent"]["by"], "operator", "{decided}");
    let asked = world.post("kilo", "/v1/escalations", json!({"message": "which one?", "ref": "B"})).await.is(201);
    let open = as_human(&world, "list_escalations", json!({})).await;
    assert_eq!(open["result"]["structuredContent"]["items"][0]["id"], asked["id"], "{open}");
    let answer = json!({"escalation_id": asked["id"], "answer": "the first"});
    let answered = as_human(&world, "answer_escalation", answer).await;
    assert_eq!(answered["result"]["structuredContent"]["answer"], "the first", "{answered}");
}
