//! Faults that tests cause.

use serde_json::json;

use super::TestDiscord;
use super::faults::{Hold, InjectedError, Mishap};
use super::gateway::Out;
use super::json as object;
use super::model::{Discord, Id, intent};

/// Faults of the gateway.
impl TestDiscord {
    fn to_sessions(&self, bot: Id, tell: impl Fn(&mut super::gateway::Session)) {
        self.with(|discord| discord.sessions.values_mut().filter(|s| s.bot == bot && s.line.is_some()).for_each(tell));
    }

    fn send(&self, bot: Id, frame: &str) {
        self.to_sessions(bot, |session| session.send(Out::Text(frame.to_owned())));
    }

    /// Cuts a bot's connection without a close frame.
    pub(crate) fn cut(&self, bot: Id) {
        self.to_sessions(bot, |session| session.send(Out::Cut));
    }

    /// Closes a bot's connection with a code.
    pub(crate) fn close(&self, bot: Id, code: u16) {
        self.to_sessions(bot, |session| session.send(Out::Close(code)));
    }

    /// Op 7: asks the bot to reconnect and resume.
    pub(crate) fn ask_to_reconnect(&self, bot: Id) {
        self.send(bot, &json!({"op": 7, "d": null, "s": null, "t": null}).to_string());
    }

    /// Op 9: the session is invalid; `resumable` says whether the bot may resume it.
    pub(crate) fn invalidate(&self, bot: Id, resumable: bool) {
        let invalid = || Out::Text(json!({"op": 9, "d": resumable, "s": null, "t": null}).to_string());
        if resumable {
            self.to_sessions(bot, |session| session.send(invalid()));
        } else {
            self.lose_sessions(bot, invalid);
        }
    }

    /// Cuts a bot's connections and forgets its sessions, so that none can be resumed.
    pub(crate) fn cut_for_good(&self, bot: Id) {
        self.lose_sessions(bot, || Out::Cut);
    }

    /// Sends the last thing to a bot's sessions and forgets them. In one step: a session that begins in between would be
    /// forgotten too, and its connection would stay and bring nothing.
    fn lose_sessions(&self, bot: Id, last: impl Fn() -> Out) {
        self.with(|discord| {
            discord.sessions.retain(|_, session| {
                if session.bot == bot {
                    session.send(last());
                }
                session.bot != bot
            });
        });
    }

    /// Sends invalid frames: broken JSON, an unknown event, an unknown opcode, a message without its members.
    pub(crate) fn malformed(&self, bot: Id) {
        self.send(bot, "{\"op\":0,\"t\":\"MESSAGE_CREATE\"");
        self.send(bot, &json!({"op": 99, "d": {}, "s": null, "t": null}).to_string());
        self.with(|discord| {
            discord.tell("NEVER_HEARD_OF", None, 0, |_, to, _| Some(json!({"what": "is this"})).filter(|_| to == bot));
            discord.tell("MESSAGE_CREATE", None, 0, |_, to, _| Some(json!({"id": "7"})).filter(|_| to == bot));
        });
    }

    /// Sends a message's event to a bot a second time.
    pub(crate) fn duplicate(&self, bot: Id, message: Id) {
        self.with(|discord| {
            discord.tell("MESSAGE_CREATE", None, 0, |discord, to, intents| {
                let message = discord.messages.get(&message).filter(|_| to == bot)?;
                let mut value = object::message(discord, message, bot, intents);
                value["guild_id"] = json!(discord.guild.to_string());
                Some(value)
            });
        });
    }

    /// Cuts a bot's connection and refuses new ones until [`TestDiscord::mend`].
    pub(crate) fn sever(&self, bot: Id) {
        self.with(|discord| discord.severed.insert(bot));
        self.cut(bot);
    }

    pub(crate) fn mend(&self, bot: Id) {
        self.with(|discord| discord.severed.remove(&bot));
    }

    /// Sets whether heartbeats are ignored.
    pub(crate) fn deafen(&self, deaf: bool) {
        self.with(|discord| discord.deaf = deaf);
    }

    /// Sets the heartbeat interval of bots that connect from now on.
    pub(crate) fn heartbeats_every(&self, ms: u64) {
        self.with(|discord| discord.heartbeat_ms = ms);
    }

    /// Returns whether a bot is connected.
    pub(crate) fn connected(&self, bot: Id) -> bool {
        self.with(|discord| discord.connected(bot))
    }
}

impl Discord {
    /// Returns whether a bot is connected and receives messages.
    pub(crate) fn connected(&self, bot: Id) -> bool {
        let hears = |intents: u64| intents & intent::MESSAGES != 0;
        self.sessions.values().any(|s| s.bot == bot && s.line.is_some() && hears(s.intents))
    }
}

/// Faults of the REST interface.
impl TestDiscord {
    /// Applies a mishap to the next matching call.
    pub(crate) fn next_call(&self, method: &'static str, path: &str, mishap: Mishap) {
        self.next_call_of(None, method, path, mishap);
    }

    /// Applies a mishap to this bot's next matching call.
    pub(crate) fn next_call_of(&self, bot: Option<Id>, method: &'static str, path: &str, mishap: Mishap) {
        let fault = InjectedError { method, path: path.to_owned(), bot, mishap };
        self.with(|discord| discord.faults.push_back(fault));
    }

    /// Holds matching calls before they have an effect, until [`TestDiscord::release`].
    pub(crate) fn hold(&self, method: &'static str, path: &str) {
        let hold = Hold { method, path: path.to_owned(), waiting: 0 };
        self.with(|discord| discord.holds.push(hold));
    }

    /// Returns the number of held calls.
    pub(crate) fn held(&self) -> u32 {
        self.with(|discord| discord.holds.iter().map(|hold| hold.waiting).sum())
    }

    /// Releases every held call.
    pub(crate) fn release(&self) {
        self.with(|discord| discord.holds.clear());
    }

    /// Sets the rate limit: posts of one bot in one channel per window.
    pub(crate) fn posts_per_window(&self, posts: u32, window_ms: u64) {
        self.with(|discord| discord.posts_per_window = (posts, window_ms));
    }

    /// Returns the number of calls answered with this status.
    pub(crate) fn answered(&self, status: u16) -> usize {
        self.with(|discord| discord.calls.iter().filter(|call| call.status == status).count())
    }
}
