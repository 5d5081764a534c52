//! The link by which anybody reads one conversation, seen by who has it and by who would like to.

use lastword_broker::identity::unhex;
use lastword_facts::{Limits, Seq};
use lastword_server::BasePath;
use lastword_store::{Anchor, DataDir};
use serde_json::{Value, json};

use crate::browser::{Browser, Seen};
use crate::machine::{HOUR, Machine};
use crate::world::{World, id};

const DAY_MS: &str = "86400000";

/// Makes the link to a conversation, and returns its secret.
async fn made(browser: &Browser<'_>, reference: &str) -> String {
    let path = format!("/conversations/{reference}/link");
    let seen = browser.post_from(&path, &[("valid_ms", DAY_MS)], "div#make-link-said").await.is(200);
    let secret = seen.text.split("/shared#").nth(1).unwrap_or_else(|| panic!("no link in {}", seen.text));
    secret.split('<').next().unwrap().to_owned()
}

/// Opens a link in a browser in which nobody has signed in.
async fn open(world: &World, secret: &str) -> Seen {
    Browser::of(world).send("/shared", &[("code", secret)], &[("sec-fetch-site", "same-origin")]).await
}

/// A conversation with a held call and a refusal, in which secrets are written, beside another one.
async fn incident() -> World {
    let limits = Limits { grant_messages_max: 6, ..Limits::default() };
    let world = World::within(limits, &["coder", "idler", "outsider"]).await;
    world.send("operator", "coder", "BIG-1", "Deploy it <b>now</b>, password=hunter2").await.is(201);
    world.take("coder").await;
    let call = json!({
        "tool": "Write", "arguments": {"file_path": "conf/app.env", "content": "canary-content", "token": "canary-token"},
        "reason": "uses lw_0123456789abcdef0123",
    });
    world.post("coder", "/v1/approvals", call).await.is(201);
    let part = |to: &str| json!({"type": "request", "to": to, "body": "a part"});
    world.post("coder", "/v1/messages", part("idler")).await.is(201);
    world.post("coder", "/v1/messages", part("outsider-of-all")).await.is(404);
    world.send("operator", "outsider", "SECRET-2", "canary of another conversation").await.is(201);
    world
}

#[tokio::test]
async fn a_link_shows_one_conversation_to_who_has_not_signed_in_and_nothing_that_looks_like_a_secret() {
    let world = incident().await;
    let browser = Browser::signed_in(&world).await;
    let secret = made(&browser, "BIG-1").await;
    let seen = open(&world, &secret).await.is(200);
    let seen = seen.has("BIG-1").has("Deploy it &lt;b&gt;now&lt;/b&gt;, password=•••").has("coder").has("idler");
    let seen = seen.has("asks to call <code>Write</code>").has("conf/app.env").has("uses •••").has("left out");
    for canary in
        ["canary", "hunter2", "lw_", "SECRET-2", "outsider", "<nav", "data-live", "name=\"forms\"", "/conversations"]
    {
        assert!(!seen.text.contains(canary), "{canary} is in {}", seen.text);
    }
    let links = seen.text.matches("href=\"").count() - seen.text.matches("<link ").count();
    assert_eq!(links, 0, "it leads nowhere: {}", seen.text);
    for (name, value) in [
        ("cache-control", "no-store"),
        ("referrer-policy", "same-origin"),
        ("x-robots-tag", "noindex"),
        ("x-frame-options", "DENY"),
    ] {
        assert_eq!(seen.headers[name], value);
    }
    assert!(!seen.headers.contains_key("set-cookie"));
    // What a chat fetches to show what is behind an address has the address alone.
    let entry = Browser::of(&world).get("/shared").await.is(200).lacks("BIG-1");
    assert_eq!(
        (&entry.headers["x-robots-tag"], &entry.headers["cache-control"]),
        (&"noindex".parse().unwrap(), &"no-store".parse().unwrap())
    );
    // Without scripts, the whole link is in the field.
    open(&world, &format!(" {}#{secret} ", world.url("/shared"))).await.is(200).has("BIG-1");
    let events = world.get("operator", "/v1/events?until=1000&after=0").await.is(200);
    let events = events.as_str().unwrap();
    assert_eq!(events.matches("event: link_set").count(), 1, "{events}");
    assert!(!events.contains(&secret) && events.contains("\"by\":\"operator\""), "{events}");
}

