//! The console's pages on agents, incidents, limits and figures, and their forms.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use lastword_facts::Limits;
use lastword_facts::limits::Observed;
use lastword_server::EditableConfig;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::machine::{Machine, SECOND};
use crate::world::{World, id};

/// A world whose grants allow six messages, of which an agent tried to send more.
async fn latched() -> World {
    let limits = Limits { grant_messages_max: 6, ..Limits::default() };
    let world = World::within(limits, &["coder", "idler", "reader"]).await;
    world.send("operator", "coder", "BIG-1", "do it all").await.is(201);
    world.take("coder").await;
    for to in ["idler", "reader"] {
        world.post("coder", "/v1/messages", json!({"type": "request", "to": to, "body": "a part"})).await.is(201);
    }
    let more = world.post("coder", "/v1/messages", json!({"type": "request", "to": "idler", "body": "more"})).await;
    more.refused(422, "grant_messages");
    world
}

#[tokio::test]
async fn an_agent_is_shown_with_its_work_and_obeys_its_page() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    let browser = Browser::signed_in(&world).await;
    browser.get("/agents").await.is(200).has("1 request queued").has(">not connected<");
    let turn = world.take("kilo").await;
    let seen = browser.get("/agents/kilo").await.is(200);
    seen.has(id(&turn["turn"], "id")).has("/conversations/T-1").has("1 turn open, at most 1").has("tokens today");
    browser.post("/agents/kilo/pause", &[]).await.is(200).has("kilo is paused");
    assert_eq!(world.get("operator", "/v1/agents/kilo").await.is(200)["state"], "paused");
    browser.get("/agents/kilo").await.is(200).has("Resume");
    browser.post("/agents/kilo/resume", &[]).await.is(200);
    browser.post("/agents/kilo/stop", &[]).await.is(200).has("kilo is stopped");
    let seen = world.get("operator", "/v1/conversations/T-1").await.is(200);
    assert_eq!(seen["counters"]["open_tasks"], 0);
    browser.post("/agents/kilo/fire", &[]).await.is(404);
    browser.post("/agents/nobody/stop", &[]).await.is(404).has("nobody");
    browser.get("/agents/nobody").await.is(404);
    browser.get("/agents/operator").await.is(200).has("human");
}

#[tokio::test]
async fn an_agent_that_polls_is_down_only_once_it_has_missed_its_time_to_acknowledge() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let browser = Browser::signed_in(&world).await;
    world.get("kilo", "/v1/inbox").await.is(204);
    browser.get("/agents").await.is(200).has(">idle<");
    machine.run(9 * 60 * SECOND);
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    let seen = browser.get("/agents").await.is(200).has(">queued<").lacks(">not connected<");
    seen.has("last asked for work <time").has("9 min ago");
    browser.get("/agents/kilo").await.is(200).has(">queued<").has("last asked for work");
    browser.get("/").await.is(200).lacks("is not connected");
    machine.run(60 * SECOND);
    browser.get("/agents").await.is(200).has(">not connected<").lacks("last asked for work");
    browser.get("/").await.is(200).has("kilo</a> is not connected, and 1 request is queued for it");
    browser.post("/agents/kilo/limits", &[("ack_ms", "1200")]).await.is(200);
    browser.get("/agents").await.is(200).has(">queued<");
}

#[tokio::test]
async fn an_agent_that_waits_and_loses_its_connection_is_down_at_once() {
    let world = World::with(&["kilo"]).await;
    world.get("kilo", "/v1/inbox").await.is(204);
    let connected = async |wanted: bool| {
        while world.get("operator", "/v1/agents/kilo").await.is(200)["connected"] != json!(wanted) {}
    };
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(world.request("kilo", Method::GET, "/v1/inbox?wait=20s").send());
    connected(true).await;
    waiting.shutdown().await;
    connected(false).await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    Browser::signed_in(&world).await.get("/agents").await.is(200).has(">not connected<");
}

