//! The forms that a human's role allows on the console (H7), and those that set limits, budgets and roles.

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{World, at_the_cap_of};

#[tokio::test]
async fn an_agents_own_limits_are_set_and_taken_away_on_its_page() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/agents/kilo").await.is(200).has("No per-agent limits").has("placeholder=\"10\"");
    let set = [
        ("roots_per_hour_max", "20"),
        ("ack_ms", "1.5"),
        ("agent_day_cost_microusd_max", "2.5"),
        ("agent_turns_max", ""),
    ];
    browser.post("/agents/kilo/limits", &set).await.is(200).has("The limits of kilo are set");
    let limits = async || world.get("operator", "/v1/agents/kilo").await.is(200)["limits"].clone();
    let all = json!({"ack_ms": 1_500, "agent_day_cost_microusd_max": 2_500_000, "roots_per_hour_max": 20});
    assert_eq!(limits().await, all);
    let seen =
        browser.get("/agents/kilo").await.is(200).has("name=\"ack_ms\" inputmode=\"decimal\"").has("value=\"1.5\"");
    seen.has("Dollars a day: <b>$2.50</b>").has("cost today").has("0/20");
    let from = "div#limits-form-said";
    let wrong = [("roots_per_hour_max", "many"), ("ack_ms", "9")];
    let seen = browser.post_from("/agents/kilo/limits", &wrong, from).await.is(400);
    seen.has("<p>`roots_per_hour_max` isn't an amount: &quot;many&quot;</p>");
    assert_eq!(limits().await, all, "nothing of a wrong form is done");
    let same = browser.post_from("/agents/kilo/limits", &[("roots_per_hour_max", "20")], from).await.is(400);
    same.has("These limits are already set");
    let taken = [("roots_per_hour_max", "0"), ("ack_ms", ""), ("agent_day_cost_microusd_max", "2.5")];
    browser.post("/agents/kilo/limits", &taken).await.is(200);
    assert_eq!(limits().await, json!({"agent_day_cost_microusd_max": 2_500_000}));
    browser.post("/agents/nobody/limits", &set).await.is(404).has("nobody");
    browser.post("/agents/operator/limits", &set).await.is(404).has("a human, who has no limits");
}

#[tokio::test]
async fn an_agent_that_rests_is_given_more_for_today_on_its_page() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    browser.post("/agents/kilo/limits", &[("agent_day_tokens_max", "100")]).await.is(200);
    world.send("operator", "kilo", "T-1", "do it").await.is(201);
    let task = world.take("kilo").await;
    let turn = format!("/v1/turns/{}/finish", task["turn"]["id"].as_str().unwrap());
    world.post("kilo", &turn, json!({"answer": "done", "usage": {"input_tokens": 200}})).await.is(200);
    browser
        .get("/agents/kilo")
        .await
        .is(200)
        .has("budget used up</span>")
        .has(">00:00 UTC</time>, or once you")
        .has("200/100");
    // It is stopped by nobody, and each page says what it is and when that ends.
    browser
        .get("/agents")
        .await
        .is(200)
        .has("budget used up</span>")
        .has(">00:00 UTC</time>, or once you")
        .lacks(">stopped<");
    browser.get("/graph").await.is(200).has("<span class=\"dot rests\"></span> budget used up").has("until 00:00 UTC");
    browser.get("/").await.is(200).has("starts no work before <time ");
    let set = browser.post("/agents/kilo/limits", &[("agent_day_tokens_max", "150")]).await.is(200);
    set.has("It has used 200 of 150 today already.");
    let from = "div#grant-form-said";
    let give = async |tokens: &str, usd: &str| {
        browser.post_from("/agents/kilo/grant", &[("tokens", tokens), ("cost_usd", usd)], from).await
    };
    give("", "").await.is(400).has("nothing is given");
    give("-5", "").await.is(400).has("`tokens` isn't an amount: &quot;-5&quot;");
    give("5", "much").await.is(400).has("`cost_usd` isn't an amount: &quot;much&quot;");
    give("5", "-1").await.is(400).has("a grant can't be reduced");
    give("1000", "0.5").await.is(200).has("kilo may spend 1\u{202f}000 tokens and $0.50 more today");
    assert_eq!(world.get("operator", "/v1/agents/kilo").await.is(200)["rests_until"], Value::Null);
    // What is given counts from what is used.
    browser.get("/agents/kilo").await.is(200).has("200/1\u{202f}200");
    browser.post("/agents/kilo/limits", &[("agent_day_tokens_max", "5000")]).await.is(200).lacks("today already");
}