#[tokio::test]
async fn the_line_at_its_foot_proves_the_log_by_its_hash() {
    let world = incident().await;
    let secret = made(&Browser::signed_in(&world).await, "BIG-1").await;
    let seen = open(&world, &secret).await.is(200);
    let line = seen.text.split("lastword verify --expect ").nth(1).unwrap().split('<').next().unwrap();
    let (at, hash) = line.split_once(':').unwrap();
    let anchor = Anchor { at: Seq(at.parse().unwrap()), hash: unhex(hash).unwrap() };
    world.server.shutdown().await;
    let verify = |anchor| DataDir::at(world.dir.path()).verify(Some(anchor), &mut |_, _| Ok(()), &mut |_, _| {});
    assert!(verify(anchor).is_ok());
    let mut other = anchor;
    other.hash[0] ^= 1;
    assert!(verify(other).is_err());
}

#[tokio::test]
async fn only_who_decides_makes_a_link_or_ends_one() {
    let mut world = incident().await;
    world.register_human("vera", "viewer").await;
    world.register_human("anna", "approver").await;
    let viewer = Browser::as_human(&world, "vera").await;
    viewer.get("/conversations/BIG-1").await.is(200).has("Making or ending a link needs the role approver");
    viewer.post("/conversations/BIG-1/link", &[("valid_ms", DAY_MS)]).await.is(403);
    let anna = Browser::as_human(&world, "anna").await;
    let secret = made(&anna, "BIG-1").await;
    viewer.post("/conversations/BIG-1/link/end", &[]).await.is(403);
    open(&world, &secret).await.is(200);
    for wrong in ["0", "604800001", "-1", "soon"] {
        anna.post("/conversations/BIG-1/link", &[("valid_ms", wrong)]).await.is(400);
    }
    anna.post("/conversations/NONE-1/link", &[("valid_ms", DAY_MS)]).await.is(404);
    open(&world, &secret).await.is(200);
    anna.get("/conversations/BIG-1").await.is(200).has("A link that anna made expires").lacks(&secret);
    Browser::of(&world).send("/conversations/BIG-1/link", &[("valid_ms", DAY_MS)], &[]).await.is(303);
}

#[tokio::test]
async fn a_link_ends_by_a_click_by_another_one_and_with_its_human_also_after_a_restart() {
    let mut world = incident().await;
    world.register_human("anna", "approver").await;
    let (first, second) = {
        let browser = Browser::signed_in(&world).await;
        let first = made(&browser, "BIG-1").await;
        let second = made(&browser, "BIG-1").await;
        assert_ne!(first, second);
        open(&world, &first).await.is(401).has("This link has ended");
        open(&world, &second).await.is(200);
        (first, second)
    };
    let world = world.restart().await;
    open(&world, &first).await.is(401);
    open(&world, &second).await.is(200);
    let browser = Browser::signed_in(&world).await;
    browser.post("/conversations/BIG-1/link/end", &[]).await.is(200).has("opens nothing any more");
    open(&world, &second).await.is(401);
    drop(browser);
    let world = world.restart().await;
    open(&world, &second).await.is(401);
    let anna = Browser::as_human(&world, "anna").await;
    let hers = made(&anna, "BIG-1").await;
    open(&world, &hers).await.is(200);
    let browser = Browser::signed_in(&world).await;
    browser.post("/agents/anna/role", &[("role", "viewer")]).await.is(200);
    open(&world, &hers).await.is(401);
    browser.post("/agents/anna/role", &[("role", "approver")]).await.is(200);
    open(&world, &hers).await.is(200);
    browser.post("/team/anna/token", &[]).await.is(200);
    open(&world, &hers).await.is(401);
}