#[tokio::test]
async fn what_a_human_composes_is_a_request_and_leads_to_its_conversation() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/compose").await.is(200).has("<option value=\"kilo\">").has("request is a grant");
    let fields = [("to", "kilo"), ("body", "one\r\ntwo"), ("reference", "W-1/a"), ("priority", "urgent")];
    let seen = browser.post("/compose", &fields).await.is(200);
    assert_eq!(seen.headers["hx-redirect"], "/conversations/W-1%2Fa");
    let message = world.take("kilo").await["message"].clone();
    assert_eq!((id(&message, "body"), id(&message, "priority")), ("one\ntwo", "urgent"));
    let seen = browser.post("/compose", &[("to", "kilo"), ("body", "and a new one"), ("reference", " ")]).await.is(200);
    assert!(seen.headers["hx-redirect"].to_str().unwrap().starts_with("/conversations/"));
    browser.post("/compose", &[("to", ""), ("body", "x")]).await.is(400).has("Enter a recipient");
    browser.post("/compose", &[("to", "kilo"), ("body", " ")]).await.is(400).has("Enter a request");
    browser.post("/compose", &[("to", "kilo"), ("body", "x"), ("reference", "a b")]).await.is(400).has("ref");
    browser.post("/compose", &[("to", "kilo"), ("body", "x"), ("priority", "now")]).await.is(400).has("a priority");
    browser.post("/compose", &[("to", "lima"), ("body", "x")]).await.is(404).has("lima");
}

#[tokio::test]
async fn an_incident_tells_its_numbers_and_ends_by_a_resume_or_a_grant() {
    let world = latched().await;
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/inbox").await.is(200);
    let seen = seen.has("/conversations/BIG-1").has("The grant has used up its messages").has("grant_messages");
    let seen = seen.has("<dt>Limit</dt><dd>6 messages</dd>").has("<dt>Needed</dt><dd>8 messages</dd>");
    let seen =
        seen.has("name=\"messages\" min=\"0\"").has("grant-1 gets 6 more messages. The 3 held requests continue.");
    let seen = seen.has("Its budget (500\u{202f}000 tokens, unless extended) stays.");
    // Whose work is held, and what was asked for, is beside the button.
    seen.has(" asked ").has("Its task: ");
    let card = browser.get("/incidents/inc-1").await.is(200);
    card.has("Its task: ").has("grant-1 gets 6 more messages.");
    browser.post("/conversations/BIG-1/grant", &[("agents", "0")]).await.is(400).has("Enter at least one amount");
    browser.post("/conversations/BIG-1/grant", &[("messages", "2"), ("agents", "3")]).await.is(200);
    let grant = world.get("operator", "/v1/conversations/BIG-1").await.is(200)["grants"][0].clone();
    let limit = |name: &str| {
        let all = grant["limits"].as_array().unwrap();
        all.iter().find(|limit| limit["name"] == name).map(|limit| limit["limit"].clone())
    };
    assert_eq!((limit("grant_messages_max"), limit("grant_agents_max")), (Some(json!(8)), Some(json!(19))));
    browser.get("/conversations").await.is(200).has("lifted by operator");
}

#[tokio::test]
async fn a_conversation_shows_each_grant_that_is_open_in_it_and_the_older_one_can_be_given_more_alone() {
    let world = latched().await;
    world.send("operator", "reader", "BIG-1", "and something else").await.is(201);
    let seen = world.get("operator", "/v1/conversations/BIG-1").await.is(200);
    assert_eq!((&seen["latched"], &seen["grants"][1]["latched"]), (&json!(true), &json!("inc-1")));
    let ids = [id(&seen["grants"][0], "id").to_owned(), id(&seen["grants"][1], "id").to_owned()];
    let browser = Browser::signed_in(&world).await;
    browser.get("/conversations?state=latched").await.is(200).has("/conversations/BIG-1");
    let page = browser.get("/conversations/BIG-1").await.is(200);
    let page = page.has("<span class=\"badge bad\">held</span>").has("Lift").has("/incidents/inc-1");
    page.has("every open grant").has(&format!("<option value=\"{}\" selected>", ids[1]));
    let more = |to: &str| json!({"messages": 2, "grant": to});
    world.post("operator", "/v1/conversations/BIG-1/grant", more("3")).await.refused(400, "malformed");
    world.post("operator", "/v1/conversations/BIG-1/grant", more("grant-99")).await.refused(404, "unknown_request");
    browser.post("/conversations/BIG-1/grant", &[("messages", "2"), ("grant", &ids[1])]).await.is(200);
    let seen = world.get("operator", "/v1/conversations/BIG-1").await.is(200);
    let limits = [0, 1].map(|grant: usize| seen["grants"][grant]["limits"][0]["limit"].clone());
    assert_eq!((limits, &seen["latched"]), ([json!(6), json!(8)], &json!(false)));
}

