//! One wording a reader: what the broker advises a model is shown to no human, and one cause is one decision.

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::json;

use crate::browser::Browser;
use crate::world::World;

#[tokio::test]
async fn what_the_broker_advises_a_model_is_not_shown_to_a_human() {
    let world = World::with(&["kilo", "idler"]).await;
    let short = world.request("operator", Method::PATCH, "/v1/agents/idler").json(&json!({"limits": {"ack_ms": 20}}));
    assert_eq!(short.send().await.unwrap().status(), 200);
    world.send("operator", "kilo", "T-1", "lead this").await.is(201);
    let lead = world.take("kilo").await;
    world.send("kilo", "idler", "T-1", "a part").await.is(201);
    world.finish("kilo", &lead, "").await;
    let answer = world.take("kilo").await;
    let told = answer["message"]["body"].as_str().unwrap();
    assert!(told.ends_with("Do the work yourself now, and do not send this request again."), "{told}");
    let browser = Browser::signed_in(&world).await;
    let message = format!("/messages/{}", answer["message"]["id"].as_str().unwrap());
    for path in [
        "/",
        "/inbox",
        "/conversations/T-1",
        "/conversations/T-1?view=waterfall",
        "/conversations/T-1?view=log",
        &message,
    ] {
        let page = browser.get(path).await.is(200);
        page.lacks("Do the work yourself").lacks("kilo -&gt; idler").lacks("kilo -> idler");
    }
    let tree = browser.get("/conversations/T-1").await.is(200);
    tree.has("The agent didn't take this request, or stopped responding.").has("Nobody finished it in time.");
}

#[tokio::test]
async fn a_hold_that_its_agent_asks_about_as_well_is_one_decision() {
    let mut limits = Limits { depth_max: 39, ..Limits::default() };
    limits.observed.enforce("no_progress");
    let world = World::within(limits, &["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "why is the build red?").await.is(201);
    world.take("kilo").await;
    let same = json!({"type": "request", "to": "hive", "body": "please run the tests again"});
    for n in 0..3 {
        world.post("kilo", "/v1/messages", same.clone()).await.is(201);
        let taken = world.take("hive").await;
        world.finish("hive", &taken, &format!("run {n} failed")).await.is(200);
        world.take("kilo").await;
    }
    let browser = Browser::signed_in(&world).await;
    let one =
        browser.get("/inbox").await.is(200).has("The requests of one agent to another make no progress. The limit");
    one.has("data-waiting=\"1\"")
        .has("continue; the count restarts at 0")
        .lacks("your requests")
        .lacks("counted from 0");
    world.post("kilo", "/v1/messages", same).await.refused(422, "no_progress");
    world.post("kilo", "/v1/escalations", json!({"message": "May I go on?"})).await.is(201);
    let open = world.get("operator", "/v1/escalations").await.is(200);
    assert_eq!(open["items"].as_array().unwrap().len(), 2, "{open}");
    // The agent's question has the broker's lift.
    let still = browser.get("/inbox").await.is(200).has("data-waiting=\"1\"").has("May I go on?");
    still.has("continue; the count restarts at 0").lacks("never extended");
    let asked = browser.post("/escalations/esc-2/answer", &[("lift", "lift-1")]).await.is(200);
    asked.has("kilo");
    browser.get("/inbox").await.is(200).lacks("continue; the count restarts at 0");
}
