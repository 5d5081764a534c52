//! What each role may call: the table of calls says it, and the broker refuses the rest, on every surface.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{Answer, World};

/// The roles, the one that may do most first.
const ROLES: [&str; 4] = ["owner", "operator", "approver", "viewer"];

/// Every call of the OpenAPI document: its method, its path, and the least role that may make it.
fn calls() -> Vec<(Method, String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let document: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut calls = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, call) in methods.as_object().unwrap() {
            let role = call["x-role"].as_str().unwrap().to_owned();
            calls.push((Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), path.clone(), role));
        }
    }
    calls
}

/// A body with which the call gets as far as the role's check.
fn body(path: &str) -> Value {
    match path {
        "/v1/messages" => json!({ "type": "info", "to": "kilo", "ref": "T-9", "body": "hello" }),
        "/v1/agents" => json!({ "name": "hive" }),
        "/v1/humans" => json!({ "name": "zoe", "role": "viewer" }),
        "/v1/humans/{name}" => json!({ "role": "viewer" }),
        "/v1/agents/{name}" => json!({ "actions": ["review"] }),
        "/v1/agents/{name}/grant" | "/v1/conversations/{ref}/grant" => json!({ "tokens": 10 }),
        "/v1/agents/{name}/prompt" => json!({ "typed": true }),
        "/v1/agents/{name}/unavailable" => json!({ "reason": "no program" }),
        "/v1/approvals" | "/v1/approvals/{id}/use" => json!({ "tool": "Bash", "arguments": {} }),
        "/v1/approvals/{id}/decision" => json!({ "decision": "reject" }),
        "/v1/claims" => json!({ "resource": "repo:src/auth/*" }),
        "/v1/escalations" => json!({ "message": "why?", "ref": "T-9" }),
        "/v1/escalations/{id}/answer" => json!({ "answer": "because" }),
        "/v1/rooms" => json!({ "name": "den" }),
        "/v1/rooms/{room}/messages" => json!({ "body": "hello" }),
        "/v1/schedules" => json!({ "name": "daily", "cron": "0 7 * * *", "to": "kilo", "body": "go" }),
        "/v1/notifications" => json!({ "channel": "pager", "after": 0 }),
        "/v1/token" => json!({ "scopes": ["read"], "expires_in_ms": 60_000 }),
        "/v1/archives" => json!({ "after_ms": 86_400_000_u64 }),
        _ => json!({}),
    }
}

async fn delete(world: &World, who: &str, path: &str) -> Answer {
    Answer::of(world.request(who, Method::DELETE, path).send().await.unwrap()).await
}

async fn world() -> World {
    let mut world = World::with(&["kilo"]).await;
    for role in ROLES {
        world.register_human(&format!("an-{role}"), role).await;
    }
    world.post("operator", "/v1/rooms", json!({ "name": "team" })).await.is(201);
    // Some calls look up what they are about before they ask for the role.
    world.send("operator", "kilo", "T-9", "work").await.is(201);
    world.post("operator", "/v1/schedules", body("/v1/schedules")).await.is(201);
    world.take("kilo").await;
    world.post("kilo", "/v1/approvals", json!({ "tool": "Bash", "arguments": {} })).await.is(201);
    world.post("kilo", "/v1/escalations", json!({ "message": "why?" })).await.is(201);
    world
}

