//! Webhooks that are added in the console: notified while the server runs, and after a restart.

use lastword_facts::Limits;
use lastword_server::ConsoleSettings;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::browser::Browser;
use crate::world::World;

const SECRET: &str = "canary-secret-of-a-webhook";

/// Takes one call of a webhook, and answers that it arrived; returns the head and the body.
async fn called(receiver: &TcpListener) -> (String, Value) {
    let (mut stream, _) = receiver.accept().await.unwrap();
    let (mut got, mut buffer) = (Vec::new(), [0; 8192]);
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        assert!(n > 0, "the call broke off");
        got.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&got);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let Ok(body) = serde_json::from_str(body) else { continue };
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
        return (head.to_lowercase(), body);
    }
}

#[tokio::test]
async fn a_webhook_is_added_tested_notified_and_removed_without_a_restart() {
    let receiver = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/path-of-canary", receiver.local_addr().unwrap());
    let world = World::set(&["kilo"], |config| {
        config.settings.console = ConsoleSettings { allow_private: true, ..ConsoleSettings::default() };
        // A call that expires soon shortens the window in which topics are gathered to a quarter of its time.
        config.settings.limits = Limits { approval_ms: 4_000, ..Limits::default() };
    })
    .await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/team").await.is(200).has("Nobody is notified while no page").has("Add a webhook");
    let fields = [("name", "desk"), ("url", &*address), ("secret", SECRET), ("minimum", "normal")];
    let made = browser.post_from("/team/channels", &fields, "div#add-webhook-said").await.is(200);
    made.has(SECRET).lacks("path-of-canary");
    browser.post_from("/team/channels", &fields, "div#add-webhook-said").await.is(400).has("name of another channel");
    let page = browser.get("/team").await.is(200).has("calls 127.0.0.1").has("notified of what an agent waits for");
    page.lacks(SECRET).lacks("path-of-canary");

    let (tested, (head, body)) = tokio::join!(browser.post("/team/channels/desk/test", &[]), called(&receiver));
    tested.is(200).has("Sent a test through desk");
    assert!(head.starts_with("post /path-of-canary ") && head.contains("lastword-signature: t="), "{head}");
    assert_eq!(body["channel"], "desk");

    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    world.take("kilo").await;
    world.post("kilo", "/v1/approvals", json!({ "tool": "deploy", "arguments": {} })).await.is(201);
    let (_, body) = called(&receiver).await;
    assert!(body.to_string().contains("apr-1"), "{body}");

    browser.post("/team/channels/desk/remove", &[]).await.is(200).has("Removed the channel desk");
    browser.get("/team").await.is(200).lacks("calls 127.0.0.1");
    browser.post("/team/channels/desk/test", &[]).await.is(404);
}

#[tokio::test]
async fn what_a_webhook_may_not_be_is_refused_with_the_reason_and_a_restart_knows_the_others() {
    let world = World::with(&[]).await;
    let browser = Browser::signed_in(&world).await;
    let add = async |name: &str, url: &str, secret: &str, minimum: &str| {
        let fields = [("name", name), ("url", url), ("secret", secret), ("minimum", minimum)];
        browser.post_from("/team/channels", &fields, "div#add-webhook-said").await
    };
    for (name, url, secret, minimum, why) in [
        ("desk", "http://hooks.example/", SECRET, "low", "`url` is http: use https"),
        (
            "desk",
            "https://127.0.0.1/",
            SECRET,
            "low",
            "loopback, which webhooks may not reach; ask whoever runs the server",
        ),
        ("desk", "https://169.254.169.254/", SECRET, "low", "link-local"),
        ("desk", "https://user:pass@hooks.example/", SECRET, "low", "secret"),
        ("desk", "https://hooks.example/", "short", "low", "`secret` the webhook"),
        ("desk", "https://hooks.example/", SECRET, "huge", "no severity"),
        ("a b", "https://hooks.example/", SECRET, "low", "a b"),
        ("devices", "https://hooks.example/", SECRET, "low", "name of another channel"),
    ] {
        add(name, url, secret, minimum).await.is(400).has(why).lacks("allow_private");
    }
    let made = add("desk", "https://hooks.example/x", "", "urgent").await.is(200);
    let secret = made.text.split_once("<pre class=\"rule\">").unwrap().1.split('<').next().unwrap().to_owned();
    assert!(secret.len() >= 32, "{secret}");
    for n in 1..16 {
        add(&format!("desk-{n}"), "https://hooks.example/x", "", "low").await.is(200);
    }
    add("more", "https://hooks.example/x", "", "low").await.is(503).has("limit 16");
    let world = world.restart().await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/team").await.is(200).has("calls hooks.example").has("notified of what is urgent").lacks(&secret);
    browser.post("/team/channels/desk/remove", &[]).await.is(200);
    browser.post("/team/channels/devices/remove", &[]).await.is(404);
}

#[tokio::test]
async fn an_owner_alone_says_where_notifications_go() {
    let mut world = World::with(&[]).await;
    world.register_human("olga", "operator").await;
    let browser = Browser::as_human(&world, "olga").await;
    browser.get("/team").await.is(200).lacks("Add a webhook");
    let fields = [("name", "desk"), ("url", "https://hooks.example/"), ("minimum", "low")];
    browser.post("/team/channels", &fields).await.is(403).has("owner");
    browser.post("/team/channels/desk/remove", &[]).await.is(403);
}
