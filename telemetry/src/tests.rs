//! The exporter against a receiver: over sockets, from the calls of a team to the spans.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use axum::response::AppendHeaders;
use axum::routing::post;
use lastword_facts::{Seq, Time, TraceContext};
use lastword_server::trace::Traces;
use lastword_server::{Config, Server, http_client};
use prost::Message as _;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::sync::watch;
use tracing_subscriber::layer::SubscriberExt as _;

use crate::counts::Counts;
use crate::logs::{LogRecord, LogsData};
use crate::metrics::{Data, Metric, MetricsData};
use crate::otlp::{self, KeyValue};
use crate::{ExportSettings, LogLayer, Signal, check, companion, headers};

const SOON: Duration = Duration::from_secs(30);
const FOREIGN: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

/// The parts of OTLP that are read, as `opentelemetry-proto` numbers them: spans are sent in an encoding of our own.
#[derive(Clone, PartialEq, prost::Message)]
struct TracesData {
    #[prost(message, repeated, tag = "1")]
    resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, repeated, tag = "2")]
    scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "11")]
    events: Vec<otlp::SpanEvent>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<otlp::Status>,
    #[prost(fixed32, tag = "16")]
    flags: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

/// A receiver of OTLP, which answers posts of spans with a status.
struct Receiver {
    endpoint: String,
    status: Arc<AtomicU16>,
    spans: Arc<Mutex<Vec<Span>>>,
    metrics: watch::Sender<MetricsData>,
    logs: Arc<Mutex<Vec<LogRecord>>>,
    posts: watch::Sender<usize>,
}

impl Receiver {
    async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/base/", listener.local_addr().unwrap());
        let (status, spans) = (Arc::new(AtomicU16::new(200)), Arc::new(Mutex::new(Vec::new())));
        let posts = watch::Sender::new(0);
        let (answer, taken, counted) = (Arc::clone(&status), Arc::clone(&spans), posts.clone());
        let take = move |headers: HeaderMap, body: Bytes| {
            assert_eq!(headers["content-type"], "application/x-protobuf");
            assert_eq!(headers["api-key"], "s3cret");
            let status = answer.load(Ordering::SeqCst);
            if status == 200 {
                let data = TracesData::decode(body).unwrap();
                let scopes = data.resource_spans.into_iter().flat_map(|of| of.scope_spans);
                taken.lock().unwrap().extend(scopes.flat_map(|scope| scope.spans));
            }
            counted.send_modify(|count| *count += 1);
            let asks = (status == 429).then_some(("retry-after", "1"));
            std::future::ready((StatusCode::from_u16(status).unwrap(), AppendHeaders(asks)))
        };
        let (metrics, logs) = (watch::Sender::new(MetricsData::default()), Arc::new(Mutex::new(Vec::new())));
        let (newest, logged) = (metrics.clone(), Arc::clone(&logs));
        let take_metrics = move |body: Bytes| {
            newest.send_replace(MetricsData::decode(body).unwrap());
            std::future::ready(StatusCode::OK)
        };
        let take_logs = move |body: Bytes| {
            let scopes = LogsData::decode(body).unwrap().resource_logs.into_iter().flat_map(|of| of.scope_logs);
            logged.lock().unwrap().extend(scopes.flat_map(|scope| scope.records));
            std::future::ready(StatusCode::OK)
        };
        let routes = Router::new()
            .route("/base/v1/traces", post(take))
            .route("/base/v1/metrics", post(take_metrics))
            .route("/base/v1/logs", post(take_logs));
        #[allow(clippy::disallowed_methods, reason = "it ends with the test")]
        drop(tokio::spawn(async move { axum::serve(listener, routes).await }));
        Self { endpoint, status, spans, metrics, logs, posts }
    }

    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Returns how many posts have come.
    fn count(&self) -> usize {
        *self.posts.borrow()
    }

    /// Waits until so many posts have come.
    async fn posts(&self, wanted: usize) {
        let mut posts = self.posts.subscribe();
        tokio::time::timeout(SOON, posts.wait_for(|count| *count >= wanted)).await.unwrap().unwrap();
    }

    /// Waits until so many spans have come.
    async fn spans(&self, count: usize) -> Vec<Span> {
        let mut posts = self.posts.subscribe();
        loop {
            let spans = self.spans.lock().unwrap().clone();
            if spans.len() >= count {
                return spans;
            }
            let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
            let more = tokio::time::timeout(SOON, posts.changed()).await;
            assert!(more.is_ok(), "{count} spans never came; there are {names:?}");
        }
    }
}

