//! Lists and pages are bounded by bytes and by items, and the rest is behind their cursors (L4).

use std::collections::BTreeSet;

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::World;

/// The most bytes of a page of a list, with what surrounds its texts.
const PAGE_BYTES: usize = 3 << 19;

async fn world() -> World {
    let limits = Limits {
        sender_messages_max: 1_000,
        pair_messages_max: 1_000,
        turns_soft_max: 10_000,
        turns_hard_max: 10_000,
        approvals_open_max: 1_000,
        ..Limits::default()
    };
    World::within(limits, &["kilo", "lima"]).await
}

/// Walks a list by its cursors; returns the ids of each page.
async fn pages(world: &World, who: &str, path: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = world.get(who, &format!("{path}{cursor}")).await.is(200);
        assert!(page.to_string().len() < PAGE_BYTES, "{path}: {} bytes", page.to_string().len());
        let items = page["items"].as_array().unwrap();
        pages.push(items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect());
        let Some(next) = page["next"].as_str() else { return pages };
        cursor = format!("{}cursor={next}", if path.contains('?') { "&" } else { "?" });
    }
}

fn long(n: usize) -> String {
    format!("text {n} {}", "x".repeat(200_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_ends_by_its_bytes_and_goes_on_behind_its_cursor() {
    let world = world().await;
    for n in 0..12 {
        let note = json!({ "type": "info", "to": "lima", "ref": "NOTES-1", "body": long(n) });
        world.post("kilo", "/v1/messages", note).await.is(201);
        let call = json!({ "tool": "write", "arguments": { "text": long(n) } });
        world.post("kilo", "/v1/approvals", call).await.is(201);
    }
    for n in 0..3 {
        world.post("lima", "/v1/escalations", json!({ "message": long(n), "ref": "ASKED-1" })).await.is(201);
        world
            .post(
                "operator",
                "/v1/messages",
                json!({ "type": "request", "to": "kilo", "ref": format!("T-{n}"), "body": long(n) }),
            )
            .await
            .is(201);
    }
    for (who, path, all) in [
        ("lima", "/v1/messages?ref=NOTES-1", 12),
        ("lima", "/v1/messages?ref=NOTES-1&limit=500", 12),
        ("operator", "/v1/messages?q=text", 15),
        ("kilo", "/v1/approvals", 12),
        ("operator", "/v1/approvals?limit=2", 12),
        ("lima", "/v1/escalations", 3),
    ] {
        let pages = pages(&world, who, path).await;
        let ids: BTreeSet<&String> = pages.iter().flatten().collect();
        assert_eq!((ids.len(), pages.concat().len()), (all, all), "{path}: each once");
        assert!(all < 6 || pages.len() > 1, "{path}: {} pages", pages.len());
    }
    let tree = world.get("lima", "/v1/conversations/NOTES-1").await.is(200);
    assert!(tree.to_string().len() < PAGE_BYTES);
    let shown = tree["tree"].as_array().unwrap().len() as u64;
    assert_eq!((shown > 0, shown + tree["left_out"].as_u64().unwrap()), (true, 12));
    world.server.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_inbox_shows_what_expires_first_and_counts_the_rest() {
    let world = world().await;
    for n in 0..60 {
        let call: Value = json!({ "tool": "write", "arguments": { "text": format!("{n} {}", "x".repeat(20_000)) } });
        world.post("kilo", "/v1/approvals", call).await.is(201);
    }
    let browser = Browser::signed_in(&world).await;
    let inbox = browser.get("/inbox").await;
    let cards = inbox.text.matches("<article").count();
    assert!(inbox.text.len() < PAGE_BYTES && (20..=50).contains(&cards), "{cards} cards, {} bytes", inbox.text.len());
    let rest = format!("{0} more: {0} held calls", 60 - cards);
    assert!(inbox.text.contains(&rest), "the rest is counted, and of what kind it is");
    assert!(inbox.text.contains("60 pending decisions"));
    world.server.shutdown().await;
}
