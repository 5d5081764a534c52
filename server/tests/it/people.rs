//! Limits of agents, roles of humans, and idempotency keys.

use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{Answer, World, id};

async fn patch(world: &World, who: &str, path: &str, body: Value) -> Answer {
    Answer::of(world.request(who, Method::PATCH, path).json(&body).send().await.unwrap()).await
}

#[tokio::test]
async fn an_agent_has_limits_of_its_own_that_a_human_sets_and_takes_away() {
    let world = World::with(&["kilo", "hive"]).await;
    let path = "/v1/agents/kilo";
    let limits = json!({"limits": {"roots_per_hour_max": 1, "agent_turns_max": 3, "ack_ms": 60_000}});
    patch(&world, "hive", path, limits.clone()).await.refused(403, "forbidden");
    let set = patch(&world, "operator", path, limits).await.is(200);
    assert_eq!(set["limits"], json!({"ack_ms": 60_000, "agent_turns_max": 3, "roots_per_hour_max": 1}), "{set}");
    assert_eq!(set["turns_max"], 3);
    world.send("kilo", "hive", "R-1", "one").await.is(201);
    let refused = world.send("kilo", "hive", "R-2", "two").await.refused(429, "root_allowance");
    assert_eq!(refused["lift"]["cli"], "lastword agent set kilo --roots-per-hour 2", "{refused}");
    let call = id(&refused["lift"], "call").split_once(' ').unwrap().1.split_once(' ').unwrap();
    patch(&world, "operator", call.0, serde_json::from_str(call.1).unwrap()).await.is(200);
    world.send("kilo", "hive", "R-2", "two").await.is(201);
    let rest = patch(&world, "operator", path, json!({"limits": {"ack_ms": 0, "roots_per_hour_max": 0}})).await.is(200);
    assert_eq!(rest["limits"], json!({"agent_turns_max": 3}), "the others stay: {rest}");
    let wrong = json!({"limits": {"turns": 3}, "groups": ["x"]});
    let problem = patch(&world, "operator", path, wrong).await.refused(400, "malformed");
    let detail = id(&problem, "detail");
    assert!(
        detail.contains("`limits`") && detail.contains("\"turns\"") && detail.contains("agent_turns_max"),
        "{detail}"
    );
    assert_eq!(world.get("operator", path).await.is(200)["groups"], json!([]), "nothing of a wrong patch is done");
    let human = patch(&world, "operator", "/v1/agents/operator", json!({"limits": {"ack_ms": 1}})).await;
    human.refused(404, "unknown_recipient");
}

#[tokio::test]
async fn an_agent_that_rests_goes_on_once_a_human_gives_it_more_for_today() {
    let world = World::with(&["kilo", "hive"]).await;
    patch(&world, "operator", "/v1/agents/kilo", json!({"limits": {"agent_day_tokens_max": 100}})).await.is(200);
    world.send("operator", "kilo", "T-1", "do it").await.is(201);
    let task = world.take("kilo").await;
    let turn = format!("/v1/turns/{}/finish", id(&task["turn"], "id"));
    world.post("kilo", &turn, json!({"answer": "done", "usage": {"input_tokens": 200}})).await.is(200);
    assert!(world.get("operator", "/v1/agents/kilo").await.is(200)["rests_until"].is_string());
    world.send("operator", "kilo", "T-2", "more").await.is(201);
    world.get("kilo", "/v1/inbox").await.is(204);
    let grant = "/v1/agents/kilo/grant";
    world.post("hive", grant, json!({"tokens": 1_000})).await.refused(403, "forbidden");
    world.post("operator", grant, json!({})).await.refused(400, "malformed");
    world.post("operator", "/v1/agents/nobody/grant", json!({"tokens": 1})).await.refused(404, "unknown_recipient");
    let given = world.post("operator", grant, json!({"tokens": 1_000})).await.is(200);
    assert_eq!(given["rests_until"], Value::Null, "{given}");
    assert_eq!(world.take("kilo").await["message"]["body"], "more");
}

