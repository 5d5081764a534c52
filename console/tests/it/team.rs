//! The page of the team: agents and humans are added, renewed and removed in the browser.

use serde_json::json;

use crate::browser::{Browser, Seen};
use crate::world::{World, http_builder};

/// Returns the token that a reply shows.
fn token(seen: &Seen) -> String {
    let from = seen.text.find("lw_").unwrap_or_else(|| panic!("no token in {}", seen.text));
    seen.text[from..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
}

/// Returns whose token this is; `None` if it is nobody's.
async fn owner(world: &World, token: &str) -> Option<String> {
    let call = http_builder().build().unwrap().get(world.url("/v1/agents/me")).bearer_auth(token).send().await.unwrap();
    let known = call.status().is_success();
    let view: serde_json::Value = call.json().await.unwrap();
    known.then(|| view["name"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn an_agent_is_added_and_told_how_each_program_joins() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    browser
        .get("/team")
        .await
        .is(200)
        .has("kilo")
        .has("action=\"/team/agents\"")
        .has("This ends your sessions")
        .lacks("lw_");
    let from = "div#add-agent-said";
    let new = [("name", " coder "), ("display_name", "Prüfer"), ("actions", "review_code, deploy"), ("groups", "")];
    let made = browser.post_from("/team/agents", &new, from).await.is(200);
    let shown = token(&made);
    assert_eq!(owner(&world, &shown).await.as_deref(), Some("coder"));
    let made = made.has(&format!("export LASTWORD_URL={}\n", world.url("")));
    made.has("lastword run --input prompt").has("lastword claude --as coder").has("/mcp&quot;");
    let view = world.get("operator", "/v1/agents/coder").await.is(200);
    assert_eq!((&view["actions"], &view["display_name"]), (&json!(["review_code", "deploy"]), &json!("Prüfer")));
    browser.get("/team").await.is(200).has("Prüfer").lacks("lw_");
    // Without scripts the page itself shows what was made.
    let made = browser.send("/team/agents", &[("name", "tester"), ("forms", &browser.secret().await)], &[]).await;
    assert_eq!(owner(&world, &token(&made.is(200).has("<h1>"))).await.as_deref(), Some("tester"));
    browser.post_from("/team/agents", &[("name", "kilo")], from).await.is(409).has("kilo");
    browser.post_from("/team/agents", &[("name", "Prüfer")], from).await.is(400).has("name");
}

#[tokio::test]
async fn a_human_is_invited_by_a_link_that_signs_in_once() {
    let world = World::with(&[]).await;
    let browser = Browser::signed_in(&world).await;
    let new = [("name", "anna"), ("role", "approver")];
    let made = browser.post_from("/team/humans", &new, "div#add-human-said").await.is(200);
    assert_eq!(owner(&world, &token(&made)).await.as_deref(), Some("anna"));
    let code = made.text.split("/sign-in#").nth(1).unwrap().split('<').next().unwrap().to_owned();
    let mut annas = Browser::of(&world);
    annas.sign_in("code", &code).await.is(303);
    annas.get("/team").await.is(200).has("Adding an agent or a human needs the role owner. Yours is approver.");
    annas.post("/team/agents", &[("name", "sly")]).await.is(403);
    annas.post("/team/operator/token", &[]).await.is(403);
    annas.post("/team/operator/remove", &[]).await.is(403);
    Browser::of(&world).sign_in("code", &code).await.is(401);
    browser.post("/team/humans", &[("name", "bob"), ("role", "king")]).await.is(404);
}

#[tokio::test]
async fn a_token_is_renewed_and_ended() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    let terms = [("expires_in_ms", "2592000000"), ("overlap_ms", "3600000")];
    let first = browser.post_from("/team/kilo/token", &terms, "div#token-kilo-said").await.is(200);
    let second = token(&first.has("valid until"));
    assert_eq!(owner(&world, &second).await.as_deref(), Some("kilo"));
    assert_eq!(owner(&world, world.token("kilo")).await.as_deref(), Some("kilo"), "they overlap");
    browser.get("/team").await.is(200).has("token expires");
    let third = token(&browser.post("/team/kilo/token", &[]).await.is(200));
    assert_eq!(owner(&world, &second).await, None, "it ends at once");
    browser.post("/team/kilo/token", &[("overlap_ms", "99999999999")]).await.is(422).has("overlap_ms");
    browser.post("/team/kilo/remove", &[]).await.is(200).has("Removed kilo.");
    assert_eq!(owner(&world, &third).await, None);
    browser.get("/team").await.is(200).has("None yet.");
    browser.post("/team/operator/remove", &[]).await.is(403).has("last owner");
}
