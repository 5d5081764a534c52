//! Every call of the OpenAPI document is served and documented, and a server may have nothing else.

use std::fs;
use std::path::Path;

use lastword_server::Pages;
use lastword_server::edges::http::OPENAPI;
use reqwest::Method;
use serde_json::Value;

use crate::world::{Answer, World};

#[tokio::test]
async fn every_call_of_the_document_is_there_and_wants_a_token() {
    let world = World::with(&[]).await;
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    for (path, calls) in document["paths"].as_object().unwrap() {
        for method in calls.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let url = world.url(&path.replace(['{', '}'], ""));
            let answer = Answer::of(world.http.request(method, &url).send().await.unwrap()).await;
            if path == "/v1/sign-in" {
                // By it one gets a token; this server has no provider for it.
                answer.refused(404, "unknown_request");
            } else {
                answer.refused(401, "unauthenticated");
            }
            let answer = Answer::of(world.http.request(Method::PUT, &url).send().await.unwrap()).await;
            assert_eq!(answer.status, 405, "{url}");
        }
    }
}

#[tokio::test]
async fn a_server_without_pages_tells_a_browser_what_it_tells_a_program() {
    let world = World::set(&[], |config| config.pages = Pages::default()).await;
    let ask = async |method: Method, path: &str| {
        let request = world.http.request(method, world.url(path)).header("accept", "text/html");
        Answer::of(request.send().await.unwrap()).await
    };
    ask(Method::GET, "/inbox").await.refused(404, "unknown_request");
    ask(Method::POST, "/healthz").await.refused(405, "malformed");
}

#[test]
fn every_call_is_in_the_document_for_users() {
    let http = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/http.md")).unwrap();
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    for (path, calls) in document["paths"].as_object().unwrap() {
        for method in calls.as_object().unwrap().keys() {
            let call = format!("`{} {}`", method.to_uppercase(), path.trim_start_matches("/v1"));
            assert!(http.contains(&call), "docs/http.md has no {call}");
        }
    }
}