#[tokio::test]
async fn each_call_is_refused_to_exactly_the_roles_below_its_own() {
    let calls = calls();
    assert!(calls.len() > 60, "{}", calls.len());
    for (rank, role) in ROLES.iter().enumerate() {
        let world = world().await;
        for (method, path, least) in &calls {
            // The first ends the caller's own token, and the others are streams or need no token.
            if (method == Method::DELETE && path == "/v1/token")
                || ["/v1/events", "/v1/sign-in"].contains(&path.as_str())
            {
                continue;
            }
            let name = if path.starts_with("/v1/humans") { "an-approver" } else { "kilo" };
            let place = path.replace("{name}", name).replace("{room}", "team").replace("{ref}", "T-9");
            let place = match path.as_str() {
                p if p.starts_with("/v1/escalations") => place.replace("{id}", "esc-1"),
                p if p.starts_with("/v1/approvals") => place.replace("{id}", "apr-1"),
                p if p.starts_with("/v1/schedules") => place.replace("{id}", "daily"),
                p if p.starts_with("/v1/claims") => place.replace("{id}", "clm-1"),
                p if p.starts_with("/v1/turns") => place.replace("{id}", "turn-1"),
                _ => place.replace("{id}", "req-1"),
            };
            let mut request =
                world.http.request(method.clone(), world.url(&place)).bearer_auth(world.token(&format!("an-{role}")));
            if method == Method::POST || method == Method::PATCH {
                request = request.json(&body(path));
            }
            let response = request.send().await.unwrap();
            let (status, text) = (response.status().as_u16(), response.text().await.unwrap_or_default());
            let may = rank <= ROLES.iter().position(|known| known == least).unwrap();
            let refused = status == 403 && text.contains("a human with the role");
            assert_eq!(refused, !may, "{role}: {method} {path} needs {least}: {status} {text}");
            assert!(
                !(may && text.contains("\"code\":\"malformed\"")),
                "{role}: {method} {path}: the body is wrong: {text}"
            );
        }
    }
}

#[tokio::test]
async fn a_viewer_whose_post_mentions_an_agent_is_told_that_the_mention_needs_another_role() {
    let world = world().await;
    world.post("operator", "/v1/rooms", json!({ "name": "lounge", "members": ["kilo"] })).await.is(201);
    let post = |body: &str| json!({ "body": body });
    world.post("an-viewer", "/v1/rooms/lounge/messages", post("Lunch at noon?")).await.is(201);
    let refused = world.post("an-viewer", "/v1/rooms/lounge/messages", post("@kilo, lunch?")).await;
    let told = refused.refused(403, "forbidden").to_string();
    assert!(told.contains("a mention such as @kilo is a request, which needs the role operator"), "{told}");
}

#[tokio::test]
async fn a_viewer_changes_nothing_that_is_others() {
    let world = world().await;
    let sent = world.send("operator", "kilo", "T-1", "work").await.is(201);
    let request = sent["request_id"].as_str().unwrap().to_owned();
    let claim = world.post("kilo", "/v1/claims", json!({ "resource": "repo:src/auth/*" })).await.is(201);
    let claim = claim["id"].as_str().unwrap();
    for who in ["an-viewer", "an-approver"] {
        world.post(who, &format!("/v1/requests/{request}/cancel"), json!({})).await.refused(403, "forbidden");
        delete(&world, who, &format!("/v1/claims/{claim}")).await.refused(403, "forbidden");
        world.post(who, "/v1/claims", json!({ "resource": "README.md" })).await.refused(403, "forbidden");
        world.post(who, "/v1/approvals", json!({ "tool": "Bash" })).await.refused(403, "forbidden");
        world.post(who, "/v1/escalations", json!({ "message": "?" })).await.refused(403, "forbidden");
        world.send(who, "kilo", "T-2", "work").await.refused(403, "forbidden");
    }
    assert_eq!(world.get("operator", &format!("/v1/requests/{request}")).await.is(200)["state"], "request_sent");
    assert_eq!(world.get("operator", "/v1/claims").await.is(200)["items"].as_array().unwrap().len(), 1);
    delete(&world, "operator", &format!("/v1/claims/{claim}")).await.is(204);
    world.post("operator", &format!("/v1/requests/{request}/cancel"), json!({})).await.is(200);
}

