//! The devices of a human: the session that is handed over to a phone, and the browsers that are notified.

use lastword_facts::Limits;
use lastword_server::ConsoleSettings;
use lastword_server::notify::{Channel, Means};
use lastword_server::passkeys::PasskeyUse;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::browser::Browser;
use crate::machine::{Machine, SECOND};
use crate::world::World;

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

/// The keys of a browser, as RFC 8291 has them.
const POINT: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";

fn subscription(endpoint: &str) -> String {
    json!({ "endpoint": endpoint, "p256dh": POINT, "auth": AUTH }).to_string()
}

#[tokio::test]
async fn a_browser_is_asked_for_its_subscription_which_leads_to_public_services_alone() {
    let world = World::with(&[]).await;
    let browser = Browser::signed_in(&world).await;
    let add = async |text: &str| browser.post("/devices/notified", &[("name", "<i>"), ("subscription", text)]).await;
    let asked = browser.post("/devices/notified", &[("name", "phone")]).await.is(428);
    let again = browser.post("/devices/notified", &[("name", "phone")]).await.is(428);
    assert_eq!(asked.headers["lastword-asks"], again.headers["lastword-asks"], "the key is made once");
    for (endpoint, why) in [
        ("http://push.example/x", "use https"),
        ("https://127.0.0.1/x", "loopback"),
        ("https://[::ffff:10.0.0.1]/x", "private"),
        ("https://169.254.169.254/x", "link-local"),
        ("nonsense", "isn"),
    ] {
        add(&subscription(endpoint)).await.is(400).has(why);
    }
    add(&json!({ "endpoint": "https://push.example/x", "p256dh": AUTH, "auth": AUTH }).to_string()).await.is(400);
    add("{}").await.is(400).has("the subscription");
    for _ in 0..2 {
        add(&subscription("https://push.example/x")).await.is(200);
    }
    let page = browser.get("/devices").await.is(200).has("by push.example").has("&lt;i&gt;");
    assert_eq!(page.text.matches("by push.example").count(), 1, "the same browser");
    for n in 0..7 {
        add(&subscription(&format!("https://push.example/{n}"))).await.is(200);
    }
    add(&subscription("https://push.example/more")).await.is(503).has("limit 8");
    assert!(!page.text.contains("push.example/x"), "the address is a secret");
    browser.get("/team").await.is(200).has("devices</b> notifies browsers");
    world.post("operator", "/v1/agents/operator/token", json!({})).await.is(201);
    // The devices of a human end with the token, as sessions do.
    assert!(browser.get("/devices").await.status.is_redirection());
}

#[tokio::test]
async fn a_device_whose_browser_ended_its_subscription_is_removed() {
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/push/x", service.local_addr().unwrap());
    let world = World::set(&[], |config| {
        let means = Means::Devices { allow_private: true, devices: None };
        config.settings.notify = vec![Channel { means, ..Channel::to_devices() }];
    })
    .await;
    let browser = Browser::signed_in(&world).await;
    browser.post("/devices/notified", &[]).await.is(428);
    let words = "set <code>address</code> under <code>[console]</code>";
    browser.get("/devices").await.is(200).has(words);
    let (addressed, _) = asking(PasskeyUse::Off).await;
    Browser::signed_in(&addressed).await.get("/devices").await.is(200).has("Notify this device").lacks(words);
    let fields = [("name", "phone"), ("subscription", &*subscription(&endpoint))];
    browser.post("/devices/notified", &fields).await.is(200);
    let page = browser.get("/devices").await.is(200).has("Send a test: phone");
    let id = page.text.split_once("/devices/notified/dev-").unwrap().1.split('/').next().unwrap().to_owned();
    let answered = async |status: &str| {
        let (mut stream, _) = service.accept().await.unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 8192]);
        let body = |got: &[u8]| got.windows(4).position(|end| end == b"\r\n\r\n").map(|at| got[at + 4..].to_vec());
        // The salt, the size of a record and the key, and then one record.
        while body(&got).is_none_or(|body| body.len() < 104) {
            let n = stream.read(&mut buffer).await.unwrap();
            assert!(n > 0, "the call broke off");
            got.extend_from_slice(&buffer[..n]);
        }
        stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
        let head = String::from_utf8_lossy(&got).into_owned();
        assert!(head.starts_with("POST /push/x HTTP/1.1\r\n"), "{head}");
        for line in ["content-encoding: aes128gcm", "ttl: 86400", "urgency: normal", "authorization: vapid t=ey"] {
            assert!(head.contains(line), "{line} is not in {head}");
        }
    };
    let test = format!("/devices/notified/dev-{id}/test");
    for (status, seen) in [("201 Created", 200), ("503 Busy", 400), ("410 Gone", 400)] {
        let (told, ()) = tokio::join!(browser.post(&test, &[]), answered(status));
        told.is(seen);
    }
    browser.get("/devices").await.is(200).lacks("Send a test: phone");
    browser.post(&test, &[]).await.is(404);
}

