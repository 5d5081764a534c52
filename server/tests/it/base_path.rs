//! A server behind a proxy's path: everything that it answers leads below the path, whether the proxy keeps or strips it.

use std::collections::BTreeSet;

use lastword_server::{BasePath, Config};
use lastword_wire::session::PATH;
use reqwest::header::{LOCATION, SET_COOKIE};
use serde_json::json;

use crate::browser::{Browser, Seen};
use crate::session::Raw;
use crate::world::World;

fn lw(config: &mut Config) {
    config.settings.path = BasePath::try_from("/lw".to_owned()).unwrap();
}

/// The attributes that hold addresses.
const ATTRIBUTES: [&str; 8] = ["href", "src", "action", "hx-get", "hx-post", "data-beside", "data-live", "data-worker"];

/// Returns the addresses in a page, with the attribute of each.
fn addresses(page: &str) -> Vec<(&'static str, String)> {
    let of = |name: &'static str| {
        let begin = format!(" {name}=\"");
        let parts = page.split(begin.as_str()).skip(1).map(|rest| rest.split('"').next().unwrap_or_default());
        parts.map(|address| (name, address.replace("&amp;", "&"))).collect::<Vec<_>>()
    };
    ATTRIBUTES.into_iter().flat_map(of).collect()
}

fn header(seen: &Seen, name: &str) -> String {
    seen.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
}

/// A workspace with one of most things that pages show.
async fn furnished() -> World {
    let world = World::set(&["kilo", "hive"], lw).await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    world.take("kilo").await;
    let question = json!({ "message": "Which one?", "options": ["a", "b"] });
    world.post("kilo", "/v1/escalations", question).await.is(201);
    for n in 0..2 {
        let call = json!({ "tool": "Bash", "arguments": { "command": format!("make {n}") } });
        world.post("kilo", "/v1/approvals", call).await.is(201);
    }
    world.post("operator", "/v1/rooms", json!({ "name": "lobby", "members": ["kilo", "hive"] })).await.is(201);
    let schedule = json!({ "name": "nightly", "cron": "0 2 * * *", "to": "hive", "body": "Run the tests" });
    world.post("operator", "/v1/schedules", schedule).await.is(201);
    world.post("operator", "/v1/conversations/T-1/pause", json!({})).await.is(204);
    world
}

#[tokio::test]
async fn every_address_of_every_page_is_below_the_path_and_leads_somewhere() {
    let world = furnished().await;
    let browser = Browser::signed_in(&world).await;
    let mut open = vec!["/lw/".to_owned(), "/lw/conversations/T-1?view=waterfall".into(), "/lw/palette?q=T".into()];
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(path) = open.pop() {
        // As a proxy that keeps the path asks, and as one that strips it.
        let stripped = browser.get(path.strip_prefix("/lw").unwrap()).await;
        let kept = browser.get(&path).await;
        assert_eq!(kept.status, stripped.status, "{path}");
        assert_eq!(addresses(&kept.text), addresses(&stripped.text), "{path}");
        let leads = match kept.status.as_u16() {
            // An id of something that is shown on another page.
            303 => vec![("location", header(&kept, "location"))],
            _ => addresses(&kept.is(200).text),
        };
        for (attribute, address) in leads {
            assert!(!address.contains("/sign-in"), "{path}");
            let beside = address.starts_with('#') || address.starts_with('?');
            assert!(beside || address.starts_with("/lw/"), "{attribute}={address} in {path}");
            let is_page = !beside && !matches!(attribute, "action" | "hx-post" | "data-live");
            let page = address.split('#').next().unwrap_or_default().to_owned();
            if is_page && seen.len() < 400 && seen.insert(page.clone()) {
                open.push(page);
            }
        }
    }
    for page in
        ["/lw/inbox", "/lw/rooms/lobby", "/lw/agents/kilo", "/lw/messages/msg-1", "/lw/approvals/apr-1", "/lw/spend"]
    {
        assert!(seen.contains(page) || seen.iter().any(|path| path.starts_with(page)), "{page} isn't in {seen:?}");
    }
}

#[tokio::test]
async fn what_a_browser_is_sent_to_or_given_is_below_the_path() {
    let world = furnished().await;
    let mut browser = Browser::of(&world);
    // Without the path, as a local browser and a proxy that strips it ask.
    for path in ["/inbox", "/lw/inbox"] {
        assert_eq!(header(&browser.get(path).await.is(303), "location"), "/lw/sign-in?next=%2Finbox", "{path}");
    }
    browser.get("/lw/nowhere/at-all").await.is(404);
    let seen = browser.sign_in("token", world.token("operator")).await.is(303);
    assert_eq!(header(&seen, "location"), "/lw/");
    assert!(header(&seen, "set-cookie").contains("; Path=/lw; "), "{:?}", seen.headers[SET_COOKIE]);
    assert!(!browser.get("/lw").await.is(200).headers.contains_key(LOCATION));
    let room = [("subject", "news"), ("body", "hello")];
    let posted = browser.post("/lw/rooms/lobby", &room).await.is(200);
    assert_eq!(header(&posted, "hx-redirect"), "/lw/rooms/lobby");
    // A path that only begins like it is another one.
    browser.get("/lwx").await.is(404);
    let out = browser.post("/lw/sign-out", &[]).await.is(200);
    assert_eq!(header(&out, "hx-redirect"), "/lw/sign-in");
    assert!(header(&out, "set-cookie").contains("; Path=/lw; "), "{:?}", out.headers[SET_COOKIE]);
}

#[tokio::test]
async fn programs_call_the_server_with_the_path_and_without_it() {
    let world = furnished().await;
    for below in ["", "/lw"] {
        world.get("kilo", &format!("{below}/v1/clock")).await.is(200);
        let described = world.get("kilo", &format!("{below}/openapi.json")).await.is(200);
        assert_eq!(described["servers"], json!([{ "url": "/lw" }]));
        assert_eq!(described["openapi"], "3.1.0");
        let sessions = world.get("kilo", &format!("{below}/asyncapi.json")).await.is(200);
        assert_eq!(sessions["servers"]["local"]["pathname"], "/lw");
        let refused = world.http.post(world.url(&format!("{below}/mcp"))).send().await.unwrap();
        let place = world.url("/lw/.well-known/oauth-protected-resource/mcp");
        assert_eq!(refused.headers()["www-authenticate"], format!("Bearer resource_metadata=\"{place}\""));
        let place = format!("{below}/.well-known/oauth-protected-resource");
        assert_eq!(world.get("kilo", &place).await.is(200)["resource"], world.url("/lw/mcp"));
        let mut session = Raw::at(&world, &format!("{below}{PATH}"), "kilo").await;
        assert_eq!(session.call(json!({ "call": "clock" })).await["status"], 200);
        let mut live = Browser::signed_in(&world).await.stream(&format!("{below}/live?after=0")).await;
        assert!(live.chunk().await.unwrap().unwrap().starts_with(b"event: "));
    }
    world.get("kilo", "/lw/lw/v1/clock").await.refused(404, "unknown_request");
    let local = World::with(&["kilo"]).await;
    assert!(local.get("kilo", "/openapi.json").await.is(200).get("servers").is_none());
    local.get("kilo", "/lw/v1/clock").await.refused(404, "unknown_request");
}

#[tokio::test]
async fn the_server_says_where_it_is() {
    let world = World::set(&[], lw).await;
    let at = world.url("");
    assert_eq!(world.server.local_url(), at);
    for url in [world.server.url(), world.server.console_url()] {
        assert_eq!(url, format!("{at}/lw"));
    }
}
