//! Escalations, approvals, rooms and claims.

use reqwest::Method;
use serde_json::json;

use crate::exchange::id;
use crate::world::World;

#[tokio::test]
async fn an_answered_escalation_resumes_exactly_its_task() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    let task = world.take("kilo").await;
    let asked =
        world.post("kilo", "/v1/escalations", json!({"message": "where?", "options": ["eu", "us"]})).await.is(201);
    assert_eq!((id(&asked, "state"), id(&asked, "ref")), ("open", "T-1"));
    let waiting = world.finish("kilo", &task, "waiting for the user").await.is(200);
    assert_eq!(waiting["open"], true);
    let listed = world.get("operator", "/v1/escalations").await.is(200);
    assert_eq!(listed["items"][0]["options"], json!(["eu", "us"]));
    let path = format!("/v1/escalations/{}/answer", id(&asked, "id"));
    let answered = world.post("operator", &path, json!({"answer": "eu"})).await.is(200);
    assert_eq!((id(&answered, "state"), id(&answered, "answer")), ("answered", "eu"));
    let resumed = world.take("kilo").await;
    assert_eq!((id(&resumed["message"], "type"), id(&resumed["message"], "body")), ("response", "eu"));
    assert_eq!(resumed["message"]["escalation"], asked["id"]);
    assert_eq!(resumed["message"]["ref"], "T-1");
    world.post("operator", &path, json!({"answer": "us"})).await.refused(409, "already_settled");
}

#[tokio::test]
async fn an_approval_is_for_one_call_once() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "deploy").await.is(201);
    world.take("kilo").await;
    let call = json!({"tool": "deploy", "arguments": {"env": "prod", "a": 1}});
    let held = world.post("kilo", "/v1/approvals", call.clone()).await.is(201);
    assert_eq!(held["state"], "pending");
    let path = format!("/v1/approvals/{}", id(&held, "id"));
    let decision = format!("{path}/decision");
    let digest = id(&held, "digest");
    world
        .post("kilo", &decision, json!({"decision": "approve", "digest": digest}))
        .await
        .refused(403, "approver_not_allowed");
    world.post("operator", &decision, json!({"decision": "approve"})).await.refused(400, "malformed");
    let wrong = "0".repeat(64);
    world
        .post("operator", &decision, json!({"decision": "approve", "digest": wrong}))
        .await
        .refused(422, "digest_mismatch");
    let wait = format!("{path}?wait=20s");
    let (seen, decided) = tokio::join!(
        world.get("kilo", &wait),
        world.post("operator", &decision, json!({"decision": "approve", "digest": digest})),
    );
    assert_eq!(
        (seen.is(200)["state"].clone(), decided.is(200)["state"].clone()),
        (json!("approved"), json!("approved"))
    );
    let spend = format!("{path}/use");
    let other = json!({"tool": "deploy", "arguments": {"env": "dr", "a": 1}});
    world.post("kilo", &spend, other).await.refused(422, "digest_mismatch");
    // The same call with its members in another order.
    let same = json!({"arguments": {"a": 1, "env": "prod"}, "tool": "deploy"});
    assert_eq!(world.post("kilo", &spend, same.clone()).await.is(200)["state"], "used");
    world.post("kilo", &spend, same).await.refused(409, "approval_used");
}

#[tokio::test]
async fn an_edited_call_is_approved_under_its_own_digest() {
    let world = World::with(&["kilo"]).await;
    let held = world.post("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {"path": "/"}})).await.is(201);
    let path = format!("/v1/approvals/{}", id(&held, "id"));
    let edit = json!({"decision": "edit", "input": {"path": "/tmp/x"}, "comment": "only that"});
    let edited = world.post("operator", &format!("{path}/decision"), edit).await.is(200);
    assert_ne!(edited["digest"], held["digest"]);
    assert_eq!(edited["arguments"], json!({"path": "/tmp/x"}));
    let spend = format!("{path}/use");
    world.post("kilo", &spend, json!({"tool": "rm", "arguments": {"path": "/"}})).await.refused(422, "digest_mismatch");
    world.post("kilo", &spend, json!({"tool": "rm", "arguments": {"path": "/tmp/x"}})).await.is(200);
}

#[tokio::test]
async fn a_humans_mention_in_a_room_is_a_request() {
    let world = World::with(&["kilo", "hive"]).await;
    world.post("operator", "/v1/rooms", json!({"name": "den", "members": ["kilo", "hive"]})).await.is(201);
    world.post("kilo", "/v1/rooms/den/messages", json!({"body": "@hive do this"})).await.is(201);
    world.get("hive", "/v1/inbox").await.is(204);
    world.post("kilo", "/v1/rooms/den/messages", json!({"body": " "})).await.refused(400, "malformed");
    let posted = world.post("operator", "/v1/rooms/den/messages", json!({"body": "@hive do that"})).await.is(201);
    assert_eq!(posted["items"][0]["to"], "hive", "{posted}");
    assert_eq!(world.take("hive").await["message"]["body"], "@hive do that");
    assert_eq!(world.get("kilo", "/v1/rooms").await.is(200)["items"][0]["name"], "den");
}

#[tokio::test]
async fn a_claim_excludes_others_until_it_is_released() {
    let world = World::with(&["kilo", "hive"]).await;
    let claim = json!({"resource": "repo:src/auth/*", "ttl_ms": 60_000});
    let held = world.post("kilo", "/v1/claims", claim.clone()).await.is(201);
    world.post("hive", "/v1/claims", json!({"resource": "repo:src/auth/x"})).await.refused(409, "claim_held");
    let path = format!("/v1/claims/{}", id(&held, "id"));
    world.request("kilo", Method::DELETE, &path).send().await.unwrap().error_for_status().unwrap();
    let next = world.post("hive", "/v1/claims", claim).await.is(201);
    assert!(next["fence"].as_u64() > held["fence"].as_u64());
}
