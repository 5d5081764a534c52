//! The tree of a conversation: what was refused stands after what led to it, and below its cause.

use serde_json::json;

use crate::browser::Browser;
use crate::world::World;

/// Returns where these texts stand on a page.
fn places(page: &str, texts: &[&str]) -> Vec<usize> {
    texts.iter().map(|text| page.find(text).unwrap_or_else(|| panic!("{text:?} is not in {page}"))).collect()
}

#[tokio::test]
async fn a_refusal_stands_below_the_round_that_led_to_it_and_each_level_is_in_the_order_of_time() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "lead this").await.is(201);
    let lead = world.take("kilo").await;
    let call = json!({"tool": "Bash", "arguments": {"command": "ls"}});
    world.post("kilo", "/v1/approvals", call).await.is(201);
    world.post("operator", "/v1/approvals/apr-1/decide", json!({"decision": "reject"})).await;
    world.send("kilo", "hive", "T-1", "the first round").await.is(201);
    world.finish("kilo", &lead, "").await;
    let part = world.take("hive").await;
    world.finish("hive", &part, "the first result").await.is(200);
    world.take("kilo").await;
    world.send("kilo", "kilo", "T-1", "to myself").await.refused(422, "self_send");
    world.send("kilo", "hive", "T-1", "the second round").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/T-1").await.is(200).text;
    let order = ["lead this", " call of ", "the first round", "the first result", ">refused<", "the second round"];
    let (_, tree) = page.split_once("<ul class=\"tree\">").unwrap();
    let places = places(tree, &order);
    assert!(places.is_sorted(), "{places:?}");
    // Below the answer that opened its turn, not beside it.
    let between = &tree[places[3]..places[4]];
    assert!(between.contains("<ul class=\"tree\">") && !between.contains("</ul>"), "{between}");
}

#[tokio::test]
async fn a_title_or_a_row_has_no_marks_of_markdown() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "**Fix** the `login`").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let views = ["?view=tree", "?view=log", "?view=waterfall"].map(|view| format!("/conversations/T-1{view}"));
    for path in views.iter().map(String::as_str).chain(["/", "/conversations", "/palette?q=login"]) {
        browser.get(path).await.is(200).has("Fix the login").lacks("**Fix**").lacks("`login`");
    }
}

#[tokio::test]
async fn what_is_refused_outside_of_every_turn_stands_at_the_first_level_in_its_time() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "the first").await.is(201);
    let turn = world.take("kilo").await;
    world.finish("kilo", &turn, "done").await.is(200);
    world.send("hive", "hive", "T-1", "to myself").await.refused(422, "self_send");
    world.send("operator", "kilo", "T-1", "the second").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/T-1").await.is(200).text;
    let (_, tree) = page.split_once("<ul class=\"tree\">").unwrap();
    let places = places(tree, &["the first", ">refused<", "the second"]);
    assert!(places.is_sorted(), "{places:?}");
}
