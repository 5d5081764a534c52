//! An agent of one workspace that is an agent of another: the runner with the driver for A2A.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use lastword_broker::clock::Stopwatch;
use lastword_client::Endpoint;
use lastword_programs::{Driver, EventSink, Input, Prices, Restart, Runner, Settings, Stopping, UsageSource};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::world::World;

/// Returns the settings of a runner for the agent at an address, with a token for it.
pub(crate) fn settings(address: &str, token: Option<&PathBuf>) -> Settings {
    Settings {
        driver: Driver::A2a,
        program: address.into(),
        args: Vec::new(),
        env: BTreeMap::new(),
        cwd: "/".into(),
        input: Input::Message,
        usage: UsageSource::Text,
        prices: Prices::default(),
        concurrency: 32,
        deadline: Duration::from_secs(60),
        grace: Duration::from_millis(200),
        progress: Duration::from_millis(100),
        restart: Restart::Always,
        backoff: Duration::from_millis(100),
        allow: Vec::new(),
        unheld: false,
        remote_token: token.cloned(),
        lastword: "lastword".into(),
    }
}

/// Runs `partner` of a workspace as the agent at an address, until the set is dropped.
pub(crate) fn run(world: &World, address: &str, token: Option<&PathBuf>, running: &mut JoinSet<()>) {
    let (settings, url, own) = (settings(address, token), world.url(""), world.token("partner").to_owned());
    running.spawn(async move {
        let (endpoint, stopping) = (Endpoint::new(&url), Stopping::default());
        let runner = Runner::start(settings, &endpoint, &own, &stopping, EventSink::new(|_| {})).await.unwrap();
        runner.run().await.unwrap();
    });
}

/// Serves `coder` of a workspace: it asks `partner` for everything, and passes the answer on.
pub(crate) fn forward(world: &World, running: &mut JoinSet<()>) {
    let (http, url, token) = (world.http.clone(), world.url(""), world.token("coder").to_owned());
    running.spawn(async move {
        let call = async |method: Method, path: &str, turn: Option<&str>, body: Option<Value>| -> Option<Value> {
            let mut request = http.request(method, format!("{url}{path}")).bearer_auth(&token);
            if let Some(turn) = turn {
                request = request.header("lastword-turn", turn);
            }
            if let Some(body) = body {
                request = request.json(&body);
            }
            serde_json::from_str(&request.send().await.ok()?.text().await.ok()?).ok()
        };
        loop {
            let taken = call(Method::GET, "/v1/inbox?wait=5s&turns=true", None, None).await;
            let Some(delivery) = taken.filter(|taken| taken["turn"]["id"].is_string()) else { continue };
            let (id, turn) = (delivery["turn"]["id"].as_str().unwrap(), delivery["turn"]["token"].as_str().unwrap());
            let finish = if delivery["message"]["type"] == "request" {
                let ask = json!({ "type": "request", "to": "partner", "body": delivery["message"]["body"] });
                let asked = call(Method::POST, "/v1/messages", Some(turn), Some(ask)).await.unwrap_or_default();
                match asked["code"].as_str() {
                    None => json!({ "answer": "", "status": "waiting" }),
                    Some(code) => json!({ "answer": "", "status": "failed", "reason": code }),
                }
            } else {
                let said = [&delivery["message"]["body"], &delivery["message"]["reason"]];
                let said = said.map(|text| text.as_str().unwrap_or_default()).concat();
                json!({ "answer": format!("It said: {said}") })
            };
            call(Method::POST, &format!("/v1/turns/{id}/finish"), None, Some(finish)).await;
        }
    });
}

/// An agent elsewhere that gives these answers to its calls, one after the other.
pub(crate) struct Scripted {
    pub(crate) url: String,
    /// When each call came, since its start.
    pub(crate) calls: Arc<Mutex<Vec<Duration>>>,
}

/// Serves an agent whose answers are a status, a `Retry-After` and a body, until the set is dropped.
pub(crate) async fn scripted(answers: Vec<(u16, &'static str, Value)>, running: &mut JoinSet<()>) -> Scripted {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let interface = json!({ "url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0" });
    let card = json!({ "name": "scripted", "supportedInterfaces": [interface] });
    let (calls, begun) = (Arc::new(Mutex::new(Vec::new())), Stopwatch::start());
    let (heard, answers) = (Arc::clone(&calls), Arc::new(Mutex::new(VecDeque::from(answers))));
    let call = post(async move || {
        heard.lock().unwrap().push(begun.elapsed());
        let (status, later, body) = answers.lock().unwrap().pop_front().expect("no more calls");
        (StatusCode::from_u16(status).unwrap(), [("retry-after", later)], Json(body))
    });
    let app = Router::new().route("/.well-known/agent-card.json", get(async || Json(card))).route("/", call);
    running.spawn(async move { axum::serve(listener, app).await.unwrap() });
    Scripted { url, calls }
}
