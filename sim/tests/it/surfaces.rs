//! The properties that every surface has: rogues get nowhere, and the same calls make the same facts.

use std::collections::BTreeSet;

use lastword_a2a::Published;
use lastword_client::{Client, Endpoint, Token};
use lastword_core::Core;
use lastword_facts::fact::Registered;
use lastword_facts::limits::Observed;
use lastword_facts::{Entry, Fact, Limits, Seq};
use lastword_mcp::{Remote, serve_pipe};
use lastword_server::edges::EDGES;
use lastword_server::{Config, Server, WorkspaceSettings};
use lastword_sim::edges::{A2a, Http, InSession, Mcp, Pipe, http};
use lastword_sim::rogue::{Call, Edge, Refused, Rogue, Tally, Turn};
use lastword_store::DataDir;
use lastword_witness::Witness;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::task::JoinSet;

/// A running server with agents.
struct Stage {
    server: Server,
    /// Removed after the server has ended.
    dir: tempfile::TempDir,
    tokens: Vec<(String, String)>,
}

impl Stage {
    async fn with(limits: Limits, agents: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = WorkspaceSettings { limits, ..WorkspaceSettings::default() };
        let publish = agents.iter().map(|name| Published { name: (*name).to_owned(), description: String::new() });
        let a2a = lastword_a2a::A2aSettings { publish: publish.collect(), allow_private: false };
        let (mounts, pages) = (vec![lastword_mcp::mount(), lastword_a2a::mount(a2a)], lastword_console::pages());
        let config = Config { settings, mounts, pages, ..Config::local(dir.path()) };
        let server = Server::start(config).await.unwrap();
        let operator = std::fs::read_to_string(server.operator_token_file()).unwrap().trim().to_owned();
        let mut stage = Self { dir, server, tokens: vec![("operator".into(), operator)] };
        for name in agents {
            let token = stage.human("/v1/agents", json!({ "name": name })).await["token"].clone();
            stage.tokens.push(((*name).into(), token.as_str().unwrap().into()));
        }
        stage
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.addr())
    }

    fn token(&self, who: &str) -> &str {
        &self.tokens.iter().find(|(name, _)| name == who).unwrap().1
    }

    async fn human(&self, path: &str, body: Value) -> Value {
        let request = http().post(format!("{}{path}", self.url())).bearer_auth(self.token("operator"));
        let response = request.json(&body).send().await.unwrap().error_for_status().unwrap();
        response.json().await.unwrap()
    }

    /// Sends a human's request. Returns its id.
    async fn asks(&self, to: &str, reference: &str) -> String {
        let envelope = json!({ "type": "request", "to": to, "ref": reference, "body": "please" });
        self.human("/v1/messages", envelope).await["request_id"].as_str().unwrap().to_owned()
    }

    /// Returns a pipe to the running server, like that of `lastword mcp`; it is served until its end is dropped.
    async fn pipe(&self, who: &str, serving: &mut JoinSet<()>) -> Pipe<DuplexStream> {
        let remote = Remote::new(
            Client::new(&Endpoint::new(&self.url()), Some(Token::new(self.token(who)).unwrap()))
                .unwrap()
                .over_session(),
        );
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (read, write) = tokio::io::split(theirs);
        serving.spawn(async move { drop(serve_pipe(remote, read, write).await) });
        Pipe::open(ours).await.unwrap()
    }

    /// Ends the server. Returns its log.
    async fn end(self) -> Vec<(Seq, Entry)> {
        self.server.shutdown().await;
        let log = DataDir::at(self.dir.path()).open_reader().unwrap();
        log.read(Seq(1), usize::MAX).unwrap()
    }
}

async fn in_session(url: &str, token: &str) -> InSession {
    InSession::open(url, token).await.unwrap()
}

/// Runs two rogues over this surface. Returns their results.
async fn campaign<E: Edge>(stage: &Stage, a: &E, b: &E) -> Tally {
    let mut tally = Tally::default();
    // A third agent has work that neither of them has a part in.
    let others = stage.asks("carol", "SECRET-1").await;
    for n in 0..4 {
        stage.asks("alice", &format!("WORK-{n}")).await;
    }
    let (mut alice, mut bob) = (Rogue::new(a, "bob"), Rogue::new(b, "alice"));
    // The two thank each other for ever: each round finishes the last one's turns.
    for round in 0..200 {
        let (first, second) = (alice.thanks(round).await, bob.thanks(round).await);
        if !first && !second {
            break;
        }
        assert!(round < 199, "they would have gone on for ever");
    }
    stage.asks("alice", "TWICE-1").await;
    alice.answers_twice().await;
    alice.forges().await;
    alice.approves_itself().await;
    alice.spies("SECRET-1", &others).await;
    alice.floods(40).await;
    bob.starts_over(40).await;
    stage.asks("bob", "SILENT-1").await;
    bob.falls_silent().await;
    tally.add(alice.tally());
    tally.add(bob.tally());
    tally
}

