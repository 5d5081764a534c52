//! Text that isn't well-formed, and text that is too long, on every surface: a request is refused by name, an answer is
//! taken with U+FFFD in place of what isn't text (F6).

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use crate::session::{LATE, Raw};
use crate::world::{Answer, World};

/// Bytes within a JSON text, what a refusal names, and what stands in an answer.
const FLAWS: [(&[u8], &str, &str); 3] = [
    (br"half \ud83d.", "\\ud83d", "half \u{fffd}."),
    (br"\ude00 low", "\\ude00", "\u{fffd} low"),
    (b"caf\xe9 au lait", "0xe9", "caf\u{fffd} au lait"),
];
const LONG: usize = 900_000;

impl Raw {
    async fn say(&mut self, frame: Message) {
        // The server may have ended the session before it has read all of the frame.
        let _ended = self.socket.send(frame).await;
    }

    /// Writes bytes as they are.
    async fn write(&mut self, bytes: &[u8]) {
        self.socket.get_mut().write_all(bytes).await.unwrap();
    }

    /// Returns the code and the reason with which the server ends the session.
    async fn closed(&mut self) -> (u16, String) {
        loop {
            match timeout(LATE, self.socket.next()).await.expect("a frame") {
                Some(Ok(Message::Close(Some(frame)))) => return (frame.code.into(), frame.reason.to_string()),
                Some(Ok(_)) => {}
                other => panic!("no close frame: {other:?}"),
            }
        }
    }
}

fn around(before: &str, text: &[u8], after: &str) -> Vec<u8> {
    [before.as_bytes(), text, after.as_bytes()].concat()
}

async fn raw(world: &World, who: &str, path: &str, kind: &str, body: Vec<u8>) -> Answer {
    let request = world.request(who, Method::POST, path).header("content-type", kind);
    let accepts = request.header("accept", "application/json, text/event-stream");
    Answer::of(accepts.body(body).send().await.unwrap()).await
}

fn tool(name: &str, member: &str) -> String {
    let call =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": name, "arguments": "ARGS" } });
    call.to_string().replace("\"ARGS\"", member)
}

