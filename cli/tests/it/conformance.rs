//! The scenarios that all clients play, by the client for Rust: `sdk/conformance`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use lastword_client::wire::session::{SessionCall, Watch, WatchDeliveries};
use lastword_client::{ClientError, Endpoint, Pushed, Pushes, Session, Token};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::crash::human;
use crate::program::Server;
use crate::session_clients::{added, runtime};

/// A wait that only a fault reaches.
const LATE: Duration = Duration::from_secs(60);
/// The calls of the scenarios that only read.
const READS: [&str; 6] = ["message", "request", "approval", "escalation", "conversation", "agent"];

/// The status and the JSON of a reply.
type Replied = (u16, Value);

/// One who acts: its session, replaced when the broker was killed, and what is pushed into it.
struct Member {
    token: Token,
    is_agent: bool,
    session: watch::Sender<Session>,
    pushes: Pushes,
}

impl Member {
    async fn open(endpoint: &Endpoint, token: &str, is_agent: bool) -> Self {
        let token = Token::new(token).unwrap();
        let (session, pushes) = opened(endpoint, &token, is_agent).await;
        Self { token, is_agent, session: watch::Sender::new(session), pushes }
    }

    async fn open_again(&mut self, endpoint: &Endpoint) {
        let (session, pushes) = opened(endpoint, &self.token, self.is_agent).await;
        self.pushes = pushes;
        self.session.send_replace(session);
    }

    /// Returns the next push: a delivery, or the turn that is over.
    async fn pushed(&mut self) -> Value {
        match self.pushes.next().await.expect("the session lasts") {
            Pushed::Delivery(pushed) => serde_json::to_value(pushed.delivery).unwrap(),
            Pushed::Ended(over) => json!({ "ended": over.turn }),
            Pushed::Event(event) => panic!("no session watches events: {event:?}"),
        }
    }

    /// Makes the call of a step, again in the next session where that is safe.
    fn call(&self, step: &Value) -> JoinSet<Replied> {
        let text = |name: &str| step[name].as_str().map(|text| text.to_owned().into());
        let body = step.get("body").map(|body| RawValue::from_string(body.to_string()).unwrap());
        let call = SessionCall {
            id: 0,
            call: text("call").unwrap(),
            path: text("path"),
            query: step["query"].as_object().cloned().unwrap_or_default(),
            key: text("key"),
            turn: text("turn"),
            body: None,
        };
        let again = call.key.is_some() || READS.contains(&&*call.call);
        let mut sessions = self.session.subscribe();
        let mut calling = JoinSet::new();
        calling.spawn(async move {
            loop {
                let session = sessions.borrow_and_update().clone();
                match session.call(SessionCall { body: body.as_deref(), ..call.clone() }).await {
                    Ok(reply) => return (reply.status, serde_json::from_str(&reply.json).unwrap_or_default()),
                    Err(ClientError::Unreachable { .. }) if again => sessions.changed().await.unwrap(),
                    Err(error) => panic!("{error}"),
                }
            }
        });
        calling
    }
}

async fn opened(endpoint: &Endpoint, token: &Token, is_agent: bool) -> (Session, Pushes) {
    let (session, pushes) = Session::open(endpoint, token).await.unwrap();
    if is_agent {
        session.watch(&Watch { deliveries: Some(WatchDeliveries::default()), events: None }).await.unwrap();
    }
    (session, pushes)
}

struct Scenario {
    server: Option<Server>,
    endpoint: Endpoint,
    members: BTreeMap<String, Member>,
    known: BTreeMap<String, String>,
    started: BTreeMap<String, JoinSet<Replied>>,
}

impl Scenario {
    async fn begin(agents: &Value) -> Self {
        let server = Server::start();
        let endpoint = Endpoint::new(server.first_line["listening"].as_str().unwrap());
        let operator = fs::read_to_string(server.path().join(".lastword/operator.token")).unwrap();
        let mut members = BTreeMap::from([("operator".to_owned(), Member::open(&endpoint, &operator, false).await)]);
        for name in agents.as_array().unwrap().iter().map(|name| name.as_str().unwrap()) {
            let token = added(&human(&server), name).await;
            members.insert(name.to_owned(), Member::open(&endpoint, &token, true).await);
        }
        Self { server: Some(server), endpoint, members, known: BTreeMap::new(), started: BTreeMap::new() }
    }

