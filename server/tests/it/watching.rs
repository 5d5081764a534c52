//! Events and metrics.

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// Reads events until one of this type; returns it and its id.
async fn until(response: &mut reqwest::Response, kind: &str) -> (Value, String) {
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        for block in text.split("\n\n") {
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if field("event:") == Some(kind)
                && let (Some(data), Some(id)) = (field("data:"), field("id:"))
                && let Ok(event) = serde_json::from_str(data)
            {
                return (event, id.to_owned());
            }
        }
    }
    panic!("the stream ended before {kind}: {text}");
}

#[tokio::test]
async fn events_are_live_and_go_on_where_they_were_left() {
    let world = World::with(&["kilo", "hive"]).await;
    let mut live = world.request("operator", Method::GET, "/v1/events").send().await.unwrap();
    let first = world.send("operator", "kilo", "T-1", "one").await.is(201);
    let (event, at) = until(&mut live, "accepted").await;
    assert_eq!(event["message"]["id"], first["id"]);
    assert_eq!(event["message"]["body"], "one");
    drop(live);

    let second = world.send("operator", "kilo", "T-2", "two").await.is(201);
    let request = world.request("operator", Method::GET, "/v1/events").header("last-event-id", at);
    let (event, _) = until(&mut request.send().await.unwrap(), "accepted").await;
    assert_eq!(event["message"]["id"], second["id"]);
}

#[tokio::test]
async fn an_agent_sees_what_concerns_it() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "for kilo").await.is(201);
    let mine = world.send("operator", "hive", "T-2", "for hive").await.is(201);
    let mut seen = world.request("hive", Method::GET, "/v1/events?after=0").send().await.unwrap();
    let (event, _) = until(&mut seen, "accepted").await;
    assert_eq!(event["message"]["id"], mine["id"]);
}

#[tokio::test]
async fn metrics_count_what_was_accepted_and_refused() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    world.send("operator", "nobody", "T-1", "x").await.refused(404, "unknown_recipient");
    let text = world.get("operator", "/metrics").await.is(200);
    let text = text.as_str().unwrap();
    assert!(text.contains("lastword_messages_accepted_total 1\n"), "{text}");
    assert!(text.contains("lastword_refused_total{code=\"unknown_recipient\"} 1\n"), "{text}");
}

#[tokio::test]
async fn a_stream_with_an_end_ends_there_and_says_where_the_log_was() {
    let world = World::with(&["kilo"]).await;
    let first = world.send("operator", "kilo", "T-1", "one").await.is(201);
    world.send("operator", "kilo", "T-2", "two").await.is(201);
    let upto = first["seq"].as_u64().unwrap();
    let some = world.get("operator", &format!("/v1/events?after=0&until={upto}")).await;
    let position: u64 = some.headers["lastword-position"].to_str().unwrap().parse().unwrap();
    assert!(position > upto, "the log goes on: {position}");
    let text = some.is(200);
    let text = text.as_str().unwrap();
    assert!(text.contains("\"one\"") && !text.contains("\"two\""), "{text}");
    // The stream doesn't wait for positions that the log hasn't reached, and facts that concern others make no
    // difference.
    let all = world.get("kilo", "/v1/events?after=0&until=99999").await.is(200);
    assert!(all.as_str().unwrap().contains("\"two\""), "{all}");
}

#[tokio::test]
async fn a_refusal_is_explained_to_who_was_refused_and_to_humans() {
    let world = World::with(&["kilo", "hive", "lead"]).await;
    world.send("operator", "kilo", "T-1", "begin").await.is(201);
    let delivery = world.take("kilo").await;
    world.send("kilo", "hive", "T-1/1", "work").await.is(201);
    world.take("hive").await;
    let body = serde_json::json!({ "type": "request", "to": "kilo", "body": "you first" });
    let problem = world.post("hive", "/v1/messages", body).await.refused(422, "passive_reply");
    let record = problem["record"].as_str().unwrap().to_owned();
    let path = format!("/v1/explanations/{record}");
    for who in ["hive", "operator"] {
        let told = world.get(who, &path).await.is(200);
        assert_eq!(told["refused"]["problem"]["code"], "passive_reply", "{who}: {told}");
        assert_eq!(told["refused"]["problem"]["record"], record, "{who}: {told}");
    }
    world.get("lead", &path).await.refused(404, "unknown_request");
    // Each caller sees the part of the chain that it may read: `hive` takes no part in the human's request to `kilo`.
    let links = |told: Value| told["chain"].as_array().unwrap().len();
    assert_eq!(links(world.get("operator", &path).await.is(200)), 2);
    assert_eq!(links(world.get("hive", &path).await.is(200)), 1);

    let first = delivery["message"]["id"].as_str().unwrap();
    world.get("lead", &format!("/v1/explanations/{first}")).await.refused(404, "unknown_request");
    let told = world.get("operator", &format!("/v1/explanations/{first}")).await.is(200);
    assert_eq!(told["message"]["body"], "begin", "{told}");
    assert!(told["grant"]["open"].as_bool().unwrap(), "{told}");
    for none in ["refused-1", "refused-", "refused-x", "msg-99999", "esc-1", "apr-1", "nonsense"] {
        world.get("operator", &format!("/v1/explanations/{none}")).await.refused(404, "unknown_request");
    }
    // A call that no rule refused has no record.
    let problem = world.send("operator", "not/a/name", "T-1", "x").await.refused(400, "malformed");
    assert_eq!(problem.get("record"), None, "{problem}");
}