#[tokio::test]
async fn every_page_says_who_is_signed_in_with_which_role_and_where() {
    let mut world = World::with(&["kilo"]).await;
    world.register_human("vera", "viewer").await;
    let browser = Browser::as_human(&world, "vera").await;
    let at = world.url("").replace("http://", "");
    let title = format!("Signed in as vera, with the role viewer, in the workspace at {at}");
    for path in ["/", "/inbox", "/conversations", "/agents", "/spend", "/schedules", "/limits", "/team"] {
        let page = browser.get(path).await.is(200);
        let (header, _) = page.text.split_once("</header>").unwrap();
        assert!(header.contains(&title) && header.contains(">viewer</span>"), "{path}: {header}");
    }
}

#[tokio::test]
async fn an_owner_sets_roles_and_one_owner_is_always_left() {
    let mut world = World::with(&["kilo"]).await;
    world.register_human("anna", "viewer").await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/agents").await.is(200).has(">viewer<").has(">owner<");
    browser
        .get("/agents/anna")
        .await
        .is(200)
        .has("<option value=\"viewer\" selected>viewer</option>")
        .has("and may read, and post in rooms.");
    browser.post("/agents/anna/role", &[("role", "approver")]).await.is(200).has("anna is approver now");
    assert_eq!(world.get("operator", "/v1/agents/anna").await.is(200)["role"], "approver");
    let from = "div#role-form-said";
    browser
        .post_from("/agents/anna/role", &[("role", "king")], from)
        .await
        .is(400)
        .has("&quot;king&quot; isn't a role");
    let last = browser.post_from("/agents/operator/role", &[("role", "viewer")], from).await.is(403);
    last.has("the last owner of the workspace");
    browser.post_from("/agents/kilo/role", &[("role", "viewer")], from).await.is(404).has("an agent has no role");
    let anna = Browser::as_human(&world, "anna").await;
    anna.get("/agents/operator").await.is(200).has("Setting a role needs the role owner. Yours is approver.");
    anna.post("/agents/anna/role", &[("role", "owner")]).await.is(403);
}