/// A workspace that exports.
struct Team {
    server: Server,
    config: Config,
    http: Client,
    tokens: BTreeMap<String, String>,
    _dir: tempfile::TempDir,
}

impl Team {
    async fn start(receiver: &Receiver, include_text: bool) -> Self {
        // The log is that of the process, with all tests: one of them exports it.
        Self::exporting(receiver, include_text, &[Signal::Traces, Signal::Metrics]).await
    }

    async fn exporting(receiver: &Receiver, include_text: bool, signals: &[Signal]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config::local(dir.path());
        let headers = vec![("api-key".to_owned(), "s3cret".to_owned())];
        config.settings.traces =
            Traces { share: Some(1.0), address: Some("https://traces.example/{trace}".to_owned()) };
        config.settings.companions = vec![companion(ExportSettings {
            endpoint: receiver.endpoint.clone(),
            headers,
            signals: signals.to_vec(),
            metrics_every: Duration::from_millis(100),
            include_text,
        })];
        let server = Server::start(config.clone()).await.unwrap();
        let operator = std::fs::read_to_string(server.operator_token_file()).unwrap().trim().to_owned();
        let tokens = BTreeMap::from([("operator".to_owned(), operator)]);
        let http = http_client(false, SOON).unwrap();
        let mut team = Self { server, config, http, tokens, _dir: dir };
        for name in ["planner", "coder"] {
            let made = team.call("operator", Method::POST, "/v1/agents", None, Some(json!({ "name": name }))).await;
            team.tokens.insert(name.to_owned(), made["token"].as_str().unwrap().to_owned());
        }
        team
    }

    async fn restarted(mut self) -> Self {
        self.server.shutdown().await;
        self.server = Server::start(self.config.clone()).await.unwrap();
        self
    }

