//! Escalations, approvals, rooms and claims.

use lastword_facts::Limits;
use lastword_facts::limits::Approvers;
use lastword_facts::names::AgentName;
use reqwest::Method;
use serde_json::json;

use crate::world::{World, id};

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
    for _ in 0..2 {
        let keyed = world.request("kilo", Method::POST, &spend).header("Idempotency-Key", "u-1").json(&same);
        let used = keyed.send().await.unwrap().error_for_status().unwrap().json::<serde_json::Value>().await.unwrap();
        assert_eq!(used["state"], "used", "a reply that was lost is had again");
    }
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
async fn a_post_with_a_key_is_one_however_often_it_is_tried() {
    let world = World::within(Limits { turns_soft_max: 2, ..Limits::default() }, &["kilo", "hive"]).await;
    world.post("operator", "/v1/rooms", json!({"name": "den", "members": ["kilo", "hive"]})).await.is(201);
    let (path, body) = ("/v1/rooms/den/messages", json!({"body": "hello"}));
    let tries = async |who: &str, key: &str, body: &serde_json::Value| {
        let mut statuses = Vec::new();
        for _ in 0..3 {
            let request = world.request(who, Method::POST, path).header("Idempotency-Key", key).json(body);
            statuses.push(request.send().await.unwrap().status().as_u16());
        }
        statuses
    };
    assert_eq!(tries("kilo", "k-1", &body).await, [201; 3]);
    assert_eq!(tries("kilo", "k-2", &body).await, [422; 3], "refused, and counted once");
    assert_eq!(world.get("operator", "/v1/rooms").await.is(200)["items"][0]["agent_messages"], 2);
    let ask = json!({"body": "go on, both of you", "mentions": ["kilo", "hive"], "ref": "LOGIN-1"});
    assert_eq!(tries("operator", "k-3", &ask).await, [201; 3]);
    let asked = world.get("operator", "/v1/messages?ref=LOGIN-1").await.is(200);
    assert_eq!(asked["items"].as_array().unwrap().len(), 2, "{asked}");
    for body in [json!({"body": "x", "mentions": ["hive"]}), json!({"body": "x", "ref": "LOGIN-2"})] {
        world.post("kilo", path, body).await.refused(403, "forbidden");
    }
    world.post("operator", path, json!({"body": "x", "ref": "a b"})).await.refused(400, "malformed");
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

#[tokio::test]
async fn a_claim_can_wait_for_a_release_but_two_never_for_each_other() {
    let world = World::with(&["kilo", "hive"]).await;
    let claim = |resource: &str| json!({ "resource": resource, "wait_ms": 60_000 });
    let a = world.post("kilo", "/v1/claims", claim("repo:src/a")).await.is(201);
    let b = world.post("hive", "/v1/claims", claim("repo:src/b")).await.is(201);
    let again = world.post("kilo", "/v1/claims", claim("repo:./src//a")).await.is(201);
    assert_eq!(again["id"], a["id"], "what a task holds, it holds");
    let mut kilo = Box::pin(world.post("kilo", "/v1/claims", claim("repo:src")));
    let mut hive = Box::pin(world.post("hive", "/v1/claims", claim("repo:src")));
    // Whoever asks second learns that the other one waits for it.
    let (refused, other, holds, by) = tokio::select! {
        refused = &mut kilo => (refused, hive, a, "kilo"),
        refused = &mut hive => (refused, kilo, b, "hive"),
    };
    refused.refused(409, "mutual_wait");
    let path = format!("/v1/claims/{}", id(&holds, "id"));
    world.request(by, Method::DELETE, &path).send().await.unwrap().error_for_status().unwrap();
    let whole = other.await.is(201);
    assert_eq!(whole["resource"], "repo:src");
    let all = world.get("kilo", "/v1/claims").await.is(200);
    assert_eq!(all["items"].as_array().unwrap().len(), 1, "the whole takes the place of its part: {all}");
    let part = json!({ "resource": "repo:src/b", "wait_ms": 1 });
    world.post(by, "/v1/claims", part).await.refused(409, "claim_held");
    // A human may end it, which the log says.
    let path = format!("/v1/claims/{}", id(&whole, "id"));
    world.request(by, Method::DELETE, &path).send().await.unwrap();
    world.request("operator", Method::DELETE, &path).send().await.unwrap().error_for_status().unwrap();
}

#[tokio::test]
async fn an_agent_that_edits_many_files_may_still_write() {
    let world = World::with(&["kilo", "hive"]).await;
    for n in 0..40 {
        world.post("kilo", "/v1/claims", json!({ "resource": format!("repo:src/{n}") })).await.is(201);
    }
    let asks = json!({ "type": "request", "to": "hive", "body": "done?", "ref": "P-1" });
    world.post("kilo", "/v1/messages", asks).await.is(201);
    for n in 40..64 {
        world.post("kilo", "/v1/claims", json!({ "resource": format!("repo:src/{n}") })).await.is(201);
    }
    // As many as it may hold; the directory takes the place of all that are in it.
    let refused = world.post("kilo", "/v1/claims", json!({ "resource": "repo:src/64" })).await;
    refused.refused(503, "saturated");
    world.post("kilo", "/v1/claims", json!({ "resource": "repo:src" })).await.is(201);
    let all = world.get("kilo", "/v1/claims").await.is(200);
    assert_eq!(all["items"].as_array().unwrap().len(), 1, "{all}");
}

#[tokio::test]
async fn a_named_approver_sees_what_it_may_decide_and_nobody_else_does() {
    let approvers = Approvers { asker: false, agents: vec![AgentName::new("boss").unwrap()] };
    let world = World::within(Limits { approvers, ..Limits::default() }, &["kilo", "boss", "spy"]).await;
    let held = world.post("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {"path": "/x"}})).await.is(201);
    let path = format!("/v1/approvals/{}", id(&held, "id"));
    let listed = world.get("boss", "/v1/approvals").await.is(200);
    assert_eq!(listed["items"][0]["digest"], held["digest"], "{listed}");
    let shown = world.get("boss", &path).await.is(200);
    assert_eq!(world.get("spy", "/v1/approvals").await.is(200)["items"], json!([]));
    world.get("spy", &path).await.refused(404, "unknown_request");
    let approve = json!({"decision": "approve", "digest": shown["digest"]});
    let decided = world.post("boss", &format!("{path}/decision"), approve).await.is(200);
    assert_eq!((id(&decided, "state"), id(&decided, "by")), ("approved", "boss"));
}

#[tokio::test]
async fn a_mentioned_human_is_asked_for_nothing() {
    let mut world = World::with(&["kilo"]).await;
    world.register(json!({"name": "anna", "kind": "human"})).await;
    world.post("operator", "/v1/rooms", json!({"name": "den", "members": ["kilo"]})).await.is(201);
    let body = json!({"body": "@anna @nobody @kilo look"});
    let posted = world.post("operator", "/v1/rooms/den/messages", body).await.is(201);
    let to: Vec<_> = posted["items"].as_array().unwrap().iter().map(|m| id(m, "to")).collect();
    assert_eq!(to, ["kilo"]);
}

#[tokio::test]
async fn every_text_is_bounded_like_a_body() {
    let limits = Limits { body_bytes_max: 100, ..Limits::default() };
    let world = World::within(limits, &["kilo"]).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    let task = world.take("kilo").await;
    let turn = format!("/v1/turns/{}", id(&task["turn"], "id"));
    let (finish, progress) = (format!("{turn}/finish"), format!("{turn}/progress"));
    let asked = world.post("kilo", "/v1/escalations", json!({"message": "?"})).await.is(201);
    let held = world.post("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {}})).await.is(201);
    let answer = format!("/v1/escalations/{}/answer", id(&asked, "id"));
    let decision = format!("/v1/approvals/{}/decision", id(&held, "id"));
    let (long, list) = ("x".repeat(101), vec!["x".repeat(60); 2]);
    for (who, path, body) in [
        ("kilo", "/v1/escalations", json!({"message": long})),
        ("kilo", "/v1/escalations", json!({"message": "?", "options": list})),
        ("operator", &*answer, json!({"answer": long})),
        ("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {}, "reason": long})),
        ("operator", &*decision, json!({"decision": "reject", "comment": long})),
        ("operator", &*decision, json!({"decision": "edit", "input": long})),
        ("kilo", &*progress, json!({"note": long})),
        ("kilo", &*finish, json!({"answer": long})),
        ("kilo", &*finish, json!({"answer": "x", "payload": long})),
        ("kilo", &*finish, json!({"answer": "x", "status": "partial", "completed": list})),
        ("kilo", &*finish, json!({"answer": "x", "status": "partial", "failed": list})),
        ("kilo", &*finish, json!({"answer": "x", "status": "rejected", "reason": long})),
    ] {
        let problem = world.post(who, path, body).await.refused(413, "too_large");
        assert_eq!(problem["limit"], 100, "{problem}");
    }
    let metrics = world.http.get(world.url("/metrics")).send().await.unwrap().text().await.unwrap();
    assert!(metrics.lines().any(|line| line.contains("too_large") && line.ends_with(" 12")), "{metrics}");
}
