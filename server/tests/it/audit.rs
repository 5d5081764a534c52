//! Audits over time: successors of a name, and reused REFs (§1, L7).

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::world::{World, id};

const DAY: u64 = 86_400_000;

async fn found(world: &World, who: &str, query: &str) -> Vec<String> {
    let page = world.get(who, &format!("/v1/messages?{query}")).await.is(200);
    page["items"].as_array().unwrap().iter().map(|item| item["body"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_successor_of_a_name_reads_nothing_of_its_predecessor_and_a_human_reads_both() {
    let mut world = Machine::new().world(&["kilo", "hive"], Limits::default()).await;
    world.send("operator", "kilo", "S-1", "the first one's secret").await.is(201);
    world.send("hive", "operator", "S-2", "unrelated").await.is(201);
    let gone = world.request("operator", Method::DELETE, "/v1/agents/kilo").send().await.unwrap();
    assert_eq!(gone.status(), 204);
    let again = world.register(json!({ "name": "kilo" })).await;
    assert_eq!(again["incarnation"], 2);
    assert_eq!(found(&world, "kilo", "ref=S-1").await, Vec::<String>::new());
    assert_eq!(found(&world, "kilo", "q=secret").await, Vec::<String>::new());
    world.get("kilo", "/v1/conversations/S-1").await.is(404);
    world.send("operator", "kilo", "S-1", "for the second").await.is(201);
    let both = found(&world, "operator", "to=kilo").await;
    assert!(both.contains(&"for the second".into()) && both.contains(&"the first one's secret".into()), "{both:?}");
}

#[tokio::test]
async fn a_ref_that_is_used_again_has_the_history_of_both_for_a_human_and_of_the_new_one_for_its_agents() {
    let machine = Machine::new();
    let world = machine.world(&["kilo", "hive"], Limits::default()).await;
    let exchange = async |world: &World, body: &str| {
        world.send("kilo", "hive", "W-1", body).await.is(201);
        let delivery: Value = world.take("hive").await;
        world.finish("hive", &delivery, "done").await.is(200);
        let answer = world.take("kilo").await;
        world.finish("kilo", &answer, "noted").await.is(200);
    };
    exchange(&world, "the first time").await;
    machine.sleep(8 * DAY);
    let world = machine.restart(world, Limits::default()).await;
    exchange(&world, "the second time").await;
    let human = found(&world, "operator", "ref=W-1&type=request").await;
    assert_eq!(human, ["the second time", "the first time"]);
    let named = world.get("operator", "/v1/messages?ref=W-1&type=request").await.is(200);
    assert_eq!((&named["items"][1]["ref"], &named["items"][1]["depth"]), (&json!("W-1"), &json!(0)));
    assert_eq!(found(&world, "hive", "ref=W-1&type=request").await, ["the second time"]);
}

#[tokio::test]
async fn an_agent_sees_its_own_questions_in_a_tree_and_no_others() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "E-1", "do it").await.is(201);
    world.take("kilo").await;
    world.send("kilo", "hive", "E-1", "help").await.is(201);
    world.take("hive").await;
    let asked = world.post("hive", "/v1/escalations", json!({"message": "which password?"})).await.is(201);
    world
        .post("operator", &format!("/v1/escalations/{}/answer", id(&asked, "id")), json!({"answer": "none"}))
        .await
        .is(200);
    for (who, sees) in [("operator", true), ("hive", true), ("kilo", false)] {
        let tree = world.get(who, "/v1/conversations/E-1").await.is(200).to_string();
        assert_eq!(tree.contains("which password?"), sees, "{who}: {tree}");
    }
}