#[tokio::test]
async fn a_request_whose_text_is_not_well_formed_is_refused_by_name_and_place() {
    let world = World::with(&["kilo", "hive"]).await;
    let before = r#"{"type":"request","to":"hive","ref":"T-1","body":""#;
    for (text, named, _) in FLAWS {
        let refused = raw(&world, "kilo", "/v1/messages", "application/json", around(before, text, "\"}")).await;
        let detail = refused.refused(400, "malformed")["detail"].to_string();
        assert!(detail.contains("`body`") && detail.contains(&named.replace('\\', "\\\\")), "{detail}");
        assert!(detail.contains("at byte "), "{detail}");
        let list = around(&format!("[{before}"), text, "\"}]");
        raw(&world, "kilo", "/v1/messages", "application/json", list).await.refused(400, "malformed");
        let call = tool("send_agent_message", r#"{"target_agent_id":"hive","ref":"T-1","message":"BYTES"}"#);
        let (before, after) = call.split_once("BYTES").unwrap();
        let told = raw(&world, "kilo", "/mcp", "application/json", around(before, text, after)).await.is(200);
        let told = &told["result"]["structuredContent"];
        assert_eq!(told["code"], "malformed", "{told}");
        assert!(told["detail"].as_str().unwrap().contains(named), "{told}");
    }
    let text = around("[FROM:kilo][TO:hive][TYPE:REQUEST][REF:T-1][DEPTH:0] ", FLAWS[2].0, "");
    let refused = raw(&world, "kilo", "/v1/messages", "text/plain", text).await;
    let refused = refused.refused(400, "malformed_header");
    assert!(refused["detail"].as_str().unwrap().contains("no UTF-8 at byte 56 (0xe9)"), "{refused}");
    let mut session = Raw::of(&world, "kilo").await;
    for (text, named, _) in &FLAWS[..2] {
        let text = std::str::from_utf8(text).unwrap();
        let body = format!(r#"{before}{text}"}}"#);
        session.say(Message::text(format!(r#"{{"id":77,"call":"send","body":{body}}}"#))).await;
        let refused = session.reply(77).await;
        assert_eq!(refused["problem"]["code"], "malformed", "{refused}");
        assert!(refused["problem"]["detail"].as_str().unwrap().contains(named), "{refused}");
        session.say(Message::text(format!(r#"{{"id":78,"call":"finish","path":"{text}"}}"#))).await;
        assert_eq!(session.reply(78).await["problem"]["code"], "malformed", "the reply has the call's number");
    }
    assert_eq!(world.get("operator", "/v1/messages").await.is(200)["items"], json!([]));
}

/// Lets hive ask kilo, and returns kilo's turn and the request's id.
async fn asked(world: &World, n: usize) -> (String, String) {
    world.send("operator", "kilo", &format!("T-{n}"), "go").await.is(201);
    let taken = world.take("kilo").await;
    (taken["turn"]["id"].as_str().unwrap().to_owned(), taken["message"]["request_id"].as_str().unwrap().to_owned())
}

async fn answered(world: &World, request: &str, finished: &Value, text: &str) {
    assert!(finished["warning"].as_str().is_some_and(|warning| warning.contains("U+FFFD")), "{finished}");
    let state = world.get("operator", &format!("/v1/requests/{request}")).await.is(200);
    assert_eq!(state["response"]["body"], text, "{state}");
}

#[tokio::test]
async fn an_answer_is_taken_whatever_its_bytes_are_and_a_warning_says_what_was_replaced() {
    let world = World::with(&["kilo"]).await;
    let mut session = Raw::of(&world, "kilo").await;
    let mut n = 0;
    for (text, _, mended) in FLAWS {
        n += 1;
        let (turn, request) = asked(&world, n).await;
        let path = format!("/v1/turns/{turn}/finish");
        let body = around(r#"{"answer":""#, text, "\"}");
        let finished = raw(&world, "kilo", &path, "application/json", body).await.is(200);
        answered(&world, &request, &finished, mended).await;

        let (_, request) = asked(&world, n + 10).await;
        let call = tool("finish_turn", r#"{"answer":"BYTES"}"#);
        let (before, after) = call.split_once("BYTES").unwrap();
        let told = raw(&world, "kilo", "/mcp", "application/json", around(before, text, after)).await.is(200);
        answered(&world, &request, &told["result"]["structuredContent"], mended).await;

        let (_, request) = asked(&world, n + 20).await;
        let before = format!(r#"{{"type":"response","to":"operator","request_id":"{request}","body":""#);
        let body = around(&before, text, "\"}");
        let finished = raw(&world, "kilo", "/v1/messages", "application/json", body).await.is(201);
        answered(&world, &request, &finished, mended).await;

        let Ok(text) = std::str::from_utf8(text) else { continue };
        let (turn, request) = asked(&world, n + 30).await;
        let call = format!(r#"{{"id":70,"call":"finish","path":"{turn}","body":{{"answer":"{text}"}}}}"#);
        session.say(Message::text(call)).await;
        answered(&world, &request, &session.reply(70).await["body"], mended).await;
    }
    let (turn, _) = asked(&world, 99).await;
    let finished = world.post("kilo", &format!("/v1/turns/{turn}/finish"), json!({ "answer": "café 😀" })).await;
    assert_eq!(finished.is(200)["warning"], Value::Null);
}

#[tokio::test]
async fn a_frame_that_is_no_text_ends_the_session_with_the_reason() {
    let world = World::with(&["kilo"]).await;
    let mut session = Raw::of(&world, "kilo").await;
    session.write(b"\x81\x84\0\0\0\0caf\xe9").await;
    let (code, reason) = session.closed().await;
    assert_eq!(code, 1007, "{reason}");
    assert!(reason.contains("UTF-8"), "{reason}");
}

#[tokio::test]
async fn text_that_is_too_long_is_answered_with_the_limit_on_every_surface() {
    let world = World::with(&["kilo", "hive"]).await;
    let long = "x".repeat(LONG);
    let message = json!({ "type": "request", "to": "hive", "ref": "T-1", "body": long });
    let too_large = |told: &Value| {
        assert_eq!(told["code"], "too_large", "{told}");
        assert!(told["detail"].as_str().unwrap().contains("655360"), "{told}");
    };
    // The answer has to arrive although the server doesn't take the whole body.
    for _ in 0..20 {
        too_large(&world.post("kilo", "/v1/messages", message.clone()).await.refused(413, "too_large"));
        let call = tool("send_agent_message", &json!({ "target_agent_id": "hive", "message": long }).to_string());
        too_large(&raw(&world, "kilo", "/mcp", "application/json", call.into_bytes()).await.refused(413, "too_large"));
    }
    let mut session = Raw::of(&world, "kilo").await;
    session.say(Message::text(json!({ "id": 1, "call": "send", "body": message }).to_string())).await;
    let (code, reason) = session.closed().await;
    assert_eq!(code, 1009, "{reason}");
    assert!(reason.contains("too_large") && reason.contains("671744"), "{reason}");
}