/// Reads the log as an outsider: the witness finds every promise kept, each potential follows from the facts, and no
/// grant passed its bound.
fn bounded(log: &[(Seq, Entry)], limits: &Limits) -> u64 {
    let (mut core, mut witness) = (Core::default(), Witness::default());
    for (seq, entry) in log {
        witness.see(entry);
        core.replay(entry).unwrap_or_else(|mismatch| panic!("{seq}: {mismatch}"));
    }
    assert_eq!(witness.broken(), []);
    let mut most = 0;
    for (id, grant) in core.state().grants.iter() {
        assert!(grant.messages <= limits.grant_messages_max, "{id} caused {}", grant.messages);
        assert!(grant.turns <= limits.grant_turns_max, "{id} opened {} turns", grant.turns);
        most = most.max(grant.messages);
    }
    most
}

fn judged(surface: &str, tally: &Tally, codes: &[&str]) {
    println!("{surface}: {} done, refused {:?}", tally.done, tally.refused);
    assert!(tally.untyped.is_empty(), "{surface}: refused without a code: {:?}", tally.untyped);
    assert!(tally.wrong.is_empty(), "{surface}: done and should not be: {:?}", tally.wrong);
    for code in codes {
        assert!(tally.refused.contains_key(*code), "{surface}: never met {code}: {:?}", tally.refused);
    }
}

const PAIR: [&str; 3] = ["alice", "bob", "carol"];
/// The codes that every rogue meets, whichever limit is reached first.
const MET: [&str; 3] = ["approver_not_allowed", "forbidden", "lease_lost"];

/// Returns the surfaces of agents. The console is for humans alone, whose edges another test compares.
fn surfaces() -> impl Iterator<Item = &'static str> {
    EDGES.iter().copied().filter(|edge| *edge != "console").chain(["pipe"])
}

/// Runs the rogues over each surface, under limits at which they meet these codes.
async fn over_every_surface(limits: Limits, codes: &[&str]) {
    for surface in surfaces() {
        let stage = Stage::with(limits.clone(), &PAIR).await;
        let (url, alice, bob) = (stage.url(), stage.token("alice"), stage.token("bob"));
        let tally = match surface {
            "http" => campaign(&stage, &Http::new(&url, alice), &Http::new(&url, bob)).await,
            "session" => campaign(&stage, &in_session(&url, alice).await, &in_session(&url, bob).await).await,
            "mcp" => campaign(&stage, &Mcp::new(&url, alice), &Mcp::new(&url, bob)).await,
            "a2a" => campaign(&stage, &A2a::new(&url, alice), &A2a::new(&url, bob)).await,
            "pipe" => {
                let mut serving = JoinSet::new();
                let (a, b) = (stage.pipe("alice", &mut serving).await, stage.pipe("bob", &mut serving).await);
                let tally = campaign(&stage, &a, &b).await;
                drop((a, b));
                serving.join_all().await;
                tally
            }
            other => panic!("{other} has no rogue: give it one"),
        };
        judged(surface, &tally, &MET);
        // By A2A nobody chooses a REF, so that no flood stays in one conversation.
        let chosen = ["ref_conflict", "ref_in_use", "turns_soft"];
        let codes = codes.iter().copied().filter(|code| surface != "a2a" || !chosen.contains(code));
        judged(surface, &tally, &codes.collect::<Vec<_>>());
        let most = bounded(&stage.end().await, &limits);
        assert!(most > 4, "{surface}: nothing was caused");
    }
}

#[tokio::test]
async fn rogues_meet_typed_refusals_over_every_surface_as_things_are() {
    // A message refused by a rate may simply be resent later, and is not counted.
    let codes = ["depth_cap", "pair_rate", "passive_reply", "ref_conflict"];
    over_every_surface(Limits::default(), &codes).await;
}

#[tokio::test]
async fn rogues_are_bounded_over_every_surface_where_no_rate_holds_them() {
    let limits = Limits { pair_messages_max: 100_000, sender_messages_max: 100_000, ..Limits::default() };
    over_every_surface(limits, &["depth_cap", "passive_reply", "ref_conflict", "ref_in_use", "turns_soft"]).await;
}

#[tokio::test]
async fn rogues_are_bounded_over_every_surface_where_only_the_totals_hold() {
    over_every_surface(Limits { observed: Observed::all(), ..Limits::default() }, &["grant_messages"]).await;
}

