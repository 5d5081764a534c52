//! The hand of a test: what breaks.

use serde_json::json;

use super::TestDiscord;
use super::faults::{Hold, InjectedError, Mishap};
use super::gateway::Out;
use super::json as object;
use super::model::{Discord, Id, intent};

/// The gateway.
impl TestDiscord {
    fn to_sessions(&self, bot: Id, tell: impl Fn(&mut super::gateway::Session)) {
        self.with(|discord| discord.sessions.values_mut().filter(|s| s.bot == bot && s.line.is_some()).for_each(tell));
    }

    fn send(&self, bot: Id, frame: &str) {
        self.to_sessions(bot, |session| session.send(Out::Text(frame.to_owned())));
    }

    /// Cuts a bot's connection with no word.
    pub(crate) fn cut(&self, bot: Id) {
        self.to_sessions(bot, |session| session.send(Out::Cut));
    }

    /// Closes a bot's connection with a code.
    pub(crate) fn close(&self, bot: Id, code: u16) {
        self.to_sessions(bot, |session| session.send(Out::Close(code)));
    }

    /// Op 7: asks the bot to connect anew and resume.
    pub(crate) fn ask_to_reconnect(&self, bot: Id) {
        self.send(bot, &json!({"op": 7, "d": null, "s": null, "t": null}).to_string());
    }

    /// Op 9: the session is invalid; may it be resumed?
    pub(crate) fn invalidate(&self, bot: Id, resumable: bool) {
        self.send(bot, &json!({"op": 9, "d": resumable, "s": null, "t": null}).to_string());
        if !resumable {
            self.forget_sessions(bot);
        }
    }

    /// Forgets a bot's sessions, so that no one can be resumed; the connections stay.
    pub(crate) fn forget_sessions(&self, bot: Id) {
        self.with(|discord| discord.sessions.retain(|_, session| session.bot != bot));
    }

    /// Sends what no gateway should: broken JSON, an unknown event, an unknown opcode, a message without its members.
    pub(crate) fn malformed(&self, bot: Id) {
        self.send(bot, "{\"op\":0,\"t\":\"MESSAGE_CREATE\"");
        self.send(bot, &json!({"op": 99, "d": {}, "s": null, "t": null}).to_string());
        self.with(|discord| {
            discord.tell("NEVER_HEARD_OF", None, 0, |_, to, _| Some(json!({"what": "is this"})).filter(|_| to == bot));
            discord.tell("MESSAGE_CREATE", None, 0, |_, to, _| Some(json!({"id": "7"})).filter(|_| to == bot));
        });
    }

    /// Tells a bot of a message once more.
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

    /// Cuts a bot's connection and lets none stay up, until [`TestDiscord::mend`].
    pub(crate) fn sever(&self, bot: Id) {
        self.with(|discord| discord.severed.insert(bot));
        self.cut(bot);
    }

    pub(crate) fn mend(&self, bot: Id) {
        self.with(|discord| discord.severed.remove(&bot));
    }

    /// No heartbeat is answered any more, or they are again.
    pub(crate) fn deafen(&self, deaf: bool) {
        self.with(|discord| discord.deaf = deaf);
    }

    /// Sets how often bots that connect from now on are to send heartbeats.
    pub(crate) fn heartbeats_every(&self, ms: u64) {
        self.with(|discord| discord.heartbeat_ms = ms);
    }

    /// Whether a bot is connected.
    pub(crate) fn connected(&self, bot: Id) -> bool {
        self.with(|discord| discord.connected(bot))
    }
}

impl Discord {
    /// Whether a bot is connected, and hears messages.
    pub(crate) fn connected(&self, bot: Id) -> bool {
        let hears = |intents: u64| intents & intent::MESSAGES != 0;
        self.sessions.values().any(|s| s.bot == bot && s.line.is_some() && hears(s.intents))
    }
}

/// The REST interface.
impl TestDiscord {
    /// The next such call meets this.
    pub(crate) fn next_call(&self, method: &'static str, path: &str, mishap: Mishap) {
        self.next_call_of(None, method, path, mishap);
    }

    /// The next such call of this bot meets this.
    pub(crate) fn next_call_of(&self, bot: Option<Id>, method: &'static str, path: &str, mishap: Mishap) {
        let fault = InjectedError { method, path: path.to_owned(), bot, mishap };
        self.with(|discord| discord.faults.push_back(fault));
    }

    /// Such calls wait, before anything is done, until [`TestDiscord::release`].
    pub(crate) fn hold(&self, method: &'static str, path: &str) {
        let hold = Hold { method, path: path.to_owned(), waiting: 0 };
        self.with(|discord| discord.holds.push(hold));
    }

    /// How many calls wait.
    pub(crate) fn held(&self) -> u32 {
        self.with(|discord| discord.holds.iter().map(|hold| hold.waiting).sum())
    }

    /// Lets every held call go on.
    pub(crate) fn release(&self) {
        self.with(|discord| discord.holds.clear());
    }

    /// How many messages one bot may post in one channel in so many milliseconds.
    pub(crate) fn posts_per_window(&self, posts: u32, window_ms: u64) {
        self.with(|discord| discord.posts_per_window = (posts, window_ms));
    }

    /// How many calls were answered with this status.
    pub(crate) fn answered(&self, status: u16) -> usize {
        self.with(|discord| discord.calls.iter().filter(|call| call.status == status).count())
    }
}