    async fn play(&mut self, step: &Value) {
        let step = self.filled(step);
        if !step["kill"].is_null() {
            let address = self.endpoint.url().trim_start_matches("http://").to_owned();
            let dir = self.server.take().unwrap().kill();
            self.server = Some(Server::start_with(dir, &["--listen", &address]));
            for member in self.members.values_mut() {
                member.open_again(&self.endpoint).await;
            }
        } else if let Some(token) = step["refused"].as_str() {
            let refused = Session::open(&self.endpoint, &Token::new(token).unwrap()).await.unwrap_err();
            matches(&step["problem"], &serde_json::to_value(refused.problem().unwrap()).unwrap(), "");
        } else if let Some(name) = step["wait"].as_str() {
            let reply = self.started.remove(name).unwrap().join_next().await.unwrap().unwrap();
            self.ends(&step, reply);
        } else if !step["pushed"].is_null() {
            let pushed = self.member(&step).pushed().await;
            matches(&step["pushed"], &pushed, "");
            self.save(&step, &pushed);
        } else {
            let mut call = self.member(&step).call(&step);
            match step["start"].as_str() {
                Some(name) => drop(self.started.insert(name.to_owned(), call)),
                None => self.ends(&step, call.join_next().await.unwrap().unwrap()),
            }
        }
    }

    fn member(&mut self, step: &Value) -> &mut Member {
        self.members.get_mut(step["by"].as_str().unwrap()).unwrap()
    }

    fn ends(&mut self, step: &Value, (status, reply): Replied) {
        let Some(problem) = step.get("problem") else {
            assert!(status < 400, "refused: {reply}");
            if let Some(result) = step.get("result") {
                matches(result, &reply, "");
            }
            return self.save(step, &reply);
        };
        assert!(status >= 400, "not refused: {reply}");
        matches(problem, &reply, "");
    }

    fn save(&mut self, step: &Value, found: &Value) {
        for (name, path) in step["save"].as_object().into_iter().flatten() {
            let pointer = format!("/{}", path.as_str().unwrap().replace('.', "/"));
            let value =
                found.pointer(&pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("no {path} in {found}"));
            self.known.insert(name.clone(), value.to_owned());
        }
    }

    /// Returns a value with what was saved in place of its names.
    fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => {
                // The longer name first: one may begin with another.
                let mut names: Vec<&String> = self.known.keys().collect();
                names.sort_by_key(|name| std::cmp::Reverse(name.len()));
                let fill = |text: String, name: &String| text.replace(&format!("${name}"), &self.known[name]);
                json!(names.into_iter().fold(text.clone(), fill))
            }
            Value::Array(items) => items.iter().map(|item| self.filled(item)).collect(),
            Value::Object(members) => members.iter().map(|(name, item)| (name.clone(), self.filled(item))).collect(),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }
}

fn matches(wanted: &Value, found: &Value, at: &str) {
    match wanted {
        Value::String(any) if any == "*" => assert!(!found.is_null(), "nothing at {at}"),
        Value::Object(members) => {
            for (name, wanted) in members {
                matches(wanted, &found[name.as_str()], &format!("{at}.{name}"));
            }
        }
        Value::Array(items) => {
            assert_eq!(found.as_array().map(Vec::len), Some(items.len()), "{at}: {found}");
            items.iter().enumerate().for_each(|(n, item)| matches(item, &found[n], &format!("{at}[{n}]")));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => assert_eq!(found, wanted, "{at}"),
    }
}

#[test]
fn the_client_plays_every_scenario_of_the_conformance_suite() {
    let text = include_str!("../../../sdk/conformance/calls.json");
    let scenarios: Vec<Value> = serde_json::from_str(text).unwrap();
    runtime().block_on(async {
        for scenario in scenarios {
            let mut playing = Scenario::begin(&scenario["agents"]).await;
            for step in scenario["steps"].as_array().unwrap() {
                // The test's output says which step failed.
                println!("{}: {step}", scenario["name"]);
                timeout(LATE, playing.play(step)).await.expect("the step ends");
            }
        }
    });
}
