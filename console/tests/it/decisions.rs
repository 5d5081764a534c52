//! A decision's page: whose task it holds up, what may be chosen, and what waits next.

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{World, id};

/// coder works on what lead asked, for what the operator asked lead.
async fn asked() -> World {
    let world = World::with(&["lead", "coder"]).await;
    world.send("operator", "lead", "SHOP-1", "Build the whole shop").await.is(201);
    world.take("lead").await;
    let part = json!({"type": "request", "to": "coder", "body": "Remove the old build\nand nothing else"});
    world.post("lead", "/v1/messages", part).await.is(201);
    world.take("coder").await;
    world
}

async fn hold(world: &World, call: Value) -> String {
    id(&world.post("coder", "/v1/approvals", call).await.is(201), "id").to_owned()
}

#[tokio::test]
async fn a_decision_quotes_the_request_that_its_agent_works_on_and_the_reason_it_gave() {
    let world = asked().await;
    let call = json!({"tool": "Bash", "arguments": {"command": "rm -rf build"}, "reason": "the cache is stale"});
    let held = hold(&world, call).await;
    let question = world.post("coder", "/v1/escalations", json!({"message": "Now?", "options": []})).await.is(201);
    let browser = Browser::signed_in(&world).await;
    let question = format!("/questions/{}", id(&question, "id"));
    for path in [&format!("/approvals/{held}"), "/inbox", &question] {
        let seen = browser.get(path).await.is(200);
        let seen = seen.has("<q>Remove the old build⏎and nothing else</q>").lacks("Build the whole shop");
        assert_eq!(seen.text.contains("the cache is stale"), *path != question, "{path}");
    }
    // No reason is shown where none was given.
    let bare = hold(&world, json!({"tool": "Bash", "arguments": {"command": "ls"}})).await;
    browser.get(&format!("/approvals/{bare}")).await.is(200).lacks("Reason</span>");
}

#[tokio::test]
async fn after_a_decision_the_page_leads_to_the_one_that_expires_next() {
    let world = asked().await;
    let question = world.post("coder", "/v1/escalations", json!({"message": "Now?", "options": []})).await.is(201);
    let first = hold(&world, json!({"tool": "Bash", "arguments": {"command": "rm -rf build"}})).await;
    let second = hold(&world, json!({"tool": "Bash", "arguments": {"command": "rm -rf target"}})).await;
    let browser = Browser::signed_in(&world).await;
    let page = format!("/approvals/{first}");
    browser.get(&page).await.is(200).lacks("Next: ");
    browser.post(&format!("{page}/reject"), &[("comment", "no")]).await.is(200);
    let next = format!("href=\"/approvals/{second}\">Next: coder asks to call Bash</a>");
    browser.get(&page).await.is(200).has(&next).has("Back to inbox");
    browser.post(&format!("/approvals/{second}/reject"), &[]).await.is(200);
    let question = format!("/questions/{}", id(&question, "id"));
    browser.get(&page).await.is(200).has(&format!("href=\"{question}\">Next: coder asks: Now?</a>"));
    browser
        .post(&format!("{}/answer", question.replace("questions", "escalations")), &[("answer", "yes")])
        .await
        .is(200);
    browser.get(&page).await.is(200).lacks("Next: ").has("Back to inbox");
}

#[tokio::test]
async fn what_is_not_offered_for_a_call_is_not_named() {
    let world = asked().await;
    let browser = Browser::signed_in(&world).await;
    let one = hold(&world, json!({"tool": "Bash", "arguments": {"command": "cargo test"}})).await;
    let both = "Reject with instructions, ignore or always allow";
    browser.get(&format!("/approvals/{one}")).await.is(200).has(both).has("Always allow this");
    let two = hold(&world, json!({"tool": "a tool", "arguments": {"command": "cargo test"}})).await;
    let seen = browser.get(&format!("/approvals/{two}")).await.is(200);
    seen.has("Reject with instructions or ignore<").lacks("lways allow").lacks("Respond");
}

#[tokio::test]
async fn what_a_human_stopped_or_cancelled_is_not_said_to_be_undecided_or_pending() {
    let world = asked().await;
    let call = json!({"tool": "Bash", "arguments": {"command": "rm -rf build"}});
    let held = hold(&world, call.clone()).await;
    let question = world.post("coder", "/v1/escalations", json!({"message": "Now?", "options": []})).await.is(201);
    let browser = Browser::signed_in(&world).await;
    browser.get("/conversations/SHOP-1").await.is(200).has("badge warn\">pending");
    world.post("operator", "/v1/conversations/SHOP-1/stop", json!({})).await.is(204);
    let view = world.get("operator", &format!("/v1/approvals/{held}")).await.is(200);
    assert_eq!((&view["state"], &view["ended"]), (&json!("withdrawn"), &json!("stopped")));
    let page = browser.get(&format!("/approvals/{held}")).await.is(200);
    page.has("The call was withdrawn: its work was stopped.").has(">withdrawn<").lacks("decided in time");
    let tree = browser.get("/conversations/SHOP-1").await.is(200);
    tree.has("badge plain\">withdrawn").lacks("badge warn\">pending").lacks(">finished<");
    browser.get(&format!("/questions/{}", id(&question, "id"))).await.is(200).has("It was withdrawn: its task ended.");

    let world = asked().await;
    let held = hold(&world, call).await;
    let asked = world.get("operator", &format!("/v1/approvals/{held}")).await.is(200);
    world.post("operator", &format!("/v1/requests/{}/cancel", id(&asked, "request_id")), json!({})).await.is(200);
    let view = world.get("operator", &format!("/v1/approvals/{held}")).await.is(200);
    assert_eq!((&view["state"], &view["ended"]), (&json!("withdrawn"), &json!("cancelled")));
}

#[tokio::test]
async fn a_settled_decision_says_when_and_by_whom() {
    let world = asked().await;
    let question = world.post("coder", "/v1/escalations", json!({"message": "Now?", "options": []})).await.is(201);
    let call = hold(&world, json!({"tool": "Bash", "arguments": {"command": "ls"}})).await;
    let browser = Browser::signed_in(&world).await;
    browser.post(&format!("/approvals/{call}/reject"), &[("comment", "no")]).await.is(200);
    let asked = id(&question, "id");
    browser.post(&format!("/escalations/{asked}/answer"), &[("answer", "yes")]).await.is(200);
    let decided = world.get("operator", &format!("/v1/approvals/{call}")).await.is(200);
    let answered = world.get("operator", &format!("/v1/escalations/{asked}")).await.is(200);
    let time = |at: &str| format!("<time datetime=\"{at}\"");
    let by = format!("by <b>operator</b> {}", time(id(&decided, "decided_at")));
    browser.get(&format!("/approvals/{call}")).await.is(200).has(&by);
    let by = format!("by <b>operator</b> {}", time(id(&answered, "answered_at")));
    browser.get(&format!("/questions/{asked}")).await.is(200).has(&by);
    let inbox = browser.get("/inbox").await.is(200);
    inbox.has(&time(id(&decided, "decided_at"))).has(&time(id(&answered, "answered_at")));
}
