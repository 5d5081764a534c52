//! What a human does makes the same facts on every edge.

use lastword_client::wire::{DecideApproval, EscalationAnswer, Extend};
use lastword_client::{Client, Endpoint, SendTerms, Target, Token};
use lastword_facts::fact::Decision;
use lastword_facts::{Fact, Seq};
use lastword_server::edges::EDGES;
use lastword_store::DataDir;
use reqwest::Method;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::world::{Answer, World, id};

/// The human at one edge.
enum Human<'a> {
    /// HTTP or a session.
    Client(Client),
    /// Over MCP a model can only decide in a human's name; the rest is done over HTTP.
    Mcp(Client, &'a World),
    Console(Browser<'a>),
}

impl<'a> Human<'a> {
    async fn at(edge: &str, world: &'a World) -> Self {
        let token = Token::new(world.token("operator")).unwrap();
        let client = Client::new(&Endpoint::new(&world.url("")), Some(token)).unwrap();
        match edge {
            "http" => Self::Client(client),
            "session" => Self::Client(client.over_session()),
            "mcp" => Self::Mcp(client, world),
            "console" => Self::Console(Browser::signed_in(world).await),
            other => panic!("{other} has no human: give it one"),
        }
    }

    async fn ask(&self, to: &str, reference: &str, body: &str) {
        match self {
            Self::Client(client) | Self::Mcp(client, _) => {
                let envelope = json!({ "type": "request", "to": to, "ref": reference, "body": body });
                client.send(&serde_json::from_value(envelope).unwrap(), &SendTerms::default()).await.unwrap();
            }
            Self::Console(browser) => {
                browser.post("/compose", &[("to", to), ("reference", reference), ("body", body)]).await.is(200);
            }
        }
    }

    async fn answer(&self, escalation: &str, text: &str) {
        match self {
            Self::Client(client) => {
                let answer = EscalationAnswer { answer: text.into(), lift: None };
                client.answer_escalation(escalation, &answer).await.unwrap();
            }
            Self::Mcp(_, world) => {
                tool(world, "answer_escalation", json!({ "escalation_id": escalation, "answer": text })).await;
            }
            Self::Console(browser) => {
                browser.post(&format!("/escalations/{escalation}/answer"), &[("answer", text)]).await.is(200);
            }
        }
    }

    async fn decide(&self, held: &Value, decision: Decision) {
        let (approval, digest) = (id(held, "id"), id(held, "digest"));
        match self {
            Self::Client(client) => {
                let decision = DecideApproval { decision, comment: None, input: None, digest: Some(digest.into()) };
                client.decide(approval, &decision).await.unwrap();
            }
            Self::Mcp(_, world) => {
                let told = json!({ "approval_id": approval, "decision": decision.word(), "digest": digest });
                tool(world, "resolve_agent_approval", told).await;
            }
            Self::Console(browser) => {
                let path = format!("/approvals/{approval}/{}", decision.word());
                browser.post(&path, &[("digest", digest)]).await.is(200);
            }
        }
    }

    /// Pauses and resumes an agent and a conversation, gives more, and stops the conversation.
    async fn control(&self, agent: &str, reference: &str) {
        match self {
            Self::Client(client) | Self::Mcp(client, _) => {
                for target in [Target::Agent(agent), Target::Conversation(reference)] {
                    client.pause(target).await.unwrap();
                    client.resume(target).await.unwrap();
                }
                client.grant(reference, &Extend { messages: 9, ..Extend::default() }).await.unwrap();
                client.stop(Target::Conversation(reference)).await.unwrap();
            }
            Self::Console(browser) => {
                for target in [format!("/agents/{agent}"), format!("/conversations/{reference}")] {
                    browser.post(&format!("{target}/pause"), &[]).await.is(200);
                    browser.post(&format!("{target}/resume"), &[]).await.is(200);
                }
                browser.post(&format!("/conversations/{reference}/grant"), &[("messages", "9")]).await.is(200);
                browser.post(&format!("/conversations/{reference}/stop"), &[]).await.is(200);
            }
        }
    }
}

async fn tool(world: &World, name: &str, arguments: Value) {
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": { "name": name, "arguments": arguments } });
    let request = world.request("operator", Method::POST, "/mcp").header("lastword-as-human", "yes");
    let request = request.header("accept", "application/json, text/event-stream").json(&call);
    let told = Answer::of(request.send().await.unwrap()).await.is(200);
    assert!(told["result"]["isError"] != true && told["error"].is_null(), "{told}");
}

/// Plays a piece of work with everything that a human does in it; returns its facts without times and token hashes.
async fn played(edge: &str) -> Vec<String> {
    let world = World::with(&["kilo"]).await;
    let human = Human::at(edge, &world).await;
    human.ask("kilo", "W-1", "deploy").await;
    let task = world.take("kilo").await;
    let asked = world.post("kilo", "/v1/escalations", json!({ "message": "eu or us?" })).await.is(201);
    world.finish("kilo", &task, "waiting").await.is(200);
    human.answer(id(&asked, "id"), "eu").await;
    let task = world.take("kilo").await;
    assert_eq!(task["message"]["body"], "eu", "{edge}");
    for (number, decision) in [(1, Decision::Approve), (2, Decision::Reject)] {
        let held = json!({ "tool": "deploy", "arguments": { "number": number } });
        let held = world.post("kilo", "/v1/approvals", held).await.is(201);
        human.decide(&held, decision).await;
    }
    human.control("kilo", "W-1").await;
    drop(human);
    world.server.shutdown().await;
    let log = DataDir::at(world.dir.path()).open_reader().unwrap().read(Seq(1), usize::MAX).unwrap();
    let facts = log.into_iter().map(|(_, entry)| entry);
    // That a human signed in, or holds a session, is the edge's own.
    let facts = facts.filter(|entry| !matches!(entry.fact, Fact::HumanActed { .. } | Fact::Registered(_)));
    facts.map(|entry| without_times(&format!("{:?} {:?}", entry.grant, entry.fact))).collect()
}

/// Removes every number of more than nine digits: times, fingerprints.
fn without_times(text: &str) -> String {
    let parts = text.split_inclusive(|c: char| !c.is_ascii_digit());
    parts.map(|part| if part.trim_end_matches(|c: char| !c.is_ascii_digit()).len() > 9 { "…" } else { part }).collect()
}

#[tokio::test]
async fn the_edges_agree_about_what_a_human_does() {
    let first = played(EDGES[0]).await;
    for part in ["\"eu\"", "ApprovalDecided", "GrantExtended", "Controlled"] {
        assert!(first.iter().any(|fact| fact.contains(part)), "no {part}: {first:#?}");
    }
    // A2A refuses every human.
    for edge in EDGES[1..].iter().filter(|edge| **edge != "a2a") {
        assert_eq!(played(edge).await, first, "{edge}");
    }
}
