//! What went wrong: all of it is counted, and what timed out stays until a human dismisses it.

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{World, id};

/// Returns the sentences about what went wrong on a page.
fn lines(page: &str) -> Vec<String> {
    let (_, list) = page.split_once("id=\"wrong-title\"").unwrap();
    let (list, _) = list.split_once("</section>").unwrap();
    list.split("<li ").skip(1).map(str::to_owned).collect()
}

/// Returns the number on the tile that leads to them.
fn counted(page: &str) -> usize {
    let (_, tile) = page.split_once("href=\"#wrong\"").unwrap();
    let (_, number) = tile.split_once("<b>").unwrap();
    number.split_once("</b>").unwrap().0.parse().unwrap()
}

/// Returns what the form of a sentence dismisses.
fn dismissed(line: &str, what: &str) -> String {
    let (_, form) = line.split_once("action=\"/dismiss\"").unwrap();
    let (before, _) = form.split_once(&format!("\" value=\"{what}\"")).unwrap();
    before.rsplit('"').next().unwrap().to_owned()
}

/// Has an agent fail at a request.
async fn fails(world: &World, agent: &str, reference: &str) {
    world.send("operator", agent, reference, &format!("job of {reference}")).await.is(201);
    let turn = world.take(agent).await;
    let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
    world.post(agent, &path, json!({"status": "failed", "answer": "no"})).await.is(200);
}

#[tokio::test]
async fn what_failed_stays_until_a_human_dismisses_it_which_is_recorded_and_no_agent_sees() {
    let mut world = World::with(&["kilo"]).await;
    world.register_human("anna", "approver").await;
    world.register_human("vera", "viewer").await;
    for n in 0..3 {
        fails(&world, "kilo", &format!("F-{n}")).await;
    }
    let vera = Browser::as_human(&world, "vera").await;
    let seen = vera.get("/").await.is(200).lacks("/dismiss");
    assert_eq!(lines(&seen.text).len(), 3);
    let anna = Browser::as_human(&world, "anna").await;
    let page = anna.get("/").await.is(200).has("Dismiss these 3");
    let request = dismissed(&lines(&page.text)[0], "request");
    vera.post("/dismiss", &[(&request, "request")]).await.is(403);
    for _ in 0..2 {
        anna.post("/dismiss", &[(&request, "request")]).await.is(200).has("1 request is dismissed.");
    }
    let rest = lines(&anna.get("/").await.is(200).text);
    assert!(rest.len() == 2 && !rest.iter().any(|line| line.contains("F-2")), "{rest:?}");
    let told = async |who: &str| {
        let stream = world.get(who, "/v1/events?until=1000&after=0").await.is(200);
        let events = stream.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("data: "));
        let events = events.map(|event| serde_json::from_str::<Value>(event).unwrap());
        events.filter(|event| event["type"] == "dismissed").collect::<Vec<_>>()
    };
    let [event] = told("operator").await.try_into().unwrap();
    assert_eq!((&event["data"]["by"], &event["data"]["request"]), (&json!("anna"), &json!(request)), "{event}");
    assert!(told("kilo").await.is_empty());
    drop((vera, anna));
    let world = world.restart().await;
    let anna = Browser::as_human(&world, "anna").await;
    let rest = lines(&anna.get("/").await.is(200).text);
    let both: Vec<String> = rest.iter().map(|line| dismissed(line, "request")).collect();
    let both: Vec<(&str, &str)> = both.iter().map(|id| (id.as_str(), "request")).collect();
    anna.post("/dismiss", &both).await.is(200).has("2 requests are dismissed.");
    assert!(lines(&anna.get("/").await.is(200).text).is_empty());
}

#[tokio::test]
async fn the_reason_of_a_failure_is_on_the_front_page_and_in_the_tree_and_a_long_one_unfolds() {
    let world = World::with(&["kilo"]).await;
    for (reference, reason) in [("R-1", "<b>the registry</b> answers 503".to_owned()), ("R-2", "why ".repeat(100))] {
        world.send("operator", "kilo", reference, "build it").await.is(201);
        let turn = world.take("kilo").await;
        let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
        world.post("kilo", &path, json!({"status": "failed", "answer": "", "reason": reason})).await.is(200);
    }
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/").await.is(200);
    let lines = lines(&page.text);
    assert!(lines[1].contains("Reason: </span>&lt;b&gt;the registry&lt;/b&gt; answers 503"), "{lines:?}");
    assert!(lines[0].contains("<summary>Reason: why ") && lines[0].matches("why ").count() > 100, "{lines:?}");
    browser.get("/conversations/R-1").await.is(200).has("Reason: </span>&lt;b&gt;the registry&lt;/b&gt; answers 503");
    browser.get("/conversations/R-2").await.is(200).has("<summary>Reason: why ");
}

