//! Checks the fake Discord against Discord's behavior, with a client that knows only its addresses.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::world::{Id, Mishap, TestDiscord, intent, kind, may, time_ms};

/// The intents of the client: guilds, messages, reactions, typing, content.
const INTENTS: u64 = intent::GUILDS | intent::MESSAGES | intent::REACTIONS | intent::TYPING | intent::CONTENT;

/// A bot's side of the gateway.
struct GatewayClient {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    seq: u64,
}

impl GatewayClient {
    async fn open(world: &TestDiscord) -> Self {
        let (socket, _) = connect_async(format!("{}/?v=10&encoding=json", world.gateway())).await.unwrap();
        let mut line = Self { socket, seq: 0 };
        let hello = line.next().await.unwrap();
        assert_eq!(hello["op"], 10);
        assert!(hello["d"]["heartbeat_interval"].as_u64().unwrap() > 0);
        line
    }

    async fn identified(world: &TestDiscord, token: &str, intents: u64) -> (Self, Value) {
        let mut line = Self::open(world).await;
        line.send(&json!({"op": 2, "d": {"token": token, "intents": intents, "properties": {}}})).await;
        let ready = line.event("READY").await;
        line.event("GUILD_CREATE").await;
        (line, ready)
    }

    async fn send(&mut self, frame: &Value) {
        self.socket.send(Frame::text(frame.to_string())).await.unwrap();
    }

