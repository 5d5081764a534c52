//! Tokens that expire, and rotations in which the old token stays valid for a while.

use lastword_facts::Limits;
use reqwest::Method;
use serde_json::{Value, json};

use crate::machine::Machine;
use crate::world::{Answer, World};

const MINUTE: u64 = 60_000;

/// Makes a new token for an agent or human; returns it and the reply.
async fn rotate(world: &World, name: &str, terms: Value) -> (String, Value) {
    let made = world.post("operator", &format!("/v1/agents/{name}/token"), terms).await.is(201);
    (made["token"].as_str().unwrap().to_owned(), made)
}

async fn ask(world: &World, token: &str) -> Answer {
    let request = world.http.request(Method::GET, world.url("/v1/agents/me")).bearer_auth(token);
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn an_expired_token_is_refused_with_its_time_and_the_step_also_after_a_restart() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let (token, made) = rotate(&world, "kilo", json!({ "expires_in_ms": 10 * MINUTE })).await;
    let expires_at = made["expires_at"].as_str().unwrap().to_owned();
    ask(&world, world.token("kilo")).await.refused(401, "unauthenticated");
    ask(&world, &token).await.is(200);
    machine.run(9 * MINUTE);
    ask(&world, &token).await.is(200);
    machine.run(MINUTE + 1);
    let world = {
        let refused = ask(&world, &token).await.refused(401, "unauthenticated");
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(&expires_at) && detail.contains("lastword agent token"), "{detail}");
        machine.restart(world, Limits::default()).await
    };
    let detail = ask(&world, &token).await.refused(401, "unauthenticated")["detail"].clone();
    assert!(detail.as_str().unwrap().contains(&expires_at), "{detail}");
    // The step that the refusal names.
    let (token, made) = rotate(&world, "kilo", json!({})).await;
    assert_eq!(made.get("expires_at"), None);
    machine.run(100 * MINUTE);
    ask(&world, &token).await.is(200);
}

#[tokio::test]
async fn a_replaced_token_stays_valid_for_the_overlap_and_one_replacement_back() {
    let machine = Machine::new();
    let world = machine.world(&["kilo"], Limits::default()).await;
    let first = world.token("kilo").to_owned();
    let overlap = json!({ "overlap_ms": 10 * MINUTE });
    let (second, _) = rotate(&world, "kilo", overlap.clone()).await;
    ask(&world, &first).await.is(200);
    ask(&world, &second).await.is(200);
    let (third, _) = rotate(&world, "kilo", overlap.clone()).await;
    ask(&world, &first).await.refused(401, "unauthenticated");
    ask(&world, &second).await.is(200);
    let world = machine.restart(world, Limits::default()).await;
    ask(&world, &second).await.is(200);
    machine.run(10 * MINUTE + 1);
    ask(&world, &second).await.refused(401, "unauthenticated");
    ask(&world, &third).await.is(200);
    // An overlap extends no token beyond its own end.
    let (short, _) = rotate(&world, "kilo", json!({ "expires_in_ms": MINUTE })).await;
    rotate(&world, "kilo", overlap.clone()).await;
    ask(&world, &short).await.is(200);
    machine.run(MINUTE + 1);
    ask(&world, &short).await.refused(401, "unauthenticated");
    // A rotation without terms, and a removal, end both.
    let (a, _) = rotate(&world, "kilo", overlap.clone()).await;
    let (b, _) = rotate(&world, "kilo", overlap.clone()).await;
    rotate(&world, "kilo", json!({})).await;
    for ended in [&a, &b] {
        ask(&world, ended).await.refused(401, "unauthenticated");
    }
    let (c, _) = rotate(&world, "kilo", overlap.clone()).await;
    let (d, _) = rotate(&world, "kilo", overlap).await;
    world.request("operator", Method::DELETE, "/v1/agents/kilo").send().await.unwrap();
    for ended in [&c, &d] {
        ask(&world, ended).await.refused(401, "unauthenticated");
    }
}

#[tokio::test]
async fn impossible_terms_of_a_token_are_refused_by_name() {
    let world = World::with(&["kilo"]).await;
    for (terms, (status, word)) in [
        (json!({ "expires_in_ms": 0 }), (422, "expires_in_ms")),
        (json!({ "expires_in_ms": 400_000_000_000_u64 }), (422, "expires_in_ms")),
        (json!({ "overlap_ms": 2_592_000_001_u64 }), (422, "overlap_ms")),
        (json!({ "expires": "30d" }), (400, "expires")),
    ] {
        let refused = world.post("operator", "/v1/agents/kilo/token", terms).await;
        assert_eq!(refused.status, status, "{}", refused.body);
        assert!(refused.body.to_string().contains(word), "{}", refused.body);
    }
    ask(&world, world.token("kilo")).await.is(200);
}
