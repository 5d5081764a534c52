//! One agent with several clients: who gets which delivery (F1).

use lastword_facts::Limits;
use serde_json::{Value, json};

use crate::session::Raw;
use crate::world::{Answer, World};

/// What is there for a client that works in turns.
const NOW: &str = "/v1/inbox?turns=true";

async fn inbox(world: &World, client: Option<&str>, path: &str) -> Answer {
    let mut request = world.request("kilo", reqwest::Method::GET, path);
    if let Some(client) = client {
        request = request.header("Lastword-Client", client);
    }
    Answer::of(request.send().await.unwrap()).await
}

fn turn(delivery: &Value) -> &str {
    delivery["turn"]["id"].as_str().unwrap_or_else(|| panic!("no turn: {delivery}"))
}

#[tokio::test]
async fn one_client_gets_a_delivery_and_gets_it_again() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "first").await.is(201);
    let first = inbox(&world, Some("a"), NOW).await.is(200);
    let other = inbox(&world, Some("b"), NOW).await;
    assert_eq!(other.headers["lastword-held-by"], "other-client");
    other.is(204);
    inbox(&world, None, NOW).await.is(204);
    let again = inbox(&world, Some("a"), NOW).await.is(200);
    assert_eq!((turn(&again), &again["delivery"]), (turn(&first), &first["delivery"]));

    world.send("operator", "kilo", "T-2", "second").await.is(201);
    world.finish("kilo", &first, "done").await.is(200);
    let second = inbox(&world, Some("b"), NOW).await.is(200);
    assert_eq!(second["message"]["body"], "second");
    inbox(&world, Some("a"), NOW).await.is(204);
    let seen = world.get("operator", "/v1/agents/kilo").await.is(200);
    assert_eq!(seen["clients"], 1, "one holds, and none waits");
}

#[tokio::test]
async fn a_step_is_kept_for_the_next_delivery() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "S-1", "build it").await.is(201);
    let first = inbox(&world, Some("a"), NOW).await.is(200);
    assert_eq!(first["turn"]["steps"], Value::Null);
    let path = format!("/v1/turns/{}/progress", turn(&first));
    let step = |key: &str, result: Value| json!({"step": {"key": key, "result": result}});
    world.post("kilo", &path, step("1.fetch", json!({"rows": 7}))).await.is(200);
    world.post("kilo", &path, step("1.fetch", json!("another"))).await.is(200);
    world.post("kilo", &path, step("2.build", Value::Null)).await.is(200);
    let problem = world.post("kilo", &path, step("a b", json!(1))).await.is(400);
    assert!(problem["detail"].as_str().unwrap().contains("step.key"), "{problem}");
    let problem = world.post("kilo", &path, step("3.big", json!("a".repeat(262_144)))).await.is(413);
    assert!(problem["detail"].as_str().unwrap().contains("step.result"), "{problem}");
    let problem = world.post("kilo", &path, step("3.together", json!("a".repeat(262_100)))).await.is(413);
    assert!(problem["detail"].as_str().unwrap().contains("steps"), "{problem}");
    let again = inbox(&world, Some("a"), NOW).await.is(200);
    let kept = json!([{"key": "1.fetch", "result": {"rows": 7}}, {"key": "2.build", "result": null}]);
    assert_eq!((&again["delivery"], &again["turn"]["steps"]), (&first["delivery"], &kept));
}

#[tokio::test]
async fn of_two_clients_that_wait_one_gets_what_comes() {
    let world = World::with(&["kilo"]).await;
    let waiting = |client| inbox(&world, Some(client), "/v1/inbox?wait=20s");
    let sending = async {
        while world.get("operator", "/v1/agents/kilo").await.is(200)["clients"] != 2 {
            tokio::task::yield_now().await;
        }
        world.send("operator", "kilo", "T-1", "only once").await.is(201)
    };
    let first = async {
        tokio::select! {
            taken = waiting("a") => (taken, "b"),
            taken = waiting("b") => (taken, "a"),
        }
    };
    let ((taken, other), _) = tokio::join!(first, sending);
    assert_eq!(taken.is(200)["message"]["body"], "only once");
    inbox(&world, Some(other), NOW).await.is(204);
}

#[tokio::test]
async fn clients_without_an_id_wait_for_the_holder() {
    let limits = Limits { holder_ms: 300, ..Limits::default() };
    let world = World::within(limits, &["kilo"]).await;
    world.send("operator", "kilo", "T-1", "work").await.is(201);
    let first = inbox(&world, None, NOW).await.is(200);
    inbox(&world, None, NOW).await.is(204);
    let again = inbox(&world, None, "/v1/inbox?turns=true&wait=20s").await.is(200);
    assert_eq!(turn(&again), turn(&first), "nothing was heard of the holder");
}

#[tokio::test]
async fn a_session_keeps_its_deliveries_until_it_ends() {
    let world = World::with(&["kilo"]).await;
    let mut first = Raw::of(&world, "kilo").await;
    let mut second = Raw::of(&world, "kilo").await;
    let next = |wait: &str| json!({ "call": "next", "query": { "wait": wait } });
    world.send("operator", "kilo", "T-1", "work").await.is(201);
    let taken = first.call(next("5s")).await;
    assert_eq!(taken["status"], 200, "{taken}");
    let none = second.call(next("0s")).await;
    assert_eq!(none["status"], 204, "{none}");
    let again = first.call(next("5s")).await;
    assert_eq!(again["body"]["delivery"], taken["body"]["delivery"]);
    drop(first);
    let taken_over = second.call(next("20s")).await;
    assert_eq!(taken_over["body"]["turn"]["id"], taken["body"]["turn"]["id"], "{taken_over}");
}

#[tokio::test]
async fn the_answer_to_a_root_opens_no_turn_for_a_client_that_leaves() {
    let world = World::with(&["kilo", "hive"]).await;
    for (job, reference) in ["BUILD-1", "BUILD-2"].iter().enumerate() {
        let sent = world.send("kilo", "hive", reference, "build").await.is(201);
        let asked = world.take("hive").await;
        world.finish("hive", &asked, &format!("built {job}")).await.is(200);
        let answer = inbox(&world, None, "/v1/inbox?wait=5s").await.is(200);
        assert_eq!(answer["turn"], Value::Null, "{answer}");
        assert_eq!(answer["message"]["request_id"], sent["request_id"]);
        assert_eq!(answer["message"]["body"], format!("built {job}"));
        inbox(&world, None, "/v1/inbox").await.is(204);
    }
    // A client that works in turns goes on with its own request.
    world.send("kilo", "hive", "BUILD-3", "build").await.is(201);
    let asked = world.take("hive").await;
    world.finish("hive", &asked, "built").await.is(200);
    let answer = inbox(&world, None, NOW).await.is(200);
    assert!(!turn(&answer).is_empty());
}

#[tokio::test]
async fn answers_still_join_the_turn_of_a_client_without_an_id() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "work").await.is(201);
    let work = inbox(&world, None, NOW).await.is(200);
    world.post("kilo", "/v1/messages", json!({ "type": "request", "to": "hive", "body": "help" })).await.is(201);
    let asked = world.take("hive").await;
    world.finish("hive", &asked, "helped").await.is(200);
    let joined = inbox(&world, None, NOW).await.is(200);
    assert_eq!((turn(&joined), &joined["message"]["body"]), (turn(&work), &json!("helped")));
}