#[tokio::test]
async fn a_link_expires() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    world.send("operator", "kilo", "T-1", "look").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let secret = made(&browser, "T-1").await;
    machine.run(24 * HOUR - 1);
    open(&world, &secret).await.is(200);
    machine.run(1);
    open(&world, &secret).await.is(401);
    browser.get("/conversations/T-1").await.is(200).lacks("A link that operator made");
}

#[tokio::test]
async fn no_part_of_a_link_opens_anything_else_and_guessing_is_bounded() {
    let world = incident().await;
    let browser = Browser::signed_in(&world).await;
    let secret = made(&browser, "BIG-1").await;
    let other = made(&browser, "SECRET-2").await;
    let (conv, mac) = secret.split_once('.').unwrap();
    let (other_conv, _) = other.split_once('.').unwrap();
    let changed = format!("{conv}.{}{}", if mac.starts_with('0') { "1" } else { "0" }, &mac[1..]);
    let wrong = [
        changed,
        format!("{other_conv}.{mac}"),
        format!("{conv}.{}", &mac[..32]),
        format!("{conv}.{mac}00"),
        format!("{conv}."),
        format!(".{mac}"),
        String::new(),
        "4294967296.00".into(),
    ];
    for guess in &wrong {
        open(&world, guess).await.is(401).lacks("BIG-1");
    }
    // It is neither a token, nor a session, nor a code that signs in.
    let answer = world.http.get(world.url("/v1/conversations/BIG-1")).bearer_auth(&secret).send().await.unwrap();
    assert_eq!(answer.status(), 401);
    let mut reader = Browser::of(&world);
    reader.sign_in("code", &secret).await.is(401);
    reader.cookie = browser.cookie.replace(browser.cookie.split_once('=').unwrap().1, &secret);
    for path in ["/", "/conversations/BIG-1", "/messages/msg-1", "/live", "/waiting", "/palette?q=BIG"] {
        reader.get(path).await.is(303);
    }
    open(&world, &secret).await.is(200);
    let mut statuses = Vec::new();
    for _ in 0..40 {
        statuses.push(open(&world, &wrong[0]).await.status.as_u16());
    }
    assert!(statuses.ends_with(&[429; 10]), "{statuses:?}");
}

#[tokio::test]
async fn a_link_leads_below_the_path_of_a_proxy() {
    let world = World::set(&["kilo"], |config| {
        config.settings.path = BasePath::try_from("/lw".to_owned()).unwrap();
    })
    .await;
    world.send("operator", "kilo", "T-1", "look").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let seen =
        browser.post_from("/conversations/T-1/link", &[("valid_ms", DAY_MS)], "div#make-link-said").await.is(200);
    let link = seen.text.split("<pre class=\"rule\">").nth(1).unwrap().split('<').next().unwrap().to_owned();
    assert!(link.starts_with(&format!("{}/lw/shared#", world.url(""))), "{link}");
    Browser::of(&world).get("/lw/shared").await.is(200).has("action=\"/lw/shared\"");
    open(&world, &link).await.is(200).has("T-1");
}

#[tokio::test]
async fn a_conversation_shows_its_children_and_names_nobody_who_has_no_part_in_it() {
    let world = World::with(&["planner", "coder", "tester"]).await;
    world.send("operator", "planner", "TOP-1", "plan it").await.is(201);
    world.take("planner").await;
    world.post("planner", "/v1/messages", json!({"type": "request", "to": "coder", "body": "code it"})).await.is(201);
    let task: Value = world.take("coder").await;
    let child = id(&task["message"], "ref").to_owned();
    world.post("coder", "/v1/messages", json!({"type": "request", "to": "tester", "body": "test it"})).await.is(201);
    let browser = Browser::signed_in(&world).await;
    let seen = open(&world, &made(&browser, "TOP-1").await).await.is(200);
    seen.has("plan it").has("code it").has("test it").has("tester");
    let seen = open(&world, &made(&browser, &child.replace('/', "%2F")).await).await.is(200);
    seen.has("code it").has("test it").has("someone else").lacks("plan it").lacks("operator");
}
