//! What is risky comes first, and what is alike is decided together.

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::World;

/// Holds a call of the shell; returns its id.
async fn hold(world: &World, who: &str, command: &str) -> String {
    let call = json!({ "tool": "Bash", "arguments": { "command": command } });
    world.post(who, "/v1/approvals", call).await.is(201)["id"].as_str().unwrap().to_owned()
}

async fn states(world: &World, ids: &[String]) -> Vec<Value> {
    let mut states = Vec::new();
    for id in ids {
        states.push(world.get("operator", &format!("/v1/approvals/{id}")).await.is(200)["state"].clone());
    }
    states
}

/// Returns the hidden fields of a form.
fn fields(page: &str, form: &str) -> Vec<(String, String)> {
    let (_, rest) = page.split_once(&format!("<form id=\"{form}\"")).unwrap();
    let (form, _) = rest.split_once("</form>").unwrap();
    let value = |part: &str, name: &str| {
        part.split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let inputs = form.split("<input type=\"hidden\"").skip(1);
    inputs.map(|part| (value(part, "name"), value(part, "value"))).filter(|(name, _)| name != "forms").collect()
}

#[tokio::test]
async fn calls_that_are_alike_are_decided_together_and_the_one_that_differs_is_first() {
    let world = World::with(&["kilo", "hive", "mike", "nora"]).await;
    let browser = Browser::signed_in(&world).await;
    let mut ids = Vec::new();
    for who in ["kilo", "hive", "mike"] {
        ids.push(hold(&world, who, "npm test").await);
    }
    let odd = hold(&world, "mike", "npm test && rm -rf /").await;
    let inbox = browser
        .get("/inbox")
        .await
        .is(200)
        .has("4 pending decisions")
        .has("by hive, kilo, mike")
        .has("kilo, hive and mike ask to call Bash");
    let cards: Vec<&str> =
        inbox.text.split("<article class=\"card\" id=\"").skip(1).map(|card| card.split('"').next().unwrap()).collect();
    assert_eq!(cards, [odd.as_str(), ids[0].as_str()], "the destructive one first, the others as one");
    let inbox = inbox.has("deletes files").has("first of its kind").has("Approve all 3");
    browser
        .get("/")
        .await
        .is(200)
        .has("deletes files")
        .has("kilo, hive and mike</b> ask to call")
        .has("× 3")
        .lacks(" more: ");

    // What comes after the page was shown isn't decided with it.
    let group = fields(&inbox.text, &format!("{}-approve", ids[0]));
    let group: Vec<(&str, &str)> = group.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let later = hold(&world, "nora", "npm test").await;
    browser.post("/inbox/alike/approve", &group).await.is(200).has("3 calls are approved.");
    assert_eq!(states(&world, &ids).await, ["approved", "approved", "approved"]);
    assert_eq!(states(&world, &[odd.clone(), later.clone()]).await, ["pending", "pending"]);
    browser.post("/inbox/alike/approve", &group).await.is(200).has("0 calls are approved. 3 were settled by others");

    // The odd one says by what it differs from what its agent may.
    let page = browser.get(&format!("/approvals/{odd}")).await.is(200);
    page.has("which was approved: ").has("<ins>&amp;&amp; rm -rf /</ins>").lacks("first of its kind");
    // A digest that isn't the call's decides nothing.
    let wrong = [(odd.as_str(), group[1].1)];
    let refused = browser.post("/inbox/alike/approve", &wrong).await;
    assert!(refused.status.is_client_error(), "{}", refused.text);
    assert_eq!(states(&world, &[odd]).await, ["pending"]);
    browser.post("/inbox/alike/ignore", &group).await.is(404);
    browser.post("/inbox/alike/approve", &[("comment", "x")]).await.is(400);
}

#[tokio::test]
async fn what_a_fold_hides_is_named_and_none_of_it_is_graver_than_what_stands_above() {
    let world = World::with(&["kilo", "hive", "mike"]).await;
    let browser = Browser::signed_in(&world).await;
    let asked =
        world.post("hive", "/v1/escalations", json!({ "message": "To eu or us?", "ref": "EU-1" })).await.is(201);
    let plain = hold(&world, "hive", "npm test").await;
    for n in 0..9 {
        hold(&world, if n < 8 { "kilo" } else { "mike" }, &format!("rm -rf /srv/{n}")).await;
    }
    let now = browser.get("/").await.is(200).has("and 3 more: 2 held calls, 1 question</a>");
    let page = now.has("id=\"now-apr-2\"").lacks(&format!("id=\"now-{plain}\""));
    assert_eq!(page.text.matches("deletes files").count(), 8);
    // The question expires in days, the calls in minutes.
    let due = world.get("operator", &format!("/v1/approvals/{plain}")).await.is(200);
    page.has(&format!("datetime=\"{}\"", due["expires_at"].as_str().unwrap()));
    browser
        .get("/inbox")
        .await
        .is(200)
        .lacks("They move up")
        .lacks("isn't heard of")
        .has(asked["id"].as_str().unwrap());
}

#[tokio::test]
async fn a_call_of_a_turn_says_when_the_silence_of_its_agent_withdraws_it() {
    let world = World::within(Limits { lease_ms: 60_000, ..Limits::default() }, &["kilo"]).await;
    world.send("operator", "kilo", "T-1", "clean").await.is(201);
    world.take("kilo").await;
    let id = hold(&world, "kilo", "ls").await;
    let page = Browser::signed_in(&world).await.get(&format!("/approvals/{id}")).await.is(200);
    let page = page.has("Withdrawn if kilo isn't heard of in the time left, before <time ").lacks("Denied if nobody");
    let time = |before: &str| {
        let (_, rest) = page.text.split_once(before).unwrap();
        rest.split_once("datetime=\"").unwrap().1.split('"').next().unwrap().to_owned()
    };
    // What is counted down is that time, not the later one of the call itself.
    let call = world.get("operator", &format!("/v1/approvals/{id}")).await.is(200);
    let shown = [time("<time class=\"countdown"), time("in the time left, before ")];
    assert!(shown[0] == shown[1] && call["expires_at"] != shown[0].as_str(), "{shown:?} {call}");
    assert_eq!(call["lease_until"], shown[0].as_str(), "every client is told: {call}");
    // Who is paused gets what it lost only once it is resumed.
    world.post("operator", "/v1/agents/kilo/pause", json!({})).await.is(204);
    let path = format!("/approvals/{id}");
    Browser::signed_in(&world).await.get(&path).await.is(200).lacks("Withdrawn if kilo").has("Denied if nobody");
    let call = world.get("operator", &format!("/v1{path}")).await.is(200);
    assert!(call.get("lease_until").is_none(), "{call}");
}

#[tokio::test]
async fn a_question_says_when_the_silence_of_its_agent_withdraws_it() {
    let world = World::within(Limits { lease_ms: 60_000, ..Limits::default() }, &["kilo"]).await;
    world.send("operator", "kilo", "T-1", "clean").await.is(201);
    let turn = world.take("kilo").await["turn"]["token"].as_str().unwrap().to_owned();
    let ask = world.request("kilo", reqwest::Method::POST, "/v1/escalations").header("lastword-turn", turn);
    let asked = ask.json(&json!({ "message": "Shall I?" })).send().await.unwrap();
    assert!(asked.status().is_success(), "{asked:?}");
    let page = Browser::signed_in(&world).await.get("/questions/esc-1").await.is(200);
    page.has("Withdrawn if kilo isn't heard of in the time left, before <time ").lacks("If nobody answers in time");
}

#[tokio::test]
async fn the_card_of_an_agent_that_is_paused_says_that_an_approved_call_waits() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    let path = format!("/approvals/{}", hold(&world, "kilo", "ls").await);
    browser.get(&path).await.is(200).lacks("an approved call waits");
    world.post("operator", "/v1/agents/kilo/pause", json!({})).await.is(204);
    for path in [path.as_str(), "/inbox"] {
        browser.get(path).await.is(200).has("kilo is paused: an approved call waits until it is resumed.");
    }
    world.post("operator", "/v1/agents/kilo/resume", json!({})).await.is(204);
    world.post("operator", "/v1/workspace/pause", json!({})).await.is(204);
    browser.get(&path).await.is(200).has("The workspace is paused: an approved call waits").lacks("Look at the agent");
}

