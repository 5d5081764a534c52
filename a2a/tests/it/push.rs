//! Push notifications: to whom they go, in which order, and that none is lost.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::world::{SOON, World, edge, state};

/// A receiver of notifications.
struct Receiver(TcpListener);

impl Receiver {
    async fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").await.unwrap())
    }

    fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.0.local_addr().unwrap())
    }

    /// Takes one notification and answers it with a status. Returns its head and its body.
    async fn take(&self, status: &str) -> (String, Value) {
        let taken = tokio::time::timeout(SOON, async {
            let (mut stream, _) = self.0.accept().await.unwrap();
            let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
            loop {
                let n = stream.read(&mut buffer).await.unwrap();
                bytes.extend_from_slice(&buffer[..n]);
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                    let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\n\r\n");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    return (head.to_owned(), serde_json::from_str(body).unwrap());
                }
            }
        });
        taken.await.expect("a notification comes")
    }
}

#[tokio::test]
async fn changes_are_posted_in_order_with_the_callers_credentials_until_they_are_taken() {
    let world = World::new().await;
    let receiver = Receiver::new().await;
    let config = json!({
        "url": receiver.url(), "token": "t-1", "authentication": { "scheme": "Bearer", "credentials": "secret" },
    });
    let params = json!({
        "message": world.message("Do it."),
        "configuration": { "returnImmediately": true, "taskPushNotificationConfig": config },
    });
    let task = world.rpc("caller", "SendMessage", params).await.unwrap()["task"].take();
    let (head, body) = receiver.take("500").await;
    assert!(head.starts_with("POST /hook?a=1 HTTP/1.1"), "{head}");
    for line in ["authorization: Bearer secret", "x-a2a-notification-token: t-1", "content-type: application/a2a+json"]
    {
        assert!(head.contains(line), "{line}: {head}");
    }
    assert_eq!(receiver.take("200").await.1, body, "what was refused comes again");
    assert_eq!((state(&body), &body["task"]["id"]), ("TASK_STATE_SUBMITTED", &task["id"]));
    let delivery = world.take("coder").await;
    assert_eq!(state(&receiver.take("204").await.1), "TASK_STATE_WORKING");
    // A restart goes on with what was not told.
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
    let (_, artifact) = receiver.take("500").await;
    assert_eq!(artifact["artifactUpdate"]["artifact"]["parts"][0]["text"], "Done.");
    let world = world.restarted().await;
    assert_eq!(receiver.take("200").await.1, artifact);
    assert_eq!(state(&receiver.take("200").await.1), "TASK_STATE_COMPLETED");
    let listed = world.rpc("caller", "ListTaskPushNotificationConfigs", json!({ "taskId": task["id"] })).await.unwrap();
    assert_eq!(listed["configs"][0]["url"], receiver.url());
}

