//! Escalations answered in the asking agent's own client, and the cases in which they must not be.

use serde_json::{Value, json};

use crate::mcp_wire::{offering, result};
use crate::world::{World, id};

/// Two agents at work; the human alice uses kilo's client.
async fn seated() -> World {
    let seats = [("kilo", "alice"), ("mike", "hive")].map(|(agent, human)| (agent.into(), human.into()));
    let mut world = World::set(&["kilo", "hive", "mike"], |config| config.settings.seats = seats.into()).await;
    world.register(json!({ "name": "alice", "kind": "human" })).await;
    for (n, agent) in ["kilo", "hive", "mike"].iter().enumerate() {
        world.send("operator", agent, &format!("T-{n}"), "deploy").await.is(201);
        world.take(agent).await;
    }
    world
}

async fn escalate(world: &World, who: &str, can: &Value, more: Value) -> Value {
    let mut params = json!({
        "name": "escalate_to_user",
        "arguments": { "message": "To eu or us?", "options": ["eu", "us"] },
    });
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    result(offering(world, who, can, "tools/call", params)).await
}

fn forms() -> Value {
    json!({ "elicitation": {} })
}

/// Returns the members that a client brings back with its second call.
fn brought(asked: &Value, response: &Value) -> Value {
    json!({ "requestState": asked["requestState"], "inputResponses": { "answer": response } })
}

fn accepted(text: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": text } })
}

async fn open(world: &World) -> usize {
    let all = world.get("operator", "/v1/escalations").await.is(200);
    all["items"].as_array().unwrap().iter().filter(|one| one["state"] == "open").count()
}

#[tokio::test]
async fn a_human_at_the_agents_client_answers_there() {
    let world = seated().await;
    let asked = escalate(&world, "kilo", &forms(), json!({})).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let question = &asked["inputRequests"]["answer"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "kilo asks: To eu or us?");
    assert_eq!(question["params"]["requestedSchema"]["properties"]["answer"]["enum"], json!(["eu", "us"]));
    assert_eq!(open(&world).await, 1, "every human may answer meanwhile");

    let settled = escalate(&world, "kilo", &forms(), brought(&asked, &accepted("eu"))).await;
    let view = &settled["structuredContent"];
    assert_eq!((id(view, "state"), id(view, "answered_by"), id(view, "answer")), ("answered", "alice", "eu"));
    assert_eq!(open(&world).await, 0, "it was asked once");
    let again = escalate(&world, "kilo", &forms(), brought(&asked, &accepted("us"))).await;
    assert_eq!(again["structuredContent"]["answer"], "eu", "and answered once");
}

#[tokio::test]
async fn where_nobody_sits_or_the_client_has_no_forms_the_human_is_asked_elsewhere() {
    let world = seated().await;
    // The operator configured no human for hive, and an agent for mike.
    for (who, can) in [
        ("hive", forms()),
        ("mike", forms()),
        ("kilo", json!({})),
        ("kilo", json!({ "sampling": {} })),
        ("kilo", json!({ "elicitation": { "url": {} } })),
    ] {
        let asked = escalate(&world, who, &can, json!({})).await;
        assert_eq!(asked["structuredContent"]["state"], "open", "{who} {asked}");
        assert_eq!((&asked["resultType"], &asked["requestState"]), (&json!("complete"), &Value::Null));
        let own = world.get("operator", "/v1/escalations").await.is(200)["items"].clone();
        let last = own.as_array().unwrap().iter().find(|one| one["state"] == "open").unwrap();
        let path = format!("/v1/escalations/{}/answer", id(last, "id"));
        world.post("operator", &path, json!({ "answer": "us" })).await.is(200);
    }
}

#[tokio::test]
async fn what_is_not_answered_in_the_client_stays_open() {
    let world = seated().await;
    let asked = escalate(&world, "kilo", &forms(), json!({})).await;
    let refused = [json!({ "action": "decline" }), json!({ "action": "cancel" }), json!(12), accepted(" ")];
    for response in refused {
        let left = escalate(&world, "kilo", &forms(), brought(&asked, &response)).await;
        assert_eq!(left["structuredContent"]["state"], "open", "{left}");
    }
    let gone = escalate(&world, "kilo", &json!({}), brought(&asked, &accepted("eu"))).await;
    assert_eq!(gone["structuredContent"]["state"], "open", "a client that offers nothing says nothing: {gone}");
    assert_eq!(open(&world).await, 1, "and nothing was asked twice");
    let path = format!("/v1/escalations/{}/answer", id(&gone["structuredContent"], "id"));
    world.post("operator", &path, json!({ "answer": "us" })).await.is(200);
    let late = escalate(&world, "kilo", &forms(), brought(&asked, &accepted("eu"))).await;
    let view = &late["structuredContent"];
    assert_eq!((id(view, "answered_by"), id(view, "answer")), ("operator", "us"));
}

#[tokio::test]
async fn a_state_that_was_changed_or_is_somebody_elses_answers_nothing() {
    let world = seated().await;
    let asked = escalate(&world, "kilo", &forms(), json!({})).await;
    let state = id(&asked, "requestState");
    for (who, state) in
        [("kilo", format!("{state}-TAMPERED")), ("kilo", "esc-1".to_owned()), ("hive", state.to_owned())]
    {
        let brought = json!({ "requestState": state, "inputResponses": { "answer": accepted("eu") } });
        let refused = escalate(&world, who, &forms(), brought).await;
        assert_eq!((&refused["isError"], id(&refused["structuredContent"], "code")), (&json!(true), "malformed"));
    }
    assert_eq!(open(&world).await, 1);
}
