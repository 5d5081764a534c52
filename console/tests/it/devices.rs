//! The devices of a human: the session that is handed over to a phone.

use lastword_facts::Limits;

use crate::browser::Browser;
use crate::machine::{Machine, SECOND};

/// Shows a code on the desktop; returns its link, and where it is told what came of it.
async fn shown(desktop: &Browser<'_>) -> (String, String) {
    let made = desktop.post_from("/devices/phone", &[], "div#phone-form-said").await.is(200).has("<svg class=\"qr\"");
    let made = made.has("Not used yet");
    let after = |begin: &str, end: char| made.text.split_once(begin).unwrap().1.split(end).next().unwrap().to_owned();
    (after("<pre class=\"rule\">", '<'), after("hx-get=\"", '"'))
}

fn code(link: &str) -> &str {
    link.split_once("/sign-in/device#").unwrap().1
}

fn expiry(browser: &Browser<'_>) -> String {
    browser.cookie.split('.').nth(1).unwrap().to_owned()
}

#[tokio::test]
async fn a_session_is_handed_over_once_and_the_new_one_ends_with_it() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let desktop = Browser::signed_in(&world).await;
    desktop.get("/devices").await.is(200).has("Show a code").has("is this machine alone");
    let (link, standing) = shown(&desktop).await;
    let mut phone = Browser::of(&world);
    // What only looks at the address uses nothing up.
    phone.get("/sign-in/device").await.is(200).has("data-press");
    desktop.get(&standing).await.is(200).has("Not used yet");
    machine.run(60 * SECOND);
    let seen = phone.sign_in("code", code(&link)).await.is(303);
    assert_eq!(seen.location(), "/");
    assert_eq!(expiry(&phone), expiry(&desktop), "no later than the session that it is from");
    phone.get("/team").await.is(200).has("Signed in as operator");
    desktop.get(&standing).await.is(200).has("Signed in").lacks("hx-trigger");
    Browser::of(&world).sign_in("code", code(&link)).await.is(401).has("used already");
    // Without scripts, the whole link is in the field.
    let (link, _) = shown(&desktop).await;
    Browser::of(&world).sign_in("code", &link).await.is(303);
}

#[tokio::test]
async fn a_code_ends_with_its_time_with_another_one_and_with_its_session() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let desktop = Browser::signed_in(&world).await;
    let (late, standing) = shown(&desktop).await;
    machine.run(120 * SECOND);
    Browser::of(&world).sign_in("code", code(&late)).await.is(401);
    desktop.get(&standing).await.is(200).has("has expired");
    let (first, standing) = shown(&desktop).await;
    let (second, _) = shown(&desktop).await;
    Browser::of(&world).sign_in("code", code(&first)).await.is(401);
    desktop.get(&standing).await.is(200).has("another one took its place");
    Browser::of(&world).sign_in("code", code(&second)).await.is(303);
    let (third, _) = shown(&desktop).await;
    desktop.post("/sign-out", &[]).await.is(200);
    Browser::of(&world).sign_in("code", code(&third)).await.is(401);
    let desktop = Browser::signed_in(&world).await;
    let (fourth, _) = shown(&desktop).await;
    world.post("operator", "/v1/agents/operator/token", serde_json::json!({})).await.is(201);
    Browser::of(&world).sign_in("code", code(&fourth)).await.is(401);
    Browser::of(&world).get("/devices").await.is(303);
}
