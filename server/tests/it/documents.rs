//! The documents that describe the API match those in the repository. `UPDATE=1` rewrites them.

use std::fs;
use std::path::Path;

use lastword_server::edges::http::{message_schema, openapi};
use reqwest::Method;
use serde_json::Value;

use crate::world::{Answer, World};

fn check(name: &str, now: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, now).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == now, "{} is out of date: run this test with UPDATE=1", path.display());
}

#[test]
fn the_documents_are_up_to_date() {
    check("openapi.json", &openapi());
    check("message.schema.json", &message_schema());
}

#[tokio::test]
async fn every_call_of_the_document_is_there_and_wants_a_token() {
    let world = World::with(&[]).await;
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    for (path, calls) in document["paths"].as_object().unwrap() {
        for method in calls.as_object().unwrap().keys() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let url = world.url(&path.replace(['{', '}'], ""));
            let answer = Answer::of(world.http.request(method, &url).send().await.unwrap()).await;
            answer.refused(401, "unauthenticated");
            let answer = Answer::of(world.http.request(Method::PUT, &url).send().await.unwrap()).await;
            assert_eq!(answer.status, 405, "{url}");
        }
    }
}

#[test]
fn every_call_is_in_the_document_for_users() {
    let http = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/http.md")).unwrap();
    let document: Value = serde_json::from_str(&openapi()).unwrap();
    for (path, calls) in document["paths"].as_object().unwrap() {
        for method in calls.as_object().unwrap().keys() {
            let call = format!("`{} {}`", method.to_uppercase(), path.trim_start_matches("/v1"));
            assert!(http.contains(&call), "docs/http.md has no {call}");
        }
    }
}