#[tokio::test]
async fn the_workspace_is_stopped_once_it_was_asked_and_every_page_says_so() {
    let world = latched().await;
    let browser = Browser::signed_in(&world).await;
    for path in ["/workspace", "/workspace/question"] {
        browser.get(path).await.is(200).has("3 conversations, with 1 open turn.").has("Stop everything");
    }
    assert!(!browser.get("/agents").await.text.contains("class=\"standing bad\""));
    browser.post("/workspace/stop", &[]).await.is(200).has("The workspace is stopped");
    for path in ["/", "/conversations", "/agents", "/limits", "/standing"] {
        browser.get(path).await.is(200).has("The workspace is stopped: its work was cancelled");
    }
    browser.get("/workspace").await.is(200).has("0 conversations, with 0 open turns.").has("Resume");
    browser.post("/workspace/resume", &[]).await.is(200);
    browser.post("/workspace/pause", &[]).await.is(200);
    browser.get("/standing").await.is(200).has("The workspace is paused");
    browser.post("/workspace/explode", &[]).await.is(404);
    browser.post("/workspace/resume", &[]).await.is(200);
    assert!(!browser.get("/standing").await.is(200).text.contains("The workspace"));
}

#[tokio::test]
async fn limits_tell_where_they_were_set_and_how_near_things_came() {
    let world = latched().await;
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/limits").await.is(200).has("1 limit differs from the default").has("set at startup");
    seen.has("6/6").has("/conversations/BIG-1").has("<b>1</b> The grant has used up its messages");
    let mut limits = Limits { depth_max: 7, observed: Observed::all(), ..Limits::default() };
    limits.approvers.asker = true;
    let world = World::set(&["kilo"], |config| {
        config.settings.limits = limits;
        config.settings.set_at.insert("depth_max".into(), "/etc/<i>/lastword.toml:7".into());
    })
    .await;
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/limits").await.is(200).has("lastword.toml:7").has("default 5").has("</code> observe");
    assert!(!seen.text.contains("<i>"));
    seen.has("human, asker").has("No messages, so no limit was approached.");
}

/// A configuration file of which only limits are changed.
#[derive(Debug, Default)]
struct ConfigOfLimits {
    set: Mutex<Vec<(String, u64, String)>>,
    is_read_only: bool,
}

impl EditableConfig for ConfigOfLimits {
    fn place(&self) -> String {
        "/etc/lastword.toml".into()
    }

    fn add_rule(&self, _: &str, _: &str) -> Result<(), String> {
        Err("no rules".into())
    }

    fn remove_rule(&self, _: &str) -> Result<(), String> {
        Err("no rules".into())
    }

    fn rule_comments(&self, rules: &[String]) -> Vec<Option<String>> {
        vec![None; rules.len()]
    }

    fn set_limits(&self, limits: &BTreeMap<String, u64>, comment: &str) -> Result<BTreeMap<String, String>, String> {
        if self.is_read_only {
            return Err("/etc/lastword.toml: read-only".into());
        }
        let set = limits.iter().map(|(name, value)| (name.clone(), *value, comment.to_owned()));
        self.set.lock().unwrap().extend(set);
        Ok(limits.keys().map(|name| (name.clone(), "/etc/lastword.toml:9".into())).collect())
    }
}

#[tokio::test]
async fn a_limit_below_what_last_week_reached_is_set_only_where_its_owner_says_so() {
    let config = Arc::new(ConfigOfLimits::default());
    let world = World::set(&["kilo"], |settings| settings.settings.config = Some(config)).await;
    world.send("operator", "kilo", "TWO-1", "job").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let page = browser.until("/limits?change=grant_messages_max", |text| text.contains("name=\"peak\"")).await;
    page.has("Highest in the last seven days: 2 in ").has("href=\"/conversations/TWO-1\"").has("name=\"below\"");
    let seen = [("grant_messages_max", "1"), ("peak", "2")];
    browser.post("/limits", &seen).await.is(400).has("reached 2, so this limit would have tripped");
    let sure = [("grant_messages_max", "1"), ("peak", "2"), ("below", "yes")];
    browser.post("/limits", &sure).await.is(200).has("grant_messages_max</code> is 1 now, after 64");
    browser.post("/limits", &[("grant_messages_max", "5"), ("peak", "2")]).await.is(200).has("is 5 now, after 1");
}

