//! `lastword mcp`: a model calls while it waits, what it cancels takes nothing, and a server that is killed costs it nothing.

use std::process::Stdio;
use std::time::Duration;

use lastword_client::SendTerms;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::crash::{client, human};
use crate::program::{Server, lastword};
use crate::session_clients::{added, envelope, runtime};

/// A wait that only a fault reaches.
const LATE: Duration = Duration::from_secs(60);

/// `lastword mcp` as a client of MCP starts it.
struct Model {
    child: Child,
    stdin: ChildStdin,
    stdout: Lines<BufReader<ChildStdout>>,
    /// What was read while another answer was awaited.
    early: Vec<Value>,
}

impl Model {
    async fn start(server: &Server, url: &str, token: &str) -> Self {
        let mut command = lastword(server.path());
        command.args(["mcp", "--url", url]).env("LASTWORD_TOKEN", token);
        let mut child = Command::from(command).stdin(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut model = Self { child, stdin, stdout, early: Vec::new() };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        model.ask(0, "initialize", hello).await;
        assert_eq!(model.answer(0).await["serverInfo"]["name"], "lastword");
        model.say(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        model
    }

    async fn say(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, id: u64, method: &str, params: Value) {
        self.say(json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await;
    }

    async fn call(&mut self, id: u64, tool: &str, arguments: Value) {
        self.ask(id, "tools/call", json!({ "name": tool, "arguments": arguments })).await;
    }

    async fn called(&mut self, id: u64, tool: &str, arguments: Value) -> Value {
        self.call(id, tool, arguments).await;
        self.answer(id).await["structuredContent"].clone()
    }

    async fn heard(&mut self, is: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&is) {
            return self.early.remove(at);
        }
        loop {
            let line = timeout(LATE, self.stdout.next_line()).await.expect("nothing came").unwrap();
            let message: Value = serde_json::from_str(&line.expect("it ended")).unwrap();
            if is(&message) {
                return message;
            }
            self.early.push(message);
        }
    }

    async fn answer(&mut self, id: u64) -> Value {
        let answer = self.heard(|message| message["id"] == id).await;
        assert_eq!(answer["error"], Value::Null, "{answer}");
        answer["result"].clone()
    }

    async fn end(self) {
        let Self { mut child, stdin, stdout, .. } = self;
        drop((stdin, stdout));
        assert!(timeout(LATE, child.wait()).await.unwrap().unwrap().success());
    }
}

#[test]
fn a_model_calls_tools_while_it_waits_and_is_told_of_its_inbox() {
    let server = Server::start();
    runtime().block_on(async {
        let human = human(&server);
        let mut kilo = Model::start(&server, human.url(), &added(&human, "kilo").await).await;
        kilo.ask(1, "resources/subscribe", json!({ "uri": "lastword://inbox" })).await;
        kilo.answer(1).await;
        kilo.call(2, "next_message", json!({ "wait_ms": 300_000 })).await;
        kilo.ask(3, "tools/list", json!({})).await;
        assert!(kilo.answer(3).await["tools"].as_array().unwrap().len() >= 6);
        for id in 4..8 {
            let agents = kilo.called(id, "list_agents", json!({})).await;
            assert_eq!(agents["items"].as_array().unwrap().len(), 2, "{agents}");
        }
        kilo.ask(8, "resources/read", json!({ "uri": "lastword://limits" })).await;
        assert!(kilo.answer(8).await["contents"].is_array());
        let refused = kilo
            .called(9, "send_agent_message", json!({ "target_agent_id": "kilo", "message": "x", "ref": "A-1" }))
            .await;
        assert_eq!(refused["code"], "self_send");
        human.send(&envelope("kilo", "k-1"), &SendTerms::default()).await.unwrap();
        assert_eq!(kilo.answer(2).await["structuredContent"]["message"]["body"], "k-1");
        // The waiting call takes the first message before the subscription can report it.
        human.send(&envelope("kilo", "k-2"), &SendTerms::default()).await.unwrap();
        kilo.heard(|message| message["method"] == "notifications/resources/updated").await;
        let finished = kilo.called(10, "finish_turn", json!({ "answer": "done" })).await;
        assert_eq!(finished["code"], Value::Null, "{finished}");
        assert_eq!(human.request_state("k-1").await.unwrap().response.unwrap().body, "done");
        kilo.end().await;
    });
    assert_eq!(server.terminate().0, 0);
}

#[test]
fn a_wait_that_a_model_cancels_ends_at_the_server_and_takes_nothing() {
    let server = Server::start();
    runtime().block_on(async {
        let human = human(&server);
        let mut kilo = Model::start(&server, human.url(), &added(&human, "kilo").await).await;
        let connected = async |wanted: bool| {
            let waited = async {
                while human.agent("kilo").await.unwrap().connected != wanted {
                    tokio::task::yield_now().await;
                }
            };
            timeout(LATE, waited).await.expect("the wait has not begun or not ended");
        };
        kilo.call(1, "next_message", json!({ "wait_ms": 300_000 })).await;
        connected(true).await;
        kilo.say(json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 1 } })).await;
        connected(false).await;
        human.send(&envelope("kilo", "k-1"), &SendTerms::default()).await.unwrap();
        assert_eq!(
            human.request_state("k-1").await.unwrap().queue_position,
            Some(0),
            "the cancelled wait takes nothing"
        );
        let delivery = kilo.called(2, "next_message", json!({})).await;
        assert_eq!(delivery["message"]["body"], "k-1", "{delivery}");
        kilo.called(3, "finish_turn", json!({ "answer": "done" })).await;
        // Cancelled while the delivery may be on its way.
        for n in 1..20_u64 {
            kilo.call(10 * n, "next_message", json!({ "wait_ms": 300_000 })).await;
            let cancel =
                json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 10 * n } });
            let (request, terms) = (envelope("kilo", &format!("n-{n}")), SendTerms::default());
            let (sent, ()) = tokio::join!(human.send(&request, &terms), kilo.say(cancel));
            sent.unwrap();
            let delivery = kilo.called(10 * n + 1, "next_message", json!({})).await;
            assert_eq!(delivery["message"]["body"], format!("n-{n}"), "{delivery}");
            kilo.called(10 * n + 2, "finish_turn", json!({ "answer": "done" })).await;
        }
        kilo.end().await;
    });
    assert_eq!(server.terminate().0, 0);
}

