//! What a first caller gets wrong: empty texts, members that mean nothing, hosts.

use serde_json::{Value, json};

use crate::mcp::{done, tool};
use crate::session::Raw;
use crate::world::World;

#[tokio::test]
async fn an_optional_text_that_is_empty_is_absent() {
    let world = World::with(&["kilo", "hive"]).await;
    let nothing = done(&world, "kilo", "next_message", json!({ "turn": "", "wait_ms": 0 })).await;
    assert_eq!(nothing["message"], Value::Null);
    let sent = json!({ "target_agent_id": "hive", "message": "go", "ref": "T-1", "action": "", "turn": "" });
    done(&world, "kilo", "send_agent_message", sent).await;
    let envelope = json!({ "type": "request", "to": "hive", "body": "x", "ref": "T-2", "request_id": "", "from": "", "in_reply_to": "" });
    let stored = world.post("operator", "/v1/messages", envelope.clone()).await.is(201);
    assert_eq!(stored["in_reply_to"], Value::Null);
    let mut session = Raw::of(&world, "operator").await;
    let mut again = envelope;
    again["ref"] = json!("T-3");
    session.ok(json!({ "call": "send", "body": again })).await;
    let delivery = world.take("hive").await;
    let path = format!("/v1/turns/{}/progress", delivery["turn"]["id"].as_str().unwrap());
    world.post("hive", &path, json!({ "note": "", "eta_ms": "" })).await.is(200);
    world.get("kilo", "/v1/inbox?wait=&turns=").await.is(204);
    world.get("kilo", "/v1/conversations?limit=&open=&cursor=").await.is(200);
    let question = json!({ "message": "which?", "ref": "" });
    world.post("hive", "/v1/escalations", question).await.is(201);
    // Without a recipient a status is for the user, which an empty name doesn't say.
    for kind in ["request", "status"] {
        let nobody = json!({ "type": kind, "to": "", "ref": "T-1", "body": "x", "action": "" });
        world.post("kilo", "/v1/messages", nobody).await.refused(400, "malformed");
    }
}

#[tokio::test]
async fn a_member_that_means_nothing_is_named_with_the_one_that_was_meant() {
    let world = World::with(&["kilo"]).await;
    let envelope = json!({
        "type": "request", "to": "kilo", "ref": "T-1", "body": "go", "cc": ["c"], "deadlin_ms": 1000,
        "metadata": { "team": "a", "priorty": "high" },
    });
    for (n, representation) in ["", "?return=minimal"].into_iter().enumerate() {
        let mut envelope = envelope.clone();
        envelope["ref"] = json!(format!("T-{n}"));
        let sent = world.post("operator", &format!("/v1/messages{representation}"), envelope).await.is(201);
        let warning = sent["warning"].as_str().unwrap();
        for named in ["`cc`", "`deadlin_ms` (did you mean `deadline_ms`?)", "`priorty` (did you mean `priority`?)"] {
            assert!(warning.contains(named), "{warning}");
        }
        assert!(!warning.contains("team"), "metadata is the sender's own: {warning}");
    }
    let mut session = Raw::of(&world, "operator").await;
    let mut again = envelope;
    again["ref"] = json!("T-9");
    let sent = session.ok(json!({ "call": "send", "body": again })).await;
    assert!(sent["warning"].as_str().unwrap().contains("`cc`"), "{sent}");
    let asked = json!({ "type": "request", "to": "user", "ref": "T-11", "body": "which?", "cc": ["c"] });
    let asked = world.post("kilo", "/v1/messages", asked).await.is(201);
    assert!(asked["warning"].as_str().unwrap().contains("`cc`"), "a question to a human: {asked}");
    let unaddressed =
        world.post("operator", "/v1/messages", json!({ "type": "request", "too": "kilo", "body": "x" })).await;
    assert!(unaddressed.refused(400, "malformed")["detail"].as_str().unwrap().contains("`too`"));
    let plain = world.send("operator", "kilo", "T-10", "go").await.is(201);
    assert_eq!(plain["warning"], Value::Null);
    let refused = world.post("operator", "/v1/agents", json!({ "name": "b", "actoins": [] })).await;
    let detail = refused.refused(400, "malformed")["detail"].to_string();
    assert!(detail.contains("did you mean `actions`?"), "{detail}");
    let (refused, error) = tool(&world, "kilo", "next_message", json!({ "wait": 5 })).await;
    assert!(error && refused["detail"].as_str().unwrap().contains("did you mean"), "{refused}");
}

#[tokio::test]
async fn a_host_that_is_not_allowed_is_named_with_the_flag_that_allows_it() {
    let world = World::with(&[]).await;
    for host in ["lastword:7171", "broker.internal"] {
        let request = world.request("operator", reqwest::Method::GET, "/v1/limits").header("host", host);
        let refused = crate::world::Answer::of(request.send().await.unwrap()).await;
        let problem = refused.refused(403, "forbidden");
        let name = host.split(':').next().unwrap();
        assert!(problem["detail"].as_str().unwrap().contains(&format!("--host {name}")), "{problem}");
        assert!(!problem["title"].as_str().unwrap().contains("token"), "{problem}");
    }
    let request = world.request("operator", reqwest::Method::GET, "/v1/limits").header("host", "localhost:1");
    crate::world::Answer::of(request.send().await.unwrap()).await.is(200);
}