#[tokio::test]
async fn an_owner_changes_limits_of_the_workspace_and_they_hold_at_once() {
    let file = Arc::new(ConfigOfLimits::default());
    let config = Arc::clone(&file);
    let world = World::set(&["kilo"], |settings| settings.settings.config = Some(config)).await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/limits?change=body_bytes_max").await.is(200).has("name=\"body_bytes_max\" value=\"262144\"");
    let said = browser.post("/limits", &[("body_bytes_max", "20")]).await.is(200);
    said.has("body_bytes_max</code> is 20 bytes now, after 262");
    browser.get("/limits").await.is(200).has("lastword.toml:9").has("1 limit differs from the default");
    let long = "a text of more than twenty bytes";
    world.send("operator", "kilo", "T-1", long).await.refused(413, "too_large");
    let times = [("lease_ms", "5"), ("unit", "60000")];
    browser.post("/limits", &times).await.is(200).has("lease_ms</code> is 5 min now, after 10 min");
    browser.post("/limits", &times).await.is(400).has("have these values already");
    for (wrong, why) in [
        (vec![("lease_ms", "0"), ("unit", "1000")], "a time has to be longer"),
        (vec![("lease_ms", "soon"), ("unit", "1000")], "an amount"),
        (vec![("no_limit", "1")], "names no limit"),
        (vec![("grant_messages_max", "1000000"), ("task_requests_max", "1000")], "is the ceiling"),
    ] {
        browser.post("/limits", &wrong).await.is(400).has(why);
    }
    let events = world.get("operator", "/v1/events?until=1000&after=0").await.is(200).to_string();
    assert_eq!(events.matches("event: limit_changed").count(), 2, "{events}");
    let set = file.set.lock().unwrap().clone();
    let values: Vec<_> = set.iter().map(|(name, value, _)| (name.as_str(), *value)).collect();
    assert_eq!(values, [("body_bytes_max", 20), ("lease_ms", 300_000)]);
    assert!(set[0].2.starts_with("Set by operator on 20"), "{set:?}");
}

#[tokio::test]
async fn a_limit_that_can_not_be_written_stays_as_it_was() {
    let file = Arc::new(ConfigOfLimits { is_read_only: true, ..ConfigOfLimits::default() });
    let world = World::set(&["kilo"], |settings| settings.settings.config = Some(file)).await;
    let browser = Browser::signed_in(&world).await;
    browser.post("/limits", &[("depth_max", "2")]).await.is(400).has("read-only");
    assert_eq!(limit(&world, "depth_max").await, 5);
    let nowhere = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&nowhere).await;
    browser.get("/limits?change=depth_max").await.is(200).lacks("name=\"depth_max\" value");
    browser.post("/limits", &[("depth_max", "2")]).await.is(400).has("no configuration file");
    assert_eq!(limit(&nowhere, "depth_max").await, 5);
}

async fn limit(world: &World, name: &str) -> u64 {
    let limits = world.get("operator", "/v1/limits").await.is(200);
    let found = limits["items"].as_array().unwrap().iter().find(|limit| limit["name"] == name).unwrap().clone();
    found["value"].as_u64().unwrap()
}

#[tokio::test]
async fn an_agent_that_is_gone_shows_its_last_signs_and_how_it_comes_back_unless_a_human_paused_it() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "hive", "BUG-1", "look").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let seen =
        browser.get("/agents/hive").await.is(200).has("asked for work since the server started, and has sent no");
    seen.has("lastword claude --as hive").has("It takes what is queued once it is back.").has("/team#m-hive");
    browser.get("/conversations/BUG-1").await.is(200).has("isn't connected");
    browser.get("/").await.is(200).has("<span class=\"badge bad\">not connected</span> <a href=\"/agents/hive\">");
    world.take("hive").await;
    browser.get("/agents/hive").await.is(200).lacks("how it comes back").lacks("id=\"silent\"");
    world.send("operator", "kilo", "BUG-2", "look").await.is(201);
    browser.post("/agents/kilo/pause", &[]).await.is(200);
    let page = browser.get("/").await.is(200).lacks("kilo</a> is not connected");
    page.has("Paused or stopped by a human:").has("action=\"/agents/kilo/resume\"");
    browser.get("/conversations?state=paused").await.is(200).has("BUG-2</a> <span class=\"badge warn\">paused");
    browser
        .get("/conversations/BUG-2")
        .await
        .is(200)
        .has("BUG-2</h1><span class=\"badge warn\">paused")
        .has("is paused: what");
    browser.post("/agents/kilo/resume", &[]).await.is(200).has("is resumed");
    browser.get("/").await.is(200).lacks("Paused or stopped by a human:");
}