    /// Makes a call in a turn, or outside of one; returns its answer, also a refusal.
    async fn call(&self, who: &str, method: Method, path: &str, turn: Option<&Value>, body: Option<Value>) -> Value {
        let url = format!("http://{}{path}", self.server.addr());
        let mut request = self.http.request(method, url).bearer_auth(&self.tokens[who]);
        if let Some(turn) = turn {
            request = request.header("lastword-turn", turn["token"].as_str().unwrap());
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        let bytes = request.send().await.unwrap().bytes().await.unwrap();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    async fn asks(&self, who: &str, turn: Option<&Value>, to: &str, more: Value) -> Value {
        let mut body = json!({ "type": "request", "to": to, "body": "secret words" });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.call(who, Method::POST, "/v1/messages", turn, Some(body)).await
    }

    /// Takes a delivery; returns its turn.
    async fn takes(&self, who: &str) -> Value {
        self.call(who, Method::GET, "/v1/inbox?wait=20s", None, None).await["turn"].clone()
    }

    async fn finishes(&self, who: &str, turn: &Value, finish: Value) {
        let path = format!("/v1/turns/{}/finish", turn["id"].as_str().unwrap());
        let finished = self.call(who, Method::POST, &path, Some(turn), Some(finish)).await;
        assert!(finished.get("code").is_none(), "{finished}");
    }
}

fn text(span: &Span, key: &str) -> Option<String> {
    let value = span.attributes.iter().find(|attribute| attribute.key == key)?.value.clone()?.value?;
    Some(match value {
        otlp::Value::Text(text) => text,
        otlp::Value::Count(count) => count.to_string(),
    })
}

/// Returns the spans as a tree, each with the names of those above it.
fn tree(spans: &[Span]) -> Vec<String> {
    let by_id: BTreeMap<Vec<u8>, Span> = spans.iter().map(|span| (span.span_id.clone(), span.clone())).collect();
    assert_eq!(by_id.len(), spans.len(), "no span comes twice");
    let mut paths = Vec::new();
    for span in spans {
        let (mut path, mut above) = (span.name.clone(), by_id.get(&span.parent_span_id));
        while let Some(span) = above {
            path = format!("{} > {path}", span.name);
            above = by_id.get(&span.parent_span_id);
        }
        paths.push(path);
    }
    paths.sort();
    paths
}

#[tokio::test]
async fn a_team_is_one_trace_from_the_humans_word_to_the_last_answer() {
    let receiver = Receiver::start().await;
    let team = Team::start(&receiver, false).await;
    let asked = json!({ "type": "request", "to": "planner", "body": "secret words", "ref": "T-1" }).to_string();
    let request = team.http.post(format!("http://{}/v1/messages", team.server.addr()));
    let request = request.bearer_auth(&team.tokens["operator"]).header("traceparent", FOREIGN);
    let sent: Value =
        serde_json::from_slice(&request.body(asked).send().await.unwrap().bytes().await.unwrap()).unwrap();
    assert_eq!(sent["metadata"]["traceparent"], FOREIGN, "{sent}");
    let planning = team.takes("planner").await;
    let context = TraceContext::parse(planning["traceparent"].as_str().unwrap()).unwrap();
    let foreign = TraceContext::parse(FOREIGN).unwrap();
    assert_eq!((context.trace, context.sampled), (foreign.trace, true), "the trace of the asker goes on");
    let refused = team.asks("planner", Some(&planning), "planner", json!({})).await;
    assert_eq!(refused["code"], "self_send", "{refused}");
    team.asks("planner", Some(&planning), "coder", json!({})).await;
    team.finishes("planner", &planning, json!({ "status": "waiting" })).await;
    let coding = team.takes("coder").await;
    let held = json!({ "tool": "deploy", "arguments": { "where": "secret place" } });
    let held = team.call("coder", Method::POST, "/v1/approvals", Some(&coding), Some(held)).await;
    let path = format!("/v1/approvals/{}/decision", held["id"].as_str().unwrap());
    let decided = team.call(
        "operator",
        Method::POST,
        &path,
        None,
        Some(json!({ "decision": "approve", "digest": held["digest"] })),
    );
    assert_eq!(decided.await["state"], "approved");
    let usage = json!({ "input_tokens": 7, "output_tokens": 3, "models": [{ "model": "m-1", "tokens": 10 }] });
    team.finishes("coder", &coding, json!({ "answer": "secret answer", "usage": usage })).await;
    let again = team.takes("planner").await;
    team.finishes("planner", &again, json!({ "answer": "secret answer" })).await;

    let spans = receiver.spans(8).await;
    assert_eq!(
        tree(&spans),
        [
            "send planner",
            "send planner > process planner",
            "send planner > process planner",
            "send planner > process planner > send coder",
            "send planner > process planner > send coder > process coder",
            "send planner > process planner > send coder > process coder > approval deploy",
            "send planner > process planner > send coder > process coder > send planner",
            "send planner > process planner > send operator",
        ]
    );
    assert!(spans.iter().all(|span| span.trace_id == foreign.trace), "one trace");
    let root = spans.iter().find(|span| span.parent_span_id == foreign.parent).unwrap();
    assert_eq!((&*root.name, root.kind), ("send planner", otlp::PRODUCER));
    assert_eq!(text(root, "messaging.system").as_deref(), Some("lastword"));
    assert_eq!(text(root, "gen_ai.conversation.id").as_deref(), Some("T-1"));
    assert_eq!(text(root, "lastword.status").as_deref(), Some("completed"));
    let coder = spans.iter().find(|span| span.name == "process coder").unwrap();
    assert_eq!(coder.kind, otlp::CONSUMER);
    assert_eq!(text(coder, "lastword.usage.tokens").as_deref(), Some("10"));
    assert_eq!(text(coder, "gen_ai.response.model").as_deref(), Some("m-1"));
    let asked = spans.iter().find(|span| span.name == "send coder").unwrap();
    assert_eq!(coder.links[0].span_id, asked.span_id, "linked to its request");
    let turns: Vec<&Span> = spans.iter().filter(|span| span.name == "process planner").collect();
    let first = turns.iter().find(|span| span.span_id == context.parent).unwrap();
    assert_eq!((first.events.len(), &*first.events[0].name), (1, "refused"));
    let answer = spans.iter().find(|span| span.name == "send planner" && span.parent_span_id == coder.span_id).unwrap();
    let second = turns.iter().find(|span| span.span_id != context.parent).unwrap();
    assert_eq!(second.links[0].span_id, answer.span_id, "linked to the answer that it works on");
    let approval = spans.iter().find(|span| span.name == "approval deploy").unwrap();
    assert_eq!(text(approval, "lastword.by").as_deref(), Some("operator"));
    let all = format!("{spans:?}");
    assert!(!all.contains("secret"), "no text leaves: {all}");
    team.server.shutdown().await;
}

#[tokio::test]
async fn text_leaves_where_it_is_configured() {
    let receiver = Receiver::start().await;
    let team = Team::start(&receiver, true).await;
    team.asks("operator", None, "coder", json!({ "ref": "T-1" })).await;
    let turn = team.takes("coder").await;
    team.finishes("coder", &turn, json!({ "answer": "an answer" })).await;
    let spans = receiver.spans(3).await;
    let texts: Vec<String> = spans.iter().filter_map(|span| text(span, "lastword.body")).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    let view = team.call("operator", Method::GET, "/v1/conversations/T-1", None, None).await;
    let trace = u128::from_be_bytes(*spans[0].trace_id.first_chunk().unwrap());
    assert_eq!(view["grants"][0]["trace"], format!("{trace:032x}"), "{view}");
    assert_eq!(view["grants"][0]["trace_url"], format!("https://traces.example/{trace:032x}"));
    assert!(texts.contains(&"secret words".to_owned()) && texts.contains(&"an answer".to_owned()), "{texts:?}");
    team.server.shutdown().await;
}

#[tokio::test]
async fn nothing_is_lost_and_nothing_comes_twice_over_refusals_and_restarts() {
    let receiver = Receiver::start().await;
    let mut team = Team::start(&receiver, false).await;
    team.asks("operator", None, "coder", json!({ "ref": "T-1" })).await;
    let turn = team.takes("coder").await;
    team.asks("operator", None, "planner", json!({ "ref": "T-2" })).await;
    // What is open goes on after a restart, with its events.
    let refused = team.asks("coder", Some(&turn), "coder", json!({})).await;
    assert_eq!(refused["code"], "self_send");
    team = team.restarted().await;
    receiver.answers(503);
    let before = receiver.count();
    team.finishes("coder", &turn, json!({ "answer": "one" })).await;
    receiver.posts(before + 2).await;
    // Ended while it tries: the position is that of before.
    team = team.restarted().await;
    let before = receiver.count();
    let second = team.takes("planner").await;
    team.finishes("planner", &second, json!({ "answer": "two" })).await;
    receiver.posts(before + 1).await;
    receiver.answers(200);
    let spans = receiver.spans(6).await;
    assert_eq!(
        tree(&spans),
        [
            "send coder",
            "send coder > process coder",
            "send coder > process coder > send operator",
            "send planner",
            "send planner > process planner",
            "send planner > process planner > send operator",
        ]
    );
    let coder = spans.iter().find(|span| span.name == "process coder").unwrap();
    assert_eq!(coder.events.len(), 1, "the refusal before the restart");
    // A receiver that refuses for good stops nothing.
    receiver.answers(400);
    let before = receiver.count();
    team.asks("operator", None, "coder", json!({ "ref": "T-3" })).await;
    let turn = team.takes("coder").await;
    team.finishes("coder", &turn, json!({ "answer": "three" })).await;
    receiver.posts(before + 1).await;
    receiver.answers(200);
    team.asks("operator", None, "coder", json!({ "ref": "T-4" })).await;
    let turn = team.takes("coder").await;
    team.finishes("coder", &turn, json!({ "answer": "four" })).await;
    let later = receiver.spans(9).await.split_off(6);
    let refused = |span: &Span| text(span, "gen_ai.conversation.id").as_deref() == Some("T-3");
    assert!(!later.iter().any(refused), "what was refused for good isn't sent again");
    team.server.shutdown().await;
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_pause_gets_it_and_then_everything() {
    let receiver = Receiver::start().await;
    let team = Team::start(&receiver, false).await;
    receiver.answers(429);
    for reference in ["T-1", "T-2", "T-3"] {
        team.asks("operator", None, "coder", json!({ "ref": reference })).await;
        let turn = team.takes("coder").await;
        team.finishes("coder", &turn, json!({ "answer": "done" })).await;
    }
    receiver.posts(1).await;
    let begin = lastword_broker::clock::Stopwatch::start();
    receiver.posts(2).await;
    assert!(begin.elapsed() > Duration::from_millis(900), "it asked for a second: {:?}", begin.elapsed());
    receiver.answers(200);
    let spans = receiver.spans(9).await;
    assert_eq!(tree(&spans).len(), 9, "each once");
    team.server.shutdown().await;
}

/// Waits for metrics that have what is wanted.
async fn metric(receiver: &Receiver, name: &str, wanted: impl Fn(&Metric) -> bool) -> Metric {
    let find = |data: &MetricsData| {
        let mut all = data.resource_metrics.iter().flat_map(|of| &of.scope_metrics).flat_map(|of| &of.metrics);
        all.find(|metric| metric.name == name && wanted(metric)).cloned()
    };
    let mut metrics = receiver.metrics.subscribe();
    let found = tokio::time::timeout(SOON, metrics.wait_for(|data| find(data).is_some())).await;
    find(&found.unwrap_or_else(|_| panic!("{name} never came")).unwrap()).unwrap()
}

#[tokio::test]
async fn metrics_and_the_log_are_exported_and_exemplars_lead_to_traces() {
    let receiver = Receiver::start().await;
    let log = tracing_subscriber::registry().with(LogLayer);
    // Nothing else in this process wants the log.
    tracing::subscriber::set_global_default(log).unwrap();
    let team = Team::exporting(&receiver, false, &Signal::ALL).await;
    team.asks("operator", None, "coder", json!({ "ref": "T-1" })).await;
    let turn = team.takes("coder").await;
    tracing::warn!(target: "elsewhere", turn = 7, "something is odd");
    team.finishes("coder", &turn, json!({ "answer": "secret answer" })).await;
    let spans = receiver.spans(3).await;
    let request = spans.iter().find(|span| span.name == "send coder").unwrap();

    let span_of = |metric: &Metric| match &metric.data {
        Some(Data::Histogram(took)) => {
            let sent =
                took.points.iter().find(|point| point.attributes[0].value == otlp::attribute("", "send").value)?;
            let seen = sent.exemplars.first()?;
            Some((sent.count, seen.span_id.clone(), seen.trace_id.clone()))
        }
        _ => None,
    };
    let took = metric(&receiver, "lastword.span", |metric| span_of(metric).is_some()).await;
    assert_eq!(took.unit, "s");
    assert_eq!(span_of(&took).unwrap(), (1, request.span_id.clone(), request.trace_id.clone()));
    let accepted = metric(&receiver, "lastword.messages_accepted", |_| true).await;
    assert!(matches!(accepted.data, Some(Data::Sum(sum)) if sum.is_monotonic), "a counter");

    let shown = async |accept: &str| {
        let request = team.http.get(format!("http://{}/metrics", team.server.addr())).header("accept", accept);
        let shown = request.send().await.unwrap();
        (shown.headers()["content-type"].to_str().unwrap().to_owned(), shown.text().await.unwrap())
    };
    let (kind, text) = shown("application/openmetrics-text;version=1.0.0,text/plain;q=0.5").await;
    assert!(kind.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"), "{kind}");
    let trace = u128::from_be_bytes(*request.trace_id.first_chunk().unwrap());
    assert!(text.contains(&format!("# {{trace_id=\"{trace:032x}\"")), "{text}");
    // The receiver has them before the exporter knows.
    let counted = async || loop {
        let (kind, text) = shown("*/*").await;
        if text.contains("lastword_telemetry_exported_total{signal=\"traces\"} 3\n") {
            return (kind, text);
        }
    };
    let (kind, text) = tokio::time::timeout(SOON, counted()).await.unwrap();
    assert!(kind.starts_with("text/plain") && !text.contains("trace_id"), "{kind}: {text}");
    assert!(text.contains("lastword_telemetry_behind_facts 0\n"), "{text}");

    let odd = async || loop {
        let logs = receiver.logs.lock().unwrap().clone();
        let odd = logs.into_iter().find(|record| format!("{:?}", record.body).contains("something is odd"));
        match odd {
            Some(odd) => return odd,
            None => tokio::task::yield_now().await,
        }
    };
    let odd = tokio::time::timeout(SOON, odd()).await.unwrap();
    assert_eq!((odd.severity_number, &*odd.severity_text), (13, "WARN"));
    assert!(odd.attributes.contains(&otlp::attribute("turn", "7")), "{odd:?}");
    let logged = format!("{:?}", receiver.logs.lock().unwrap());
    assert!(!logged.contains("secret"), "no text leaves: {logged}");
    team.server.shutdown().await;
}

#[tokio::test]
async fn a_receiver_is_tried_before_it_is_trusted() {
    let receiver = Receiver::start().await;
    let settings = ExportSettings {
        endpoint: receiver.endpoint.clone(),
        headers: vec![("api-key".to_owned(), "s3cret".to_owned())],
        signals: Signal::ALL.to_vec(),
        metrics_every: SOON,
        include_text: false,
    };
    assert_eq!(check(settings.clone()).await, Ok(()));
    receiver.answers(401);
    assert_eq!(check(settings.clone()).await, Err("traces: 401 Unauthorized".to_owned()));
    // What isn't exported isn't tried.
    assert_eq!(check(ExportSettings { signals: vec![Signal::Metrics], ..settings }).await, Ok(()));
}

#[test]
fn the_document_lists_every_metric_of_the_exporter() {
    let document = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/telemetry.md")).unwrap();
    let listed = document.lines().filter_map(|line| line.strip_prefix("| `lastword_"));
    let listed: Vec<&str> = listed.filter_map(|line| line.split('`').next()).collect();
    let families = Counts::new(Some(watch::channel(Seq(0)).1)).families();
    let counted: Vec<&str> = families.iter().map(|family| &family.name["lastword_".len()..]).collect();
    assert_eq!(listed, counted);
}

#[test]
fn headers_are_read_and_none_is_shown() {
    let two = [("api-key".to_owned(), "s3cret=".to_owned()), ("x".to_owned(), "1".to_owned())];
    assert_eq!(headers(" Api-Key = s3cret= ,x=1\n").unwrap(), two);
    let wrong = headers("a=1,s3cret").unwrap_err();
    assert_eq!(wrong, "header 2 isn't of the form name=value");
}

#[test]
fn a_span_keeps_what_another_encoder_wrote() {
    let known = Span {
        trace_id: vec![1; 16],
        span_id: vec![2; 8],
        parent_span_id: vec![3; 8],
        name: "send coder".to_owned(),
        kind: otlp::PRODUCER,
        start_time_unix_nano: 7_000_000,
        attributes: vec![otlp::attribute("lastword.type", "request"), otlp::attribute("lastword.depth", 300_u64)],
        links: vec![Link { trace_id: vec![4; 16], span_id: vec![5; 8] }],
        flags: 1,
        ..Span::default()
    };
    let mut own = otlp::Span::begin(&[1; 16], [2; 8], &[3; 8], otlp::PRODUCER, Time(7));
    own.name("send coder");
    own.set("lastword.type", "request");
    own.set("lastword.depth", 300_u64);
    own.link(&[4; 16], [5; 8]);
    assert_eq!(own.head(), Some(([1; 16], [2; 8], 7_000_000)));
    assert_eq!(Span::decode(&*own.encode_to_vec()).unwrap(), known);
    // As version 0.2.0 saved it: with the fields in the order of their tags.
    let saved = otlp::Span::decode(&*known.encode_to_vec()).unwrap();
    let ended = Span { end_time_unix_nano: 8_000_000, ..known };
    assert_eq!(Span::decode(&*saved.ended(Time(8)).encode_to_vec()).unwrap(), ended);
    assert_eq!(Span::decode(&*own.ended(Time(6)).encode_to_vec()).unwrap().end_time_unix_nano, 7_000_000);
}
