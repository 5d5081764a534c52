//! A test server, and clients of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use lastword_facts::Limits;
use lastword_mcp::Remote;
use lastword_server::{Config, Server};
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

/// A server on a directory of its own, its human, and its agents' tokens.
pub(crate) struct World {
    pub(crate) server: Server,
    /// Removed after the server has ended.
    pub(crate) dir: tempfile::TempDir,
    pub(crate) http: Client,
    tokens: BTreeMap<String, String>,
}

impl World {
    /// Starts a server with these agents.
    pub(crate) async fn with(agents: &[&str]) -> Self {
        Self::within(Limits::default(), agents).await
    }

    /// Starts a server with these limits.
    pub(crate) async fn within(limits: Limits, agents: &[&str]) -> Self {
        Self::set(agents, |config| config.settings.limits = limits).await
    }

    /// Starts a server with changed settings.
    pub(crate) async fn set(agents: &[&str], change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = configured(dir.path());
        change(&mut config);
        let server = Server::start(config).await.unwrap();
        let mut world = Self { dir, server, http: http(), tokens: BTreeMap::new() };
        let operator = std::fs::read_to_string(world.server.operator_token_file()).unwrap();
        world.tokens.insert("operator".into(), operator.trim().into());
        for name in agents {
            world.register(json!({ "name": name })).await;
        }
        world
    }

    /// Registers an agent and keeps its token.
    pub(crate) async fn register(&mut self, agent: Value) -> Value {
        self.register_as("operator", agent).await
    }

    /// Registers an agent on behalf of another human.
    pub(crate) async fn register_as(&mut self, human: &str, agent: Value) -> Value {
        let token = self.post(human, "/v1/agents", agent).await.is(201);
        self.tokens.insert(token["name"].as_str().unwrap().into(), token["token"].as_str().unwrap().into());
        token
    }

    /// Registers a human with a role and keeps the token.
    pub(crate) async fn register_human(&mut self, name: &str, role: &str) {
        let token = self.post("operator", "/v1/humans", json!({ "name": name, "role": role })).await.is(201);
        self.tokens.insert(name.into(), token["token"].as_str().unwrap().into());
    }

    /// Stops the server and starts another one on the same directory.
    pub(crate) async fn restart(mut self) -> Self {
        self.server.shutdown().await;
        self.server = start(self.dir.path()).await;
        self
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.server.addr())
    }

    pub(crate) fn token(&self, who: &str) -> &str {
        &self.tokens[who]
    }

    pub(crate) fn request(&self, who: &str, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, self.url(path)).bearer_auth(self.token(who))
    }

    pub(crate) async fn get(&self, who: &str, path: &str) -> Answer {
        Answer::of(self.request(who, Method::GET, path).send().await.unwrap()).await
    }

    pub(crate) async fn post(&self, who: &str, path: &str, body: Value) -> Answer {
        Answer::of(self.request(who, Method::POST, path).json(&body).send().await.unwrap()).await
    }

    pub(crate) async fn send(&self, who: &str, to: &str, reference: &str, body: &str) -> Answer {
        let envelope = json!({ "type": "request", "to": to, "ref": reference, "body": body });
        self.post(who, "/v1/messages", envelope).await
    }

    /// Takes the next delivery, which has to arrive within 20 s.
    pub(crate) async fn take(&self, who: &str) -> Value {
        self.get(who, "/v1/inbox?wait=20s&turns=true").await.is(200)
    }

    pub(crate) async fn finish(&self, who: &str, delivery: &Value, answer: &str) -> Answer {
        let turn = delivery["turn"]["id"].as_str().unwrap();
        self.post(who, &format!("/v1/turns/{turn}/finish"), json!({ "answer": answer })).await
    }
}

/// Returns the configuration of a server with all edges.
pub(crate) fn configured(dir: &Path) -> Config {
    Config { mounts: vec![lastword_mcp::mount()], pages: lastword_console::pages(), ..Config::local(dir) }
}

async fn start(dir: &Path) -> Server {
    Server::start(configured(dir)).await.unwrap()
}

/// Returns a client for `http://`.
pub(crate) fn http() -> Client {
    http_builder().build().unwrap()
}

/// Returns what `lastword mcp` calls this server with.
pub(crate) fn remote(url: &str, token: &str) -> Remote {
    let token = lastword_client::Token::new(token).unwrap();
    let client = lastword_client::Client::new(&lastword_client::Endpoint::new(url), Some(token)).unwrap();
    Remote::new(client)
}

/// Returns a builder of clients for `http://`: no provider of TLS is installed for the whole process, so each client is
/// given one.
pub(crate) fn http_builder() -> reqwest::ClientBuilder {
    let tls = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let tls = tls.with_safe_default_protocol_versions().unwrap();
    let tls = tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    Client::builder().tls_backend_preconfigured(tls)
}

/// Brings kilo and hive to where they have had one exchange on T-1, in kilo's turn with hive's answer.
pub(crate) async fn at_the_cap_of(world: World) -> (World, Value) {
    world.send("operator", "kilo", "T-1", "write it").await.is(201);
    let task = world.take("kilo").await;
    world.send("kilo", "hive", "T-1", "review it").await.is(201);
    world.finish("kilo", &task, "asked hive").await.is(200);
    let review = world.take("hive").await;
    world.finish("hive", &review, "two remarks").await.is(200);
    let answer = world.take("kilo").await;
    (world, answer)
}

/// Returns the text of a member, for example of `id`.
pub(crate) fn id<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

/// The status, headers and body of a response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        let text = response.text().await.unwrap();
        Self { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
    }

    /// Returns the body after checking the status.
    #[track_caller]
    pub(crate) fn is(self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", self.body);
        self.body
    }

    /// Checks a refusal; returns its problem.
    #[track_caller]
    pub(crate) fn refused(self, status: u16, code: &str) -> Value {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.body);
        let problem = self.is(status);
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["hint"].as_str().is_some_and(|hint| hint.ends_with('.')), "{problem}");
        problem
    }
}