#[tokio::test]
async fn what_a_form_adds_to_a_grant_is_said_with_its_amounts() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "MORE-1", "look").await.is(201);
    let browser = Browser::signed_in(&world).await;
    browser.get("/conversations/MORE-1").await.is(200).has("Messages, 2 of 64 used").has("Tokens, 0 of 500");
    let fields = [("tokens", "100000"), ("dollars", "0.5"), ("hours", "0"), ("turns", "5")];
    let said = browser.post("/conversations/MORE-1/grant", &fields).await.is(200);
    said.has("Extended the grant of MORE-1 by 5 turns, 100").has("000 tokens, $0.50.");
}

#[tokio::test]
async fn the_activity_is_the_sum_of_the_log() {
    let world = latched().await;
    let browser = Browser::signed_in(&world).await;
    let all = world.get("operator", "/v1/messages?limit=200").await.is(200);
    let messages = all["items"].as_array().map(Vec::len).unwrap_or_default();
    for (old, new) in [("/overview", "/spend#activity"), ("/settings", "/team"), ("/incidents", "/inbox")] {
        assert_eq!(browser.get(old).await.is(308).location(), new);
    }
    let seen = browser.get("/spend").await.is(200).has(&format!("{messages} messages, {messages} in the last 24 h"));
    let (_, chart) = seen.text.split_once("Messages by the hour").unwrap();
    assert_eq!(chart.matches("<rect").count(), 24);
    seen.has("no saved tokens or cost are shown");
    let empty = World::with(&[]).await;
    Browser::signed_in(&empty).await.get("/spend").await.is(200).has("No message was refused.");
}

#[tokio::test]
async fn a_browser_gets_a_page_where_there_is_nothing_and_a_program_a_problem() {
    let world = World::with(&[]).await;
    let ask = |path: &str, accept: &str| world.http.get(world.url(path)).header("accept", accept).send();
    let page = ask("/<b>nowhere", "text/html,*/*").await.unwrap();
    assert_eq!(page.status(), 404);
    assert!(page.headers()["content-type"].to_str().unwrap().starts_with("text/html"));
    assert_eq!(page.headers()["x-frame-options"], "DENY");
    let text = page.text().await.unwrap();
    assert!(text.contains("Page not found") && text.contains("href=\"/agents\"") && !text.contains("<b>"));
    for (path, accept) in [("/nowhere", "*/*"), ("/v1/nowhere", "text/html"), ("/mcp/nowhere", "text/html")] {
        let answer = ask(path, accept).await.unwrap();
        assert_eq!(answer.status(), 404, "{path}");
        let problem: Value = answer.json().await.unwrap();
        assert_eq!(problem["code"], "unknown_request");
    }
    assert_eq!(ask("/unread/read", "text/html").await.unwrap().status(), 405);
}

#[tokio::test]
async fn the_front_page_says_what_is_held_what_waits_and_that_a_price_is_unknown() {
    let world = latched().await;
    world.send("operator", "reader", "ASK-1", "and this").await.is(201);
    let turn = world.take("reader").await;
    let usage = json!({"usage": {"input_tokens": 1_000, "output_tokens": 200}});
    world.post("reader", &format!("/v1/turns/{}/progress", id(&turn["turn"], "id")), usage).await.is(200);
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/").await.is(200).has("pieces of work: 1 held, 1 working");
    let seen = seen.has("BIG-1</a> is held: the grant has used up its messages. 3 requests wait for the lift.");
    // What is held is no reason to start an agent.
    assert!(!seen.text.contains("is not connected"), "{}", seen.text);
    let seen = seen.has("<b>1\u{202f}200</b>").has("no price reported");
    assert!(!seen.text.contains("$0"), "{}", seen.text);
    browser.get("/conversations?q=and").await.is(200);
    let asked = world.post("reader", "/v1/escalations", json!({"message": "Which?"})).await.is(201);
    browser.get("/conversations").await.is(200).has("waiting for you");
    browser.get(&format!("/questions/{}", id(&asked, "id"))).await.is(200).has("<h1>reader asks: Which?</h1>");
    let incident = browser.get("/incidents/inc-1").await.is(200);
    // A latch that nobody lifts closes the grant after a week.
    let incident = incident.has("6 d 23 h left").has("If nobody lifts it in time, the ");
    incident.has("<h1>BIG-1 is held: the grant has used up its messages</h1>").has("Back to inbox");
}