#[tokio::test]
async fn requests_that_failed_for_one_reason_are_one_line_that_names_their_agents_and_is_dismissed_at_once() {
    let world = World::with(&["kilo", "lima"]).await;
    for (agent, reference, reason) in [
        ("kilo", "R-1", "the registry answers 503"),
        ("lima", "R-2", "no room on the disk"),
        ("lima", "R-3", "the registry answers 503"),
    ] {
        world.send("operator", agent, reference, &format!("build {reference}")).await.is(201);
        let turn = world.take(agent).await;
        let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
        world.post(agent, &path, json!({"status": "failed", "answer": "", "reason": reason})).await.is(200);
    }
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/").await.is(200).has("Dismiss these 3");
    let [both, other] = &lines(&page.text)[..] else { panic!("{}", page.text) };
    assert!(both.contains("2 requests failed</b>: the registry answers 503"), "{both}");
    for part in ["/agents/kilo", "/agents/lima", "/conversations/R-1", "/conversations/R-3"] {
        assert!(both.contains(part), "{part}: {both}");
    }
    assert!(other.contains("/conversations/R-2") && other.contains("no room on the disk"), "{other}");
    let (_, form) = both.split_once("action=\"/dismiss\"").unwrap();
    let (form, _) = form.split_once("</form>").unwrap();
    assert_eq!(form.matches("value=\"request\"").count(), 2, "{form}");
}

#[tokio::test]
async fn what_an_agent_took_and_then_left_is_not_said_to_be_never_taken() {
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, lease_ms: 50, ..Limits::default() };
    let world = World::within(limits, &["kilo"]).await;
    world.send("operator", "kilo", "LEFT-1", "job").await.is(201);
    world.take("kilo").await;
    let browser = Browser::signed_in(&world).await;
    let page = browser
        .until("/", |text| {
            counted(text) == 1 && text.contains("LEFT-1</a>") && text.contains("stopped responding while")
        })
        .await;
    let [line] = &lines(&page.text)[..] else { panic!("{}", page.text) };
    assert!(line.contains("stopped responding while it worked on") && !line.contains("never took"), "{line}");
    let one = browser
        .get("/questions/esc-1")
        .await
        .is(200)
        .has("took operator's request, stopped responding and didn't take it again");
    // Both say when it ended.
    let at = |text: &str, before: &str| {
        let (_, rest) = text.split_once(before).unwrap();
        rest.split_once("datetime=\"").unwrap().1.split('"').next().unwrap().to_owned()
    };
    assert_eq!(at(line, "</a> "), at(&one.text, "esc-1</code>"));
    // It is no decision: no agent waits for it.
    browser.get("/inbox").await.is(200).has("No pending decisions.");
}

#[tokio::test]
async fn what_agents_left_is_listed_once_grouped_by_agent_below_what_failed_for_a_reason() {
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, lease_ms: 400, ..Limits::default() };
    let world = World::within(limits, &["lead", "idler", "kilo"]).await;
    // The lead's own request to the idler times out as well, and its asker is an agent.
    world.send("operator", "lead", "TREE-1", "lead it").await.is(201);
    world.take("lead").await;
    world.post("lead", "/v1/messages", json!({"type": "request", "to": "idler", "body": "a part"})).await.is(201);
    fails(&world, "kilo", "BAD-1").await;
    world.send("operator", "idler", "LATE-1", "job").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let page = browser.until("/", |text| text.contains("idler stopped responding · 2")).await;
    let lines = lines(&page.text);
    let at = |words: &str| lines.iter().position(|line| line.contains(words)).unwrap();
    assert!(at("BAD-1") < at("idler stopped responding"), "{lines:?}");
    let late = &lines[at("idler stopped responding")];
    assert!(late.contains("a part") && late.contains("LATE-1"), "{late}");
    page.lacks("id=\"now-esc-").has("No decision is pending.").has("data-waiting=\"0\"");
    browser.get("/inbox").await.is(200).has("0 pending decisions").lacks("Timed out: ");
}

