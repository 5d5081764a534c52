//! A human's answer comes with its question, in a turn and outside one (H1).

use serde_json::json;

use crate::world::{World, id};

#[tokio::test]
async fn an_answer_is_delivered_with_its_question_to_whoever_asked() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "E-1", "deploy it").await.is(201);
    let task = world.take("kilo").await;
    let answer = async |asked: serde_json::Value, words: &str| {
        let path = format!("/v1/escalations/{}/answer", id(&asked, "id"));
        world.post("operator", &path, json!({"answer": words})).await.is(200)
    };
    let waits = async |turn: &serde_json::Value| {
        let path = format!("/v1/turns/{}/finish", id(&turn["turn"], "id"));
        world.post("kilo", &path, json!({"status": "waiting", "answer": ""})).await.is(200)
    };
    let region = world.post("kilo", "/v1/escalations", json!({"message": "Which region?"})).await.is(201);
    let zone = world.post("kilo", "/v1/escalations", json!({"message": "Which zone?"})).await.is(201);
    waits(&task).await;
    answer(region, "eu").await;
    let first = world.take("kilo").await;
    assert_eq!((&first["message"]["body"], &first["message"]["question"]), (&json!("eu"), &json!("Which region?")));
    answer(zone, "eu").await;
    waits(&first).await;
    let second = world.take("kilo").await;
    assert_eq!((&second["message"]["body"], &second["message"]["question"]), (&json!("eu"), &json!("Which zone?")));
    world.finish("kilo", &second, "deployed").await.is(200);

    let outside = json!({"message": "And what next?", "ref": "E-1"});
    let asked = world.post("kilo", "/v1/escalations", outside).await.is(201);
    answer(asked, "the docs").await;
    let woken = world.take("kilo").await["message"].clone();
    assert_eq!((&woken["type"], &woken["from"]), (&json!("request"), &json!("operator")));
    assert_eq!((&woken["body"], &woken["question"]), (&json!("the docs"), &json!("And what next?")));
    let questions = world.get("operator", "/v1/escalations").await.is(200);
    let answers: Vec<_> = questions["items"].as_array().unwrap().iter().map(|item| item["answer"].clone()).collect();
    assert_eq!(answers, [json!("the docs"), json!("eu"), json!("eu")], "{questions}");
}
