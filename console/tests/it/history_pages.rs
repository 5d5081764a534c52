//! The pages of a long history: each view shows all of it, each thing once, whichever way one walks.

use std::collections::BTreeSet;

use lastword_facts::Limits;
use serde_json::json;

use crate::browser::{Browser, Seen};
use crate::world::World;

/// Requests of the human, each with two requests below it.
const ROUNDS: usize = 80;

async fn world() -> World {
    let limits = Limits {
        sender_messages_max: 1_000_000,
        pair_messages_max: 1_000_000,
        fan_out_targets_max: 1_000_000,
        task_requests_max: 1_000,
        grant_messages_max: 10_000,
        grant_turns_max: 10_000,
        progress_interval_ms: 0,
        turns_soft_max: 100_000,
        turns_hard_max: 100_000,
        ..Limits::default()
    };
    World::within(limits, &["kilo", "lima"]).await
}

/// Asks kilo, who asks lima, `count` times in one turn; both answer.
async fn asked(world: &World, reference: &str, count: usize) {
    world.send("operator", "kilo", reference, "lead this").await.is(201);
    let lead = world.take("kilo").await;
    for n in 0..count {
        world.send("kilo", "lima", reference, &format!("part {n}")).await.is(201);
    }
    world.finish("kilo", &lead, "").await;
    for _ in 0..count {
        let part = world.take("lima").await;
        world.finish("lima", &part, "done").await.is(200);
    }
    for n in 0..count {
        let answer = world.take("kilo").await;
        world.finish("kilo", &answer, if n + 1 == count { "all done" } else { "" }).await.is(200);
    }
}

/// Returns what stands between these two texts, each time.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    text.split(from).skip(1).filter_map(|rest| rest.split_once(to).map(|(found, _)| found)).collect()
}

fn link(page: &Seen, rel: &str) -> Option<String> {
    let found = between(&page.text, &format!("rel=\"{rel}\" href=\""), "\"");
    found.first().map(|path| path.replace("&amp;", "&"))
}

/// Returns the pages that the links lead through.
async fn walked(browser: &Browser<'_>, path: &str, rel: &str) -> Vec<(String, Seen)> {
    let mut pages = Vec::new();
    let mut next = Some(path.to_owned());
    while let Some(path) = next {
        let page = browser.get(&path).await.is(200);
        next = link(&page, rel);
        pages.push((path, page));
        assert!(pages.len() < 100, "the links lead in a circle");
    }
    pages
}

fn numbers(found: Vec<&str>) -> Vec<u64> {
    found.into_iter().map(|text| text.parse().unwrap()).collect()
}

/// Returns the positions on a page of the tree, the waterfall or the log.
fn on_page(view: &str, text: &str) -> Vec<u64> {
    match view {
        "tree" => numbers(between(text, "class=\"node\" id=\"msg-", "\"")),
        "waterfall" => numbers(between(text, "<a data-open-row href=\"/messages/msg-", "\"")),
        _ => numbers(between(text, "id=\"line-", "\"")),
    }
}

async fn messages(world: &World, reference: &str, kind: &str) -> BTreeSet<u64> {
    let (mut found, mut cursor) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("/v1/messages?ref={reference}&limit=500{kind}{cursor}");
        let page = world.get("operator", &path).await.is(200);
        found.extend(page["items"].as_array().unwrap().iter().map(|item| item["seq"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return found,
        }
    }
}

#[tokio::test]
async fn each_view_of_a_long_history_shows_all_of_it_and_each_thing_once() {
    let world = world().await;
    for _ in 0..ROUNDS {
        asked(&world, "LONG-1", 2).await;
    }
    let browser = Browser::signed_in(&world).await;
    let all = messages(&world, "LONG-1", "").await;
    let requests = messages(&world, "LONG-1", "&type=request").await;
    assert_eq!((all.len(), requests.len()), (6 * ROUNDS, 3 * ROUNDS));
    for view in ["tree", "waterfall", "log"] {
        let first = format!("/conversations/LONG-1?view={view}");
        let back = walked(&browser, &first, "prev").await;
        assert!(back.len() > 2, "{view} has {} pages", back.len());
        let mut seen: Vec<u64> = back.iter().flat_map(|(_, page)| on_page(view, &page.text)).collect();
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "{view} shows something twice");
        match view {
            "waterfall" => assert!(seen.into_iter().eq(requests.iter().copied()), "{view}"),
            "tree" => assert!(seen.into_iter().eq(all.iter().copied()), "{view}"),
            _ => {
                assert!(all.iter().all(|seq| seen.binary_search(seq).is_ok()));
                let told = format!("–{0} of {0}", spaced(count));
                assert!(back[0].1.text.contains(&told), "{told:?} is not on the newest page of the log");
            }
        }
        // The other way, from the oldest page.
        let oldest = &back.last().unwrap().0;
        let forth = walked(&browser, oldest, "next").await;
        let again: BTreeSet<u64> = forth.iter().flat_map(|(_, page)| on_page(view, &page.text)).collect();
        let count_again: usize = forth.iter().map(|(_, page)| on_page(view, &page.text).len()).sum();
        assert_eq!((again.len(), count_again), (count, count), "{view}");
    }
}

