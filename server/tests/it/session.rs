//! Sessions: the calls of HTTP in one WebSocket, and what is pushed there.

use std::time::Duration;

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use lastword_facts::Limits;
use lastword_wire::session::{PATH, SUBPROTOCOL};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::world::World;

/// A wait that only a fault reaches.
pub(crate) const LATE: Duration = Duration::from_secs(20);

/// A session as a program without a library would write it.
pub(crate) struct Raw {
    pub(crate) socket: WebSocketStream<TcpStream>,
    last: u64,
    /// The frames that came before the one that was asked for.
    early: Vec<Value>,
}

async fn opened(world: &World, path: &str, token: Option<&str>) -> Result<WebSocketStream<TcpStream>, Error> {
    let tcp = TcpStream::connect(world.server.addr()).await.unwrap();
    let mut request = format!("ws://{}{path}", world.server.addr()).into_client_request().unwrap();
    request.headers_mut().insert("sec-websocket-protocol", SUBPROTOCOL.parse().unwrap());
    if let Some(token) = token {
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    }
    client_async(request, tcp).await.map(|(socket, _)| socket)
}

impl Raw {
    pub(crate) async fn of(world: &World, who: &str) -> Self {
        Self::at(world, PATH, who).await
    }

    pub(crate) async fn at(world: &World, path: &str, who: &str) -> Self {
        let socket = opened(world, path, Some(world.token(who))).await.unwrap();
        Self { socket, last: 0, early: Vec::new() }
    }