#[tokio::test]
async fn an_agent_sees_the_schedules_that_ask_it_and_a_human_sees_all() {
    let world = World::with(&["kilo", "hive"]).await;
    world
        .http
        .patch(world.url("/v1/agents/hive"))
        .bearer_auth(world.token("operator"))
        .json(&json!({ "actions": ["sweep"] }))
        .send()
        .await
        .unwrap();
    for (name, to) in [("one", "kilo"), ("two", "hive"), ("three", "#sweep")] {
        let schedule = json!({ "name": name, "cron": "0 7 * * *", "to": to, "body": format!("the text of {name}") });
        world.post("operator", "/v1/schedules", schedule).await.is(201);
    }
    for (who, seen) in
        [("kilo", vec!["one"]), ("hive", vec!["three", "two"]), ("operator", vec!["one", "three", "two"])]
    {
        let listed = world.get(who, "/v1/schedules").await.is(200);
        let names: Vec<&str> =
            listed["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect();
        assert_eq!(names, seen, "{who}: {listed}");
    }
}

#[tokio::test]
async fn an_agents_claim_names_a_directory_and_a_humans_may_cover_everything() {
    let world = World::with(&["kilo"]).await;
    for wide in ["*", "a*", "repo:*", "repo:s*", "/*", "a/../*", "src/..", "*.rs"] {
        let refused = world.post("kilo", "/v1/claims", json!({ "resource": wide })).await.refused(403, "forbidden");
        assert!(refused["detail"].as_str().unwrap().contains("name a directory"), "{wide}: {refused}");
    }
    for name in ["repo:../x", "src/../../x"] {
        let refused = world.post("kilo", "/v1/claims", json!({ "resource": name })).await.refused(400, "malformed");
        assert!(refused["detail"].as_str().unwrap().contains("`..`"), "{name}: {refused}");
    }
    for narrow in ["repo:src/auth/*", "docs/*", "README.md", "plan", "a..b"] {
        world.post("kilo", "/v1/claims", json!({ "resource": narrow })).await.is(201);
    }
    let held = world.post("operator", "/v1/claims", json!({ "resource": "*" })).await;
    held.refused(409, "claim_held");
    world.post("operator", "/v1/claims", json!({ "resource": "other:*" })).await.is(201);
}

#[tokio::test]
async fn a_report_that_no_model_could_have_produced_is_refused_by_name_and_the_answer_is_not_lost() {
    let world = World::with(&["kilo"]).await;
    world.send("operator", "kilo", "T-1", "work").await.is(201);
    let delivery = world.take("kilo").await;
    let turn = format!("/v1/turns/{}", delivery["turn"]["id"].as_str().unwrap());
    let wrong = [
        (json!({ "input_tokens": u64::MAX }), "usage.input_tokens"),
        (json!({ "output_tokens": 1_000_000_000_001_u64 }), "usage.output_tokens"),
        (json!({ "input_tokens": 1, "cache_read_tokens": 1_u64 << 63 }), "usage.cache_read_tokens"),
        (json!({ "input_tokens": 1, "cache_write_tokens": u64::MAX }), "usage.cache_write_tokens"),
        (json!({ "cost_usd": 1e18 }), "usage.cost_usd"),
        (json!({ "models": [{ "model": "opus", "tokens": u64::MAX }] }), "usage.models"),
    ];
    for (usage, field) in wrong {
        for call in ["finish", "progress"] {
            let body =
                if call == "finish" { json!({ "answer": "done", "usage": usage }) } else { json!({ "usage": usage }) };
            let refused = world.post("kilo", &format!("{turn}/{call}"), body).await.refused(422, "malformed");
            assert!(refused["detail"].as_str().unwrap().contains(field), "{field}: {refused}");
        }
    }
    // The turn is open, and the same answer without the figures settles.
    let most = json!({ "input_tokens": 1_000_000_000_000_u64, "output_tokens": 0 });
    world.post("kilo", &format!("{turn}/finish"), json!({ "answer": "done", "usage": most })).await.is(200);
}
