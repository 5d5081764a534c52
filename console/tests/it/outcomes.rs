//! How work ended: the same word in the list, on the conversation's page and in its views, and a filter for each.

use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{World, id};

/// Each outcome with the badge that shows it.
const OUTCOMES: [(&str, &str); 6] = [
    ("completed", "badge good\">completed<"),
    ("partial", "badge warn\">partial<"),
    ("failed", "badge bad\">failed<"),
    ("timed_out", "badge bad\">timed out<"),
    ("cancelled", "badge plain\">cancelled<"),
    ("stopped", "badge bad\">stopped<"),
];

async fn outcome_of(world: &World, reference: &str) -> Value {
    let page = world.get("operator", "/v1/conversations").await.is(200);
    let items = page["items"].as_array().unwrap();
    items.iter().find(|item| item["ref"] == reference).unwrap()["outcome"].clone()
}

/// Returns a workspace with a conversation of each outcome, whose REF is the word.
async fn ended() -> World {
    let world = World::with(&["kilo", "idler", "victor"]).await;
    let short = world.request("operator", Method::PATCH, "/v1/agents/idler").json(&json!({"limits": {"ack_ms": 20}}));
    assert_eq!(short.send().await.unwrap().status(), 200);
    world.send("operator", "idler", "timed_out", "paint it").await.is(201);
    for (status, parts) in
        [("completed", json!({})), ("partial", json!({"completed": ["a"], "failed": ["b"]})), ("failed", json!({}))]
    {
        world.send("operator", "kilo", status, "paint it").await.is(201);
        let path = |turn: &Value| format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
        let mut finish = json!({"status": status, "answer": "said"});
        finish.as_object_mut().unwrap().extend(parts.as_object().unwrap().clone());
        // What was completed in part runs once more.
        for _ in 0..if status == "partial" { 2 } else { 1 } {
            let turn = world.take("kilo").await;
            world.post("kilo", &path(&turn), finish.clone()).await.is(200);
        }
    }
    let asked = world.send("operator", "kilo", "cancelled", "paint it").await.is(201);
    world.post("operator", &format!("/v1/requests/{}/cancel", id(&asked, "request_id")), json!({})).await.is(200);
    world.send("operator", "victor", "stopped", "paint it").await.is(201);
    world.post("operator", "/v1/agents/victor/stop", json!({})).await.is(204);
    while outcome_of(&world, "timed_out").await.is_null() {}
    world
}

#[tokio::test]
async fn each_outcome_has_one_word_on_every_surface_and_a_filter() {
    let world = ended().await;
    let browser = Browser::signed_in(&world).await;
    for (word, badge) in OUTCOMES {
        assert_eq!(outcome_of(&world, word).await, word);
        let list = browser.get(&format!("/conversations?state={word}")).await.is(200).has(badge);
        assert_eq!(list.text.matches("class=\"row talk\"").count(), 1, "{word}");
        assert!(list.text.contains(&format!("href=\"/conversations/{word}\"")), "{word}");
        let page = browser.get(&format!("/conversations/{word}")).await.is(200).lacks(">ended<");
        // In the heading and in the tree.
        assert!(page.text.matches(badge).count() >= 2, "{word}: {}", page.text);
        let waterfall = browser.get(&format!("/conversations/{word}?view=waterfall")).await.is(200);
        assert_eq!(waterfall.text.matches(badge).count(), if word == "completed" { 1 } else { 2 }, "{word}");
    }
    // What failed, was cancelled or stopped was answered with nothing.
    browser.get("/graph").await.is(200).has(">2 answered, 2 without a result</a>").has(">1 without a result</a>");
    let all = browser.get("/conversations?state=idle").await.is(200).lacks(">ended</span>");
    assert_eq!(all.text.matches("class=\"row talk\"").count(), OUTCOMES.len());
    browser.get("/conversations?state=asleep").await.is(400).has("timed_out");
}
