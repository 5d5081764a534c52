//! What turns cost by model: in reports over HTTP and a session, in the events and on the console's page.

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::machine::Machine;
use crate::world::{World, id};

/// The most tokens that one report may have.
const MOST: u64 = 1_000_000_000_000;

fn usage(models: &Value) -> Value {
    json!({ "input_tokens": 900, "output_tokens": 100, "cost_usd": 0.3, "models": models })
}

/// Opens a turn of `kilo`; returns its path.
async fn turn(world: &World, reference: &str) -> String {
    world.send("operator", "kilo", reference, "work").await.is(201);
    let delivery = world.take("kilo").await;
    format!("/v1/turns/{}", id(&delivery["turn"], "id"))
}

/// Returns the section of the page with this title.
fn section<'a>(page: &'a str, title: &str) -> &'a str {
    let from = page.split(&format!("<h2>{title}</h2>")).nth(1).unwrap_or_else(|| panic!("no {title}: {page}"));
    from.split("</section>").next().unwrap()
}

#[tokio::test]
async fn what_a_model_cost_is_in_the_events_and_on_the_page() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let one = turn(&world, "T-1").await;
    let report = json!({ "usage": usage(&json!([{ "model": "opus", "tokens": 600, "cost_usd": 0.2 }])) });
    world.post("kilo", &format!("{one}/progress"), report).await.is(200);
    machine.run(2_000);
    // A later report replaces the one before.
    let models = json!([{ "model": "opus", "tokens": 700, "cost_usd": 0.25 }, { "model": "<i>", "tokens": 100 }]);
    let finish = json!({ "answer": "done", "usage": usage(&models) });
    world.post("kilo", &format!("{one}/finish"), finish).await.is(200);
    let two = turn(&world, "T-2").await;
    let finish = json!({ "answer": "done", "usage": { "input_tokens": 500, "output_tokens": 0 } });
    world.post("kilo", &format!("{two}/finish"), finish).await.is(200);

    let seen = Browser::signed_in(&world).await.get("/spend").await.is(200).text;
    let models = section(&seen, "By model");
    let lines: Vec<&str> = models.split("<li>").skip(1).collect();
    assert_eq!(lines.len(), 3, "{models}");
    for (line, words) in lines.iter().zip([
        ["<span>opus</span>", "700 tokens, <b>$0.25</b>"],
        ["<span>&lt;i&gt;</span>", "100 tokens</span>"],
        ["no model reported", "700 tokens, <b>$0.05</b>"],
    ]) {
        assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
    }
    for over in ["1h", "7d"] {
        let seen = Browser::signed_in(&world).await.get(&format!("/spend?over={over}")).await.is(200).text;
        assert!(section(&seen, "By model").contains("<span>opus</span>"), "{over}");
    }

    let stream = world.get("operator", "/v1/events?until=1000&after=0").await.is(200);
    let events = stream.as_str().unwrap().lines().filter_map(|line| line.strip_prefix("data: "));
    let events = events.map(|event| serde_json::from_str::<Value>(event).unwrap());
    let told: Vec<Value> = events.filter(|event| event["type"] == "spent_on").collect();
    assert_eq!(told.len(), 2, "{stream}");
    let parts = json!([
        { "model": "opus", "tokens": 700, "cost_microusd": 250_000 },
        { "model": "<i>", "tokens": 100, "cost_microusd": 0 },
    ]);
    assert_eq!((&told[1]["data"]["models"], &told[1]["agent"]), (&parts, &json!("kilo")));
}

#[tokio::test]
async fn models_that_are_more_than_the_turn_are_refused_with_the_step() {
    let world = World::with(&["kilo"]).await;
    let path = turn(&world, "T-1").await;
    for (models, says) in [
        (json!([{ "model": "opus", "tokens": 1_001 }]), "`usage.models` has 1001 tokens and the turn 1000"),
        (json!([{ "model": "opus", "tokens": 1, "cost_usd": 0.4 }]), "`usage.models` costs more than the turn"),
        (json!([{ "model": " ", "tokens": 1 }]), "whose name has a character that is not allowed at byte 0"),
        (json!([{ "model": "opus", "tokens": 1 }, { "model": "opus", "tokens": 1 }]), "has opus twice"),
        (json!([{ "model": "opus", "cost": 1 }]), "unknown field"),
    ] {
        for call in ["progress", "finish"] {
            let answer = world.post("kilo", &format!("{path}/{call}"), json!({ "usage": usage(&models) })).await;
            let problem = answer.refused(if says == "unknown field" { 400 } else { 422 }, "malformed");
            assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        }
    }
    let right = json!({ "usage": usage(&json!([{ "model": "opus", "tokens": 1_000, "cost_usd": 0.3 }])) });
    world.post("kilo", &format!("{path}/finish"), right).await.is(200);
}