#[tokio::test]
async fn a_host_that_no_approved_call_named_is_new() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    let first = hold(&world, "kilo", "curl https://api.example/a").await;
    let page = browser.get(&format!("/approvals/{first}")).await.is(200).has("new host api.example");
    let digest = fields(&page.text, &format!("{first}-approve"));
    let digest: Vec<(&str, &str)> = digest.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post(&format!("/approvals/{first}/approve"), &digest).await.is(200);
    let second = hold(&world, "kilo", "curl https://api.example/b https://evil.example/b").await;
    let page = browser.get(&format!("/approvals/{second}")).await.is(200);
    page.has("new host evil.example").lacks("new host api.example").has("<del>https://api.example/a</del>");
}

#[tokio::test]
async fn rows_that_are_changed_in_production_or_in_a_table_that_nobody_allowed_are_marked_less_gravely() {
    let world = World::with(&["dba"]).await;
    let browser = Browser::signed_in(&world).await;
    let hold = async |database: &str, sql: &str| {
        let call = json!({ "tool": "query", "arguments": { "database": database, "sql": sql } });
        world.post("dba", "/v1/approvals", call).await.is(201)["id"].as_str().unwrap().to_owned()
    };
    let first = hold("stage", "DELETE FROM accounts WHERE id = 7").await;
    let page = browser.get(&format!("/approvals/{first}")).await.is(200);
    let page = page.has("<span class=\"badge warn\">deletes rows of accounts</span>").lacks("badge bad");
    let digest = fields(&page.text, &format!("{first}-approve"));
    let digest: Vec<(&str, &str)> = digest.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    browser.post(&format!("/approvals/{first}/approve"), &digest).await.is(200);
    let known = hold("stage", "DELETE FROM accounts WHERE id = 8").await;
    browser.get(&format!("/approvals/{known}")).await.is(200).lacks("deletes rows");
    let live = hold("shop-prod", "update accounts set plan = 'free' where id = 8").await;
    browser.get(&format!("/approvals/{live}")).await.is(200).has("changes rows of accounts in production</span>");
    let order = browser.get("/inbox").await.is(200);
    let [live, known] = [live, known].map(|id| order.text.find(&format!("id=\"{id}\"")).unwrap());
    assert!(live < known, "what is marked comes first");
}

