//! Circles over the border: what left from here is recognized when it comes back.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{World, state};

/// Returns what leaves with a request that serves the agent's turn.
async fn leaving(world: &World, who: &str, delivery: &Value) -> Value {
    let turn = delivery["turn"]["token"].as_str().unwrap();
    let request = world.request(who, Method::GET, "/a2a/.lastword/causality").header("lastword-turn", turn);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    response.json().await.unwrap()
}

/// Sends a request that brings something back. Returns the reason of its refusal, if it was refused.
async fn brings(world: &World, extension: Option<(&Value, Value)>, traceparent: Option<&Value>) -> Option<String> {
    let mut message = world.message("Again.");
    if let Some((uri, value)) = extension {
        message["metadata"] = json!({ uri.as_str().unwrap(): value });
    }
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    let mut request = world.request("caller", Method::POST, "/a2a/coder/").header("a2a-version", "1.0");
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent.as_str().unwrap());
    }
    let answer: Value = request.json(&body).send().await.unwrap().json().await.unwrap();
    answer["error"]["data"][0]["reason"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn what_left_from_here_opens_no_grant_when_it_comes_back() {
    let world = World::new().await;
    let ask = json!({ "type": "request", "to": "reviewer", "ref": "T-1", "body": "Ask the partner." });
    world.api("operator", Method::POST, "/v1/messages", Some(ask)).await;
    // The reviewer stands for the agent that passes work on to another system.
    let delivery = world.take("reviewer").await;
    let left = leaving(&world, "reviewer", &delivery).await;
    let (uri, value) = (&left["uri"], left["value"].clone());
    assert_eq!(brings(&world, Some((uri, value.clone())), None).await.as_deref(), Some("CAUSED_BY_REFUSED"));
    assert_eq!(brings(&world, None, Some(&left["traceparent"])).await.as_deref(), Some("CAUSED_BY_REFUSED"));
    // Behind another workspace's token, ours is still there.
    let mut tokens = value["tokens"].as_array().unwrap().clone();
    tokens.push("1.99999999999999.00112233445566778899aabbccddeeff".into());
    let passed = json!({ "tokens": tokens });
    assert_eq!(brings(&world, Some((uri, passed)), None).await.as_deref(), Some("CAUSED_BY_REFUSED"));
    // A forged one proves nothing, and neither does a trace of somebody else's.
    let forged = json!({ "tokens": ["1.99999999999999.00112233445566778899aabbccddeeff", "", "x"] });
    assert_eq!(brings(&world, Some((uri, forged)), None).await, None);
    let trace = json!("00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01");
    assert_eq!(brings(&world, None, Some(&trace)).await, None);
    for bad in [json!(7), json!({ "tokens": 7 }), json!(null)] {
        assert_eq!(brings(&world, Some((uri, bad)), None).await, None);
    }
}

#[tokio::test]
async fn what_came_in_with_anothers_causality_leaves_with_it() {
    let world = World::new().await;
    let foreign = "7.99999999999999.00112233445566778899aabbccddeeff";
    let trace = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
    let mut message = world.message("Ask on.");
    message["metadata"] = json!({ "urn:lastword:a2a:causality:v1": { "tokens": [foreign] } });
    let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    let request = world.request("caller", Method::POST, "/a2a/coder/").header("a2a-version", "1.0");
    let sent = request.header("traceparent", trace).header("a2a-extensions", "x, urn:lastword:a2a:causality:v1");
    let sent = sent.json(&body).send().await.unwrap();
    assert_eq!(sent.headers()["a2a-extensions"], "urn:lastword:a2a:causality:v1");
    let sent: Value = sent.json().await.unwrap();
    assert_eq!(state(&sent["result"]["task"]), "TASK_STATE_SUBMITTED");
    // The coder asks the reviewer, which passes the work on.
    let delivery = world.take("coder").await;
    let turn = delivery["turn"]["token"].as_str().unwrap();
    let ask = json!({ "type": "request", "to": "reviewer", "body": "Ask the partner." });
    let asked = world.request("coder", Method::POST, "/v1/messages").header("lastword-turn", turn);
    assert_eq!(asked.json(&ask).send().await.unwrap().status(), 201);
    let delivery = world.take("reviewer").await;
    let left = leaving(&world, "reviewer", &delivery).await;
    let tokens = left["value"]["tokens"].as_array().unwrap();
    assert_eq!((tokens.len(), &tokens[0]), (2, &json!(foreign)));
    assert!(left["traceparent"].as_str().unwrap().starts_with("00-0af7651916cd43dd8448eb211c80319c-"));
    // Only for the agent whose turn it is, and only in a turn.
    let token = delivery["turn"]["token"].as_str().unwrap();
    for (who, turn) in [("caller", Some(token)), ("reviewer", None)] {
        let mut request = world.request(who, Method::GET, "/a2a/.lastword/causality");
        if let Some(turn) = turn {
            request = request.header("lastword-turn", turn);
        }
        assert!(request.send().await.unwrap().status().is_client_error(), "{who}");
    }
}
