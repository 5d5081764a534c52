//! A workspace that publishes an agent, with callers and workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lastword_a2a::{A2aSettings, Published};
use lastword_client::plain_http;
use lastword_server::{Config, Server};
use reqwest::{Client, Method, RequestBuilder, Response};
use serde_json::{Value, json};

/// How long a condition may take.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) http: Client,
    pub(crate) config: Config,
    tokens: BTreeMap<String, String>,
    next: AtomicU64,
    /// Removed after the server has ended.
    #[expect(dead_code, reason = "it is held")]
    dir: tempfile::TempDir,
}

/// Returns the edge that publishes these agents, and pushes to this machine.
pub(crate) fn edge(publish: &[&str]) -> lastword_server::Mount {
    let published = |name: &&str| Published { name: (*name).to_owned(), description: String::new() };
    lastword_a2a::mount(A2aSettings { publish: publish.iter().map(published).collect(), allow_private: true })
}

impl World {
    /// Starts a workspace that publishes `coder`, with the callers `caller` and `other`.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config { mounts: vec![edge(&["coder", "absent"])], ..Config::local(dir.path()) };
        change(&mut config);
        let server = Server::start(config.clone()).await.unwrap();
        let http = plain_http().unwrap();
        let mut world = Self { server, http, config, tokens: BTreeMap::new(), next: AtomicU64::new(1), dir };
        let operator = std::fs::read_to_string(world.server.operator_token_file()).unwrap();
        world.tokens.insert("operator".into(), operator.trim().into());
        for name in ["coder", "reviewer", "caller", "other"] {
            world.register(json!({ "name": name })).await;
        }
        world
    }

    pub(crate) async fn register(&mut self, agent: Value) {
        self.made("/v1/agents", agent).await;
    }

    pub(crate) async fn register_human(&mut self, name: &str) {
        self.made("/v1/humans", json!({ "name": name, "role": "approver" })).await;
    }

    async fn made(&mut self, path: &str, who: Value) {
        let made = self.api("operator", Method::POST, path, Some(who)).await;
        let text = |member: &str| made[member].as_str().unwrap().to_owned();
        self.tokens.insert(text("name"), text("token"));
    }

    /// Ends the server and starts it again on its directory.
    pub(crate) async fn restarted(mut self) -> Self {
        self.server.shutdown().await;
        self.server = Server::start(self.config.clone()).await.unwrap();
        self
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.addr())
    }

    pub(crate) fn token(&self, who: &str) -> &str {
        &self.tokens[who]
    }

    pub(crate) fn request(&self, who: &str, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, self.url(path)).bearer_auth(self.token(who))
    }

    /// Makes a call of the broker's own API, which succeeds.
    pub(crate) async fn api(&self, who: &str, method: Method, path: &str, body: Option<Value>) -> Value {
        let request = self.request(who, method, path);
        let response = match body {
            Some(body) => request.json(&body),
            None => request,
        };
        let response = response.send().await.unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// Takes the worker's next delivery.
    pub(crate) async fn take(&self, who: &str) -> Value {
        let taken = self.api(who, Method::GET, "/v1/inbox?wait=20s&turns=true", None).await;
        assert!(taken["turn"]["id"].is_string(), "nothing came: {taken}");
        taken
    }

    pub(crate) async fn finish(&self, who: &str, delivery: &Value, finish: Value) {
        let turn = delivery["turn"]["id"].as_str().unwrap();
        self.api(who, Method::POST, &format!("/v1/turns/{turn}/finish"), Some(finish)).await;
    }

    pub(crate) async fn note(&self, who: &str, delivery: &Value, note: &str) {
        let turn = delivery["turn"]["id"].as_str().unwrap();
        let path = format!("/v1/turns/{turn}/progress");
        self.api(who, Method::POST, &path, Some(json!({ "note": note }))).await;
    }

    /// Sends a request of JSON-RPC to the published agent.
    pub(crate) async fn rpc_response(&self, who: &str, method: &str, params: Value) -> Response {
        let body = json!({ "jsonrpc": "2.0", "id": "call", "method": method, "params": params });
        let request = self.request(who, Method::POST, "/a2a/coder/").header("A2A-Version", "1.0");
        request.json(&body).send().await.unwrap()
    }

    pub(crate) async fn rpc(&self, who: &str, method: &str, params: Value) -> Result<Value, Value> {
        let mut answer: Value = self.rpc_response(who, method, params).await.json().await.unwrap();
        assert_eq!((&answer["jsonrpc"], &answer["id"]), (&json!("2.0"), &json!("call")));
        match answer.get_mut("error") {
            Some(error) => Err(error.take()),
            None => Ok(answer["result"].take()),
        }
    }

    /// Makes a call of HTTP+JSON.
    pub(crate) async fn rest(&self, who: &str, method: Method, path: &str, body: Option<Value>) -> (u16, Value) {
        let request = self.request(who, method, &format!("/a2a/coder/{path}")).header("A2A-Version", "1.0");
        let request = match body {
            Some(body) => request.header("content-type", "application/a2a+json").body(body.to_string()),
            None => request,
        };
        let response = request.send().await.unwrap();
        let status = response.status().as_u16();
        (status, serde_json::from_str(&response.text().await.unwrap()).unwrap_or(Value::Null))
    }

    /// Returns a message of the caller that no other has the id of.
    pub(crate) fn message(&self, text: &str) -> Value {
        let id = format!("message-{}", self.next.fetch_add(1, Ordering::Relaxed));
        json!({ "messageId": id, "role": "ROLE_USER", "parts": [{ "text": text }] })
    }

    /// Sends a message and returns the task at once.
    pub(crate) async fn sent(&self, who: &str, message: Value) -> Value {
        let params = json!({ "message": message, "configuration": { "returnImmediately": true } });
        self.rpc(who, "SendMessage", params).await.unwrap()["task"].take()
    }

    pub(crate) async fn task(&self, who: &str, id: &Value) -> Value {
        self.rpc(who, "GetTask", json!({ "id": id })).await.unwrap()
    }

    /// Opens a stream by JSON-RPC.
    pub(crate) async fn stream(&self, who: &str, method: &str, params: Value) -> Stream {
        let response = self.rpc_response(who, method, params).await;
        let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
        assert!(kind.starts_with("text/event-stream"), "{kind}: {}", response.text().await.unwrap());
        Stream { response, bytes: Vec::new() }
    }
}

/// A stream of events.
pub(crate) struct Stream {
    response: Response,
    bytes: Vec<u8>,
}

impl Stream {
    pub(crate) const fn of(response: Response) -> Self {
        Self { response, bytes: Vec::new() }
    }

    /// Returns the next event; `None` at the end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(SOON, self.event()).await.expect("an event comes")
    }

    async fn event(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.bytes.drain(..end + 2).collect();
                let text = String::from_utf8(event).unwrap();
                if let Some(data) = text.trim().strip_prefix("data:") {
                    let mut value: Value = serde_json::from_str(data).unwrap();
                    return Some(if value["result"].is_null() { value } else { value["result"].take() });
                }
                continue;
            }
            match self.response.chunk().await.unwrap() {
                Some(chunk) => self.bytes.extend_from_slice(&chunk),
                None => return None,
            }
        }
    }

    /// Returns all events that are left.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

/// Returns the state that an event or a task tells of.
pub(crate) fn state(value: &Value) -> &str {
    let places = [&value["status"], &value["task"]["status"], &value["statusUpdate"]["status"]];
    places.iter().find_map(|status| status["state"].as_str()).unwrap_or("none")
}

/// Waits until a condition holds.
pub(crate) async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(SOON, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    waited.await.expect("the condition holds in time");
}
