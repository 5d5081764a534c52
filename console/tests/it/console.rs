//! The console: who can sign in, what a form needs, and what a page must never do.

use lastword_server::Config;
use reqwest::header::SET_COOKIE;
use serde_json::{Value, json};

use crate::browser::{Browser, Seen};
use crate::world::{World, id};

/// Returns an agent's turn, and the question that it asked a human in it.
async fn asking(world: &World, question: Value) -> (Value, Value) {
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    let task = world.take("kilo").await;
    (task, world.post("kilo", "/v1/escalations", question).await.is(201))
}

/// Between two scripts there is a gap in which htmx could process a page before the console's script is there.
#[tokio::test]
async fn what_comes_after_the_page_is_one_script_with_htmx_and_hints_in_it() {
    let world = World::with(&[]).await;
    let mut browser = Browser::of(&world);
    browser.sign_in("token", world.token("operator")).await.is(303);
    let page = browser.get("/").await.is(200).text;
    let scripts: Vec<&str> = page.split("<script src=\"").skip(1).filter(|tag| tag.contains(" defer>")).collect();
    let [script] = scripts[..] else { panic!("{scripts:?}") };
    let script = browser.get(script.split('"').next().unwrap()).await.is(200).text;
    let order = ["var htmx=", "const hints =", "new SharedWorker("].map(|part| script.find(part).unwrap());
    assert!(order.is_sorted(), "{order:?}");
    let worker = browser.get(page.split("data-worker=\"").nth(1).unwrap().split('"').next().unwrap()).await.is(200);
    assert_eq!(worker.headers["content-type"], "text/javascript; charset=utf-8");
    assert!(worker.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'self';"));
}

#[tokio::test]
async fn a_human_signs_in_and_the_cookie_is_for_the_console_alone() {
    let world = World::with(&["kilo"]).await;
    let mut browser = Browser::of(&world);
    let seen = browser.get("/conversations?from=kilo").await.is(303);
    assert_eq!(seen.location(), "/sign-in?next=%2Fconversations%3Ffrom%3Dkilo");
    browser.sign_in("token", "lw_0").await.is(401).has("Unknown token");
    let seen = browser.sign_in("token", world.token("kilo")).await.is(403).has("The console is for humans");
    assert!(seen.headers.get(SET_COOKIE).is_none());
    let seen = browser.sign_in("token", world.token("operator")).await.is(303);
    let cookie = seen.headers[SET_COOKIE].to_str().unwrap();
    assert!(cookie.contains("; HttpOnly; SameSite=Lax; ") && cookie.contains("; Path=/;"), "{cookie}");
    assert!(!cookie.contains("Secure") && !cookie.contains(world.token("operator")), "{cookie}");
    browser.get("/inbox").await.is(200).has("No pending decisions.");
    for path in ["/v1/agents", "/v1/inbox", "/mcp"] {
        browser.get(path).await.is(401);
    }
    browser.post("/sign-out", &[]).await.is(200);
    // The session is over for any other holder of the cookie too.
    assert!(browser.get("/").await.is(303).location().starts_with("/sign-in"));
    let value = cookie.split([';', '=']).nth(1).unwrap().to_owned();
    for spelling in [value.clone(), format!("0{value}"), format!("+{value}"), value.to_uppercase()] {
        browser.cookie = cookie.split(';').next().unwrap().replace(&value, &spelling);
        browser.get("/").await.is(303);
    }
    let secure = browser.sign_in_over_https().await;
    assert!(secure.ends_with("; Secure"), "{secure}");
}

#[tokio::test]
async fn a_link_signs_in_once() {
    let world = World::with(&[]).await;
    let code = world.server.sign_in_code().unwrap();
    let mut browser = Browser::of(&world);
    browser.sign_in("code", "0").await.is(401).has("used already or is too old");
    browser.sign_in("code", code.reveal()).await.is(303);
    browser.get("/").await.is(200);
    Browser::of(&world).sign_in("code", code.reveal()).await.is(401);
}

#[tokio::test]
async fn a_session_survives_a_restart_and_ends_with_its_token() {
    let mut world = World::with(&[]).await;
    world.register(json!({"name": "second", "kind": "human"})).await;
    let mut browser = Browser::of(&world);
    browser.sign_in("token", world.token("second")).await.is(303);
    let port = |cookie: &str| cookie.split_once('=').map(|(_, value)| value.to_owned()).unwrap();
    let value = port(&browser.cookie);
    let world = world.restart().await;
    let mut browser = Browser::of(&world);
    let name = format!("lastword_session_{}", world.server.addr().port());
    browser.cookie = format!("{name}={value}");
    browser.get("/").await.is(200);
    for wrong in
        [value.replacen('.', ".9", 1), value.replacen(char::is_numeric, "1", 1), format!("{value}.0"), String::new()]
    {
        let mut other = Browser::of(&world);
        other.cookie = format!("{name}={wrong}");
        other.get("/").await.is(303);
    }
    world.post("operator", "/v1/agents/second/token", json!({})).await.is(201);
    assert_eq!(browser.get("/").await.is(303).location(), "/sign-in");
    let live = browser.ask(browser.http.get(world.url("/live")).header("hx-request", "true")).await;
    live.is(401).has("You are signed out");
}

#[tokio::test]
async fn a_form_of_another_site_changes_nothing() {
    let world = World::with(&["kilo"]).await;
    let (_, asked) = asking(&world, json!({"message": "where?"})).await;
    let browser = Browser::signed_in(&world).await;
    let path = format!("/escalations/{}/answer", id(&asked, "id"));
    browser.send(&path, &[("answer", "eu")], &[]).await.is(403).has("from another session");
    browser.send(&path, &[("answer", "eu"), ("forms", "0")], &[]).await.is(403);
    let page = browser.get("/").await;
    let (_, rest) = page.text.split_once("name=\"forms\" value=\"").unwrap();
    let fields = [("answer", "eu"), ("forms", rest.split('"').next().unwrap())];
    for foreign in [
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        browser.send(&path, &fields, &[foreign]).await.is(403);
    }
    browser.get(&path).await.is(405);
    assert_eq!(world.get("operator", "/v1/escalations/esc-1").await.is(200)["state"], "open");
    browser.send(&path, &fields, &[("sec-fetch-site", "same-origin")]).await.is(303);
    assert_eq!(world.get("operator", "/v1/escalations/esc-1").await.is(200)["answer"], "eu");
}

#[tokio::test]
async fn every_page_has_the_headers_that_keep_it_whole() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1/a", "x").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let message = world.get("operator", "/v1/messages").await.is(200)["items"][0]["id"].as_str().unwrap().to_owned();
    let one = format!("/messages/{message}");
    let pages = [
        "/",
        "/inbox",
        "/conversations",
        "/conversations/T-1%2Fa",
        "/conversations/T-1%2Fa?view=waterfall",
        &one,
        "/agents",
        "/agents/kilo",
        "/compose",
        "/limits",
        "/team",
        "/workspace",
        "/sign-in",
        "/messages/none",
    ];
    for path in pages {
        let seen = browser.get(path).await;
        let header = |name: &str| seen.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default();
        assert_eq!(
            header("content-security-policy"),
            "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'; object-src 'none'",
            "{path}"
        );
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "same-origin");
        assert_eq!(header("cross-origin-opener-policy"), "same-origin");
        assert_eq!(header("cache-control"), "no-store");
        for inline in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
            assert!(!seen.text.contains(inline), "{path} has {inline}");
        }
        assert_eq!(seen.text.matches("<script").count(), seen.text.matches("<script src=\"/assets/").count(), "{path}");
        let asset = seen.text.split("src=\"").nth(1).unwrap().split('"').next().unwrap();
        let asset = browser.get(asset).await.is(200);
        assert_eq!(asset.headers["cache-control"], "public, max-age=31536000, immutable");
    }
    browser.get("/assets/console.css").await.is(404);
}

