//! What the console's pages count: the same thing has the same number on each of them.

use lastword_facts::Limits;
use serde_json::json;

use crate::browser::{Browser, Seen};
use crate::world::World;

/// Returns the number that stands before `words` on a page.
#[track_caller]
fn number(seen: &Seen, words: &str) -> u64 {
    let text = plain(&seen.text);
    let (before, _) = text.split_once(words).unwrap_or_else(|| panic!("{words:?} is not in {text}"));
    let word = before.split_whitespace().next_back().unwrap();
    word.parse().unwrap_or_else(|_| panic!("{word:?} before {words:?} is no number"))
}

/// Returns a page's text without its tags, its words apart.
fn plain(page: &str) -> String {
    let words = page.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text));
    words.collect::<Vec<_>>().join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A grant is held with three conversations in it, another one has an open turn, and an agent met a limit repeatedly.
async fn busy() -> World {
    let limits = Limits { grant_messages_max: 6, refused_writes_max: 2, agent_turns_max: 2, ..Limits::default() };
    let world = World::within(limits, &["coder", "idler", "reader"]).await;
    world.send("operator", "coder", "BIG-1", "do it all").await.is(201);
    world.take("coder").await;
    for to in ["idler", "reader"] {
        world.post("coder", "/v1/messages", json!({"type": "request", "to": to, "body": "a part"})).await.is(201);
    }
    let more = json!({"type": "request", "to": "idler", "body": "more"});
    world.post("coder", "/v1/messages", more.clone()).await.refused(422, "grant_messages");
    for _ in 0..3 {
        world.post("coder", "/v1/messages", more.clone()).await;
    }
    world
}

#[tokio::test]
async fn the_same_thing_has_the_same_number_on_each_page() {
    let world = busy().await;
    world.send("operator", "coder", "SIDE-1", "and this").await.is(201);
    world.take("coder").await;
    let browser = Browser::signed_in(&world).await;
    let (now, stop) = (browser.get("/").await.is(200), browser.get("/workspace").await.is(200));
    let (spend, incidents) = (browser.get("/spend").await.is(200), browser.get("/incidents").await.is(200));
    let inbox = browser.get("/inbox").await.is(200);
    let grants = [number(&now, "grants , in"), number(&stop, "grants in")];
    assert_eq!(grants, [2, 2]);
    let convs = [
        number(&now, "conversations ·"),
        number(&stop, "conversations, with"),
        number(&spend, "conversations have open work"),
    ];
    assert_eq!(convs, [4, 4, 4]);
    assert_eq!(number(&stop, "open turns."), 2);
    // The other is about the agent, and holds nothing.
    assert_eq!(number(&incidents, "open incident"), 1);
    let waiting =
        [number(&now, "decision, the next to expire"), number(&now, "waiting"), number(&inbox, "pending decision")];
    assert_eq!(waiting, [1, 1, 1]);
}

#[tokio::test]
async fn an_agent_that_works_elsewhere_is_working_and_the_page_says_what_is_held() {
    let world = busy().await;
    let browser = Browser::signed_in(&world).await;
    let held = plain(&browser.get("/agents").await.is(200).text);
    assert!(held.contains("held in BIG-1"), "{held}");
    world.send("operator", "coder", "SIDE-1", "and this").await.is(201);
    world.take("coder").await;
    let works = plain(&browser.get("/agents").await.is(200).text);
    assert!(works.contains("working · BIG-1 is held"), "{works}");
}