#[tokio::test]
async fn humans_have_roles_that_only_an_owner_sets() {
    let mut world = World::with(&["kilo"]).await;
    world.register_human("anna", "viewer").await;
    let listed = world.get("kilo", "/v1/humans").await.is(200);
    let roles: Vec<_> = listed["items"].as_array().unwrap().iter().map(|h| (id(h, "name"), id(h, "role"))).collect();
    assert_eq!(roles, [("anna", "viewer"), ("operator", "owner")]);
    world.send("anna", "kilo", "T-1", "do it").await.refused(403, "forbidden");
    world.post("anna", "/v1/workspace/stop", json!({})).await.refused(403, "forbidden");
    patch(&world, "anna", "/v1/humans/anna", json!({"role": "owner"})).await.refused(403, "forbidden");
    patch(&world, "kilo", "/v1/humans/anna", json!({"role": "owner"})).await.refused(403, "forbidden");
    patch(&world, "operator", "/v1/humans/anna", json!({"role": "king"})).await.refused(400, "malformed");
    patch(&world, "operator", "/v1/humans/kilo", json!({"role": "owner"})).await.refused(404, "unknown_recipient");
    patch(&world, "operator", "/v1/humans/operator", json!({"role": "viewer"})).await.refused(403, "forbidden");
    let anna = patch(&world, "operator", "/v1/humans/anna", json!({"role": "operator"})).await.is(200);
    assert_eq!(anna["role"], "operator");
    world.send("anna", "kilo", "T-1", "do it").await.is(201);
    world.post("operator", "/v1/humans", json!({"name": "ben"})).await.refused(400, "malformed");
}

#[tokio::test]
async fn a_retry_with_a_key_gets_what_was_made_first() {
    let world = World::with(&["kilo", "hive"]).await;
    let calls = [
        (
            "kilo",
            "/v1/escalations",
            json!({"message": "where?", "ref": "T-1"}),
            json!({"message": "?", "ref": "T-1"}),
            "id",
        ),
        ("kilo", "/v1/approvals", json!({"tool": "rm", "arguments": {"a": 1}}), json!({"tool": "ls"}), "id"),
        ("kilo", "/v1/claims", json!({"resource": "repo:a"}), json!({"resource": "repo:b"}), "id"),
        ("operator", "/v1/rooms", json!({"name": "den"}), json!({"name": "hut"}), "name"),
        ("operator", "/v1/agents", json!({"name": "mike"}), json!({"name": "nora"}), "incarnation"),
        (
            "operator",
            "/v1/humans",
            json!({"name": "anna", "role": "viewer"}),
            json!({"name": "ben", "role": "viewer"}),
            "incarnation",
        ),
    ];
    for (who, path, first, other, member) in calls {
        let key = format!("key-{}", path.trim_start_matches("/v1/"));
        let call = async |body: &Value| {
            let request = world.request(who, Method::POST, path).header("Idempotency-Key", &key).json(body);
            Answer::of(request.send().await.unwrap()).await
        };
        let made = call(&first).await.is(201);
        let again = call(&first).await.is(201);
        assert_eq!(made[member], again[member], "{path}");
        call(&other).await.refused(409, "idempotency_conflict");
        // The key belongs to its sender.
        let request = world.request(who, Method::POST, path).header("Idempotency-Key", "a b").json(&first);
        Answer::of(request.send().await.unwrap()).await.refused(400, "malformed");
    }
    let claims = world.get("kilo", "/v1/claims").await.is(200);
    assert_eq!(claims["items"].as_array().unwrap().len(), 1, "{claims}");
}

