//! What a human finds by the words that agents and humans wrote.

use serde_json::json;

use crate::browser::Browser;
use crate::world::{World, id};

#[tokio::test]
async fn held_calls_questions_posts_and_reasons_are_found_by_how_words_begin() {
    let world = World::with(&["coder", "tester"]).await;
    world.send("operator", "coder", "SHOP-1", "Build the checkout").await.is(201);
    let turn = world.take("coder").await;
    let call =
        json!({"tool": "Bash", "arguments": {"command": "set -e\nkubectl rollout status"}, "reason": "It is ready."});
    world.post("coder", "/v1/approvals", call).await.is(201);
    let call = json!({"tool": "Bash", "arguments": {"command": "make migrate"}});
    world.post("coder", "/v1/approvals", call).await.is(201);
    let edit = json!({"decision": "edit", "input": {"command": "make plan"}});
    world.post("operator", "/v1/approvals/apr-2/decision", edit).await.is(200);
    world.post("coder", "/v1/escalations", json!({"message": "Which rate of tax?"})).await.is(201);
    world.post("operator", "/v1/rooms", json!({"name": "lounge", "members": ["coder", "tester"]})).await.is(201);
    world.post("operator", "/v1/rooms/lounge/messages", json!({"body": "Lunch at noon?"})).await.is(201);
    let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
    let failed = json!({"status": "failed", "answer": "no", "reason": "<b>the registry</b> answers 503"});
    world.post("coder", &path, failed).await.is(200);
    let browser = Browser::signed_in(&world).await;
    let find = async |words: &str| browser.get(&format!("/palette?q={words}")).await.is(200);
    while find("regist").await.text.contains("No matches") {}
    find("rollo").await.has("href=\"/approvals/apr-1\"").has("held call of coder in SHOP-1");
    // An edited call is shown as it may be made, by whichever words it is found.
    find("migra").await.has("href=\"/approvals/apr-2\"").has("make plan").lacks("make migrate");
    find("rat%20of%20ta").await.has("href=\"/questions/esc-1\"").has("question of coder in SHOP-1");
    find("lunc").await.has("href=\"/rooms/lounge\"").has("post of operator in lounge");
    find("regist").await.has("&lt;b&gt;the registry").has(" coder in SHOP-1");
    find("check").await.has("Build the checkout");
    find("eckout").await.has("No matches");
}
