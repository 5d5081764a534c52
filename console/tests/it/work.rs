//! The list of conversations: its order, what its filter finds, and that each refusal which it counts is in the tree.

use lastword_facts::Limits;
use serde_json::json;

use crate::browser::{Browser, Seen};
use crate::world::{World, id};

/// Returns the REFs of a list, in its order.
fn listed(seen: &Seen) -> Vec<&str> {
    let rows = seen.text.split("class=\"row talk").skip(1);
    rows.map(|row| row.split("id=\"c-").nth(1).unwrap().split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn what_waits_for_a_human_is_first_then_what_is_open_then_the_rest() {
    let mut world = World::with(&["asker", "kilo"]).await;
    world.register_human("vera", "viewer").await;
    world.send("operator", "asker", "ASKS-1", "job").await.is(201);
    world.take("asker").await;
    world.post("asker", "/v1/approvals", json!({"tool": "Bash", "arguments": {"command": "ls"}})).await.is(201);
    world.send("operator", "kilo", "RUNS-1", "job").await.is(201);
    world.take("kilo").await;
    for n in 0..60 {
        let reference = format!("DONE-{n}");
        world.send("operator", "kilo", &reference, "job").await.is(201);
        world.post("operator", &format!("/v1/conversations/{reference}/stop"), json!({})).await.is(204);
    }
    let browser = Browser::signed_in(&world).await;
    for filter in ["", "ref=-&"] {
        let first = browser.get(&format!("/conversations?{filter}")).await.is(200);
        let first = first.has("First what is waiting for you or held, then other open work, then the rest");
        let refs = listed(&first);
        assert_eq!((&refs[..3], refs.len()), (&["ASKS-1", "RUNS-1", "DONE-59"][..], 50), "{filter}");
        let (_, next) = first.text.split_once("cursor=").unwrap();
        let next = next.split(['"', '&']).next().unwrap();
        let rest = browser.get(&format!("/conversations?{filter}cursor={next}")).await.is(200);
        assert_eq!(listed(&rest), (0..12).rev().map(|n| format!("DONE-{n}")).collect::<Vec<_>>(), "{filter}");
    }
    // With a filter on messages, their order is told.
    let found = browser.get("/conversations?to=kilo").await.is(200).has("By the last message that matches.");
    assert_eq!(listed(&found)[0], "DONE-59");
    let vera = Browser::as_human(&world, "vera").await;
    vera.get("/conversations").await.is(200).has("First what is waiting for an approver or held");
}

#[tokio::test]
async fn a_filter_that_finds_nothing_says_what_it_searches_and_leads_to_find() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "EDIT-1", "Correct the page about refunds.").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let none = browser.get("/conversations?q=refund").await.is(200).has("No conversation matches");
    none.has("whole words of messages").has("data-open=\"palette\" data-find=\"refund\"").has("Find “refund”");
    browser.get("/palette?q=refund").await.is(200).has("about refunds");
    browser.get("/conversations?q=refunds").await.is(200).has("EDIT-1").lacks("data-find");
    browser.get("/conversations?state=paused").await.is(200).has("No conversation matches").lacks("data-find");
}

#[tokio::test]
async fn each_refusal_that_is_counted_is_in_the_tree_and_the_waterfall() {
    let limits = Limits { turns_soft_max: 1, turns_hard_max: 2, ..Limits::default() };
    let world = World::within(limits, &["kilo"]).await;
    world.post("operator", "/v1/rooms", json!({"name": "lounge", "members": ["kilo"]})).await.is(201);
    world.send("operator", "kilo", "CHAT-1", "job").await.is(201);
    let turn = world.take("kilo").await;
    let mut refused = 0;
    while refused == 0 {
        let reply = world.post("kilo", "/v1/rooms/lounge/messages", json!({"body": "hello"})).await;
        refused += u32::from(reply.status == 422);
    }
    let browser = Browser::signed_in(&world).await;
    browser.get("/conversations").await.is(200).has("1 refused");
    let tree = browser.get("/conversations/CHAT-1").await.is(200).has("<span class=\"bad\">1 refused");
    let tree = tree.has("</b>'s post in the room <a href=\"/rooms/lounge\">lounge</a>: ");
    let (_, line) = tree.text.split_once("post in the room ").unwrap();
    let link = line.split("href=\"/messages/").nth(1).unwrap().split('"').next().unwrap();
    browser.get(&format!("/messages/{link}")).await.is(200).has("Refused post").has("tried to post in the room");
    let drawn = browser.get("/conversations/CHAT-1?view=waterfall").await.is(200);
    assert_eq!(drawn.text.matches("circle class=\"cut\"").count(), 1, "{}", drawn.text);
    browser.get("/conversations/CHAT-1?view=log").await.is(200).has("rule ");
    world.finish("kilo", &turn, "done").await.is(200);
}

#[tokio::test]
async fn a_page_has_the_name_that_leads_to_it_and_depth_is_in_the_tree_alone() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "DEEP-1", "job").await.is(201);
    world.take("kilo").await;
    world.post("kilo", "/v1/messages", json!({"type": "request", "to": "hive", "body": "a part"})).await.is(201);
    let part = world.take("hive").await;
    world.post("hive", "/v1/approvals", json!({"tool": "Bash", "arguments": {"command": "ls"}})).await.is(201);
    let browser = Browser::signed_in(&world).await;
    for (path, name) in [("/conversations", "Work"), ("/compose", "Ask"), ("/team", "Team")] {
        browser
            .get(path)
            .await
            .is(200)
            .has(&format!("<title>{name} · Lastword</title>"))
            .has(&format!("<h1>{name}</h1>"));
    }
    let agents = browser.get("/agents").await.is(200).has("Add an agent");
    assert_eq!(agents.text.matches(">Team</a>").count(), 1, "in the menu alone: {}", agents.text);
    let request = format!("/messages/{}", id(&part["message"], "id"));
    for path in ["/", "/inbox", "/approvals/apr-1", "/conversations", &request] {
        let page = browser.get(path).await.is(200).text;
        let (main, _) = page.split_once("<dialog id=\"help\"").unwrap();
        assert!(!main.contains("depth"), "{path}: {main}");
    }
    browser.get("/approvals/apr-1").await.is(200).has("you asked kilo");
    browser.get("/conversations/DEEP-1").await.is(200).has("depth 0, hop 0");
}

#[tokio::test]
async fn a_held_call_on_the_page_of_its_conversation_has_its_badges_and_not_the_page_s_name() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "RISK-1", "job").await.is(201);
    world.take("kilo").await;
    for command in ["ls", "rm -rf build"] {
        world.post("kilo", "/v1/approvals", json!({"tool": "Bash", "arguments": {"command": command}})).await.is(201);
    }
    let browser = Browser::signed_in(&world).await;
    let order = |page: &str| {
        let (_, list) = page.split_once("class=\"lines\"").unwrap();
        let (dangerous, plain) = (list.find("rm -rf build").unwrap(), list.find(">ls<").unwrap());
        assert!(dangerous < plain && list[..dangerous].contains("deletes files"), "{list}");
        list[..plain].matches("in <a class=\"ref\" href=\"/conversations/RISK-1\"").count()
    };
    assert_eq!(order(&browser.get("/").await.is(200).text), 1);
    assert_eq!(order(&browser.get("/conversations/RISK-1").await.is(200).text), 0);
}