#[tokio::test]
async fn agents_that_stop_responding_at_once_are_one_line_and_what_became_of_an_approved_call_is_said() {
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, lease_ms: 400, ..Limits::default() };
    let world = World::within(limits, &["kilo", "hive", "mike"]).await;
    let browser = Browser::signed_in(&world).await;
    let approve = async |who: &str, work: &str| {
        world.send("operator", who, work, "job").await.is(201);
        world.take(who).await;
        let call = json!({"tool": "Bash", "arguments": {"command": who}});
        let held = world.post(who, "/v1/approvals", call.clone()).await.is(201);
        let (id, digest) = (id(&held, "id").to_owned(), id(&held, "digest").to_owned());
        let decision = json!({"decision": "approve", "digest": digest});
        world.post("operator", &format!("/v1/approvals/{id}/decision"), decision).await.is(200);
        (id, call)
    };
    let (made, call) = approve("kilo", "MADE-1").await;
    world.post("kilo", &format!("/v1/approvals/{made}/use"), call).await.is(200);
    let page = browser.until("/", |text| text.contains("kilo</a> stopped responding while")).await;
    let page = page.has(&format!("{made}</a> was made."));
    browser.get(&format!("/approvals/{made}")).await.is(200).has("kilo made it.");
    browser.get("/conversations/MADE-1").await.is(200).has("approved and made</span> call of");
    let request = dismissed(&lines(&page.text)[0], "question");
    browser.post("/dismiss", &[(&request, "question")]).await.is(200);
    let (left, _) = approve("hive", "LEFT-1").await;
    let page = browser.until("/", |text| text.contains("hive</a> stopped responding while")).await;
    page.has(&format!("{left}</a> was not made."));
    browser.get(&format!("/approvals/{left}")).await.is(200).has("hive hasn't made it.");
    // Two may be chance, and a third isn't.
    for (who, work) in [("kilo", "LEFT-2"), ("mike", "LEFT-3")] {
        world.send("operator", who, work, "job").await.is(201);
        world.take(who).await;
    }
    let page = browser.until("/", |text| text.contains("3 agents stopped responding at once")).await;
    assert_eq!(lines(&page.text).len(), 1, "{}", page.text);
    page.has(": hive, kilo, mike · 3 requests");
}

#[tokio::test]
async fn all_that_went_wrong_is_counted_and_the_rest_of_the_list_is_one_link_away() {
    let world = World::with(&["kilo"]).await;
    for n in 0..11 {
        fails(&world, "kilo", &format!("T-{n}")).await;
    }
    let browser = Browser::signed_in(&world).await;
    let short = browser.get("/").await.is(200).has("href=\"/?wrong=all#wrong\">and 3 more</a>");
    assert_eq!((counted(&short.text), lines(&short.text).len()), (11, 8));
    let all = browser.get("/?wrong=all").await.is(200).lacks(" more</a>");
    assert_eq!((counted(&all.text), lines(&all.text).len()), (11, 11));
    assert!(lines(&all.text)[10].contains("job of T-0"), "the oldest comes last");
    browser.get("/?wrong=none").await.is(400);
}

#[tokio::test]
async fn what_timed_out_goes_once_a_human_dismissed_it_and_stays_away_after_a_restart() {
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, ..Limits::default() };
    let world = World::within(limits, &["idler"]).await;
    for n in 0..2 {
        world.send("operator", "idler", &format!("LATE-{n}"), &format!("job {n}")).await.is(201);
    }
    let browser = Browser::signed_in(&world).await;
    // Both have timed out twice. It is one line that unfolds, and one form.
    let late = |page: &str| lines(page).into_iter().find(|line| line.contains("idler stopped responding · 2"));
    let page = browser.until("/", |text| late(text).is_some()).await;
    let both = late(&page.text).unwrap();
    assert!(["LATE-0", "LATE-1", "job 0", "job 1"].iter().all(|word| both.contains(word)), "{both}");
    assert_eq!((both.matches("value=\"question\"").count(), counted(&page.text)), (2, 2), "{both}");
    let id = dismissed(&both, "question");
    assert!(id.starts_with("esc-"), "{id}");
    browser.post("/dismiss", &[(&id, "question")]).await.is(200);
    let rest = lines(&browser.get("/").await.is(200).text);
    assert!(rest.len() == 1 && rest[0].contains("job 0"), "{rest:?}");
    drop(browser);
    let world = world.restart().await;
    let browser = Browser::signed_in(&world).await;
    let rest = lines(&browser.get("/").await.is(200).text);
    assert!(rest.iter().any(|line| line.contains("job 0")) && !rest.iter().any(|line| line.contains("job 1")));
}

#[tokio::test]
async fn a_notice_of_what_timed_out_and_its_answer_are_one_line_and_texts_are_without_their_marks() {
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, ..Limits::default() };
    let world = World::within(limits, &["idler", "kilo"]).await;
    world.send("operator", "idler", "LATE-1", "job").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let inbox = browser.until("/inbox", |text| text.contains("the answer</a>")).await;
    let (_, list) = inbox.text.split_once("Unread messages for you").unwrap();
    let (list, _) = list.split_once("</ul>").unwrap();
    assert_eq!(list.matches("<li>").count(), 1, "{list}");
    assert!(list.contains("<span class=\"count\">2</span>"), "{list}");
    let note = json!({"type": "info", "to": "operator", "ref": "NOTE-1", "body": "**all 214 tests** pass in `main`"});
    world.post("kilo", "/v1/messages", note).await.is(201);
    browser.get("/inbox").await.is(200).has("all 214 tests pass in main").lacks("**all");
}

