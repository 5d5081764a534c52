//! The console's page on schedules (D13).

use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::World;

const NIGHTLY: [(&str, &str); 6] = [
    ("name", "nightly"),
    ("cron", "0 2 * * *"),
    ("time_zone", "Europe/Berlin"),
    ("to", "kilo"),
    ("body", "one\r\ntwo"),
    ("reference", "RUN-{date}"),
];

async fn listed(world: &World) -> Vec<Value> {
    world.get("operator", "/v1/schedules").await.is(200)["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_schedule_is_set_run_and_removed_on_its_page() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    browser.get("/schedules").await.is(200).has("No schedules.").has("<option value=\"kilo\">");
    browser
        .post("/schedules", &NIGHTLY)
        .await
        .is(200)
        .has("nightly ticks next at ")
        .has("in <span data-zone>UTC</span>.");
    let [nightly] = &listed(&world).await[..] else { panic!() };
    let members = ["cron", "time_zone", "to", "body", "ref", "by"].map(|member| nightly[member].as_str().unwrap());
    assert_eq!(members, ["0 2 * * *", "Europe/Berlin", "kilo", "one\ntwo", "RUN-{date}", "operator"]);
    let seen = browser.get("/schedules").await.is(200).has("At 02:00, Europe/Berlin").has("0 2 * * *");
    let (_, ticks) = seen.text.split_once("Next ticks").unwrap();
    assert_eq!(ticks.split("</dd>").next().unwrap().matches("data-local").count(), 3, "{ticks}");
    assert!(ticks.split("</dd>").next().unwrap().contains("in <span data-zone>UTC</span>"), "{ticks}");
    seen.has("RUN-{date}").has("none yet").has("set by operator").has("1 schedule");
    browser.post("/schedules/nightly/run", &[]).await.is(200).has("Sent a request to");
    assert_eq!(world.take("kilo").await["message"]["body"], "one\ntwo");
    browser.get("/schedules").await.is(200).has("number 1, still open");
    browser.post("/schedules/nightly/fly", &[]).await.is(404);
    browser.post("/schedules/nightly/remove", &[]).await.is(200).has("nightly is removed");
    browser.post("/schedules/nightly/remove", &[]).await.is(404);
    assert_eq!(listed(&world).await, [] as [Value; 0]);
    browser.get("/palette?q=sched").await.is(200).has("href=\"/schedules\"");
}

#[tokio::test]
async fn what_is_wrong_with_a_schedule_is_told_in_its_form_in_the_refusals_own_words() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    for (field, wrong, words) in [
        ("name", "a b", "`name`"),
        ("cron", "often", "`cron` &quot;often&quot;"),
        ("cron", "* * * * *", "ticks 1 minutes apart, and 10 is the least"),
        ("time_zone", "Mars", "is not a known time zone: &quot;Mars&quot;"),
        ("to", "all", "one agent or `#action`"),
        ("body", " ", "`body` is empty"),
        ("reference", "a b", "`ref`"),
    ] {
        let fields = NIGHTLY.map(|(name, value)| (name, if name == field { wrong } else { value }));
        let seen = browser.post_from("/schedules", &fields, "div#schedule-form-said").await.is(400).has(words);
        assert!(!seen.headers.contains_key("hx-retarget") && seen.text.starts_with("<p>"), "{}", seen.text);
        let elsewhere = browser.post("/schedules", &fields).await.is(400);
        assert_eq!(elsewhere.headers["hx-retarget"], "#flash");
    }
    assert_eq!(listed(&world).await, [] as [Value; 0]);
    let done = browser.post_from("/schedules", &NIGHTLY, "div#schedule-form-said").await.is(200);
    assert_eq!(done.headers["hx-retarget"], "#flash", "what was done stands at the top");
}

#[tokio::test]
async fn a_tick_that_made_no_grant_says_why() {
    let machine = crate::machine::Machine::new();
    let world = machine.world(&["kilo"], lastword_facts::Limits::default()).await;
    let new = json!({ "name": "nightly", "cron": "0 2 * * *", "to": "kilo", "body": "<b>run</b>" });
    world.post("operator", "/v1/schedules", new).await.is(201);
    world.post("operator", "/v1/schedules/nightly/run", json!({})).await.is(200);
    machine.sleep(24 * 3_600_000);
    let world = machine.restart(world, lastword_facts::Limits::default()).await;
    while listed(&world).await[0]["skipped_at"].is_null() {
        tokio::task::yield_now().await;
    }
    let browser = Browser::signed_in(&world).await;
    let seen = browser.get("/schedules").await.is(200).has("the grant of the previous tick was still open");
    seen.has("&lt;b&gt;run&lt;/b&gt;").has("number 1, still open");
}

#[tokio::test]
async fn who_knows_no_cron_chooses_an_expression_and_sees_its_next_ticks() {
    let world = World::with(&["kilo"]).await;
    let browser = Browser::signed_in(&world).await;
    let page = browser.get("/schedules").await.is(200);
    page.has("<option value=\"0 9 * * MON-FRI\">weekdays at 9:00</option>").has("At 09:00");
    let fields = [("name", "daily"), ("preset", "0 9 * * MON-FRI"), ("cron", " "), ("to", "kilo"), ("body", "x")];
    browser.post("/schedules", &fields).await.is(200);
    assert_eq!(listed(&world).await[0]["cron"], "0 9 * * MON-FRI");
    // What is written counts more than what is chosen.
    let fields =
        [("name", "daily"), ("preset", "0 9 * * MON-FRI"), ("cron", "0 3 * * *"), ("to", "kilo"), ("body", "x")];
    browser.post("/schedules", &fields).await.is(200);
    assert_eq!(listed(&world).await[0]["cron"], "0 3 * * *");
    let seen = browser.get("/schedules/ticks?preset=0%202%20*%20*%20*&time_zone=Europe/Berlin").await.is(200);
    assert_eq!(seen.text.matches("data-local").count(), 3, "{}", seen.text);
    seen.has("At 02:00, Europe/Berlin. Next: ");
    browser.get("/schedules/ticks?cron=often").await.is(200).has("often");
    browser.get("/schedules/ticks?cron=0%202%20*%20*%20*&time_zone=Mars").await.is(200).has("Mars");
}
