//! Two workspaces that ask each other in a circle.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use axum::routing::any;
use lastword_client::plain_http;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::partner::{forward, run};
use crate::world::World;

/// A proxy that passes everything on to another server, but no header and no metadata that says where a request came
/// from.
async fn stripping(to: String, running: &mut JoinSet<()>) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = format!("http://{}", listener.local_addr().unwrap());
    let (http, from) = (Arc::new(plain_http().unwrap()), own.clone());
    let pass = async move |request: Request| {
        let (http, to, from) = (Arc::clone(&http), to.clone(), from.clone());
        let (parts, body) = request.into_parts();
        let bytes = axum::body::to_bytes(body, 1 << 20).await.unwrap();
        let mut sent = http.request(parts.method, format!("{to}{}", parts.uri));
        for name in ["authorization", "content-type", "a2a-version", "accept"] {
            if let Some(value) = parts.headers.get(name) {
                sent = sent.header(name, value);
            }
        }
        let bytes = match serde_json::from_slice::<Value>(&bytes) {
            Ok(mut body) => {
                if let Some(message) = body["params"]["message"].as_object_mut() {
                    message.remove("metadata");
                    message.remove("extensions");
                }
                Bytes::from(body.to_string())
            }
            Err(_) => bytes,
        };
        let response = sent.body(bytes).send().await.unwrap();
        let kind = response.headers().get("content-type").cloned();
        let is_card = parts.uri.path().ends_with(".json");
        let (status, mut answer) = (response.status(), Response::builder());
        if let Some(kind) = kind {
            answer = answer.header("content-type", kind);
        }
        // Its own address stands in the card.
        let body = if is_card {
            Body::from(response.text().await.unwrap().replace(&to, &from))
        } else {
            Body::from_stream(response.bytes_stream())
        };
        answer.status(status).body(body).unwrap()
    };
    let routes = axum::Router::new().fallback(any(pass));
    running.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    own
}

/// Counts the admitted requests of a workspace to an agent.
async fn requests(world: &World, to: &str) -> usize {
    let path = format!("/v1/messages?type=request&to={to}&limit=500");
    world.api("operator", Method::GET, &path, None).await["items"].as_array().unwrap().len()
}

/// Starts two workspaces whose `coder` asks `partner`, which is the other's `coder`. A human asks the first one; returns
/// how many requests each admitted to its coder, and the answer.
async fn circle(strips: bool) -> ([usize; 2], Value) {
    let (mut a, mut b) = (World::new().await, World::new().await);
    let mut running = JoinSet::new();
    for world in [&mut a, &mut b] {
        world.register(json!({ "name": "partner", "turns_max": 32 })).await;
    }
    let dir = tempfile::tempdir().unwrap();
    let tokens = [("a", &a), ("b", &b)].map(|(name, world)| {
        let path = dir.path().join(name);
        std::fs::write(&path, world.token("caller")).unwrap();
        path
    });
    let mut addresses = [a.url(""), b.url("")];
    if strips {
        for address in &mut addresses {
            *address = stripping(address.clone(), &mut running).await;
        }
    }
    run(&a, &format!("{}/a2a/coder/", addresses[1]), Some(&tokens[1]), &mut running);
    run(&b, &format!("{}/a2a/coder/", addresses[0]), Some(&tokens[0]), &mut running);
    forward(&a, &mut running);
    forward(&b, &mut running);
    let ask = json!({ "type": "request", "to": "coder", "ref": "CIRCLE-1", "body": "Who does this?" });
    let answered = a.api("operator", Method::POST, "/v1/messages?wait=60s", Some(ask)).await;
    let counts = [requests(&a, "coder").await, requests(&b, "coder").await];
    running.shutdown().await;
    (counts, answered)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_extension_stops_a_circle_at_its_first_return() {
    let (counts, answered) = circle(false).await;
    assert_eq!(counts, [1, 1], "the human's, and the one that it caused at the other: {answered}");
    let body = answered["response"]["body"].as_str().unwrap();
    assert!(body.contains("caused by an agent of this workspace"), "{body}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_whose_traces_are_stripped_ends_at_the_allowance_of_roots() {
    let (counts, answered) = circle(true).await;
    // Ten roots an hour for the one caller that each workspace knows, and the human's.
    assert_eq!(counts, [11, 10], "{answered}");
    let body = answered["response"]["body"].as_str().unwrap();
    // The rate of one agent to another may be met first; the counts are the same.
    assert!(body.contains("allowance") || body.contains("pair_rate"), "{body}");
}