    async fn frame(&mut self) -> Option<Value> {
        loop {
            match timeout(LATE, self.socket.next()).await.expect("a frame") {
                Some(Ok(Message::Text(text))) => return Some(serde_json::from_str(&text).unwrap()),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_) | Message::Frame(_))) => panic!("frames are text"),
                Some(Ok(Message::Close(_)) | Err(_)) | None => return None,
            }
        }
    }

    /// Returns the first frame that fits.
    pub(crate) async fn which(&mut self, fits: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.early.iter().position(&fits) {
            return self.early.remove(at);
        }
        loop {
            let frame = self.frame().await.expect("the session is open");
            if fits(&frame) {
                return frame;
            }
            self.early.push(frame);
        }
    }

    /// Sends a call without waiting for its reply; returns its number.
    pub(crate) async fn start(&mut self, mut call: Value) -> u64 {
        self.last += 1;
        call["id"] = self.last.into();
        self.socket.send(Message::text(call.to_string())).await.unwrap();
        self.last
    }

    pub(crate) async fn reply(&mut self, id: u64) -> Value {
        self.which(|frame| frame["id"] == id).await
    }

    pub(crate) async fn call(&mut self, call: Value) -> Value {
        let id = self.start(call).await;
        self.reply(id).await
    }

    pub(crate) async fn ok(&mut self, call: Value) -> Value {
        let mut reply = self.call(call).await;
        assert!(reply["status"].as_u64().is_some_and(|status| status < 300), "{reply}");
        reply["body"].take()
    }

    pub(crate) async fn watch(&mut self, window: u32) {
        self.ok(json!({ "call": "watch", "body": { "deliveries": { "window": window } } })).await;
    }

    pub(crate) async fn delivery(&mut self) -> Value {
        self.which(|frame| frame["delivery"].is_object()).await
    }

    pub(crate) async fn finish(&mut self, pushed: &Value, answer: &str) -> Value {
        let turn = &pushed["delivery"]["turn"]["id"];
        self.ok(json!({ "call": "finish", "path": turn, "body": { "answer": answer } })).await
    }

    /// Says nothing of its own for so long, of paused time, while nothing but pings comes; returns their number.
    pub(crate) async fn idle(&mut self, time: Duration) -> u64 {
        const STEP: Duration = Duration::from_secs(5);
        // The server pings after this time, and ends the session after twice as long.
        const QUIET: Duration = Duration::from_secs(60);
        let (mut pings, mut passed, mut since_ping) = (0, Duration::ZERO, Duration::ZERO);
        while passed < time {
            tokio::time::advance(STEP).await;
            passed += STEP;
            since_ping += STEP;
            // The connection's bytes have their time, too; a runtime with nothing to do would go on to the next timer.
            for _ in 0..50 {
                while let Some(message) = self.socket.next().now_or_never() {
                    assert!(matches!(message, Some(Ok(Message::Ping(_)))), "{message:?}");
                    (pings, since_ping) = (pings + 1, Duration::ZERO);
                }
                tokio::task::yield_now().await;
            }
            // On a busy machine a ping or its answer takes real time, which the paused clock doesn't give.
            if since_ping >= QUIET || since_ping <= STEP {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        pings
    }

    /// Waits until the server ends the session; returns why.
    pub(crate) async fn ended(&mut self) -> String {
        loop {
            match timeout(LATE, self.socket.next()).await.expect("an end") {
                Some(Ok(Message::Close(Some(frame)))) => return frame.reason.to_string(),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return String::new(),
            }
        }
    }
}

pub(crate) fn request(to: &str, reference: &str) -> Value {
    json!({ "type": "request", "to": to, "ref": reference, "body": "please" })
}

#[tokio::test]
async fn a_session_makes_the_calls_of_http_with_the_same_results_and_refusals() {
    let world = World::with(&["alice"]).await;
    let mut human = Raw::of(&world, "operator").await;
    let sent = human.ok(json!({ "call": "send", "body": request("alice", "T-1") })).await;
    assert_eq!(sent["ref"], "T-1");
    let shown = human.ok(json!({ "call": "message", "path": sent["id"] })).await;
    assert_eq!(shown, world.get("operator", &format!("/v1/messages/{}", sent["id"].as_str().unwrap())).await.is(200));
    let tree = human.ok(json!({ "call": "conversation", "path": "T-1" })).await;
    assert_eq!(tree["ref"], "T-1");
    let page = human.ok(json!({ "call": "messages", "query": { "limit": 1, "to": "alice" } })).await;
    assert_eq!(page["items"].as_array().map(Vec::len), Some(1));

    let mut alice = Raw::of(&world, "alice").await;
    let over_http = world.post("alice", "/v1/workspace/stop", json!({})).await.refused(403, "forbidden");
    let refused = alice.call(json!({ "call": "stop_workspace" })).await;
    assert_eq!((&refused["status"], &refused["problem"]), (&json!(403), &over_http));
    let over_http = world.post("alice", "/v1/messages", request("alice", "T-2")).await.refused(422, "self_send");
    let mut refused = alice.call(json!({ "call": "send", "body": request("alice", "T-2") })).await;
    refused["problem"]["record"] = over_http["record"].clone();
    assert_eq!(refused["problem"], over_http);
    // The same key is the same call.
    let keyed = json!({ "call": "send", "key": "k-1", "body": request("alice", "T-3") });
    assert_eq!(human.ok(keyed.clone()).await["id"], human.ok(keyed).await["id"]);
    // A call whose result is text.
    let checkpoint = human.ok(json!({ "call": "checkpoint" })).await;
    assert!(checkpoint.as_str().is_some_and(|note| note.contains('\n')), "{checkpoint}");
    // The text form.
    let text = human
        .ok(json!({ "call": "send", "body": "[FROM:operator][TO:alice][TYPE:REQUEST][REF:T-4][DEPTH:0] hi" }))
        .await;
    assert_eq!((&text["ref"], &text["body"]), (&json!("T-4"), &json!("hi")));
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_none_is_refused_and_the_session_goes_on() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    for (call, says) in [
        (json!({ "call": "dance" }), "dance"),
        (json!({ "call": "send" }), "body"),
        (json!({ "call": "finish", "body": {} }), "path"),
        (json!({ "call": "finish", "path": "turn-9", "body": { "anser": "x" } }), "anser"),
        (json!({ "call": "agents", "path": "x" }), "path"),
        (json!({ "call": "messages", "query": { "colour": "red" } }), "colour"),
        (json!({ "call": "next", "query": { "wait": "soon" } }), "wait"),
        (json!({ "call": "next", "depth": 3 }), "depth"),
        (json!({ "call": "watch", "body": { "deliveries": { "window": 0 } } }), "window"),
    ] {
        let reply = alice.call(call).await;
        assert_eq!(reply["status"], 400, "{reply}");
        assert!(reply["problem"]["detail"].as_str().unwrap().contains(says), "{says}: {reply}");
    }
    let twice = json!([{ "model": "opus", "tokens": 0 }, { "model": "opus", "tokens": 0 }]);
    for call in ["finish", "progress"] {
        let body = json!({ "usage": { "models": twice } });
        let reply = alice.call(json!({ "call": call, "path": "turn-9", "body": body })).await;
        let detail = reply["problem"]["detail"].as_str().unwrap();
        assert!(reply["status"] == 422 && detail.contains("`usage.models` has opus twice"), "{reply}");
    }
    alice.socket.send(Message::text("{")).await.unwrap();
    assert_eq!(alice.which(|frame| frame["id"] == 0).await["status"], 400);
    assert_eq!(alice.ok(json!({ "call": "agent", "path": "me" })).await["name"], "alice");
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_session_authenticates_by_header_or_by_its_first_frame() {
    let world = World::with(&["alice"]).await;
    let refused = opened(&world, PATH, Some("lw_nobody")).await.unwrap_err();
    assert!(matches!(refused, Error::Http(response) if response.status() == 401));
    let socket = opened(&world, PATH, None).await.unwrap();
    let mut alice = Raw { socket, last: 0, early: Vec::new() };
    let welcome = alice.ok(json!({ "call": "hello", "body": { "token": world.token("alice") } })).await;
    assert_eq!(welcome["name"], "alice");
    assert_eq!(alice.ok(json!({ "call": "agent", "path": "me" })).await["name"], "alice");
    for first in [json!({ "call": "agents" }), json!({ "call": "hello", "body": { "token": "lw_nobody" } })] {
        let mut nobody = Raw { socket: opened(&world, PATH, None).await.unwrap(), last: 0, early: Vec::new() };
        nobody.start(first).await;
        assert_ne!(nobody.ended().await, "");
    }
    // A body before the proof is short.
    let mut nobody = Raw { socket: opened(&world, PATH, None).await.unwrap(), last: 0, early: Vec::new() };
    let long = json!({ "call": "hello", "body": { "token": "x".repeat(100_000) } });
    let _cut = nobody.socket.send(Message::text(long.to_string())).await.is_ok();
    assert_eq!(nobody.ended().await, "");
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_request_that_is_no_upgrade_is_told_what_it_has_to_be() {
    let world = World::with(&[]).await;
    let problem = world.get("operator", PATH).await.refused(426, "malformed");
    assert!(problem["detail"].as_str().unwrap().contains("WebSocket"));
    let upgrade = |protocol: &'static str, path: &str| {
        let request = world.request("operator", reqwest::Method::GET, path);
        let request = request.header("connection", "upgrade").header("upgrade", "websocket");
        let request =
            request.header("sec-websocket-version", "13").header("sec-websocket-key", "x3JJHMbDL1EzLkh9GBhXDw==");
        request.header("sec-websocket-protocol", protocol)
    };
    for (protocol, path) in [("chat", PATH), (SUBPROTOCOL, "/v1/session?token=x")] {
        assert_eq!(upgrade(protocol, path).send().await.unwrap().status(), 400, "{protocol} {path}");
    }
    world.server.shutdown().await;
}

#[tokio::test]
async fn requests_are_pushed_and_answers_come_as_replies() {
    let world = World::with(&["alice"]).await;
    let (mut human, mut alice) = (Raw::of(&world, "operator").await, Raw::of(&world, "alice").await);
    alice.watch(8).await;
    let mut asked = Vec::new();
    for n in 0..3 {
        let call = json!({ "call": "send", "query": { "wait": "20s" }, "body": request("alice", &format!("T-{n}")) });
        asked.push(human.start(call).await);
    }
    for _ in 0..3 {
        let pushed = alice.delivery().await;
        let answer = format!("{} is done", pushed["delivery"]["message"]["ref"].as_str().unwrap());
        alice.finish(&pushed, &answer).await;
    }
    for (n, id) in asked.into_iter().enumerate() {
        let reply = human.reply(id).await;
        assert_eq!(reply["body"]["response"]["body"], format!("T-{n} is done"), "{reply}");
    }
    world.server.shutdown().await;
}

#[tokio::test]
async fn an_unacknowledged_delivery_is_given_again_and_an_acknowledged_one_is_not() {
    let world = World::set(&["alice"], |config| config.settings.limits.agent_turns_max = 4).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(1).await;
    for n in 0..2 {
        world.send("operator", "alice", &format!("T-{n}"), "please").await.is(201);
    }
    let first = alice.delivery().await;
    // The window is full, so that the second one isn't pushed.
    alice.ok(json!({ "call": "agent", "path": "me" })).await;
    assert!(alice.early.is_empty());
    alice.ok(json!({ "call": "ack", "body": { "cursor": first["cursor"] } })).await;
    let second = alice.delivery().await;
    assert_ne!(first["delivery"]["delivery"], second["delivery"]["delivery"]);
    drop(alice);

    let mut again = Raw::of(&world, "alice").await;
    let working = [&first["delivery"]["turn"]["id"]];
    again.ok(json!({ "call": "watch", "body": { "deliveries": { "working": working } } })).await;
    let repeated = again.delivery().await;
    assert_eq!(repeated["delivery"]["delivery"], second["delivery"]["delivery"]);
    for pushed in [first, second] {
        again.finish(&pushed, "done").await;
    }
    again.ok(json!({ "call": "agent", "path": "me" })).await;
    assert!(again.early.is_empty(), "nothing is given a third time: {:?}", again.early);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_restart_of_the_server_gives_every_open_turn_again() {
    let world = World::set(&["alice"], |config| config.settings.limits.agent_turns_max = 4).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(8).await;
    for n in 0..3 {
        world.send("operator", "alice", &format!("T-{n}"), "please").await.is(201);
    }
    let mut before = Vec::new();
    for _ in 0..3 {
        before.push(alice.delivery().await["delivery"]["delivery"].clone());
    }
    let mut stopping = JoinSet::new();
    stopping.spawn(world.restart());
    assert!(alice.ended().await.contains("connect again"));
    drop(alice);
    let world = stopping.join_next().await.unwrap().unwrap();
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(8).await;
    let mut after = Vec::new();
    for _ in 0..3 {
        let pushed = alice.delivery().await;
        after.push(pushed["delivery"]["delivery"].clone());
        alice.finish(&pushed, "done").await;
    }
    let sorted = |mut all: Vec<Value>| {
        all.sort_by_key(Value::to_string);
        all
    };
    assert_eq!(sorted(before), sorted(after));
    world.server.shutdown().await;
}

/// Opens a turn of alice in which it asks bob, who answers. Returns the delivery that opened the turn.
async fn asked_within_turn(world: &World, alice: &mut Raw) -> Value {
    world.send("operator", "alice", "T-1", "please").await.is(201);
    let pushed = alice.delivery().await;
    let turn = &pushed["delivery"]["turn"]["token"];
    alice.ok(json!({ "call": "send", "turn": turn, "body": request("bob", "T-1") })).await;
    let asked = world.take("bob").await;
    world.finish("bob", &asked, "forty-two").await.is(200);
    pushed
}

#[tokio::test]
async fn an_answer_to_a_turn_is_pushed_into_it() {
    let world = World::with(&["alice", "bob"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(8).await;
    let pushed = asked_within_turn(&world, &mut alice).await;
    let joined = alice.delivery().await;
    assert_eq!(joined["delivery"]["message"]["body"], "forty-two");
    assert_eq!(joined["delivery"]["turn"]["id"], pushed["delivery"]["turn"]["id"]);
    alice.finish(&pushed, "done").await;
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_turn_that_ends_otherwise_makes_room_in_the_window() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(1).await;
    for n in 0..3 {
        world.send("operator", "alice", &format!("T-{n}"), "please").await.is(201);
    }
    // By a call of HTTP, by a message that answers, and by the human's cancellation.
    let first = alice.delivery().await;
    world.finish("alice", &first["delivery"], "done").await.is(200);
    alice
        .call(json!({ "call": "finish", "path": first["delivery"]["turn"]["id"], "body": { "answer": "late" } }))
        .await;
    let second = alice.delivery().await;
    let message = &second["delivery"]["message"];
    let answer = json!({ "type": "response", "to": "operator", "request_id": message["request_id"], "body": "done" });
    alice.ok(json!({ "call": "send", "turn": second["delivery"]["turn"]["token"], "body": answer })).await;
    let third = alice.delivery().await;
    assert_eq!(third["delivery"]["message"]["ref"], "T-2");
    alice.finish(&third, "done").await;
    world.server.shutdown().await;
}

#[tokio::test]
async fn answers_are_pushed_into_turns_that_fill_the_window() {
    let world = World::with(&["alice", "bob"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    alice.watch(1).await;
    let pushed = asked_within_turn(&world, &mut alice).await;
    assert_eq!(alice.delivery().await["delivery"]["message"]["body"], "forty-two");
    // Neither was acknowledged, so the next session gets both again.
    drop(alice);
    let mut again = Raw::of(&world, "alice").await;
    again.watch(8).await;
    let bodies = [again.delivery().await, again.delivery().await].map(|one| one["delivery"]["message"]["body"].clone());
    assert_eq!(bodies, [json!("please"), json!("forty-two")]);
    again.finish(&pushed, "done").await;
    world.server.shutdown().await;
}

#[tokio::test]
async fn two_sessions_of_one_agent_share_its_work_and_get_nothing_twice() {
    let world = World::set(&["alice"], |config| config.settings.limits.agent_turns_max = 2).await;
    let (mut one, mut two) = (Raw::of(&world, "alice").await, Raw::of(&world, "alice").await);
    one.watch(1).await;
    two.watch(1).await;
    for n in 0..2 {
        world.send("operator", "alice", &format!("T-{n}"), "please").await.is(201);
    }
    let (first, second) = (one.delivery().await, two.delivery().await);
    assert_ne!(first["delivery"]["delivery"], second["delivery"]["delivery"]);
    for session in [&mut one, &mut two] {
        session.ok(json!({ "call": "agent", "path": "me" })).await;
        assert!(session.early.is_empty(), "{:?}", session.early);
    }
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_human_gets_every_message_until_it_is_acknowledged() {
    let world = World::with(&["alice"]).await;
    let mut human = Raw::of(&world, "operator").await;
    human.watch(8).await;
    let sent = human.ok(json!({ "call": "send", "body": request("alice", "T-1") })).await;
    let asked = world.take("alice").await;
    world.finish("alice", &asked, "done").await.is(200);
    let pushed = human.delivery().await;
    assert_eq!(pushed["delivery"]["turn"], Value::Null);
    assert_eq!(pushed["delivery"]["message"]["in_reply_to"], sent["id"]);
    drop(human);
    let mut human = Raw::of(&world, "operator").await;
    human.watch(8).await;
    let again = human.delivery().await;
    assert_eq!(again["delivery"]["delivery"], pushed["delivery"]["delivery"]);
    human.ok(json!({ "call": "ack", "body": { "cursor": again["cursor"] } })).await;
    drop(human);
    let left = world.get("operator", "/v1/inbox").await;
    assert_eq!(left.status, 204, "{}", left.body);
    world.server.shutdown().await;
}

#[tokio::test]
async fn what_a_human_left_unacknowledged_comes_again_however_much_it_is() {
    let limits = Limits { inbox_max: 4, ..Limits::default() };
    let mut world = World::within(limits, &[]).await;
    world.register_human("anna", "viewer").await;
    let mut anna = Raw::of(&world, "anna").await;
    anna.watch(16).await;
    let note = |n: usize| json!({ "type": "info", "to": "anna", "ref": format!("T-{n}"), "body": "note" });
    for n in 0..12 {
        world.post("operator", "/v1/messages", note(n)).await.is(201);
        anna.delivery().await;
    }
    drop(anna);
    let mut anna = Raw::of(&world, "anna").await;
    anna.watch(16).await;
    for _ in 0..12 {
        anna.delivery().await;
    }
    world.server.shutdown().await;
}

#[tokio::test]
async fn events_are_pushed_from_a_position_on() {
    let world = World::with(&["alice"]).await;
    let mut human = Raw::of(&world, "operator").await;
    let begun = human.ok(json!({ "call": "watch", "body": { "events": {} } })).await["position"].as_u64().unwrap();
    world.send("operator", "alice", "T-1", "please").await.is(201);
    let pushed = human.which(|frame| frame["event"]["message"]["ref"] == "T-1").await;
    let seq = pushed["event"]["seq"].as_u64().unwrap();
    assert!(seq > begun);
    let mut later = Raw::of(&world, "operator").await;
    later.ok(json!({ "call": "watch", "body": { "events": { "after": seq - 1 } } })).await;
    assert_eq!(later.which(|frame| frame["event"].is_object()).await, pushed);
    let ahead = later.call(json!({ "call": "watch", "body": { "events": { "after": 1_000_000 } } })).await;
    assert_eq!((&ahead["status"], &ahead["problem"]["code"]), (&json!(409), &json!("epoch_over")));
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_session_ends_with_its_token() {
    let world = World::with(&["alice", "bob"]).await;
    let (mut calling, mut watching) = (Raw::of(&world, "alice").await, Raw::of(&world, "alice").await);
    watching.watch(1).await;
    world.post("operator", "/v1/agents/alice/token", json!({})).await.is(201);
    calling.start(json!({ "call": "agents" })).await;
    assert_ne!(calling.ended().await, "");
    // It learns it with the next thing that would be pushed.
    world.send("operator", "alice", "T-1", "please").await.is(201);
    assert_ne!(watching.ended().await, "");
    world.server.shutdown().await;
}

#[tokio::test]
async fn frames_that_no_client_sends_end_the_session() {
    let world = World::with(&["alice"]).await;
    let mut binary = Raw::of(&world, "alice").await;
    binary.socket.send(Message::Binary(vec![1, 2, 3].into())).await.unwrap();
    assert!(binary.ended().await.contains("text"));
    let mut long = Raw::of(&world, "alice").await;
    let body = json!({ "id": 1, "call": "send", "body": { "body": "x".repeat(700 << 10) } });
    let _cut = long.socket.send(Message::text(body.to_string())).await.is_ok();
    long.ended().await;
    // A header that announces 100 MB, bytes that are no UTF-8, a frame without a mask, a compressed frame.
    let announced = [&[0x81, 0xff][..], &(100_u64 << 20).to_be_bytes(), &[0; 4]].concat();
    for frame in [
        announced.as_slice(),
        &[0x81, 0x82, 0, 0, 0, 0, 0xc3, 0x28],
        &[0x81, 2, b'{', b'}'],
        &[0xc1, 0x81, 0, 0, 0, 0, 0],
    ] {
        let mut raw = handshaken(&world).await;
        raw.write_all(frame).await.unwrap();
        let mut rest = Vec::new();
        let read = timeout(LATE, raw.read_to_end(&mut rest)).await.expect("the server ends it");
        drop(read);
        assert!(rest.len() < 512, "{}", rest.len());
    }
    world.get("alice", "/v1/agents/me").await.is(200);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_session_that_its_client_closes_is_confirmed_before_the_connection_ends() {
    let world = World::with(&["alice"]).await;
    let mut raw = handshaken(&world).await;
    // A Close frame with the code 1000, masked with zeros.
    raw.write_all(&[0x88, 0x82, 0, 0, 0, 0, 0x03, 0xe8]).await.unwrap();
    let mut rest = Vec::new();
    timeout(LATE, raw.read_to_end(&mut rest)).await.expect("the server ends it").unwrap();
    assert_eq!(rest, [0x88, 2, 0x03, 0xe8], "the same code comes back, not a connection that breaks off (1006)");
    world.server.shutdown().await;
}

/// Returns a connection behind the handshake of a WebSocket.
async fn handshaken(world: &World) -> TcpStream {
    let mut raw = TcpStream::connect(world.server.addr()).await.unwrap();
    let head = format!(
        "GET {PATH} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: x3JJHMbDL1EzLkh9GBhXDw==\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\nAuthorization: Bearer {}\r\n\r\n",
        world.server.addr(),
        world.token("alice")
    );
    raw.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(raw.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&answer));
    raw
}

#[tokio::test]
async fn a_session_that_reads_nothing_holds_up_nobody() {
    let world = World::with(&["alice", "bob"]).await;
    for n in 0..40 {
        let body = json!({ "type": "request", "to": "bob", "ref": format!("T-{n}"), "body": "x".repeat(60_000) });
        world.post("operator", "/v1/messages", body).await.is(201);
    }
    let mut silent = Raw::of(&world, "operator").await;
    // Replies of 200 MB in all, which nobody reads. The server stops reading, and then these sends wait.
    let flood = async {
        for _ in 0..100 {
            silent.start(json!({ "call": "messages", "query": { "limit": 40 } })).await;
        }
    };
    let _stuck = timeout(Duration::from_millis(500), flood).await.is_err();
    let mut other = Raw::of(&world, "alice").await;
    assert_eq!(other.ok(json!({ "call": "agent", "path": "me" })).await["name"], "alice");
    world.post("operator", "/v1/workspace/stop", json!({})).await.is(204);
    drop(silent);
    world.server.shutdown().await;
}

#[tokio::test]
async fn a_shutdown_answers_the_calls_in_progress() {
    let world = World::with(&["alice"]).await;
    let mut alice = Raw::of(&world, "alice").await;
    let waiting = alice.start(json!({ "call": "next", "query": { "wait": "60s" } })).await;
    // The wait has begun once a later call is answered.
    alice.ok(json!({ "call": "agent", "path": "me" })).await;
    let mut stopping = JoinSet::new();
    stopping.spawn(world.server.shutdown());
    assert_eq!(alice.reply(waiting).await["status"], 204);
    assert!(alice.ended().await.contains("connect again"));
    drop(alice);
    stopping.join_all().await;
}