#[tokio::test]
async fn an_explanation_names_who_may_decide_and_what_holds() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "begin").await.is(201);
    let held = serde_json::json!({ "tool": "deploy", "arguments": {} });
    world.take("kilo").await;
    let held = world.post("kilo", "/v1/approvals", held).await.is(201);
    let told = world.get("operator", &format!("/v1/explanations/{}", held["id"].as_str().unwrap())).await.is(200);
    assert_eq!((&told["deciders"][0], &told["approval"]["digest"]), (&Value::from("human"), &held["digest"]));
    assert_eq!(told["chain"][0]["ref"], "T-1");
    let later = world.send("operator", "kilo", "T-2", "wait").await.is(201);
    world.request("operator", Method::POST, "/v1/workspace/pause").send().await.unwrap().error_for_status().unwrap();
    let told = world.get("operator", &format!("/v1/explanations/{}", later["id"].as_str().unwrap())).await.is(200);
    assert_eq!((&told["holds"][0]["scope"], &told["holds"][0]["state"]), (&"workspace".into(), &"paused".into()));
}

#[tokio::test]
async fn lists_say_how_near_a_limit_is() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "begin").await.is(201);
    world.take("kilo").await;
    world.send("kilo", "hive", "T-1/1", "work").await.is(201);
    let list = world.get("operator", "/v1/conversations").await.is(200);
    let nearest = &list["items"][0]["nearest"];
    assert!(nearest["limit"].as_u64().unwrap() > 0 && nearest["name"].is_string(), "{list}");
    let agent = world.get("operator", "/v1/agents/kilo").await.is(200);
    let window = |name: &str| {
        let windows = agent["windows"].as_array().unwrap();
        windows.iter().find(|window| window["name"] == name).unwrap()["current"].as_u64().unwrap()
    };
    assert_eq!((window("sender_messages_max"), window("fan_out_targets_max"), window("roots_per_hour_max")), (1, 1, 0));
    assert_eq!(world.get("operator", "/v1/agents/operator").await.is(200).get("windows"), None, "none bind a human");
}

#[tokio::test]
async fn events_are_cloud_events_for_whom_accepts_them_page_by_page_or_as_a_stream() {
    let world = World::with(&["kilo"]).await;
    let sent = world.send("operator", "kilo", "T-1", "one").await.is(201);
    let get = async |after: u64, query: &str, accepted: &[&str]| {
        let request = world.request("operator", Method::GET, &format!("/v1/events?after={after}{query}"));
        let request = accepted.iter().fold(request, |request, accepted| request.header("accept", *accepted));
        Answer::of(request.send().await.unwrap()).await
    };
    let page = ["application/cloudevents-batch+json"];
    let plain = get(0, "&until=99", &["*/*, text/event-stream"]).await.is(200);
    let (mut after, mut all) = (0, Vec::new());
    loop {
        let answer = get(after, "", &page).await;
        assert_eq!(answer.headers["content-type"], page[0]);
        let answer = answer.is(200);
        let Some(last) = answer.as_array().unwrap().last() else { break };
        after = last["id"].as_str().unwrap().parse().unwrap();
        all.extend(answer.as_array().unwrap().clone());
    }
    let accepted = all.iter().find(|event| event["data"]["message"]["id"] == sent["id"]).unwrap();
    let source = accepted["source"].as_str().unwrap();
    assert!(source.starts_with("urn:lastword:lastword-hash-chain/"), "{source}");
    for (name, value) in [
        ("specversion", json!("1.0")),
        ("id", json!(sent["seq"].to_string())),
        ("type", json!("lastword.accepted")),
        ("subject", json!("T-1")),
        ("time", sent["created_at"].clone()),
        ("datacontenttype", json!("application/json")),
    ] {
        assert_eq!(accepted[name], value, "{accepted}");
    }
    let data = |text: &Value| -> Vec<Value> {
        let data = text.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("data: "));
        data.map(|data| serde_json::from_str(data).unwrap()).collect()
    };
    let accepted = ["text/event-stream;q=0.5", "Application/CloudEvents+json; charset=utf-8"];
    let streamed = get(0, "&until=99", &accepted).await;
    assert_eq!(streamed.headers["content-type"], "text/event-stream");
    let streamed = streamed.is(200);
    assert_eq!(data(&streamed), all, "a page has what the stream has");
    let within: Vec<Value> = all.iter().map(|event| event["data"].clone()).collect();
    assert_eq!(within, data(&plain), "each has its event as its data");
    let framed = |text: &Value| -> Vec<String> {
        let framing = text.as_str().unwrap().lines().filter(|line| !line.starts_with("data: "));
        framing.map(str::to_owned).collect()
    };
    assert_eq!(framed(&streamed), framed(&plain));
    get(after + 9, "", &page).await.refused(409, "epoch_over");
}
