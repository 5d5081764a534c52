//! The lifts of humans, on every surface (H6).

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::mcp::{done, tool};
use crate::mcp_wire::{offering, result};
use crate::notices::inbox;
use crate::world::{World, at_the_cap_of, id};

/// A world in which kilo and hive have one exchange on T-1, and kilo's turn with hive's answer is at the depth limit.
pub(crate) async fn at_the_cap() -> (World, Value) {
    at_the_cap_of(World::within(Limits { depth_max: 1, ..Limits::default() }, &["kilo", "hive"]).await).await
}

#[tokio::test]
async fn a_refusal_names_the_step_that_lifts_it_and_the_step_works() {
    let (world, _) = at_the_cap().await;
    let refused = world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    let lift = &refused["lift"];
    assert_eq!(id(lift, "cli"), "lastword grant T-1 --rounds 2", "{refused}");
    assert!(id(lift, "text").contains("2 more rounds"), "{refused}");
    let (path, body) = id(lift, "call").strip_prefix("POST ").unwrap().split_once(' ').unwrap();
    world.post("operator", path, serde_json::from_str(body).unwrap()).await.is(204);
    world.send("kilo", "hive", "T-1", "again").await.is(201);
}

#[tokio::test]
async fn words_extend_nothing_and_a_lift_extends_and_resumes_in_one_act() {
    let (world, answer) = at_the_cap().await;
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    let ask = async || {
        let asked = world.post("kilo", "/v1/escalations", json!({"message": "two more rounds?"})).await.is(201);
        assert_eq!(asked["lifts"][0]["id"], "lift-1", "{asked}");
        assert_eq!(asked["lifts"][0]["text"], "2 more rounds");
        assert!(id(&asked, "limit").contains("and this would make it"), "{asked}");
        format!("/v1/escalations/{}/answer", id(&asked, "id"))
    };
    let (first, second) = (ask().await, ask().await);
    world.finish("kilo", &answer, "waiting").await.is(200);
    world.post("operator", &first, json!({"answer": "sure"})).await.is(200);
    world.take("kilo").await;
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    world.post("operator", &second, json!({"lift": "lift-2"})).await.refused(404, "unknown_request");
    world.post("operator", &second, json!({"lift": "more"})).await.refused(400, "malformed");
    world.post("operator", &second, json!({})).await.refused(400, "malformed");
    world.post("kilo", &second, json!({"lift": "lift-1"})).await.refused(403, "forbidden");
    let lifted = world.post("operator", &second, json!({"lift": "lift-1", "answer": "but be brief"})).await.is(200);
    assert_eq!((id(&lifted, "state"), &lifted["lifts"][0]["chosen"]), ("answered", &json!(true)), "{lifted}");
    let resumed = world.take("kilo").await;
    assert_eq!(resumed["message"]["body"], "2 more rounds. but be brief");
    world.send("kilo", "hive", "T-1", "again").await.is(201);
    let option = json!({"message": "more?", "options": ["2 more rounds"]});
    world.post("kilo", "/v1/escalations", option).await.refused(400, "malformed");
}

#[tokio::test]
async fn a_model_hears_of_the_lift_and_the_human_of_the_commands() {
    let (world, _) = at_the_cap().await;
    let asked = json!({"target_agent_id": "hive", "message": "again", "ref": "T-1"});
    let (refused, error) = tool(&world, "kilo", "send_agent_message", asked).await;
    assert!(error && refused["code"] == "depth_cap", "{refused}");
    let hint = id(&refused, "hint");
    assert!(hint.contains("ask with escalate_to_user. A human extends T-1: 2 more rounds."), "{hint}");
    done(&world, "kilo", "escalate_to_user", json!({"message": "go on?"})).await;
    let told = world.take("operator").await;
    let body = id(&told["message"], "body");
    assert!(body.contains("and this would make it") && body.contains("A text answer extends nothing"), "{body}");
    assert!(body.contains("lift-1: 2 more rounds (`lastword answer esc-1 --lift lift-1`)"), "{body}");
}