    /// Returns the next frame; the error is the code that closed the connection.
    async fn next(&mut self) -> Result<Value, u16> {
        loop {
            match self.socket.next().await {
                Some(Ok(Frame::Text(text))) => {
                    let frame: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
                    self.seq = frame["s"].as_u64().unwrap_or(self.seq);
                    return Ok(frame);
                }
                Some(Ok(Frame::Close(frame))) => return Err(frame.map_or(1006, |frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(1006),
            }
        }
    }

    /// Returns the data of the next event, which must have this name.
    async fn event(&mut self, name: &str) -> Value {
        let frame = self.next().await.unwrap();
        assert_eq!(frame["t"], name, "{frame}");
        frame["d"].clone()
    }
}

/// A bot's side of the REST interface.
struct Rest {
    client: reqwest::Client,
    base: String,
    token: String,
}

impl Rest {
    fn new(world: &TestDiscord, token: &str) -> Self {
        let base = format!("{}/api/v10", world.http());
        Self { client: lastword_client::plain_http().unwrap(), base, token: format!("Bot {token}") }
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = self.client.request(method.parse().unwrap(), format!("{}{path}", self.base));
        let response = request.header("Authorization", &self.token).json(body).send().await;
        // Status 0 if no response arrived.
        let Ok(response) = response else { return (0, Value::Null) };
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    async fn post(&self, channel: Id, body: &Value) -> (u16, Value) {
        self.call("POST", &format!("/channels/{channel}/messages"), body).await
    }
}

#[tokio::test]
async fn a_bot_identifies_hears_and_posts() {
    let world = TestDiscord::start();
    let (bot, ann, den) = (world.bot("kilo"), world.human("ann"), world.channel("den"));
    let (mut line, ready) = GatewayClient::identified(&world, "token-kilo", INTENTS).await;
    assert_eq!(ready["user"]["id"], bot.to_string());
    line.send(&json!({"op": 1, "d": null})).await;
    assert_eq!(line.next().await.unwrap()["op"], 11);

    let asked = world.posts(ann, den, &format!("<@{bot}> hello"));
    let heard = line.event("MESSAGE_CREATE").await;
    assert_eq!(heard["id"], asked.to_string());
    assert_eq!(heard["content"], format!("<@{bot}> hello"));
    assert_eq!(heard["author"]["bot"], false);
    assert_eq!(heard["mentions"][0]["id"], bot.to_string());
    assert_eq!(heard["timestamp"], "2026-01-01T00:00:00.007000+00:00");

    let rest = Rest::new(&world, "token-kilo");
    let reference = json!({"message_id": asked.to_string()});
    let body = json!({"content": "hi @everyone", "message_reference": reference, "allowed_mentions": {"parse": []}});
    let (status, posted) = rest.post(den, &body).await;
    assert_eq!((status, posted["type"].as_u64()), (200, Some(u64::from(kind::REPLY))));
    assert_eq!(posted["referenced_message"]["id"], asked.to_string());
    assert_eq!((&posted["mentions"], &posted["mention_everyone"]), (&json!([]), &json!(false)));
    assert_eq!(line.event("MESSAGE_CREATE").await["id"], posted["id"], "a bot hears itself, too");
    let after = format!("/channels/{den}/messages?after={asked}&limit=100");
    assert_eq!(rest.call("GET", &after, &Value::Null).await.1[0]["id"], posted["id"]);
    assert_eq!(Rest::new(&world, "wrong").post(den, &body).await.0, 401);
}

#[tokio::test]
async fn what_a_dropped_line_missed_is_replayed_and_a_lost_session_is_not() {
    let world = TestDiscord::start();
    let (bot, ann, den) = (world.bot("kilo"), world.human("ann"), world.channel("den"));
    let (mut line, ready) = GatewayClient::identified(&world, "token-kilo", INTENTS).await;
    world.posts(ann, den, "one");
    line.event("MESSAGE_CREATE").await;
    let seq = line.seq;
    world.cut(bot);
    assert_eq!(line.next().await, Err(1006));
    world.posts(ann, den, "two");

    let resume = json!({"op": 6, "d": {"token": "token-kilo", "session_id": ready["session_id"], "seq": seq}});
    let mut line = GatewayClient::open(&world).await;
    line.send(&resume).await;
    assert_eq!(line.event("MESSAGE_CREATE").await["content"], "two");
    line.event("RESUMED").await;

    world.ask_to_reconnect(bot);
    assert_eq!(line.next().await.unwrap()["op"], 7);
    world.duplicate(bot, world.messages(den)[0].id);
    assert_eq!(line.event("MESSAGE_CREATE").await["content"], "one");
    world.malformed(bot);
    assert_eq!(line.next().await.unwrap(), Value::Null);
    assert_eq!(line.next().await.unwrap()["op"], 99);
    line.event("NEVER_HEARD_OF").await;
    line.event("MESSAGE_CREATE").await;
    world.close(bot, 4000);
    assert_eq!(line.next().await, Err(4000));
    world.cut_for_good(bot);
    let mut line = GatewayClient::open(&world).await;
    line.send(&resume).await;
    let invalid = line.next().await.unwrap();
    assert_eq!((&invalid["op"], &invalid["d"]), (&json!(9), &json!(false)));
    line.send(&json!({"op": 2, "d": {"token": "token-kilo", "intents": INTENTS}})).await;
    line.event("READY").await;
    line.event("GUILD_CREATE").await;
    world.invalidate(bot, true);
    assert_eq!(line.next().await.unwrap()["d"], true);
    world.deafen(true);
    line.send(&json!({"op": 1, "d": null})).await;
    world.posts(ann, den, "three");
    assert_eq!(line.event("MESSAGE_CREATE").await["content"], "three", "no heartbeat was answered before it");
    world.sever(bot);
    assert_eq!(line.next().await, Err(1006));
    world.mend(bot);
    world.heartbeats_every(50);
    assert_eq!(world.with(|discord| (discord.identified[&bot], discord.resumed[&bot])), (2, 1));
}

#[tokio::test]
async fn tokens_and_intents_are_checked_and_content_is_hidden_without_its_intent() {
    let world = TestDiscord::start();
    let (bot, ann, den) = (world.bot("kilo"), world.human("ann"), world.channel("den"));
    world.without_intent(bot, intent::CONTENT);
    for (token, intents, code) in [("wrong", INTENTS, 4004), ("token-kilo", INTENTS, 4014)] {
        let mut line = GatewayClient::open(&world).await;
        line.send(&json!({"op": 2, "d": {"token": token, "intents": intents}})).await;
        assert_eq!(line.next().await, Err(code));
    }
    let (mut line, _) = GatewayClient::identified(&world, "token-kilo", INTENTS & !intent::CONTENT).await;
    world.posts(ann, den, "secret");
    assert_eq!(line.event("MESSAGE_CREATE").await["content"], "");
    world.posts(ann, den, &format!("<@{bot}> for you"));
    assert_eq!(line.event("MESSAGE_CREATE").await["content"], format!("<@{bot}> for you"));
    line.send(&json!({"op": 2, "d": {"token": "token-kilo", "intents": 1}})).await;
    assert_eq!(line.next().await, Err(4005));

    let rest = Rest::new(&world, "token-kilo");
    let listed = rest.call("GET", &format!("/channels/{den}/messages"), &Value::Null).await.1;
    assert_eq!((&listed[1]["content"], &listed[0]["content"]), (&json!(""), &json!(format!("<@{bot}> for you"))));
    assert_eq!(rest.call("GET", "/applications/@me", &Value::Null).await.1["flags"], (1 << 13) | (1 << 15));
    world.revoke(bot);
    assert_eq!(rest.call("GET", "/users/@me", &Value::Null).await.0, 401);
}

#[tokio::test]
async fn channels_are_closed_to_whom_they_are_denied() {
    let world = TestDiscord::start();
    let (bot, ann, den, attic) = (world.bot("kilo"), world.human("ann"), world.channel("den"), world.channel("attic"));
    world.deny(bot, attic, may::VIEW);
    world.deny(bot, den, may::SEND);
    let (mut line, _) = GatewayClient::identified(&world, "token-kilo", INTENTS).await;
    world.posts(ann, attic, "unseen");
    let asked = world.posts(ann, den, "seen");
    assert_eq!(line.event("MESSAGE_CREATE").await["content"], "seen");
    let rest = Rest::new(&world, "token-kilo");
    let hi = json!({"content": "hi"});
    for (channel, code) in [(attic, 50001), (den, 50013), (7, 10003)] {
        assert_eq!(rest.post(channel, &hi).await.1["code"], code);
    }
    let path = format!("/channels/{den}/messages/{asked}");
    assert_eq!(rest.call("PATCH", &path, &hi).await.1["code"], 50005);
    let thread = rest.call("POST", &format!("{path}/threads"), &json!({"name": "t"})).await.1;
    assert_eq!(thread["id"], asked.to_string());
    assert_eq!(rest.call("POST", &format!("{path}/threads"), &json!({"name": "t"})).await.1["code"], 160_004);
    line.event("THREAD_CREATE").await;
    assert_eq!(line.event("MESSAGE_CREATE").await["type"], kind::THREAD_STARTER);
    assert_eq!(rest.post(asked, &hi).await.0, 200, "a thread asks for another permission");
}

#[tokio::test]
async fn a_nonce_makes_a_post_once_for_a_few_minutes_whatever_happens_to_the_answer() {
    let world = TestDiscord::start();
    let (_, den) = (world.bot("kilo"), world.channel("den"));
    let rest = Rest::new(&world, "token-kilo");
    let body = json!({"content": "once", "nonce": "m-1", "enforce_nonce": true});
    world.next_call("POST", "/messages", Mishap::BadGateway);
    assert_eq!(rest.post(den, &body).await.0, 502);
    world.next_call("POST", "/messages", Mishap::Lost);
    assert_eq!(rest.post(den, &body).await.1, Value::Null);
    let (_, first) = rest.post(den, &body).await;
    let made = time_ms(world.messages(den)[0].id);
    assert_eq!(first["nonce"], "m-1");
    assert_eq!(world.messages(den).len(), 1);
    world.pass(Duration::from_secs(600));
    assert_ne!(rest.post(den, &body).await.1["id"], first["id"]);
    assert_eq!(world.messages(den).len(), 2);
    assert!(time_ms(world.messages(den)[1].id) >= made + 600_000);
    let long = json!({"content": "x".repeat(2001)});
    assert_eq!(rest.post(den, &long).await.1["errors"]["content"]["_errors"][0]["code"], "BASE_TYPE_MAX_LENGTH");
    assert_eq!(rest.post(den, &json!({"content": " "})).await.1["code"], 50006);
}

#[tokio::test]
async fn who_posts_too_fast_is_told_when_to_try_again() {
    let world = TestDiscord::start();
    let (bot, den) = (world.bot("kilo"), world.channel("den"));
    world.posts_per_window(2, 60_000);
    let rest = Rest::new(&world, "token-kilo");
    let body = json!({"content": "x"});
    assert_eq!(rest.post(den, &body).await.0, 200);
    assert_eq!(rest.post(den, &body).await.0, 200);
    let (status, wait) = rest.post(den, &body).await;
    assert_eq!((status, &wait["global"]), (429, &json!(false)));
    assert!(wait["retry_after"].as_f64().unwrap() > 1.0);
    world.next_call_of(Some(bot), "GET", "/users/@me", Mishap::Limited { retry_after_ms: 1500, global: true });
    world.next_call("GET", "/users/@me", Mishap::Refused(503));
    let limited = rest.call("GET", "/users/@me", &Value::Null).await;
    assert_eq!((limited.0, &limited.1["retry_after"], &limited.1["global"]), (429, &json!(1.5), &json!(true)));
    assert_eq!(rest.call("GET", "/users/@me", &Value::Null).await.0, 503);
    assert_eq!(rest.call("GET", "/users/@me", &Value::Null).await.0, 200);
    assert_eq!(
        (world.answered(429), world.calls()[0].path.as_str()),
        (2, format!("/channels/{den}/messages").as_str())
    );
    let first = world.calls()[0].clone();
    assert_eq!((first.bot, first.method.as_str()), (Some(bot), "POST"));
}

#[test]
fn a_held_call_does_nothing_until_it_is_let_go() {
    let world = TestDiscord::start();
    let (_, den) = (world.bot("kilo"), world.channel("den"));
    world.hold("POST", "/messages");
    std::thread::scope(|scope| {
        let posting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let rest = Rest::new(&world, "token-kilo");
            runtime.block_on(rest.post(den, &json!({"content": "late"}))).0
        });
        world.wait("a held call", |discord| discord.holds.iter().any(|hold| hold.waiting == 1).then_some(()));
        assert_eq!((world.held(), world.messages(den).len()), (1, 0));
        world.release();
        assert_eq!(posting.join().unwrap(), 200);
    });
    assert_eq!(world.messages(den)[0].content, "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_button_opens_a_form_and_its_answer_changes_the_message() {
    let world = TestDiscord::start();
    let (bot, ann, den) = (world.bot("kilo"), world.human("ann"), world.channel("den"));
    let (mut line, _) = GatewayClient::identified(&world, "token-kilo", INTENTS).await;
    let rest = Rest::new(&world, "token-kilo");
    let button = json!({"type": 2, "style": 1, "label": "Respond", "custom_id": "respond"});
    let body = json!({"content": "card", "components": [{"type": 1, "components": [button]}]});
    let card = rest.post(den, &body).await.1["id"].as_str().unwrap().parse().unwrap();
    line.event("MESSAGE_CREATE").await;
    assert_eq!(world.message(card).labels(), ["Respond"]);

    let click = world.clicks(ann, card, "respond");
    let heard = line.event("INTERACTION_CREATE").await;
    assert_eq!((&heard["type"], &heard["message"]["id"]), (&json!(3), &json!(card.to_string())));
    let input = json!({"type": 4, "custom_id": "words", "label": "Words", "style": 2});
    let modal = json!({"type": 9, "data": {"title": "Respond", "custom_id": "form", "components": [{"type": 1, "components": [input]}]}});
    let path = format!("/interactions/{}/{}/callback", click, heard["token"].as_str().unwrap());
    assert_eq!(rest.call("POST", &path, &modal).await.0, 204);
    assert_eq!(rest.call("POST", &path, &modal).await.1["code"], 40060);
    world.wait_answered(click);

    let form = world.submits(click, &[("words", "no")]);
    let heard = line.event("INTERACTION_CREATE").await;
    assert_eq!(heard["data"]["components"][0]["components"][0]["value"], "no");
    let path = format!("/interactions/{}/{}/callback", form, heard["token"].as_str().unwrap());
    let update = json!({"type": 7, "data": {"content": "done", "components": []}});
    assert_eq!(rest.call("POST", &path, &update).await.0, 204);
    assert_eq!((world.wait_answer(form).content.as_str(), world.message(card).buttons().len()), ("done", 0));
    assert_eq!(line.event("MESSAGE_UPDATE").await["content"], "done");
    assert_eq!(world.message(card).author.id, bot);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_answered_later_for_the_one_who_gave_it_alone() {
    let world = TestDiscord::start();
    let (bot, ann, den) = (world.bot("kilo"), world.human("ann"), world.channel("den"));
    let (mut line, _) = GatewayClient::identified(&world, "token-kilo", INTENTS).await;
    let rest = Rest::new(&world, "token-kilo");
    let app = world.with(|discord| discord.bots[&bot].application);
    let sub = json!({"type": 1, "name": "tree", "description": "Shows it"});
    let commands = json!([{"name": "lastword", "description": "Lastword", "options": [sub]}]);
    let registered = rest.call("PUT", &format!("/applications/{app}/commands"), &commands).await;
    assert_eq!(registered.0, 200);
    assert_eq!(rest.call("GET", &format!("/applications/{app}/commands"), &Value::Null).await.1, registered.1);
    let given = world.commands(ann, bot, den, "lastword tree", &[("ref", "A-1")]);
    let heard = line.event("INTERACTION_CREATE").await;
    assert_eq!(heard["data"]["options"][0]["options"][0]["value"], "A-1");
    let token = heard["token"].as_str().unwrap();
    let later = json!({"type": 5, "data": {"flags": 64}});
    assert_eq!(rest.call("POST", &format!("/interactions/{given}/{token}/callback"), &later).await.0, 204);
    let path = format!("/webhooks/{app}/{token}/messages/@original");
    assert_eq!(rest.call("PATCH", &path, &json!({"content": "the tree"})).await.0, 200);
    let answer = world.wait_answer(given);
    assert_eq!((answer.content.as_str(), answer.only_for), ("the tree", Some(ann)));
    assert!(world.messages(den).is_empty(), "nobody else sees it");
}

#[tokio::test(flavor = "multi_thread")]
async fn people_reply_react_edit_pin_and_speak_in_any_guise() {
    let world = TestDiscord::start();
    let (bot, ann, den) = (world.bot("kilo"), world.human("ann"), world.channel("den"));
    let (mut line, _) = GatewayClient::identified(&world, "token-kilo", INTENTS).await;
    let rest = Rest::new(&world, "token-kilo");
    let said = rest.post(den, &json!({"content": "said"})).await.1["id"].as_str().unwrap().parse().unwrap();
    line.event("MESSAGE_CREATE").await;
    world.replies(ann, said, "oh");
    assert_eq!(line.event("MESSAGE_CREATE").await["mentions"][0]["id"], bot.to_string(), "a reply pings");
    world.reacts(ann, said, "👍");
    assert_eq!(line.event("MESSAGE_REACTION_ADD").await["emoji"]["name"], "👍");
    let thumbs = format!("/channels/{den}/messages/{said}/reactions/%E2%9C%85/@me");
    assert_eq!(rest.call("PUT", &thumbs, &Value::Null).await.0, 204);
    line.event("MESSAGE_REACTION_ADD").await;
    world.edits(said, "said otherwise");
    assert!(line.event("MESSAGE_UPDATE").await["edited_timestamp"].is_string());
    world.pins(ann, said);
    line.event("MESSAGE_UPDATE").await;
    assert_eq!(line.event("MESSAGE_CREATE").await["type"], kind::PIN);
    world.system(ann, den, kind::JOIN);
    assert_eq!(line.event("MESSAGE_CREATE").await["type"], kind::JOIN);
    let hook = world.webhook(den, "hook");
    world.hook_posts(hook, "ann", "I am ann");
    let heard = line.event("MESSAGE_CREATE").await;
    assert_eq!((&heard["webhook_id"], &heard["author"]["username"]), (&json!(hook.to_string()), &json!("ann")));
    world.posts_file(ann, den, "", "a.png");
    assert_eq!(line.event("MESSAGE_CREATE").await["attachments"][0]["filename"], "a.png");
    assert_eq!(rest.call("POST", &format!("/channels/{den}/typing"), &Value::Null).await.0, 204);
    line.event("TYPING_START").await;
    let thread = world.opens_thread(ann, said, "the thread");
    line.event("THREAD_CREATE").await;
    line.event("MESSAGE_CREATE").await;
    world.posts(ann, thread, "inside");
    assert_eq!(line.event("MESSAGE_CREATE").await["channel_id"], said.to_string());
    assert_eq!(
        (world.wait_thread(said).parent, world.wait_message(thread, ann, "inside").mentions.len()),
        (Some(den), 0)
    );
    world.deletes(said);
    assert_eq!(line.event("MESSAGE_DELETE").await["id"], said.to_string());
    let wanted = world.wait_for(Duration::ZERO, |discord| discord.connected(bot).then_some(()));
    assert!(wanted.is_some() && world.connected(bot));
    world.wait_connected(bot);
}