fn spaced(n: usize) -> String {
    let text = n.to_string();
    let (head, tail) = text.split_at(text.len().saturating_sub(3));
    if head.is_empty() { text } else { format!("{head}\u{202f}{tail}") }
}

#[tokio::test]
async fn a_page_of_the_tree_begins_at_a_request_and_a_link_to_a_message_has_it() {
    let world = world().await;
    for _ in 0..ROUNDS {
        asked(&world, "LONG-1", 2).await;
    }
    let browser = Browser::signed_in(&world).await;
    for (path, page) in walked(&browser, "/conversations/LONG-1", "prev").await {
        let tree = page.text.split("class=\"tree\"").nth(1).unwrap();
        assert!(!page.text.contains("On an earlier page"), "{path}");
        assert!(tree.split("class=\"badge").nth(1).unwrap().contains("operator"), "{path}");
        // Each request of the page has its outcome, also where its answer stands on a later page.
        assert!(!page.text.contains(">queued</span>"), "{path}");
    }
    let all: Vec<u64> = messages(&world, "LONG-1", "").await.into_iter().collect();
    for seq in all.iter().step_by(37) {
        let id = format!("msg-{seq}");
        let link = format!("/conversations/LONG-1?at={id}#{id}");
        browser.get(&format!("/messages/{id}")).await.is(200).has(&link);
        browser.get(&format!("/conversations/LONG-1?at={id}")).await.is(200).has(&format!("id=\"{id}\""));
        browser
            .get(&format!("/conversations/LONG-1?view=log&at={id}"))
            .await
            .is(200)
            .has(&format!("id=\"line-{seq}\""));
    }
    browser.get("/conversations/LONG-1?at=nothing").await.is(404);
}

#[tokio::test]
async fn an_answer_whose_request_is_on_an_earlier_page_leads_to_it() {
    let world = world().await;
    asked(&world, "WIDE-1", 150).await;
    let browser = Browser::signed_in(&world).await;
    let pages = walked(&browser, "/conversations/WIDE-1", "prev").await;
    let newest = &pages[0].1.text;
    let links = between(newest, "On an earlier page: <a href=\"", "\"");
    assert!(!links.is_empty());
    let id = links[0].split_once('#').unwrap().1;
    browser.get(links[0].split('#').next().unwrap()).await.is(200).has(&format!("id=\"{id}\""));
    let seen: usize = pages.iter().map(|(_, page)| on_page("tree", &page.text).len()).sum();
    assert_eq!(seen, messages(&world, "WIDE-1", "").await.len());
}

#[tokio::test]
async fn open_work_shows_the_newest_note_and_what_waits_for_a_human_first() {
    let world = world().await;
    world.send("operator", "kilo", "OPEN-1", "first").await.is(201);
    let first = world.take("kilo").await;
    world.send("kilo", "lima", "OPEN-1", "a part").await.is(201);
    world.take("lima").await;
    let turn = first["turn"]["id"].as_str().unwrap();
    for note in ["reading the code", "running the tests"] {
        world.post("kilo", &format!("/v1/turns/{turn}/progress"), json!({ "note": note })).await.is(200);
    }
    world.post("lima", "/v1/escalations", json!({ "message": "which one?" })).await.is(201);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/OPEN-1").await.is(200);
    let work = page.text.split("id=\"open-work\"").nth(1).unwrap().split("</details>").next().unwrap();
    let (newest, work) = work.split_once("</summary>").unwrap();
    assert!(newest.contains("kilo: ") && newest.contains("running the tests"), "{newest}");
    let order = ["lima", "a part", "kilo", "running the tests"].map(|word| work.find(word).expect(word));
    assert!(order.is_sorted(), "{work}");
    assert!(!work.contains("reading the code"), "{work}");
    page.has(">Answer</a>").has("aria-label=\"Answer esc-1\"");
}