#[tokio::test]
async fn the_front_page_and_the_inbox_count_the_same_unread_messages_and_notices() {
    let limits = Limits { budget_warning_percent: 1, grant_tokens_max: 1_000, ..Limits::default() };
    let world = World::within(limits, &["coder"]).await;
    world.send("operator", "coder", "T-1", "do it").await.is(201);
    let turn = world.take("coder").await;
    world.post("coder", "/v1/messages", json!({"type": "info", "to": "operator", "body": "by the way"})).await.is(201);
    world.finish("coder", &turn, "done").await.is(200);
    let browser = Browser::signed_in(&world).await;
    let front = browser.get("/").await.is(200).text;
    let inbox = browser.get("/inbox").await.is(200).text;
    let unread = front.split(" unread message").next().and_then(|text| text.rsplit('>').next()).unwrap().to_owned();
    assert!(unread.parse::<usize>().unwrap() > 0, "{front}");
    assert!(inbox.contains(&format!("Unread messages for you <span class=\"count\">{unread}</span>")), "{inbox}");
    let list = inbox.split("id=\"unread\"").nth(1).unwrap().split("</details>").next().unwrap();
    assert_eq!(list.matches("<li>").count().to_string(), unread, "{list}");
}

#[tokio::test]
async fn the_page_of_a_refusal_leads_on_and_says_what_its_numbers_count() {
    let world = latched().await;
    let browser = Browser::signed_in(&world).await;
    let refusals = browser.get("/limits").await.is(200).text;
    let at = refusals.split("/messages/msg-").nth(1).unwrap().split('"').next().unwrap();
    let seen = browser.get(&format!("/messages/msg-{at}")).await.is(200);
    let seen = seen.has("at most 6 allowed; this one would have made it 8").has("href=\"/limits#grant_messages_max\"");
    let seen = seen.has("href=\"/agents/coder\"").has("href=\"/conversations/BIG-1?view=waterfall&amp;at=msg-");
    seen.has("href=\"/limits#refused\"");
}

#[tokio::test]
async fn a_held_child_conversation_says_when_its_grant_closes_although_the_grants_clock_runs() {
    let world = World::within(Limits { turns_hard_max: 3, ..Limits::default() }, &["coder", "idler"]).await;
    world.send("operator", "coder", "T-1", "do it").await.is(201);
    world.take("coder").await;
    let ask = json!({"type": "request", "to": "idler", "body": "a part"});
    world.post("coder", "/v1/messages", ask).await.is(201);
    let note = json!({"type": "info", "to": "idler", "ref": "T-1/1", "body": "by the way"});
    world.post("coder", "/v1/messages", note.clone()).await.is(201);
    world.post("coder", "/v1/messages", note).await.refused(422, "turns_hard");
    // The clock ends within a day and latches the grant, which closes a week after that.
    let browser = Browser::signed_in(&world).await;
    browser.get("/inbox").await.is(200).has("T-1/1").has("7 d 23 h left");
}

#[tokio::test]
async fn what_agents_post_in_a_room_counts_towards_the_limit_and_a_refused_post_leads_to_its_room() {
    let world = World::within(Limits { turns_soft_max: 3, ..Limits::default() }, &["kilo"]).await;
    world.post("operator", "/v1/rooms", json!({"name": "den", "members": ["kilo"]})).await.is(201);
    for _ in 0..2 {
        world.post("kilo", "/v1/rooms/den/messages", json!({"body": "hello"})).await.is(201);
    }
    let browser = Browser::signed_in(&world).await;
    let near = browser.get("/limits").await.is(200).has("Soft turn limit").has("2/3");
    assert!(near.text.contains("in the room <a href=\"/rooms/den\">den</a>"), "{}", near.text);
    world.post("kilo", "/v1/rooms/den/messages", json!({"body": "hello"})).await.refused(422, "turns_soft");
    let refusals = browser.get("/limits").await.is(200).text;
    let at = refusals.split("/messages/msg-").nth(1).unwrap().split('"').next().unwrap();
    let page = browser.get(&format!("/messages/msg-{at}")).await.is(200);
    page.has("tried to post in the room <a href=\"/rooms/den\">den</a>.")
        .has("<a href=\"/rooms/den\">Open the room</a>");
    browser.post("/rooms/den", &[("body", " ")]).await.is(400).has("Enter a post");
    browser.post("/rooms/den", &[("body", "go on, @kilo")]).await.is(200);
    browser.get("/rooms/den").await.is(200).has("go on, @kilo").has("0 posts by agents since a human spoke");
    assert_eq!(world.take("kilo").await["message"]["body"], "go on, @kilo");
    world.post("kilo", "/v1/rooms/den/messages", json!({"body": "hello"})).await.is(201);
}

