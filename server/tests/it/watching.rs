//! Events and metrics.

use reqwest::Method;
use serde_json::Value;

use crate::world::World;

/// Reads events until one of this type, and gives the last one and its id.
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