#[tokio::test]
async fn the_spending_of_a_forgotten_grant_keeps_its_ref_and_its_agent_and_a_used_up_budget_is_shown() {
    let machine = Machine::new();
    let limits = Limits { retention_ms: 60_000, grant_tokens_max: 1_000, ..Limits::default() };
    let world = machine.world(&["kilo"], limits).await;
    let spent = |tokens: u64| json!({"answer": "done", "usage": {"input_tokens": tokens, "output_tokens": 0}});
    world.send("operator", "kilo", "GONE-1", "work").await.is(201);
    let turn = world.take("kilo").await;
    world.post("kilo", &format!("/v1/turns/{}/finish", id(&turn["turn"], "id")), spent(700)).await.is(200);
    machine.run(120_000);
    world.send("operator", "kilo", "HERE-1", "more work").await.is(201);
    let turn = world.take("kilo").await;
    let usage = json!({"usage": {"input_tokens": 1_500}});
    world.post("kilo", &format!("/v1/turns/{}/progress", id(&turn["turn"], "id")), usage).await.is(200);
    world.get("operator", "/v1/conversations/GONE-1").await.refused(404, "unknown_request");
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/spend").await.is(200);
    let agents = section(&seen.text, "By agent");
    assert!(agents.matches("<li>").count() == 1 && agents.contains(">kilo</a>"), "{agents}");
    let seen = seen
        .has("<code>GONE-1</code> <code class=\"faint\">grant-1</code>")
        .has("has used up the budget of <code>grant-2</code>");
    seen.has("1\u{202f}000 tokens. <a class=\"step\" href=\"/inbox\">Lift or stop it</a>");
    // A removed agent has a name, and no page any more.
    world.request("operator", Method::DELETE, "/v1/agents/kilo").send().await.unwrap().error_for_status().unwrap();
    browser.get("/spend").await.is(200).has("<span title=\"This agent was removed.\">kilo</span>");
}

#[tokio::test]
async fn the_largest_reports_leave_the_pages_readable() {
    let machine = Machine::new();
    let names = ["kilo", "lima", "mike"];
    let world = machine.world(&names, Limits::default()).await;
    // A second conversation of the same grant, so that its sums have several turns, too.
    for (name, reference) in names.iter().zip(["HUGE-1", "HUGE-1/1", "HUGE-1/2"]) {
        world.send("operator", name, reference, "work").await.is(201);
        let turn = world.take(name).await;
        let models = json!([{ "model": "opus", "tokens": MOST - 1 }]);
        let usage = json!({ "input_tokens": MOST, "output_tokens": MOST, "cost_usd": 1e6, "models": models });
        let finish = json!({ "answer": "done", "usage": usage });
        world.post(name, &format!("/v1/turns/{}/finish", id(&turn["turn"], "id")), finish).await.is(200);
    }
    let browser = Browser::signed_in(&world).await;
    let pages = [
        "/",
        "/inbox",
        "/team",
        "/spend",
        "/spend?over=1h",
        "/conversations",
        "/conversations/HUGE-1",
        "/conversations/HUGE-1?view=waterfall",
        "/conversations/HUGE-1?graph=true",
        "/conversations/HUGE-1?view=log",
        "/agents",
        "/agents/kilo",
        "/graph",
        "/limits",
    ];
    for path in pages {
        let seen = browser.get(path).await.is(200);
        assert!(!seen.text.contains("-1 tokens") && !seen.text.contains("$-"), "{path}");
    }
    for path in ["/v1/conversations", "/v1/conversations/HUGE-1", "/v1/agents", "/metrics"] {
        world.get("operator", path).await.is(200);
    }
}