#[tokio::test]
async fn a_conversation_that_was_stopped_is_opened_again_and_says_what_that_does() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "STOP-1", "do it").await.is(201);
    world.take("kilo").await;
    let browser = Browser::signed_in(&world).await;
    browser.post("/conversations/STOP-1/stop", &[]).await.is(200).has("STOP-1 is stopped.");
    browser.get("/conversations/STOP-1").await.is(200).has(">Open again<").has("takes no messages").lacks(">Resume<");
    let said = browser.post("/conversations/STOP-1/resume", &[]).await.is(200);
    said.has("STOP-1 takes messages again. What was stopped stays cancelled.");
    browser.get("/conversations/STOP-1").await.is(200).lacks(">Open again<").lacks("takes no messages");
    world.send("operator", "kilo", "STOP-1", "go on").await.is(201);
    browser.post("/conversations/STOP-1/pause", &[]).await.is(200);
    browser.get("/conversations/STOP-1").await.is(200).has(">Resume<");
    browser.post("/conversations/STOP-1/resume", &[]).await.is(200).has("STOP-1 is resumed.");
}

#[tokio::test]
async fn an_agent_that_waits_for_a_human_is_not_said_to_work_nor_to_be_away() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "ASK-2", "deploy it").await.is(201);
    world.take("kilo").await;
    world.post("kilo", "/v1/escalations", json!({"message": "Which?"})).await.is(201);
    // A second request waits behind the open turn.
    world.send("operator", "kilo", "ASK-3", "and this").await.is(201);
    world.send("operator", "hive", "BUG-1", "look").await.is(201);
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/").await.is(200).has("pieces of work: 1 waiting for you, 1 not connected, 1 queued");
    let seen = seen
        .has("<span class=\"badge warn\">waiting for you</span> <a href=\"/agents/kilo\">")
        .has("hive</a> is not connected, and 1 request is queued for it");
    assert!(!seen.text.contains("kilo</a> is not connected"), "{}", seen.text);
}

#[tokio::test]
async fn a_hold_whose_work_was_stopped_waits_for_nobody() {
    let world = latched().await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/inbox").await.is(200).has("1 pending decision");
    world.post("operator", "/v1/conversations/BIG-1/stop", json!({})).await.is(204);
    browser.get("/inbox").await.is(200).has("0 pending decisions");
    browser.get("/conversations").await.is(200).has("ended with its grant");
    browser.get("/incidents/inc-1").await.is(200).has("ended");
    let incident = &world.get("operator", "/v1/incidents").await.is(200)["items"][0];
    assert!(incident["lifted_at"].is_string() && incident.get("lifted_by").is_none(), "{incident}");
}

#[tokio::test]
async fn a_held_conversation_that_was_stopped_waits_for_nobody() {
    let world = World::within(Limits { turns_hard_max: 3, ..Limits::default() }, &["coder", "idler"]).await;
    world.send("operator", "coder", "LOUD-1", "work").await.is(201);
    world.take("coder").await;
    let note = || json!({"type": "info", "to": "idler", "body": "note"});
    for _ in 0..2 {
        world.post("coder", "/v1/messages", note()).await.is(201);
    }
    world.post("coder", "/v1/messages", note()).await.refused(422, "turns_hard");
    let browser = Browser::signed_in(&world).await;
    browser.get("/inbox").await.is(200).has("1 pending decision");
    world.post("operator", "/v1/conversations/LOUD-1/stop", json!({})).await.is(204);
    browser.get("/inbox").await.is(200).has("0 pending decisions");
    browser.get("/conversations").await.is(200).has("lifted by operator");
    // The stop holds it as the latch did.
    world
        .post("coder", "/v1/messages", json!({"type": "info", "to": "idler", "ref": "LOUD-1", "body": "note"}))
        .await
        .refused(409, "stopped");
    world.post("operator", "/v1/conversations/LOUD-1/resume", json!({})).await.is(204);
    world.send("operator", "coder", "LOUD-1", "once more").await.is(201);
}
