//! What the console's pages count: the same thing has the same number on each of them.

use lastword_facts::Limits;
use serde_json::json;

use crate::browser::{Browser, Seen};
use crate::world::{World, id};

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
    let spend = browser.get("/spend").await.is(200);
    let inbox = browser.get("/inbox").await.is(200);
    let grants = [number(&now, "pieces of work:"), number(&stop, "grants in")];
    assert_eq!(grants, [2, 2]);
    let convs = [number(&stop, "conversations, with"), number(&spend, "conversations have open work")];
    assert_eq!(convs, [4, 4]);
    assert_eq!(number(&stop, "open turns."), 2);
    let waiting =
        [number(&now, "decision, the next to expire"), number(&now, "waiting"), number(&inbox, "pending decision")];
    assert_eq!(waiting, [1, 1, 1]);
}

#[tokio::test]
async fn the_pieces_of_open_work_are_counted_by_what_they_do_and_add_up_to_the_badges_below() {
    let mut world = World::with(&["kilo", "hive", "mike"]).await;
    world.register_human("anna", "approver").await;
    for (who, work) in [("kilo", "ONE-1"), ("hive", "TWO-1"), ("mike", "SIX-1")] {
        world.send("operator", who, work, "job").await.is(201);
        world.take(who).await;
    }
    world.send("operator", "mike", "SEVEN-1", "job").await.is(201);
    for who in ["kilo", "hive"] {
        world.post(who, "/v1/approvals", json!({"tool": "Bash", "arguments": {"command": who}})).await.is(201);
    }
    // What an agent asks that is paused waits as a decision, and its work is paused.
    world.post("operator", "/v1/agents/hive/pause", json!({})).await.is(204);
    let now = Browser::as_human(&world, "anna").await.get("/").await.is(200);
    assert_eq!(number(&now, "pieces of work: 1 paused, 1 waiting for you, 1 working, 1 queued"), 4);
    assert_eq!(now.text.matches("<span class=\"badge warn\">waiting for you</span>").count(), 1, "{}", now.text);
    now.has("TWO-1</a>").has("data-waiting=\"2\"").lacks("hive</a> is waiting for you");
    let browser = Browser::signed_in(&world).await;
    browser
        .get("/conversations/TWO-1")
        .await
        .is(200)
        .has("<b>hive</b> is paused: what is open waits for it")
        .lacks("</b> is waiting");
}

#[tokio::test]
async fn a_paused_conversation_and_its_agent_are_paused_on_every_page_until_the_front_page_resumes_it() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "ONE-1", "job").await.is(201);
    world.take("kilo").await;
    let browser = Browser::signed_in(&world).await;
    browser.post("/conversations/ONE-1/pause", &[]).await.is(200);
    let paused = "<span class=\"badge warn\">paused</span>";
    let now =
        browser.get("/").await.is(200).has("piece of work: 1 paused").has("action=\"/conversations/ONE-1/resume\"");
    now.has("has an open turn").lacks("is held");
    browser.get("/conversations").await.is(200).has(&format!("ONE-1</a> {paused}"));
    browser
        .get("/conversations/ONE-1")
        .await
        .is(200)
        .has(&format!("ONE-1</h1>{paused}"))
        .has("has an open turn")
        .lacks("is held");
    browser.get("/agents").await.is(200).has("no agent is working, 1 paused").has(paused);
    browser
        .get("/agents/kilo")
        .await
        .is(200)
        .has(paused)
        .has("or the workspace: <a class=\"ref\" href=\"/conversations/ONE-1\"");
    browser.post("/conversations/ONE-1/resume", &[]).await.is(200);
    browser.get("/").await.is(200).lacks("Paused or stopped by a human").has("1 working");
}