#[tokio::test]
async fn a_human_at_the_agents_client_chooses_a_lift_there() {
    let limits = Limits { depth_max: 1, ..Limits::default() };
    let seats = [("kilo".to_owned(), "operator".to_owned())];
    let world = World::set(&["kilo", "hive"], |config| {
        (config.settings.seats, config.settings.limits) = (seats.into(), limits)
    })
    .await;
    let (world, _) = at_the_cap_of(world).await;
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    let forms = json!({ "elicitation": {} });
    let call = |more: Value| {
        let mut params = json!({ "name": "escalate_to_user", "arguments": { "message": "go on?" } });
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        params
    };
    let asked = result(offering(&world, "kilo", &forms, "tools/call", call(json!({})))).await;
    let question = &asked["inputRequests"]["answer"]["params"];
    assert!(id(question, "message").contains("a text answer lifts no limit"), "{question}");
    assert_eq!(question["requestedSchema"]["properties"]["lift"]["enum"], json!(["lift-1: 2 more rounds"]));
    let chosen = json!({ "action": "accept", "content": { "lift": "lift-1: 2 more rounds" } });
    let brought = json!({ "requestState": asked["requestState"], "inputResponses": { "answer": chosen } });
    let settled = result(offering(&world, "kilo", &forms, "tools/call", call(brought))).await;
    assert_eq!(settled["structuredContent"]["lifts"][0]["chosen"], true, "{settled}");
    world.send("kilo", "hive", "T-1", "again").await.is(201);
}

#[tokio::test]
async fn a_human_chooses_a_lift_in_the_consoles_inbox() {
    let (world, _) = at_the_cap().await;
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    for message in ["go on?", "and now?"] {
        world.post("kilo", "/v1/escalations", json!({ "message": message })).await.is(201);
    }
    let browser = Browser::signed_in(&world).await;
    let inbox = browser
        .get("/inbox")
        .await
        .is(200)
        .has("and this would make it")
        .has("It answers no question; an answer lifts no limit");
    let inbox = inbox.has("id=\"esc-1-lift\"");
    inbox.has("name=\"lift\" value=\"lift-1\" data-key=\"l\">2 more rounds</button>");
    browser.post("/escalations/esc-1/answer", &[("answer", "sure, go on")]).await.is(200);
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    browser.post("/escalations/esc-2/answer", &[("answer", ""), ("lift", "lift-9")]).await.is(404);
    browser
        .post("/escalations/esc-2/answer", &[("answer", ""), ("lift", "lift-1")])
        .await
        .is(200)
        .has("Lifted the limit of")
        .has("kilo continues");
    world.send("kilo", "hive", "T-1", "again").await.is(201);
    let asked = world.get("operator", "/v1/escalations/esc-2").await.is(200);
    assert_eq!((id(&asked, "state"), &asked["answer"]), ("open", &Value::Null), "a lift answers no question");
    browser.get("/inbox").await.is(200).has("id=\"esc-2\"").lacks("id=\"esc-2-lift\"");
    browser.post("/escalations/esc-2/answer", &[("lift", "lift-1")]).await.is(409);
    browser.post("/escalations/esc-2/answer", &[("answer", "eu")]).await.is(200);
}

#[tokio::test]
async fn a_request_tells_what_holds_it_and_the_step_that_lets_it_go_on() {
    let (world, answer) = at_the_cap().await;
    let held = async || {
        let request = world.get("operator", "/v1/messages?from=operator&to=kilo").await.is(200);
        let path = format!("/v1/requests/{}", id(&request["items"][0], "request_id"));
        let held = world.get("operator", &path).await.is(200)["held_by"].clone();
        let pairs = held.as_array().into_iter().flatten();
        pairs.map(|held| (id(held, "text").to_owned(), id(&held["lift"], "cli").to_owned())).collect::<Vec<_>>()
    };
    let one = |text: &str, cli: &str| vec![(text.to_owned(), cli.to_owned())];
    assert_eq!(held().await, []);
    world.post("operator", "/v1/agents/kilo/pause", json!({})).await.is(204);
    assert_eq!(held().await, one("agent kilo is paused", "lastword resume --agent kilo"));
    world.post("operator", "/v1/agents/kilo/resume", json!({})).await.is(204);
    world.post("operator", "/v1/conversations/T-1/pause", json!({})).await.is(204);
    assert_eq!(held().await, one("conversation T-1 is paused", "lastword resume T-1"));
    world.post("operator", "/v1/conversations/T-1/resume", json!({})).await.is(204);
    world.send("kilo", "hive", "T-1", "again").await.refused(422, "depth_cap");
    world.post("kilo", "/v1/escalations", json!({"message": "two more rounds?"})).await.is(201);
    world.finish("kilo", &answer, "waiting").await.is(200);
    assert_eq!(held().await, one("kilo waits for the answer to esc-1", "lastword answer esc-1 --lift lift-1"));
    world.post("operator", "/v1/workspace/stop", json!({})).await.is(204);
    assert_eq!(held().await, [], "what is stopped has ended");
}