#[tokio::test]
async fn the_token_of_a_retried_registration_holds_and_the_lost_one_does_not() {
    let world = World::with(&[]).await;
    let add = async || {
        let request = world.request("operator", Method::POST, "/v1/agents").header("Idempotency-Key", "k");
        Answer::of(request.json(&json!({"name": "mike"})).send().await.unwrap()).await.is(201)
    };
    let (lost, kept) = (add().await, add().await);
    let me = async |token: &Value| {
        let request = world.http.get(world.url("/v1/agents/me")).bearer_auth(token["token"].as_str().unwrap());
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((me(&lost).await, me(&kept).await), (401, 200));
}

#[tokio::test]
async fn only_a_request_id_of_the_json_names_a_work_item() {
    let world = World::with(&["kilo", "hive"]).await;
    let named = json!({"type": "request", "to": "hive", "body": "look", "request_id": "TASK-7"});
    let sent = world.post("kilo", "/v1/messages", named).await.is(201);
    assert_eq!((id(&sent, "ref"), id(&sent, "request_id")), ("TASK-7", "TASK-7"));
    let keyed = json!({"type": "request", "to": "hive", "body": "look again"});
    let request = world.request("kilo", Method::POST, "/v1/messages").header("Idempotency-Key", "TASK-8").json(&keyed);
    Answer::of(request.send().await.unwrap()).await.refused(409, "ref_required");
}

#[tokio::test]
async fn a_name_that_people_would_take_for_another_is_refused() {
    let world = World::with(&["kilo", "worker-2"]).await;
    for (name, why) in [
        ("ki1o", "looks like kilo"),
        ("admin", "the workspace's own"),
        ("broker", "the workspace's own"),
        ("you", "a word by which pages speak of others"),
        ("nobody", "a word by which pages speak of others"),
        ("owner", "a word by which pages speak of others"),
        ("approver", "a word by which pages speak of others"),
        ("everyone", "a word by which pages speak of others"),
        ("0perator", "looks like operator"),
    ] {
        let refused = world.post("operator", "/v1/agents", json!({ "name": name })).await.refused(400, "malformed");
        assert!(id(&refused, "detail").contains(why), "{refused}");
    }
    for name in ["worker-1", "worker-12", "worker-20"] {
        world.post("operator", "/v1/agents", json!({ "name": name })).await.is(201);
    }
}

#[tokio::test]
async fn an_act_that_would_do_nothing_is_refused() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "do it").await.is(201);
    let nothing = world.post("operator", "/v1/conversations/T-1/grant", json!({})).await.refused(422, "malformed");
    assert!(id(&nothing, "detail").contains("nothing would be granted"), "{nothing}");
    let less = world.post("operator", "/v1/conversations/T-1/grant", json!({ "cost_usd": -1 })).await;
    assert!(id(&less.refused(400, "malformed"), "detail").contains("can't be reduced"));
    for over in [json!({ "timeout_ms": 0 }), json!({ "metadata": { "deadline_ms": 0 } })] {
        let mut request = json!({ "type": "request", "to": "kilo", "ref": "T-2", "body": "at once" });
        request.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
        world.post("operator", "/v1/messages", request).await.refused(400, "malformed");
    }
    let claim = json!({ "resource": "repo:a", "mode": "write", "ttl_ms": 0 });
    world.post("kilo", "/v1/claims", claim).await.refused(400, "malformed");
    let twice = world.request("kilo", Method::GET, "/v1/agents/me").header("Authorization", "Bearer lw_other");
    Answer::of(twice.send().await.unwrap()).await.refused(400, "malformed");
}

#[tokio::test]
async fn why_an_agents_program_cant_work_is_told_until_the_agent_connects() {
    let mut world = World::with(&["kilo", "hive"]).await;
    world.register_human("anna", "viewer").await;
    let path = "/v1/agents/kilo/unavailable";
    let reason = |text: &str| json!({ "reason": text });
    world.post("hive", path, reason("no")).await.refused(403, "forbidden");
    world.post("anna", path, reason("no")).await.refused(403, "forbidden");
    world.post("operator", "/v1/agents/me/unavailable", reason("no")).await.refused(400, "malformed");
    world.post("operator", "/v1/agents/nobody/unavailable", reason("no")).await.refused(404, "unknown_recipient");
    assert_eq!(world.get("operator", "/v1/agents/kilo").await.is(200)["unavailable"], Value::Null);

    world.post("operator", path, reason("by a human")).await.is(204);
    assert_eq!(world.get("hive", "/v1/agents/kilo").await.is(200)["unavailable"], "by a human");
    world.post("operator", path, reason(" ")).await.is(204);
    assert_eq!(world.get("hive", "/v1/agents/kilo").await.is(200)["unavailable"], Value::Null);
    world.post("kilo", "/v1/agents/me/unavailable", reason(&"x".repeat(501))).await.is(204);
    let told = world.get("hive", "/v1/agents").await.is(200);
    let of = |name: &str| {
        told["items"].as_array().unwrap().iter().find(|one| one["name"] == name).unwrap()["unavailable"].clone()
    };
    assert_eq!((of("kilo"), of("hive")), (json!("x".repeat(500)), Value::Null));
    world.post("kilo", path, reason("program not found: claude")).await.is(204);
    world.send("operator", "kilo", "T-1", "write it").await.is(201);
    let browser = Browser::signed_in(&world).await;
    for page in ["/", "/agents", "/agents/kilo"] {
        browser.get(page).await.is(200).has("can't work").has("program not found: claude");
    }

    // A look at the inbox that doesn't wait is no connection, and takes the work all the same.
    let task = world.get("kilo", "/v1/inbox?wait=20s").await.is(200);
    world.finish("kilo", &task, "done").await.is(200);
    tokio::select! {
        _ = world.get("kilo", "/v1/inbox?wait=60s") => panic!("nothing is queued"),
        () = connects(&world, "kilo") => {}
    }
    while world.get("operator", "/v1/agents/kilo").await.is(200)["connected"] == true {}
    assert_eq!(world.get("operator", "/v1/agents/kilo").await.is(200)["unavailable"], Value::Null);
}

/// Resolves once the agent is connected.
async fn connects(world: &World, name: &str) {
    while world.get("operator", &format!("/v1/agents/{name}")).await.is(200)["connected"] == false {}
}
