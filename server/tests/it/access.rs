//! Authentication and authorization: tokens and permissions.

use lastword_facts::{Entry, Fact};
use lastword_server::{Config, Server};
use lastword_store::DataDir;
use reqwest::Method;
use serde_json::json;

use crate::world::{Answer, World, http, id};

#[tokio::test]
async fn nobody_is_anonymous_and_a_wrong_token_is_refused() {
    let world = World::with(&["kilo"]).await;
    for token in ["", "lw_0", "operator"] {
        let request = world.http.get(world.url("/v1/agents")).bearer_auth(token);
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.headers["www-authenticate"], "Bearer");
        answer.refused(401, "unauthenticated");
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json", "/schema/message.json"] {
        assert!(http().get(world.url(path)).send().await.unwrap().status().is_success(), "{path}");
    }
}

#[tokio::test]
async fn agents_can_not_do_what_only_humans_may() {
    let world = World::with(&["kilo"]).await;
    world.send("kilo", "operator", "T-1", "hello").await.is(201);
    for (path, body) in [
        ("/v1/agents", json!({"name": "spy"})),
        ("/v1/agents/kilo/token", json!({})),
        ("/v1/agents/kilo/resume", json!({})),
        ("/v1/workspace/stop", json!({})),
        ("/v1/conversations/T-1/resume", json!({})),
        ("/v1/conversations/T-1/grant", json!({"messages": 99})),
        ("/v1/rooms", json!({"name": "den"})),
        ("/v1/escalations/esc-1/answer", json!({"answer": "yes"})),
    ] {
        world.post("kilo", path, body).await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn a_turn_token_is_nobody_elses() {
    let world = World::with(&["kilo", "hive"]).await;
    world.send("operator", "kilo", "T-1", "x").await.is(201);
    let task = world.take("kilo").await;
    let stolen = world.request("hive", Method::GET, "/v1/inbox").header("lastword-turn", id(&task["turn"], "token"));
    Answer::of(stolen.send().await.unwrap()).await.refused(403, "forbidden");
    let turn = id(&task["turn"], "id");
    let finish = world.post("hive", &format!("/v1/turns/{turn}/finish"), json!({"answer": "mine"})).await;
    assert!(finish.status.is_client_error(), "{}", finish.body);
}

#[tokio::test]
async fn a_new_token_ends_the_old_one_and_a_removed_agent_is_gone() {
    let world = World::with(&["kilo"]).await;
    let token = world.post("operator", "/v1/agents/kilo/token", json!({})).await.is(201);
    assert_eq!(token["incarnation"], 1);
    world.get("kilo", "/v1/inbox").await.refused(401, "unauthenticated");
    world.post("operator", "/v1/agents", json!({"name": "kilo"})).await.refused(409, "name_taken");
    world.request("operator", Method::DELETE, "/v1/agents/kilo").send().await.unwrap().error_for_status().unwrap();
    let new = world.http.get(world.url("/v1/inbox")).bearer_auth(id(&token, "token"));
    Answer::of(new.send().await.unwrap()).await.refused(401, "unauthenticated");
    let again = world.post("operator", "/v1/agents", json!({"name": "kilo"})).await.is(201);
    assert_eq!(again["incarnation"], 2);
}

#[tokio::test]
async fn another_site_can_not_call() {
    let world = World::with(&[]).await;
    for (name, value) in [("host", "evil.example"), ("origin", "https://evil.example"), ("origin", "null")] {
        let request = world.request("operator", Method::POST, "/v1/workspace/stop").header(name, value);
        Answer::of(request.send().await.unwrap()).await.refused(403, "forbidden");
        let request = world.request("operator", Method::POST, "/mcp").header(name, value);
        Answer::of(request.send().await.unwrap()).await.refused(403, "forbidden");
    }
}

#[tokio::test]
async fn a_stop_holds_at_once_and_a_patch_changes_who_serves() {
    let world = World::with(&["kilo"]).await;
    let patch = world.request("operator", Method::PATCH, "/v1/agents/kilo").json(&json!({"actions": ["review"]}));
    assert_eq!(Answer::of(patch.send().await.unwrap()).await.is(200)["actions"][0], "review");
    let sent = world.send("operator", "#review", "T-1", "x").await.is(201);
    assert_eq!(sent["to"], "kilo");
    world.post("operator", "/v1/agents/kilo/stop", json!({})).await.is(204);
    world.get("kilo", "/v1/inbox").await.refused(409, "stopped");
}

#[tokio::test]
async fn a_server_whose_broker_panicked_is_not_ready_and_says_why_it_ends() {
    let world = World::with(&[]).await;
    assert!(world.server.handle().query(|_live| panic!("a bug")).await.is_err());
    let ready = world.http.get(world.url("/readyz")).send().await.unwrap();
    assert_eq!(ready.status(), 503);
    let failed = world.server.failed().await;
    assert!(failed.bug && failed.reason.contains("a bug"), "{failed:?}");
    world.get("operator", "/v1/agents").await.is(503);
    world.server.shutdown().await;
}

#[tokio::test]
async fn the_last_human_stays_and_a_workspace_without_one_gets_one_at_the_next_start() {
    let mut world = World::with(&[]).await;
    let last = world.request("operator", Method::DELETE, "/v1/agents/operator").send().await.unwrap();
    Answer::of(last).await.refused(403, "forbidden");
    world.register(json!({"name": "second", "kind": "human"})).await;
    let first = world.request("second", Method::DELETE, "/v1/agents/operator").send().await.unwrap();
    assert!(first.status().is_success());
    world.register_as("second", json!({"name": "operator"})).await;
    let (second, now) = {
        let look = |live: &lastword_broker::Live<'_>| (live.state.live("second").unwrap(), live.now());
        world.server.handle().query(look).await.unwrap()
    };
    // A log from an edition in which the last human could still be removed.
    let World { dir, server, .. } = world;
    server.shutdown().await;
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let (epoch, last) = (log.begin_epoch().unwrap(), log.reader().last().unwrap());
    let removed = Entry { at: now, grant: None, fact: Fact::Removed { agent: second } };
    log.append(epoch, last, &[removed.into()]).unwrap();
    drop(log);

    let server = Server::start(Config::local(dir.path())).await.unwrap();
    let token = std::fs::read_to_string(server.operator_token_file()).unwrap();
    let principal = server.handle().prove(token.trim()).unwrap();
    assert!(principal.is_human());
    let name = move |live: &lastword_broker::Live<'_>| live.state.name_of(principal.agent()).to_owned();
    assert_eq!(server.handle().query(name).await.unwrap(), "operator-2", "an agent has the usual name");
}

#[tokio::test]
async fn a_dropped_server_ends_its_broker_and_frees_its_directory() {
    let World { server, dir, .. } = World::with(&["kilo"]).await;
    assert!(DataDir::at(dir.path()).lock().is_err(), "the broker holds it");
    drop(server);
    DataDir::at(dir.path()).lock().unwrap();
}