/// A world with a question that a limit caused, a held call, a latched grant and a schedule.
async fn full() -> World {
    let limits = Limits { depth_max: 1, grant_messages_max: 5, ..Limits::default() };
    let (mut world, _) =
        at_the_cap_of(World::within(limits, &["kilo", "hive", "mike", "nora", "otto", "paul"]).await).await;
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    world.post("kilo", "/v1/escalations", json!({"message": "go on?"})).await.is(201);
    world.post("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {"a": 1}})).await.is(201);
    world.send("operator", "mike", "L-1", "ask around").await.is(201);
    world.take("mike").await;
    for to in ["hive", "kilo", "nora", "otto", "paul"] {
        let part = json!({"type": "request", "to": to, "body": "a part"});
        world.post("mike", "/v1/messages", part).await;
    }
    let incidents = world.get("operator", "/v1/incidents").await.is(200);
    assert_eq!(incidents["items"][0]["code"], "grant_messages", "{incidents}");
    let new = json!({ "name": "nightly", "cron": "0 2 * * *", "to": "kilo", "body": "run" });
    world.post("operator", "/v1/schedules", new).await.is(201);
    for (name, role) in [("vera", "viewer"), ("anna", "approver"), ("olga", "operator")] {
        world.register_human(name, role).await;
    }
    world
}

/// Returns the targets of a page's forms, without those that every human may use.
fn forms(page: &str) -> Vec<String> {
    let actions = page.split("<form ").skip(1).filter_map(|form| form.split("action=\"").nth(1)?.split('"').next());
    let mut actions: Vec<_> = actions.filter(|action| *action != "/sign-out").map(str::to_owned).collect();
    actions.dedup();
    actions
}

const PAGES: [&str; 8] = [
    "/inbox",
    "/conversations/T-1",
    "/agents/kilo",
    "/agents/vera",
    "/schedules",
    "/compose",
    "/workspace",
    "/workspace/question",
];

#[tokio::test]
async fn no_button_stands_on_a_page_that_the_humans_role_can_not_use_and_the_page_says_why() {
    let world = full().await;
    let vera = Browser::as_human(&world, "vera").await;
    for path in PAGES {
        let page = vera.get(path).await.is(200).has("Yours is viewer.");
        assert_eq!(forms(&page.text), [] as [&str; 0], "{path}");
    }
    let anna = Browser::as_human(&world, "anna").await;
    let inbox = anna.get("/inbox").await.is(200).has("Choosing a lift needs the role operator. Yours is approver.");
    assert!(!inbox.text.contains("name=\"lift\""));
    assert!(forms(&inbox.text).contains(&"/escalations/esc-1/answer".to_owned()), "{:?}", forms(&inbox.text));
    assert!(forms(&inbox.text).contains(&"/approvals/apr-1/approve".to_owned()));
    for path in &PAGES[1..] {
        let allowed: &[&str] = if *path == "/conversations/T-1" { &["/conversations/T-1/link"] } else { &[] };
        assert_eq!(forms(&anna.get(path).await.is(200).text), allowed, "{path}");
    }
    let olga = Browser::as_human(&world, "olga").await;
    olga.get("/inbox").await.is(200).has("name=\"lift\" value=\"lift-1\"");
    let page =
        olga.get("/agents/kilo").await.is(200).has("Setting per-agent limits needs the role owner. Yours is operator.");
    assert_eq!(forms(&page.text), ["/agents/kilo/pause", "/agents/kilo/stop", "/agents/kilo/grant", "/compose"]);
    olga.get("/schedules").await.is(200).has("action=\"/schedules/nightly/run\"").has("action=\"/schedules\"");
    olga.get("/agents/vera").await.is(200).has("Setting a role needs the role owner. Yours is operator.");
    let owner = Browser::signed_in(&world).await;
    for path in PAGES {
        let page = owner.get(path).await.is(200);
        assert!(!page.text.contains("Yours is") && !forms(&page.text).is_empty(), "{path}");
    }
}

#[tokio::test]
async fn a_viewer_sees_what_waits_without_words_or_buttons_of_those_who_decide() {
    let world = full().await;
    let vera = Browser::as_human(&world, "vera").await;
    for path in [
        "/",
        "/agents",
        "/graph",
        "/inbox",
        "/devices",
        "/conversations",
        "/conversations/T-1?graph=true",
        "/approvals/apr-1",
    ] {
        let page =
            vera.get(path).await.is(200).lacks("aiting for you").lacks("Stop…").lacks(">Decide<").lacks(">Answer<");
        page.lacks("Ask <kbd>").lacks(">Ask again<").lacks("Lift or stop<");
    }
    vera.get("/").await.is(200).has("Waiting for an approver").has("aria-label=\"Look apr-1\"");
    vera.get("/agents").await.is(200).has("waiting for an approver</span>");
    vera.get("/waiting").await.is(200).has("data-words=\"3 pending decisions for an approver\"");
    let owner = Browser::signed_in(&world).await;
    owner.post("/workspace/pause", &[]).await.is(200);
    vera.get("/").await.is(200).has("The workspace is paused").lacks("Resume…");
    owner.get("/").await.is(200).has("Resume…");
    owner.post("/workspace/resume", &[]).await.is(200);
    let anna = Browser::as_human(&world, "anna").await;
    anna.get("/")
        .await
        .is(200)
        .has("Waiting for you")
        .has("aria-label=\"Decide apr-1\"")
        .has("aria-label=\"Look inc-1\"")
        .lacks("Stop…");
    owner.get("/").await.is(200).has("aria-label=\"Lift or stop inc-1\"").has("Stop…");
}

#[tokio::test]
async fn what_a_page_does_not_offer_is_refused_all_the_same() {
    let world = full().await;
    let vera = Browser::as_human(&world, "vera").await;
    for (path, fields) in [
        ("/escalations/esc-1/answer", &[("answer", "yes")][..]),
        ("/approvals/apr-1/ignore", &[]),
        ("/agents/kilo/pause", &[]),
        ("/agents/kilo/limits", &[("ack_ms", "5")]),
        ("/agents/kilo/grant", &[("tokens", "5")]),
        ("/agents/vera/role", &[("role", "owner")]),
        ("/conversations/T-1/stop", &[]),
        ("/workspace/stop", &[]),
        ("/schedules", &[("name", "n"), ("cron", "0 2 * * *"), ("to", "kilo"), ("body", "x")]),
        ("/schedules/nightly/run", &[]),
        ("/schedules/nightly/remove", &[]),
        ("/compose", &[("to", "kilo"), ("body", "x")]),
    ] {
        vera.post(path, fields).await.is(403);
    }
    let anna = Browser::as_human(&world, "anna").await;
    anna.post("/escalations/esc-1/answer", &[("lift", "lift-1")]).await.is(403);
    anna.post("/escalations/esc-1/answer", &[("answer", "no")]).await.is(200);
}