#[tokio::test]
async fn a_latched_grant_and_a_held_call_are_told_to_whoever_waits() {
    let world = World::within(Limits { grant_tokens_max: 100, ..Limits::default() }, &["kilo", "hive"]).await;
    let sent = world.send("operator", "kilo", "T-1", "do it").await.is(201);
    let path = format!("/v1/requests/{}", id(&sent, "request_id"));
    let task = world.take("kilo").await;
    world.post("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {}})).await.is(201);
    let held = world.get("operator", &path).await.is(200);
    assert_eq!(held["held_by"][0]["text"], "kilo waits for a decision about apr-1, a call of rm", "{held}");
    assert_eq!(held["held_by"][0]["lift"]["cli"], "lastword approve apr-1");
    world.send("kilo", "hive", "T-1", "help").await.is(201);
    world.finish("kilo", &task, "waiting").await.is(200);
    let part = world.take("hive").await;
    let turn = format!("/v1/turns/{}/finish", id(&part["turn"], "id"));
    world.post("hive", &turn, json!({"answer": "done", "usage": {"input_tokens": 500}})).await.is(200);
    let held = world.get("operator", &path).await.is(200);
    let grant = held["held_by"].as_array().unwrap().iter().find(|held| id(held, "text").starts_with("grant")).unwrap();
    assert!(id(grant, "text").starts_with("grant grant-1 is held: "), "{held}");
    assert_eq!(grant["lift"]["cli"], "lastword grant T-1 --tokens 50000", "{held}");
}

#[tokio::test]
async fn a_budget_that_was_passed_by_far_is_lifted_by_the_step_that_is_named() {
    let limits = Limits { grant_cost_microusd_max: 500_000, ..Limits::default() };
    let world = World::within(limits, &["kilo", "hive"]).await;
    for (reference, usage, named) in [
        ("T-1", json!({"input_tokens": 900_000}), "lastword grant T-1 --tokens 50000"),
        ("T-2", json!({"cost_usd": 7.5}), "lastword grant T-2 --cost 0.5"),
    ] {
        let sent = world.send("operator", "kilo", reference, "do it").await.is(201);
        let path = format!("/v1/requests/{}", id(&sent, "request_id"));
        let task = world.take("kilo").await;
        world.send("kilo", "hive", reference, "help").await.is(201);
        let part = world.take("hive").await;
        let turn = format!("/v1/turns/{}/finish", id(&part["turn"], "id"));
        world.post("hive", &turn, json!({"answer": "done", "usage": usage})).await.is(200);
        let held = world.get("operator", &path).await.is(200);
        assert_eq!(held["held_by"][0]["lift"]["cli"], named, "{held}");
        let call = id(&held["held_by"][0]["lift"], "call").split_once(' ').unwrap().1.split_once(' ').unwrap();
        world.post("operator", call.0, serde_json::from_str(call.1).unwrap()).await.is(204);
        let held = world.get("operator", &path).await.is(200);
        assert_eq!(held["held_by"], Value::Null, "{held}");
        let answer = world.take("kilo").await;
        world.finish("kilo", &answer, "done").await.is(200);
        assert_eq!(answer["turn"]["id"], task["turn"]["id"]);
    }
}

#[tokio::test]
async fn a_hold_by_money_is_told_in_dollars_and_an_extension_by_tokens_says_that_it_lifts_nothing() {
    let limits = Limits { grant_cost_microusd_max: 6_000_000, ..Limits::default() };
    let world = World::within(limits, &["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "do it").await.is(201);
    world.take("kilo").await;
    world.send("kilo", "hive", "T-1", "help").await.is(201);
    let part = world.take("hive").await;
    let turn = format!("/v1/turns/{}/finish", id(&part["turn"], "id"));
    world.post("hive", &turn, json!({"answer": "done", "usage": {"cost_usd": 7.5}})).await.is(200);
    let incident = world.get("operator", "/v1/incidents").await.is(200)["items"][0].clone();
    assert_eq!(incident["is_cost"], true, "{incident}");
    let browser = Browser::signed_in(&world).await;
    browser.get("/inbox").await.is(200).has("$6.00").has("$7.50").has("name=\"dollars\"");
    let more = browser.post("/conversations/T-1/grant", &[("tokens", "50000")]).await.is(200);
    more.has("flash bad").has("Not lifted").has("(limit $6.00)").has("more US dollars");
    browser.post("/conversations/T-1/grant", &[("dollars", "-1")]).await.is(400);
    browser.post("/conversations/T-1/grant", &[("dollars", "2.50")]).await.is(200).has("flash good");
    let incidents = world.get("operator", "/v1/incidents").await.is(200)["items"].clone();
    assert!(incidents.as_array().unwrap().iter().all(|one| !one["lifted_at"].is_null()), "{incidents}");
}

#[tokio::test]
async fn an_extension_answers_with_what_it_does_not_lift() {
    let limits =
        Limits { grant_cost_microusd_max: 6_000_000, agent_day_cost_microusd_max: 7_000_000, ..Limits::default() };
    let world = World::within(limits, &["kilo", "hive", "lima"]).await;
    world.send("operator", "kilo", "T-1", "do it").await.is(201);
    world.take("kilo").await;
    world.send("kilo", "hive", "T-1", "help").await.is(201);
    let part = world.take("hive").await;
    let turn = format!("/v1/turns/{}/finish", id(&part["turn"], "id"));
    world.post("hive", &turn, json!({"answer": "done", "usage": {"cost_usd": 7.5}})).await.is(200);
    let grant = "/v1/conversations/T-1/grant";
    let still = world.post("operator", grant, json!({"tokens": 50_000})).await.is(200);
    assert_eq!(still["held_by"][0]["text"], "grant grant-1 is held: The budget is used up (limit $6.00)", "{still}");
    let (path, body) = id(&still["held_by"][0]["lift"], "call").strip_prefix("POST ").unwrap().split_once(' ').unwrap();
    world.post("operator", path, serde_json::from_str(body).unwrap()).await.is(204);

    let noted = inbox(&world, "operator").await.join("\n");
    assert!(noted.contains("(limit $7.00, would be $7.50)"), "{noted}");
    let refused = world.send("hive", "lima", "T-2", "hello").await.refused(422, "budget");
    assert_eq!(
        (&refused["is_cost"], id(&refused["lift"], "cli")),
        (&json!(true), "lastword grant --agent hive --cost 7.0")
    );
    assert!(id(&refused, "detail").contains("(limit $7.00, would be $7.50)"), "{refused}");
    let day = "/v1/agents/hive/grant";
    let still = world.post("operator", day, json!({"tokens": 5})).await.is(200);
    assert_eq!(still["held_by"][0]["lift"], refused["lift"], "{still}");
    let browser = Browser::signed_in(&world).await;
    browser
        .post("/agents/hive/grant", &[("tokens", "5")])
        .await
        .is(200)
        .has("Not lifted")
        .has("extends the cost of hive");
    browser.get("/conversations/T-1?view=log").await.is(200).has("$7.50").lacks("7\u{202f}500\u{202f}000");
    let record = id(&refused, "record").replace("refused", "msg");
    let record = browser.get(&format!("/messages/{record}")).await.is(200);
    record.has("at most $7.00 allowed; this one would have made it $7.50");
    let (path, body) = id(&refused["lift"], "call").strip_prefix("POST ").unwrap().split_once(' ').unwrap();
    let lifted = world.post("operator", path, serde_json::from_str(body).unwrap()).await.is(200);
    assert_eq!((&lifted["held_by"], &lifted["rests_until"]), (&Value::Null, &Value::Null), "{lifted}");
}

#[tokio::test]
async fn a_yes_to_a_post_that_was_refused_in_a_room_lets_agents_post_there_again() {
    let world = World::within(Limits { turns_soft_max: 2, ..Limits::default() }, &["kilo"]).await;
    world.post("operator", "/v1/rooms", json!({"name": "den", "members": ["kilo"]})).await.is(201);
    world.send("operator", "kilo", "T-1", "tell the others").await.is(201);
    world.take("kilo").await;
    let post = async || world.post("kilo", "/v1/rooms/den/messages", json!({"body": "news"})).await;
    post().await.is(201);
    let refused = post().await.refused(422, "turns_soft");
    assert_eq!(refused["lift"]["cli"], "lastword resume --room den", "{refused}");
    let asked = world.post("kilo", "/v1/escalations", json!({"message": "May I go on?"})).await.is(201);
    assert_eq!(asked["lifts"][0]["text"], "continue in the room den; the count restarts at 0", "{asked}");
    let path = format!("/v1/escalations/{}/answer", id(&asked, "id"));
    world.post("operator", &path, json!({"lift": "lift-1", "answer": "but be brief"})).await.is(200);
    let heard = world.take("kilo").await;
    assert_eq!(heard["message"]["body"], "go on in the room den, counted from 0. but be brief");
    // The room sees the lift, and not what was written to kilo.
    let room = Browser::signed_in(&world).await.get("/rooms/den").await.is(200).has("go on in the room den");
    assert!(!room.text.contains("be brief"), "{}", room.text);
    post().await.is(201);
}