#[tokio::test]
async fn what_agents_write_is_shown_and_does_nothing() {
    let world = World::with(&["kilo"]).await;
    let hostile = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\u{202e}abc\u{1b}[31m";
    asking(&world, json!({"message": hostile, "options": ["\"><b>eu"]})).await;
    world
        .post("kilo", "/v1/approvals", json!({"tool": "<b>rm", "arguments": {"a\u{202e}": hostile}, "reason": hostile}))
        .await
        .is(201);
    world.post("kilo", "/v1/messages", json!({"type": "info", "to": "operator", "body": hostile})).await.is(201);
    let browser = Browser::signed_in(&world).await;
    for path in
        ["/", "/inbox", "/conversations/T-1", "/conversations/T-1?view=waterfall", "/conversations/T-1?view=log"]
    {
        let seen = browser.get(path).await.is(200);
        for live in ["<script>alert", "<img", "<b>rm", "<b>eu", "\u{202e}", "\u{1b}"] {
            assert!(!seen.text.contains(live), "{path} has {live:?}");
        }
        assert!(seen.text.contains("onerror=alert(2)") && seen.text.contains("u{202e}"), "{path}: {}", seen.text);
    }
}

#[tokio::test]
async fn an_answer_resumes_its_task_and_who_comes_second_is_told_of_the_first() {
    let world = World::with(&["kilo"]).await;
    let (task, asked) = asking(&world, json!({"message": "where?", "options": ["eu", "us"]})).await;
    world.finish("kilo", &task, "waiting").await.is(200);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/inbox").await.is(200).has("where?").has("T-1").has("you asked kilo");
    assert!(page.text.contains("value=\"us\""));
    let path = format!("/escalations/{}/answer", id(&asked, "id"));
    browser.post(&path, &[("answer", " ")]).await.is(400).has("Enter an answer");
    let seen = browser.post(&path, &[("option", "us"), ("answer", "")]).await.is(200).has("kilo continues");
    assert_eq!(seen.headers["hx-trigger"], "lw-inbox");
    assert_eq!(world.take("kilo").await["message"]["body"], "us");
    browser.post(&path, &[("answer", "eu")]).await.is(409).has("was already settled by operator: us");
    browser.get("/inbox").await.has("Recently settled");
    browser.get("/waiting").await.is(200).has("No pending decisions");
}

#[tokio::test]
async fn a_call_is_approved_as_it_was_shown_or_rejected_with_a_reason() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    world.take("kilo").await;
    let hold =
        |to: &str| world.post("kilo", "/v1/approvals", json!({"tool": "deploy", "arguments": {"to": to, "a": 1}}));
    let first = hold("eu").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let digest = id(&first, "digest").to_owned();
    browser.get("/inbox").await.has(&digest).has("&quot;to&quot;: &quot;eu&quot;");
    browser.post("/approvals/apr-1/approve", &[]).await.is(400);
    browser.post("/approvals/apr-1/approve", &[("digest", &"0".repeat(64))]).await.is(422);
    browser.post("/approvals/apr-1/approve", &[("digest", &digest)]).await.is(200).has("approved");
    let twice = browser.post("/approvals/apr-1/reject", &[("comment", "no")]).await;
    twice.is(409).has("was already settled: approved by operator");
    hold("us").await.is(201);
    browser.post("/approvals/apr-2/reject", &[("comment", "not today")]).await.is(200);
    let rejected = world.get("kilo", "/v1/approvals/apr-2").await.is(200);
    assert_eq!((id(&rejected, "state"), id(&rejected, "comment")), ("rejected", "not today"));
    hold("mars").await.is(201);
    browser.post("/approvals/apr-3/edit", &[("input", "{")]).await.is(400).has("the arguments aren't valid JSON");
    browser.post("/approvals/apr-3/edit", &[("input", r#"{"to":"moon","a":1}"#)]).await.is(200);
    let edited = world.get("kilo", "/v1/approvals/apr-3").await.is(200);
    assert_eq!((id(&edited, "state"), &edited["arguments"]["to"]), ("approved", &json!("moon")));
    browser.post("/approvals/apr-3/nonsense", &[]).await.is(404);
}

#[tokio::test]
async fn conversations_are_filtered_and_paged_by_their_address() {
    let world =
        World::set(&["kilo", "hive"], |config: &mut Config| config.settings.limits.pair_messages_max = 1_000).await;
    for n in 0..60 {
        world
            .send("operator", if n % 2 == 0 { "kilo" } else { "hive" }, &format!("T-{n}"), &format!("word{n}"))
            .await
            .is(201);
    }
    let browser = Browser::signed_in(&world).await;
    let rows = |seen: &Seen| seen.text.matches("class=\"row talk\"").count();
    let first = browser.get("/conversations").await.is(200);
    assert_eq!(rows(&first), 50);
    let next = first.text.split("href=\"/conversations?cursor=").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(rows(&browser.get(&format!("/conversations?cursor={next}")).await.is(200)), 10);
    assert_eq!(rows(&browser.get("/conversations?to=kilo").await.is(200)), 30);
    assert_eq!(rows(&browser.get("/conversations?q=word7").await.is(200).has("T-7")), 1);
    assert_eq!(rows(&browser.get("/conversations?ref=t-5&to=hive&type=request").await.is(200)), 6);
    assert_eq!(rows(&browser.get("/conversations?from=nobody").await.is(200).has("No conversation matches")), 0);
    world.post("operator", "/v1/conversations/T-3/pause", json!({})).await.is(204);
    assert_eq!(rows(&browser.get("/conversations?state=paused").await.is(200)), 1);
    for wrong in ["state=asleep", "cursor=x", "depth=0", "type=x", "colour=red"] {
        browser.get(&format!("/conversations?{wrong}")).await.is(400);
    }
}

#[tokio::test]
async fn a_conversation_shows_what_was_said_refused_and_spent_and_is_controlled() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "do it").await.is(201);
    let task = world.take("kilo").await;
    world.post("kilo", "/v1/messages", json!({"type": "request", "to": "hive", "body": "help"})).await.is(201);
    let helping = world.take("hive").await;
    world
        .post("hive", "/v1/messages", json!({"type": "request", "to": "kilo", "body": "and you?"}))
        .await
        .refused(422, "passive_reply");
    let path = format!("/v1/turns/{}/finish", id(&helping["turn"], "id"));
    world
        .post("hive", &path, json!({"answer": "done", "usage": {"input_tokens": 1200, "output_tokens": 34}}))
        .await
        .is(200);
    let browser = Browser::signed_in(&world).await;
    let tree = browser.get("/conversations/T-1").await.is(200).has("help").has("1\u{202f}234 tokens").has("rule D5");
    // It stands below the request in whose turn it was refused.
    let (_, refused) = tree.text.split_once(">refused</span>").unwrap();
    let refused = refused.split("href=\"/messages/msg-").nth(1).unwrap().split('"').next().unwrap();
    let why = browser.get(&format!("/messages/msg-{refused}")).await.is(200);
    why.has("passive_reply").has("hive").has("you asked kilo").has("kilo asked hive");
    browser
        .get("/conversations/T-1%2F1?view=waterfall")
        .await
        .is(200)
        .has("<svg")
        .has("waits for the sender's final answer");
    browser.get("/conversations/T-1?view=log").await.is(200).has("turn opened").has("grant opened");
    browser.get("/conversations/T-9").await.is(404);
    browser.get("/conversations/T-1?view=cake").await.is(400);
    browser.get("/conversations/T-1?before=msg-9&after=msg-1").await.is(400).has("exclude each other");
    let state = async || world.get("operator", "/v1/conversations/T-1").await.is(200)["state"].clone();
    browser.post("/conversations/T-1/pause", &[]).await.is(200);
    assert_eq!(state().await, "paused");
    browser.post("/conversations/T-1/resume", &[]).await.is(200);
    browser.post("/conversations/T-1/grant", &[("messages", "")]).await.is(400).has("Enter at least one amount");
    browser.post("/conversations/T-1/grant", &[("messages", "9")]).await.is(200);
    browser.get("/conversations/T-1").await.has("/73");
    browser.post("/conversations/T-1/stop", &[]).await.is(200);
    assert_eq!(state().await, "stopped");
    let turn = id(&task["turn"], "id");
    assert!(
        world.post("kilo", &format!("/v1/turns/{turn}/finish"), json!({"answer": "x"})).await.status.is_client_error()
    );
}

#[tokio::test]
async fn hints_say_what_changed_and_go_on_where_they_were_left() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    let mut live = browser.stream("/live").await;
    asking(&world, json!({"message": "where?"})).await;
    let seen = until(&mut live, "event: lw-conv-1\n").await;
    assert!(seen.contains("event: lw-inbox\n") && seen.contains("event: lw-conversations\n"), "{seen}");
    // An id means that everything up to it was received, so only the last hint of a position has it.
    let parts: Vec<&str> = seen.split_terminator("\n\n").collect();
    let data = |event: &str| event.lines().find(|line| line.starts_with("data: ")).unwrap_or_default().to_owned();
    let earlier: Vec<_> = parts.windows(2).filter(|pair| data(pair[0]) == data(pair[1])).map(|pair| pair[0]).collect();
    assert!(!earlier.is_empty() && earlier.iter().all(|event| !event.contains("id: ")), "{seen}");
    drop(live);
    let again = browser.http.get(world.url("/live")).header("cookie", &browser.cookie);
    let mut again = again.header("last-event-id", "1").send().await.unwrap();
    until(&mut again, "event: lw-inbox").await;
    let mut foreign = browser.stream("/live?after=999999").await;
    until(&mut foreign, "event: lw-all").await;
}

/// Reads until this text arrives; returns everything read.
async fn until(response: &mut reqwest::Response, wanted: &str) -> String {
    let mut text = String::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        if text.contains(wanted) && text.ends_with("\n\n") {
            return text;
        }
    }
    panic!("the stream ended before {wanted}: {text}");
}