#[tokio::test]
async fn what_an_approver_may_not_lift_is_not_counted_as_waiting_for_it() {
    let mut world = busy().await;
    world.register_human("anna", "approver").await;
    world.post("reader", "/v1/escalations", json!({ "message": "To eu or us?", "ref": "EU-1" })).await.is(201);
    let operator = Browser::signed_in(&world).await;
    assert_eq!(number(&operator.get("/").await.is(200), "decisions, the next to expire"), 2);
    let anna = Browser::as_human(&world, "anna").await;
    let now = anna.get("/").await.is(200).has("data-waiting=\"1\"").has("1 tripped limit needs the role operator");
    assert_eq!(number(&now, "decision,"), 1);
    let inbox = anna.get("/inbox").await.is(200).has("1 tripped limit needs the role operator");
    assert_eq!(number(&inbox, "pending decision"), 1);
    anna.get("/waiting").await.is(200).has("data-waiting=\"1\"");
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

#[tokio::test]
async fn what_agents_do_has_the_same_numbers_on_each_page_also_while_the_workspace_is_paused() {
    let world = busy().await;
    world.send("operator", "reader", "ASK-1", "and this").await.is(201);
    world.take("reader").await;
    let browser = Browser::signed_in(&world).await;
    // The turn of the coder is held, and the reader works.
    browser.get("/agents").await.is(200).has("1 agent is working, 2 held");
    // What waits as a decision is not counted again as what went wrong.
    let now = browser.get("/").await.is(200);
    assert_eq!(now.text.matches("is held: the grant has used up its messages").count(), 1, "{}", now.text);
    browser.post("/workspace/pause", &[]).await.is(200);
    browser.get("/agents").await.is(200).has("no agent is working, 2 held, 1 paused");
    let now = plain(&browser.get("/").await.is(200).text);
    assert!(now.contains("paused reader has an open turn") && !now.contains("working"), "{now}");
    // Its conversation has the same word in the list and on its page, and nothing is said to work.
    let list =
        browser.get("/conversations?state=paused").await.is(200).has("ASK-1</a> <span class=\"badge warn\">paused");
    list.lacks("BIG-1</a>");
    let page = browser.get("/conversations/ASK-1").await.is(200).has("badge warn\">paused</span>");
    page.has("has an open turn").has("open turn</span>").lacks("is working").lacks(">working<");
    browser.get("/agents/reader").await.is(200).has("badge warn\">paused</span>");
}

#[tokio::test]
async fn a_pause_above_work_is_told_on_the_front_page_too_and_a_filter_finds_what_its_row_says() {
    let world = World::with(&["kilo", "hive"]).await;
    for work in ["TOP-1", "TOP-1/2"] {
        world.send("operator", "kilo", work, "job").await.is(201);
    }
    let lead = world.take("kilo").await;
    world
        .post("kilo", "/v1/messages", json!({"type": "request", "to": "hive", "body": "a part", "ref": "TOP-1/3"}))
        .await
        .is(201);
    world.take("hive").await;
    world.finish("kilo", &lead, "").await.is(200);
    let browser = Browser::signed_in(&world).await;
    // Its own task waits for answers, and a child conversation works for it.
    let working = "TOP-1</a> <span class=\"badge good\">working";
    browser.get("/conversations?state=working").await.is(200).has(working).has("TOP-1/3</a>");
    browser.get("/conversations?state=waiting_for_answers").await.is(200).lacks("TOP-1</a>");
    browser.post("/conversations/TOP-1/pause", &[]).await.is(200);
    browser.get("/").await.is(200).has("pieces of work: 2 paused").lacks("working");
    let paused =
        browser.get("/conversations?state=paused").await.is(200).has("TOP-1</a>").has("TOP-1/2</a>").has("TOP-1/3</a>");
    assert!(!paused.text.contains(">working<"), "{}", paused.text);
}

#[tokio::test]
async fn work_has_the_same_word_in_the_list_on_its_page_and_on_the_front_page_and_a_filter_for_it() {
    let world = World::with(&["kilo", "hive", "mike"]).await;
    for (who, work) in [("kilo", "ASKS-1"), ("mike", "WORKS-1")] {
        world.send("operator", who, work, "job").await.is(201);
        world.take(who).await;
    }
    world.post("kilo", "/v1/approvals", json!({"tool": "Bash", "arguments": {"command": "ls"}})).await.is(201);
    world.send("operator", "hive", "GONE-1", "job").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let all = [
        ("ASKS-1", "waiting for you", "waiting", "warn"),
        ("WORKS-1", "working", "working", "good"),
        ("GONE-1", "not connected", "not_connected", "bad"),
    ];
    let now = browser.get("/").await.is(200).has("1 waiting for you, 1 working, 1 not connected");
    for (work, word, filter, tone) in all {
        let badge = format!("<span class=\"badge {tone}\">{word}</span>");
        let (_, line) = now
            .text
            .split_once(&format!("<p class=\"strong\"><a class=\"ref\" href=\"/conversations/{work}\""))
            .unwrap();
        assert!(line.split_once("</li>").unwrap().0.contains(&badge), "{work}: {line}");
        let list =
            browser.get(&format!("/conversations?state={filter}")).await.is(200).has(&format!("{work}</a> {badge}"));
        for (other, ..) in all.iter().filter(|(other, ..)| *other != work) {
            assert!(!list.text.contains(&format!("{other}</a>")), "{other} in {filter}");
        }
        browser.get(&format!("/conversations/{work}")).await.is(200).has(&format!("{work}</h1>{badge}"));
    }
    // A human's word for a hold is a filter as well as the programs' one.
    for word in ["held", "latched", "ended", "idle"] {
        browser.get(&format!("/conversations?state={word}")).await.is(200);
    }
    browser.get("/conversations?state=sleepy").await.is(400).has("is none of held, active, ").has("not_connected");
}

#[tokio::test]
async fn a_grant_has_as_many_messages_left_as_the_interface_says() {
    let world = busy().await;
    let view = world.get("operator", "/v1/conversations/BIG-1").await.is(200);
    let limits = view["grants"][0]["limits"].as_array().unwrap().clone();
    let left = &limits.iter().find(|limit| limit["name"] == "grant_messages_max").unwrap()["left"];
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/BIG-1").await.is(200).lacks("can still cause");
    assert_eq!(&json!(number(&page, "of 6 messages left")), left);
}

#[tokio::test]
async fn a_conversation_has_the_same_counts_in_each_list_and_on_its_page() {
    let world = World::with(&["lead", "coder"]).await;
    world.send("operator", "lead", "SHOP-1", "build it").await.is(201);
    world.take("lead").await;
    let part = json!({"type": "request", "to": "coder", "body": "a part", "ref": "SHOP-1/part"});
    world.post("lead", "/v1/messages", part).await.is(201);
    let turn = world.take("coder").await;
    let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
    let usage = json!({"input_tokens": 1_000, "output_tokens": 200, "cost_usd": 0.5});
    world.post("coder", &path, json!({"answer": "done", "usage": usage})).await.is(200);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/SHOP-1").await.is(200).has("$0.50");
    assert_eq!(number(&page, "messages, child conversations included"), 3);
    for filter in ["", "?to=lead", "?from=operator", "?ref=SHOP", "?state=active&q=build"] {
        let list = browser.get(&format!("/conversations{filter}")).await.is(200);
        let (_, row) = list.text.split_once("id=\"c-SHOP-1\"").unwrap();
        let row = Seen { text: row.to_owned(), ..list }.has("$0.50");
        assert_eq!(number(&row, "messages"), 3, "{filter}");
    }
    // The one below has its own.
    let list = browser.get("/conversations?to=coder").await.is(200).has("$0.50");
    let (_, row) = list.text.split_once("class=\"row talk").unwrap();
    assert_eq!(number(&Seen { text: row.to_owned(), ..list }, "messages"), 2);
}

#[tokio::test]
async fn an_agent_s_day_is_compared_with_what_was_granted_for_it_on_each_page() {
    let limits = Limits { agent_day_tokens_max: 1_000, ..Limits::default() };
    let world = World::within(limits, &["kilo"]).await;
    world.send("operator", "kilo", "DAY-1", "job").await.is(201);
    let turn = world.take("kilo").await;
    let usage = json!({"usage": {"input_tokens": 500, "output_tokens": 100}});
    world.post("kilo", &format!("/v1/turns/{}/progress", id(&turn["turn"], "id")), usage).await.is(200);
    let browser = Browser::signed_in(&world).await;
    let pages = ["/limits", "/agents/kilo", "/agents"];
    for path in pages {
        browser.get(path).await.is(200).has("600/1\u{202f}000");
    }
    world.post("operator", "/v1/agents/kilo/grant", json!({"tokens": 200})).await.is(200);
    for path in pages {
        browser.get(path).await.is(200).has("600/1\u{202f}200").lacks("600/1\u{202f}000");
    }
    browser.get("/spend").await.is(200).has("1\u{202f}200");
}

#[tokio::test]
async fn tokens_that_are_no_exact_number_say_why() {
    let limits = Limits { lease_ms: 200, ..Limits::default() };
    let world = World::within(limits, &["kilo"]).await;
    world.send("operator", "kilo", "EXACT-1", "job").await.is(201);
    let turn = world.take("kilo").await;
    let usage = json!({"usage": {"input_tokens": 4_000, "output_tokens": 500}});
    world.post("kilo", &format!("/v1/turns/{}/progress", id(&turn["turn"], "id")), usage).await.is(200);
    let browser = Browser::signed_in(&world).await;
    browser.get("/conversations/EXACT-1").await.is(200).has("4\u{202f}500 tokens");
    // The lease is lost: what was reported last is the least that was spent.
    let page = browser.until("/conversations/EXACT-1", |text| text.contains('≈')).await;
    page.has("stopped responding before its turn ended\">≈</abbr> 4\u{202f}500 tokens");
}

#[tokio::test]
async fn the_bars_of_what_agents_spent_have_the_order_of_their_list() {
    let world = World::with(&["dear", "cheap"]).await;
    for (agent, tokens, dollars) in [("dear", 1_000, 0.5), ("cheap", 2_000_000, 0.125)] {
        world.send("operator", agent, agent, "work").await.is(201);
        let turn = world.take(agent).await;
        let usage = json!({"input_tokens": tokens, "output_tokens": 0, "cost_usd": dollars});
        let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
        world.post(agent, &path, json!({"answer": "done", "usage": usage})).await.is(200);
    }
    let browser = Browser::signed_in(&world).await;
    let cheap = "<span title=\"2\u{202f}000\u{202f}000\">2.00\u{202f}M</span> tokens";
    for path in ["/", "/spend"] {
        let page = browser.get(path).await.is(200).has(cheap);
        let bars = ["dear, of the most", "cheap, of the most"].map(|name| {
            let (before, _) = page.text.split_once(name).unwrap();
            before.rsplit("<progress").next().unwrap().to_owned()
        });
        assert!(bars[0].contains("max=\"500000\" value=\"500000\""), "{path}: {bars:?}");
        assert!(bars[1].contains("max=\"500000\" value=\"125000\""), "{path}: {bars:?}");
    }
}