/// A world that asks for passkeys, with a held call, and its digest.
async fn asking(passkey: PasskeyUse) -> (World, String) {
    let address = Some("https://lastword.example".to_owned());
    let world = World::set(&["kilo"], |config| {
        config.settings.console = ConsoleSettings { address, passkey, ..ConsoleSettings::default() };
    })
    .await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    world.take("kilo").await;
    let held = world.post("kilo", "/v1/approvals", json!({ "tool": "deploy", "arguments": {} })).await.is(201);
    let digest = held["digest"].as_str().unwrap().to_owned();
    (world, digest)
}

#[tokio::test]
async fn without_a_passkey_a_session_allows_nothing_and_gives_nobody_rights() {
    let (mut world, digest) = asking(PasskeyUse::Console).await;
    world.register_human("vera", "viewer").await;
    let browser = Browser::signed_in(&world).await;
    let named = [("digest", &*digest)];
    let alike = [("apr-1", &*digest)];
    let edited = [("digest", &*digest), ("input", "{}")];
    let human = [("name", "eve"), ("role", "owner")];
    for (path, fields) in [
        ("/approvals/apr-1/approve", &named[..]),
        ("/approvals/apr-1/edit", &edited),
        ("/inbox/alike/approve", &alike),
        ("/approvals/apr-1/always", &[]),
        ("/team/agents", &[("name", "eve")]),
        ("/team/humans", &human),
        ("/team/operator/token", &[]),
        ("/team/operator/passkeys/remove", &[]),
        ("/agents/operator/role", &[("role", "owner")]),
    ] {
        browser.post(path, fields).await.is(403).has("you have none yet");
        let forged = r#"{"nonce":"x","id":"x","client_data":"","authenticator_data":""}"#;
        let fields: Vec<_> = fields.iter().copied().chain([("passkey", forged)]).collect();
        browser.post(path, &fields).await.is(403).has("confirm it");
    }
    // Whose role doesn't allow it isn't asked for a passkey.
    let vera = Browser::as_human(&world, "vera").await;
    for path in ["/approvals/apr-1/approve", "/approvals/apr-1/always", "/team/kilo/token", "/agents/vera/role"] {
        vera.post(path, &named).await.is(403).has("not viewer").lacks("passkey");
    }
    assert_eq!(world.get("operator", "/v1/approvals/apr-1").await.is(200)["state"], "pending");
    world.get("operator", "/v1/agents/eve").await.is(404);
    // The one who has only a cookie of some time ago adds none; who has just signed in is asked to make one.
    let asked = browser.post("/devices/passkeys", &[("name", "mine")]).await.is(428);
    assert!(asked.headers["lastword-asks"].to_str().unwrap().contains("\"site\":\"lastword.example\""));
    browser.post("/devices/passkeys", &[("created", "{}")]).await.is(400);
    browser.post("/approvals/apr-1/reject", &[("comment", "no")]).await.is(200);
}

#[tokio::test]
async fn tokens_decide_as_before_unless_a_passkey_is_asked_for_always() {
    let decide = async |world: &World, digest: &str| {
        let decision = json!({ "decision": "approve", "digest": digest });
        world.post("operator", "/v1/approvals/apr-1/decision", decision).await
    };
    let (world, digest) = asking(PasskeyUse::Console).await;
    assert_eq!(decide(&world, &digest).await.is(200)["state"], "approved");
    let (world, digest) = asking(PasskeyUse::Always).await;
    decide(&world, &digest).await.refused(403, "forbidden");
    let reject = json!({ "decision": "reject" });
    world.post("operator", "/v1/approvals/apr-1/decision", reject).await.is(200);
}
