//! The gateway: the sessions of bots, their events, and faults of their connections.

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Shared;
use super::json;
use super::model::{Discord, Id, intent, may};

/// An action on a connection.
#[derive(Debug)]
pub(crate) enum Out {
    Text(String),
    /// Close it with this code.
    Close(u16),
    /// Cut it without a close frame.
    Cut,
}

/// A session of a bot, which outlives its connections.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) bot: Id,
    pub(crate) intents: u64,
    pub(crate) seq: u64,
    /// Everything sent so far, for a replay.
    pub(crate) sent: Vec<(u64, String)>,
    /// The session's current connection.
    pub(crate) line: Option<UnboundedSender<Out>>,
}

impl Session {
    fn dispatch(&mut self, name: &str, data: &Value) {
        self.seq += 1;
        let text = json!({"op": 0, "t": name, "s": self.seq, "d": data}).to_string();
        self.sent.push((self.seq, text.clone()));
        self.send(Out::Text(text));
    }

    pub(crate) fn send(&mut self, out: Out) {
        let gone = self.line.as_ref().is_some_and(|line| line.send(out).is_err());
        if gone {
            self.line = None;
        }
    }
}

impl Discord {
    /// Sends the event that `data` builds for each bot to every session that has the intent and whose bot sees the
    /// channel.
    pub(crate) fn tell(
        &mut self,
        name: &str,
        channel: Option<Id>,
        wanted: u64,
        data: impl Fn(&Self, Id, u64) -> Option<Value>,
    ) {
        let sees = |bot: Id| channel.is_none_or(|channel| self.permissions(bot, channel) & may::VIEW != 0);
        let fits = |s: &&Session| s.intents & wanted == wanted && sees(s.bot);
        let told: Vec<Option<Value>> =
            self.sessions.values().map(|s| Some(s).filter(fits).and_then(|s| data(self, s.bot, s.intents))).collect();
        for (session, data) in self.sessions.values_mut().zip(told) {
            if let Some(data) = data {
                session.dispatch(name, &data);
            }
        }
    }

    /// Sends the event of a new or changed message.
    pub(crate) fn tell_message(&mut self, name: &str, id: Id) {
        let channel = self.messages.get(&id).map(|m| m.channel);
        self.tell(name, channel, intent::MESSAGES, |discord, bot, intents| {
            let message = discord.messages.get(&id)?;
            let mut value = json::message(discord, message, bot, intents);
            value["guild_id"] = json!(discord.guild.to_string());
            if message.webhook.is_none() {
                value["member"] = json::member(discord, message.author.id);
            }
            Some(value)
        });
    }

    fn identify(&mut self, data: &Value, line: &UnboundedSender<Out>) -> Result<String, u16> {
        let token = data["token"].as_str().unwrap_or_default().trim_start_matches("Bot ");
        let bot = self.by_token(token).ok_or(4004_u16)?.clone();
        let intents = data["intents"].as_u64().ok_or(4013_u16)?;
        if intents & intent::PRIVILEGED & !bot.privileged != 0 {
            return Err(4014);
        }
        let count = self.identified.entry(bot.id).or_default();
        *count += 1;
        let id = format!("session-{}-{count}", bot.id);
        let mut session = Session { bot: bot.id, intents, seq: 0, sent: Vec::new(), line: Some(line.clone()) };
        let user = self.users.get(&bot.id).map(json::current_user).unwrap_or_default();
        session.dispatch(
            "READY",
            &json!({
                "v": 10, "user": user, "guilds": [{"id": self.guild.to_string(), "unavailable": true}],
                "session_id": id, "resume_gateway_url": format!("ws://{}", self.address), "shard": [0, 1],
                "application": {"id": bot.id.to_string(), "flags": json::application_flags(&bot)},
            }),
        );
        if intents & intent::GUILDS != 0 {
            session.dispatch("GUILD_CREATE", &json::guild_create(self, bot.id, intents));
        }
        self.sessions.retain(|_, old| old.bot != bot.id || old.line.is_some());
        self.sessions.insert(id.clone(), session);
        Ok(id)
    }

    /// Resumes a session, or returns `None`.
    fn resume(&mut self, data: &Value, line: &UnboundedSender<Out>) -> Option<String> {
        let token = data["token"].as_str().unwrap_or_default().trim_start_matches("Bot ");
        let bot = self.by_token(token)?.id;
        let (id, seq) = (data["session_id"].as_str()?, data["seq"].as_u64()?);
        let session = self.sessions.get_mut(id).filter(|s| s.bot == bot && seq <= s.seq)?;
        session.send(Out::Cut);
        session.line = Some(line.clone());
        for (_, text) in session.sent.iter().filter(|(number, _)| *number > seq) {
            // The connection may be gone again; the missed events stay in the session.
            let _gone = line.send(Out::Text(text.clone()));
        }
        session.dispatch("RESUMED", &json!({}));
        *self.resumed.entry(bot).or_default() += 1;
        Some(id.to_owned())
    }