#[tokio::test]
async fn a_configuration_is_made_shown_and_deleted_by_its_caller() {
    let world = World::new().await;
    let receiver = Receiver::new().await;
    let task = world.sent("caller", world.message("Do it.")).await;
    let path = format!("tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
    let body = json!({ "id": "mine", "url": receiver.url() });
    let (status, made) = world.rest("caller", Method::POST, &path, Some(body)).await;
    assert_eq!((status, &made["id"], &made["taskId"]), (200, &json!("mine"), &task["id"]));
    assert_eq!(state(&receiver.take("200").await.1), "TASK_STATE_SUBMITTED");
    let (_, shown) = world.rest("caller", Method::GET, &format!("{path}/mine"), None).await;
    assert_eq!(shown, made);
    assert_eq!(world.rest("other", Method::GET, &format!("{path}/mine"), None).await.0, 404);
    assert_eq!(world.rest("other", Method::DELETE, &format!("{path}/mine"), None).await.0, 404);
    for _ in 0..2 {
        assert_eq!(world.rest("caller", Method::DELETE, &format!("{path}/mine"), None).await.0, 200);
    }
    assert_eq!(world.rest("caller", Method::GET, &format!("{path}/mine"), None).await.0, 404);
    for n in 0..9 {
        let body = json!({ "id": format!("{n}"), "url": receiver.url() });
        let (status, body) = world.rest("caller", Method::POST, &path, Some(body)).await;
        assert_eq!(status == 200, n < 8, "{body}");
    }
}

#[tokio::test]
async fn no_notification_goes_to_an_inner_address() {
    let inner = |config: &mut lastword_server::Config| {
        let publish = vec![lastword_a2a::Published { name: "coder".into(), description: String::new() }];
        config.mounts = vec![lastword_a2a::mount(lastword_a2a::A2aSettings { publish, allow_private: false })];
    };
    let world = World::with(inner).await;
    let task = world.sent("caller", world.message("Do it.")).await;
    let unlimited = World::with(|config| config.mounts = vec![edge(&["coder"])]).await;
    let other = unlimited.sent("caller", unlimited.message("Do it.")).await;
    for (url, private_too) in [
        ("http://127.0.0.1:7171/", false),
        ("https://127.0.0.1/", false),
        ("https://[::1]/", false),
        ("https://10.0.0.1/", false),
        ("https://169.254.169.254/latest", true),
        ("https://[fd00:ec2::254]/", true),
        ("http://0.0.0.0/", true),
        ("file:///etc/passwd", true),
        ("https://user:secret@example.com/", true),
        ("nonsense", true),
        ("", true),
    ] {
        let config = |task: &Value| json!({ "taskId": task["id"], "url": url });
        let refused = world.rpc("caller", "CreateTaskPushNotificationConfig", config(&task)).await.unwrap_err();
        assert_eq!(refused["code"], -32602, "{url}: {refused}");
        if private_too {
            let refused = unlimited.rpc("caller", "CreateTaskPushNotificationConfig", config(&other)).await;
            assert_eq!(refused.unwrap_err()["code"], -32602, "{url}");
        }
    }
    let wrong = json!({ "taskId": other["id"], "url": "http://127.0.0.1:9/", "token": "a\nb" });
    assert_eq!(unlimited.rpc("caller", "CreateTaskPushNotificationConfig", wrong).await.unwrap_err()["code"], -32602);
}

#[tokio::test]
async fn a_configuration_that_has_no_room_on_the_disk_is_refused_and_the_one_before_it_stays() {
    let world = World::new().await;
    let [receiver, other] = [Receiver::new().await, Receiver::new().await];
    let task = world.sent("caller", world.message("Do it.")).await;
    let path = format!("tasks/{}/pushNotificationConfigs", task["id"].as_str().unwrap());
    let config = |id: &str, to: &Receiver| Some(json!({ "id": id, "url": to.url() }));
    let (_, made) = world.rest("caller", Method::POST, &path, config("mine", &receiver)).await;
    assert_eq!(state(&receiver.take("200").await.1), "TASK_STATE_SUBMITTED");
    // A folder where the draft of the file is written: it can't be, as on a full disk.
    let draft = world.config.data_dir.join("a2a-push.new");
    std::fs::create_dir(&draft).unwrap();
    for id in ["mine", "yours"] {
        assert_eq!(world.rest("caller", Method::POST, &path, config(id, &other)).await.0, 500, "{id}");
    }
    let (_, listed) = world.rest("caller", Method::GET, &path, None).await;
    assert_eq!(listed["configs"], json!([made]));
    let delivery = world.take("coder").await;
    assert_eq!(state(&receiver.take("200").await.1), "TASK_STATE_WORKING");
    std::fs::remove_dir(&draft).unwrap();
    assert_eq!(world.rest("caller", Method::POST, &path, config("yours", &other)).await.0, 200);
    assert_eq!(state(&other.take("200").await.1), "TASK_STATE_WORKING");
    world.finish("coder", &delivery, json!({ "answer": "Done." })).await;
}