#[tokio::test]
async fn the_text_of_a_message_stands_before_what_is_known_about_it() {
    let world = World::with(&["kilo"]).await;
    let sent = world.send("operator", "kilo", "READ-1", "Read this first").await.is(201);
    let page = Browser::signed_in(&world).await.get(&format!("/messages/{}", id(&sent, "id"))).await.is(200);
    let at = |text: &str| page.text.find(text).unwrap();
    assert!(at("Read this first") < at("<dt>Where</dt>"), "{}", page.text);
}

#[tokio::test]
async fn a_conversation_whose_agent_is_gone_says_so_until_it_polls() {
    let world = World::with(&["idler"]).await;
    world.send("operator", "idler", "GONE-1", "job").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/GONE-1").await.is(200);
    page.has("isn't connected: what is open waits for it")
        .has("not connected")
        .has("Ask another agent")
        .lacks("queued for ");
    world.take("idler").await;
    let page = browser.get("/conversations/GONE-1").await.is(200);
    page.has(" is working").lacks("connected: what is open");
}

#[tokio::test]
async fn an_agent_that_waits_for_answers_that_nobody_owes_and_is_gone_is_named() {
    let limits = Limits { ack_polling_ms: 1_500, ..Limits::default() };
    let world = World::within(limits, &["lead", "coder"]).await;
    world.send("operator", "lead", "LEAD-1", "job").await.is(201);
    let lead = world.take("lead").await;
    world.post("lead", "/v1/messages", json!({"type": "request", "to": "coder", "body": "a part"})).await.is(201);
    let part = world.take("coder").await;
    world.finish("lead", &lead, "").await.is(200);
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/conversations/LEAD-1").await.is(200);
    page.has(" is waiting for answers").has(" is working").lacks("connected: what is open");
    world.finish("coder", &part, "done").await.is(200);
    // It is gone once its last poll is longer ago than it has time to acknowledge.
    let words = "<b>lead</b> isn't connected: what is open waits for it";
    let page = browser.until("/conversations/LEAD-1", |text| text.contains(words)).await;
    page.lacks(" is waiting for answers");
}

#[tokio::test]
async fn a_reason_of_the_broker_is_told_in_words_and_pages_for_a_human_speak_to_one() {
    let new = World::with(&["kilo"]).await;
    let empty = Browser::signed_in(&new).await;
    empty.get("/conversations").await.is(200).has("Ask an agent</a>, or let").lacks("lastword ask");
    let limits = Limits { ack_woken_ms: 50, ack_polling_ms: 50, ..Limits::default() };
    let world = World::within(limits, &["idler"]).await;
    world.send("operator", "idler", "LATE-1", "job").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let words = "The agent didn't take this request, or stopped responding.";
    let page = browser.until("/conversations/LATE-1", |text| text.contains(words)).await.lacks("not_acknowledged");
    // The broker's word says no more than its text.
    page.lacks("Reason: ");
    browser.get("/agents/operator").await.is(200).has("unread message").lacks("for its next turn");
    let inbox = browser.get("/inbox").await.is(200).has("They stay here until then.").lacks("`lastword inbox`");
    inbox.has("idler didn't take your request in time: 2 deliveries.").lacks("operator's request");
}

#[tokio::test]
async fn a_refusal_leads_to_the_page_on_which_a_human_lifts_it() {
    // A request reserves its answer.
    let limits = Limits { grant_messages_max: 4, ..Limits::default() };
    let world = World::within(limits, &["kilo", "hive"]).await;
    world.send("operator", "kilo", "FEW-1", "job").await.is(201);
    world.take("kilo").await;
    let part = json!({"type": "request", "to": "hive", "body": "a part"});
    world.post("kilo", "/v1/messages", part.clone()).await.is(201);
    let page = async |reference: &str| {
        let browser = Browser::signed_in(&world).await;
        let tree = browser.get(&format!("/conversations/{reference}")).await.is(200);
        let (before, _) = tree.text.rsplit_once("rule ").unwrap();
        let (_, link) = before.rsplit_once("href=\"").unwrap();
        browser.get(link.split('"').next().unwrap()).await.is(200)
    };
    world.post("kilo", "/v1/messages", part.clone()).await.refused(422, "grant_messages");
    let refused = page("FEW-1").await;
    refused.has("<a href=\"/conversations/FEW-1\">Open the conversation</a>").lacks("lastword ");
    world.post("operator", "/v1/agents/kilo/pause", json!({})).await.is(204);
    world.post("kilo", "/v1/messages", part).await.refused(409, "paused");
    page("FEW-1").await.has("<a href=\"/agents/kilo\">Open the agent's page</a>").lacks("lastword ");
}