    /// Handles a frame from a bot: replies, or returns the code that closes the connection.
    fn frame(&mut self, frame: &Value, of: &mut Option<String>, line: &UnboundedSender<Out>) -> Result<(), u16> {
        let reply = |value: Value| {
            // A peer that is gone notices that itself.
            let _gone = line.send(Out::Text(value.to_string()));
        };
        match frame["op"].as_u64() {
            Some(1) if self.deaf => {}
            Some(1) => reply(json!({"op": 11, "d": null, "s": null, "t": null})),
            Some(2) if of.is_some() => return Err(4005),
            Some(2) => *of = Some(self.identify(&frame["d"], line)?),
            Some(6) => match self.resume(&frame["d"], line) {
                Some(id) => *of = Some(id),
                None => reply(json!({"op": 9, "d": false, "s": null, "t": null})),
            },
            // Presence, voice and member requests are accepted and ignored.
            Some(3 | 4 | 8) if of.is_some() => {}
            Some(3 | 4 | 8) => return Err(4003),
            Some(_) => return Err(4001),
            None => return Err(4002),
        }
        let bot = of.as_ref().and_then(|id| self.sessions.get(id)).map(|session| session.bot);
        if bot.is_some_and(|bot| self.severed.contains(&bot)) { Err(1006) } else { Ok(()) }
    }
}

/// Serves `GET /?v=10&encoding=json`, upgraded.
pub(crate) async fn connect(State(shared): State<Shared>, upgrade: WebSocketUpgrade) -> Response {
    upgrade.on_upgrade(move |socket| converse(shared, socket))
}

async fn converse(shared: Shared, mut socket: WebSocket) {
    let (line, out) = unbounded_channel();
    let interval = shared.with(|discord| discord.heartbeat_ms);
    let hello = json!({"op": 10, "d": {"heartbeat_interval": interval}, "s": null, "t": null});
    if socket.send(Frame::Text(hello.to_string().into())).await.is_err() {
        return;
    }
    let of = exchange(&shared, &mut socket, &line, out).await;
    // The session stays for a while, to be resumed, without this connection.
    shared.with(|discord| {
        let session = of.and_then(|id| discord.sessions.get_mut(&id));
        if let Some(session) = session.filter(|s| s.line.as_ref().is_some_and(|l| l.same_channel(&line))) {
            session.line = None;
        }
    });
}

/// Exchanges frames until the connection ends; returns its session.
async fn exchange(
    shared: &Shared,
    socket: &mut WebSocket,
    line: &UnboundedSender<Out>,
    mut out: UnboundedReceiver<Out>,
) -> Option<String> {
    let mut of = None;
    loop {
        tokio::select! {
            told = out.recv() => match told {
                Some(Out::Text(text)) => {
                    if socket.send(Frame::Text(text.into())).await.is_err() {
                        return of;
                    }
                }
                Some(Out::Close(code)) => {
                    let frame = CloseFrame { code, reason: "".into() };
                    // The peer may already be gone.
                    let _gone = socket.send(Frame::Close(Some(frame))).await;
                    return of;
                }
                Some(Out::Cut) | None => return of,
            },
            heard = socket.recv() => {
                let text = match heard {
                    Some(Ok(Frame::Text(text))) => text.to_string(),
                    Some(Ok(Frame::Binary(_))) => "binary".to_owned(),
                    Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => continue,
                    // A close with one of these codes ends the session; after any other code, or none, it may be
                    // resumed.
                    Some(Ok(Frame::Close(Some(CloseFrame { code: 1000 | 1001, .. })))) => {
                        shared.with(|discord| of.and_then(|id| discord.sessions.remove(&id)));
                        return None;
                    }
                    Some(Ok(Frame::Close(_)) | Err(_)) | None => return of,
                };
                let frame = serde_json::from_str(&text).unwrap_or_default();
                if let Err(code) = shared.with(|discord| discord.frame(&frame, &mut of, line)) {
                    // 1006 never occurs in a frame: it means that there was none.
                    let end = if code == 1006 { Out::Cut } else { Out::Close(code) };
                    let _gone = line.send(end);
                }
            }
        }
    }
}