#[tokio::test]
async fn a_secret_of_a_call_is_shown_to_who_decides_it_and_to_nobody_after_that() {
    let mut world = World::with(&["kilo"]).await;
    world.register_human("vera", "viewer").await;
    world.register_human("anna", "approver").await;
    let id = hold(&world, "kilo", "curl 'https://a.example/x?token=sk-live-4242'").await;
    let (anna, vera) = (Browser::as_human(&world, "anna").await, Browser::as_human(&world, "vera").await);
    let path = format!("/approvals/{id}");
    let page = anna.get(&path).await.is(200).has("sk-live-4242");
    for path in [path.as_str(), "/inbox", "/"] {
        vera.get(path).await.is(200).has("token=•••").lacks("sk-live");
    }
    let fields = fields(&page.text, &format!("{id}-approve"));
    let mut fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let edited = r#"{"command": "curl 'https://a.example/y?token=sk-live-4343'"}"#;
    fields.push(("input", edited));
    anna.post(&format!("{path}/edit"), &fields).await.is(200);
    let next = hold(&world, "kilo", "curl 'https://a.example/z?token=sk-live-4444'").await;
    anna.get(&path).await.is(200).has("token=•••").lacks("sk-live");
    let next = format!("/approvals/{next}");
    vera.get(&next).await.is(200).lacks("sk-live");
    anna.get(&next).await.is(200).has("sk-live-4444");
}
