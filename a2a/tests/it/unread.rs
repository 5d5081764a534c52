//! Answers that a caller doesn't read count against its own bound, not against another's (L4).

use std::time::Duration;

use lastword_client::plain_http;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::world::{World, until};

/// The bytes of an answer, of which a page of a list has as many as it may.
const ANSWER_BYTES: usize = 250_000;
/// Tasks whose answers fill a page.
const TASKS: usize = 5;
/// Pages of one connection: more than the buffers of the operating system take.
const PAGES: usize = 5;
/// Connections whose unread page takes all of a caller's room.
const CONNECTIONS: usize = 12;

/// How long the lists may take, and then the call that waits for room.
const LATE: Duration = Duration::from_secs(120);

/// Asks for pages of tasks on a connection, and reads none of them.
async fn unread_pages(world: &World) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(world.server.addr()).await.unwrap();
    let request = format!(
        "GET /a2a/coder/tasks?includeArtifacts=true HTTP/1.1\r\nHost: {}\r\nA2A-Version: 1.0\r\nAuthorization: Bearer {}\r\n\r\n",
        world.server.addr(),
        world.token("caller")
    );
    stream.write_all(request.repeat(PAGES).as_bytes()).await.unwrap();
    stream
}

/// Returns whether a task is shown; its caller isn't refused for another reason than its unread answers.
async fn is_shown(world: &World, task: &Value) -> bool {
    // A connection counts as its first caller's.
    let client = plain_http().unwrap();
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": { "id": task["id"] } });
    let request = client.post(world.url("/a2a/coder/")).bearer_auth(world.token("caller")).header("A2A-Version", "1.0");
    let answer: Value = request.json(&body).send().await.unwrap().json().await.unwrap();
    let refused = &answer["error"]["data"][0]["reason"];
    assert!(refused.is_null() || refused == "SATURATED", "{answer}");
    refused.is_null()
}

#[tokio::test]
async fn a_caller_that_reads_no_answers_is_refused_more_of_them_until_it_does() {
    let mut world = World::new().await;
    let mut task = Value::Null;
    for _ in 0..TASKS {
        task = world.sent("caller", world.message("Write.")).await;
        let delivery = world.take("coder").await;
        world.finish("coder", &delivery, json!({ "answer": "x".repeat(ANSWER_BYTES) })).await;
    }
    let mut unread = Vec::new();
    for _ in 0..CONNECTIONS {
        unread.push(unread_pages(&world).await);
    }
    let refused = async { while is_shown(&world, &task).await {} };
    tokio::time::timeout(LATE, refused).await.expect("a refusal");
    world.http = plain_http().unwrap();
    assert_eq!(world.rpc("other", "ListTasks", json!({})).await.unwrap()["totalSize"], 0, "another caller is served");
    drop(unread);
    until(async || is_shown(&world, &task).await).await;
}