#[test]
fn a_client_that_is_killed_leaves_its_delivery_to_the_next_one() {
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("lastword.toml"), "[limits]\nholder_ms = 1000\n").unwrap();
    let server = Server::start_in(data);
    runtime().block_on(async {
        let human = human(&server);
        let token = added(&human, "kilo").await;
        let mut first = Model::start(&server, human.url(), &token).await;
        human.send(&envelope("kilo", "k-1"), &SendTerms::default()).await.unwrap();
        let taken = first.called(1, "next_message", json!({ "wait_ms": 0 })).await;
        assert_eq!(taken["message"]["body"], "k-1");
        let mut second = Model::start(&server, human.url(), &token).await;
        let other = second.called(1, "next_message", json!({ "wait_ms": 3_000 })).await;
        assert_eq!(other["message"], Value::Null, "it is held");
        first.child.kill().await.unwrap();
        let again = second.called(2, "next_message", json!({ "wait_ms": 60_000 })).await;
        assert_eq!(again["message"]["body"], "k-1", "{again}");
        second.called(3, "finish_turn", json!({ "answer": "done" })).await;
        assert_eq!(human.request_state("k-1").await.unwrap().response.unwrap().body, "done");
        second.end().await;
    });
    assert_eq!(server.terminate().0, 0);
}

#[test]
fn a_server_that_is_killed_while_a_model_waits_loses_and_repeats_nothing() {
    let server = Server::start();
    runtime().block_on(async {
        let url = human(&server).url().to_owned();
        let port = url.rsplit_once(':').unwrap().1.to_owned();
        let token = added(&human(&server), "kilo").await;
        let mut kilo = Model::start(&server, &url, &token).await;
        kilo.ask(1, "resources/subscribe", json!({ "uri": "lastword://inbox" })).await;
        kilo.answer(1).await;
        kilo.call(2, "next_message", json!({ "wait_ms": 300_000 })).await;
        let waits = async {
            while !human(&server).agent("kilo").await.unwrap().connected {
                tokio::task::yield_now().await;
            }
        };
        timeout(LATE, waits).await.expect("it does not wait");
        let server = Server::start_with(server.kill(), &["--listen", &format!("127.0.0.1:{port}")]);
        let human = human(&server);
        human.send(&envelope("kilo", "k-1"), &SendTerms::default()).await.unwrap();
        assert_eq!(kilo.answer(2).await["structuredContent"]["message"]["body"], "k-1", "it still waits");
        human.send(&envelope("kilo", "k-2"), &SendTerms::default()).await.unwrap();
        kilo.heard(|message| message["method"] == "notifications/resources/updated").await;
        let again = kilo.called(3, "next_message", json!({ "wait_ms": 0 })).await;
        assert_eq!(again["message"]["body"], "k-1", "a delivery of an open turn is given again");
        kilo.called(4, "finish_turn", json!({ "answer": "done" })).await;
        let state = human.request_state("k-1").await.unwrap();
        assert_eq!((state.attempts, state.response.unwrap().body.as_str()), (1, "done"));
        let next = kilo.called(5, "next_message", json!({ "wait_ms": 0 })).await;
        assert_eq!(next["message"]["body"], "k-2", "{next}");
        kilo.called(6, "finish_turn", json!({ "answer": "done" })).await;
        assert_eq!(kilo.called(7, "next_message", json!({ "wait_ms": 0 })).await["message"], Value::Null);
        kilo.end().await;
        assert_eq!(server.terminate().0, 0);
    });
}

#[test]
fn a_call_whose_outcome_is_not_known_says_so_and_is_not_made_again() {
    let server = Server::start();
    runtime().block_on(async {
        let human = human(&server);
        let (url, port) = (human.url().to_owned(), human.url().rsplit_once(':').unwrap().1.to_owned());
        let hive = client(&server, &added(&human, "hive").await);
        let mut kilo = Model::start(&server, &url, &added(&human, "kilo").await).await;
        human.send(&envelope("kilo", "k-1"), &SendTerms::default()).await.unwrap();
        kilo.called(1, "next_message", json!({})).await;
        kilo.call(2, "send_agent_message", json!({ "target_agent_id": "hive", "message": "half", "wait": true })).await;
        let asked = timeout(LATE, hive.inbox(LATE)).await.expect("nothing came").unwrap().unwrap();
        assert_eq!(asked.message.body, "half");
        let server = Server::start_with(server.kill(), &["--listen", &format!("127.0.0.1:{port}")]);
        let failed = kilo.heard(|message| message["id"] == 2).await;
        let told = failed["error"]["message"].as_str().unwrap();
        assert!(told.contains("may have been carried out"), "{failed}");
        let tree = kilo.called(3, "get_conversation", json!({ "ref": "WORK-k-1" })).await;
        assert_eq!(tree.to_string().matches("\"half\"").count(), 1, "{tree}");
        kilo.end().await;
        assert_eq!(server.terminate().0, 0);
    });
}