/// A complete piece of work over one surface: a task, a child, a refusal, its answer, and a second finish that is
/// refused.
async fn transcript<E: Edge>(lead: &E, helper: &E) {
    let turn = |delivery: &Value| Turn::of(delivery).unwrap();
    let send = |to: &str, body: &str, turn: &Turn| Call::Send {
        to: to.into(),
        body: body.into(),
        reference: None,
        turn: Some(turn.clone()),
    };
    let code = |refused: Result<Value, Refused>| match refused {
        Err(Refused::Typed { code, .. }) => code,
        other => panic!("{other:?}"),
    };
    let task = lead.call(Call::Next).await.unwrap();
    let open = turn(&task);
    assert_eq!(code(lead.call(send("nobody", "hello?", &open)).await), "unknown_recipient");
    lead.call(send("bob", "your half", &open)).await.unwrap();
    lead.call(Call::Progress { turn: open.clone(), note: "asked bob".into() }).await.unwrap();
    lead.call(Call::Finish { turn: open, answer: "asked bob".into() }).await.unwrap();
    let half = helper.call(Call::Next).await.unwrap();
    let open = turn(&half);
    assert_eq!(code(helper.call(send("alice", "which half?", &open)).await), "passive_reply");
    helper.call(Call::Finish { turn: open, answer: "the left one".into() }).await.unwrap();
    let answer = lead.call(Call::Next).await.unwrap();
    assert_eq!(answer["message"]["body"], "the left one");
    let open = turn(&answer);
    lead.call(Call::Hold { tool: "deploy".into(), arguments: json!({ "to": "eu" }) }).await.unwrap();
    lead.call(Call::Finish { turn: open.clone(), answer: "both halves".into() }).await.unwrap();
    assert_eq!(code(lead.call(Call::Finish { turn: open, answer: "again".into() }).await), "turn_closed");
}

/// Returns the facts without the parts that belong to this one run: moments and token hashes.
fn facts(log: Vec<(Seq, Entry)>) -> Vec<String> {
    let told = |(_, entry): (Seq, Entry)| {
        if let Fact::Registered(Registered { agent, name, kind, incarnation, .. }) = entry.fact {
            format!("{agent} {name} {kind:?} {incarnation}")
        } else {
            without_moments(&format!("{:?} {:?}", entry.grant, entry.fact))
        }
    };
    log.into_iter().map(told).collect()
}

/// Removes every number of more than nine digits that is followed by `ms`.
fn without_moments(text: &str) -> String {
    let mut out = String::new();
    let mut digits = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c.is_ascii_digit() {
            digits.push(c);
            continue;
        }
        let moment = digits.len() > 9 && c == 'm' && rest.peek() == Some(&'s');
        out.push_str(if moment { "T" } else { &digits });
        digits.clear();
        out.push(c);
    }
    out + &digits
}

#[tokio::test]
async fn edges_agree() {
    let mut logs = Vec::new();
    // By A2A an agent does no work, and its sends have an id of their own: their facts are compared where the edge is.
    for surface in surfaces().filter(|surface| *surface != "a2a") {
        let stage = Stage::with(Limits::default(), &["alice", "bob"]).await;
        stage.asks("alice", "WORK-1").await;
        let (url, alice, bob) = (stage.url(), stage.token("alice"), stage.token("bob"));
        match surface {
            "http" => transcript(&Http::new(&url, alice), &Http::new(&url, bob)).await,
            "session" => transcript(&in_session(&url, alice).await, &in_session(&url, bob).await).await,
            "mcp" => transcript(&Mcp::new(&url, alice), &Mcp::new(&url, bob)).await,
            "pipe" => {
                let mut serving = JoinSet::new();
                let (a, b) = (stage.pipe("alice", &mut serving).await, stage.pipe("bob", &mut serving).await);
                transcript(&a, &b).await;
                drop((a, b));
                serving.join_all().await;
            }
            other => panic!("{other} has no transcript: give it one"),
        }
        logs.push((surface, facts(stage.end().await)));
    }
    let (_, first) = &logs[0];
    assert!(first.len() > 20 && first.iter().any(|fact| fact.contains("the left one")), "{first:#?}");
    for (surface, facts) in &logs {
        assert_eq!(facts, first, "{surface}");
    }
}

#[tokio::test]
async fn a_rogue_can_tell_a_good_refusal_from_a_bad_one() {
    assert_eq!(
        Refused::of(&json!({ "code": "cycle", "hint": "finish instead" })),
        Refused::Typed { code: "cycle".into(), hint: "finish instead".into() }
    );
    assert!(matches!(Refused::of(&json!({ "code": "cycle" })), Refused::Untyped(_)));
    // An edge that grants everything is detected.
    struct Yes;
    impl Edge for Yes {
        async fn call(&self, _call: Call) -> Result<Value, Refused> {
            Ok(json!({ "id": "apr-1", "digest": "00", "turn": { "id": "turn-1", "token": "turn-1.00" } }))
        }
    }
    let mut rogue = Rogue::new(&Yes, "bob");
    rogue.answers_twice().await;
    rogue.forges().await;
    rogue.approves_itself().await;
    rogue.spies("SECRET-1", "req-1").await;
    let wrong: BTreeSet<String> =
        rogue.tally().wrong.into_iter().filter_map(|w| w.split_once(':').map(|(what, _)| what.to_owned())).collect();
    assert_eq!(wrong.len(), 8, "{wrong:?}");
}
