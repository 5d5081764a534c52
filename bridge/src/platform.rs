//! The seam to a platform: what the bridge asks of it, and what it hands to the bridge.

use std::collections::BTreeSet;
use std::fmt;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use super::dialect::Dialect;
use super::event::{Event, EventSink};
use super::ids::{ChannelId, PostId, RoleId, ServerId, UserId};
use super::interactions::{Answer, Interaction};
use super::post::{Channel, Person, Post, ThreadState};

/// A call to a platform.
pub type PlatformCall<'a, T> = BoxFuture<'a, Result<T, PlatformError>>;

/// Why a call to a platform failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformError {
    /// What happened, as a sentence part.
    pub message: String,
    /// Whether a retry may succeed.
    pub may_pass: bool,
}

impl fmt::Display for PlatformError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// A bot that the bridge posts with.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Poster {
    /// The broker's own bot.
    Broker,
    /// The bot of this agent.
    Agent(String),
}

/// A post, and the channel or thread that it is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The channel or thread.
    pub channel: ChannelId,
    /// The post.
    pub post: PostId,
}

/// One message to post. It pings no user but one.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// A name that no other message has. A platform that drops a message of the same name saves a look for it.
    pub nonce: &'a str,
    /// Where it is posted.
    pub channel: ChannelId,
    /// Its text, by which it is found if its answer was lost.
    pub text: &'a str,
    /// The only user that it pings.
    pub ping: Option<UserId>,
    /// The post that it replies to.
    pub reply: Option<PostId>,
    /// Its buttons, as [`Dialect::buttons`] writes them.
    pub buttons: Option<&'a Value>,
    /// The content of its file.
    pub file: Option<&'a str>,
}

/// A part of a list.
#[derive(Clone, Debug)]
pub struct ListPart<T> {
    /// What it holds.
    pub items: Vec<T>,
    /// Whether there may be more behind it.
    pub more: bool,
}

/// A chat platform, as the bridge uses it. What names no bot is done by the broker's.
pub trait Platform: fmt::Debug + Send + Sync {
    /// Returns how the platform names and writes things.
    fn dialect(&self) -> &'static Dialect;

    /// Signs a bot in, or tries whether a bot that is signed in could be again; returns its user.
    fn sign_in<'a>(&'a self, bot: &'a Poster) -> PlatformCall<'a, UserId>;

    /// Returns whether the platform still takes the bot's token, as far as its answers say.
    fn knows(&self, bot: &Poster) -> bool;

    /// Stays connected as a bot: the broker's receives posts and interactions, an agent's is shown as present. Returns
    /// why the platform refuses for good.
    fn listen<'a>(&'a self, bot: &'a Poster, inlet: &'a Inlet) -> BoxFuture<'a, String>;

    /// Offers the bridge's commands wherever its channels are. Returns once that is done, or is refused for good.
    fn offer_commands<'a>(&'a self, channels: &'a BTreeSet<ChannelId>) -> BoxFuture<'a, ()>;

    /// Returns the platform's time in Unix milliseconds; `None` before its first answer.
    fn now_ms(&self) -> Option<u64>;

    /// Returns the time of a post in Unix milliseconds.
    fn time_of(&self, post: PostId) -> u64;

    /// Returns the least id that a post of this time has, in Unix milliseconds.
    fn first_at(&self, unix_ms: u64) -> PostId;

    /// Reads a channel or thread.
    fn channel(&self, channel: ChannelId) -> PlatformCall<'_, Channel>;

    /// Returns the last post of a channel.
    fn last_post(&self, channel: ChannelId) -> PlatformCall<'_, Option<PostId>>;

    /// Lists posts behind one, as a bot sees them, oldest first.
    fn posts_after<'a>(&'a self, bot: &'a Poster, spot: Spot) -> PlatformCall<'a, ListPart<Post>>;

    /// Reads a post.
    fn read_post(&self, spot: Spot) -> PlatformCall<'_, Post>;

    /// Lists the open threads of a server.
    fn open_threads(&self, server: ServerId) -> PlatformCall<'_, Vec<ThreadState>>;

    /// Lists threads of a channel that were archived before a time, the latest archived first.
    fn archived_threads<'a>(
        &'a self,
        channel: ChannelId,
        before: Option<&'a str>,
    ) -> PlatformCall<'a, ListPart<ThreadState>>;

    /// Returns a user's name.
    fn user_name(&self, user: UserId) -> PlatformCall<'_, String>;

    /// Returns the roles of a user on a channel's server; `None` if the channel has none. May remember them.
    fn roles_of(&self, channel: ChannelId, user: UserId) -> PlatformCall<'_, Option<BTreeSet<RoleId>>>;

    /// Forgets the roles that were read, which may have changed.
    fn forget_roles(&self);

    /// Posts a message as a bot.
    fn post<'a>(&'a self, bot: &'a Poster, part: &'a Part<'a>) -> PlatformCall<'a, PostId>;

    /// Puts another text and other buttons in place of a post's.
    fn change<'a>(&'a self, spot: Spot, text: &'a str, buttons: &'a Value) -> PlatformCall<'a, ()>;

    /// Starts a thread from a post, or finds the one that there is.
    fn start_thread<'a>(&'a self, spot: Spot, name: &'a str) -> PlatformCall<'a, ChannelId>;

    /// Shows that a bot is typing.
    fn typing<'a>(&'a self, bot: &'a Poster, channel: ChannelId) -> PlatformCall<'a, ()>;

    /// Adds a bot's reaction to a post.
    fn sign<'a>(&'a self, bot: &'a Poster, spot: Spot, emoji: &'a str) -> PlatformCall<'a, ()>;

    /// Takes a bot's reaction to a post back.
    fn unsign<'a>(&'a self, bot: &'a Poster, spot: Spot, emoji: &'a str) -> PlatformCall<'a, ()>;

    /// Answers an interaction.
    fn answer<'a>(&'a self, interaction: &'a Interaction, answer: Answer<'a>) -> PlatformCall<'a, ()>;
}

/// Where a platform puts what it receives.
#[derive(Debug)]
pub struct Inlet {
    /// Posts, in order of arrival.
    pub posts: mpsc::Sender<Post>,
    /// Interactions, apart from posts so that they don't wait behind them.
    pub interactions: mpsc::Sender<Interaction>,
    /// Interactions of people who aren't known, whose only answer is that they may not.
    pub strangers: mpsc::Sender<Interaction>,
    /// The users who may act as humans.
    pub humans: BTreeSet<UserId>,
    /// The roles of the server whose members may.
    pub roles: BTreeSet<RoleId>,
    /// Incremented when posts may have been missed.
    pub missed: watch::Sender<u64>,
    /// Where warnings go.
    pub report: EventSink,
}

impl Inlet {
    /// Notes that posts may have been missed: they are read from their channels.
    pub fn miss(&self) {
        self.missed.send_modify(|count| *count += 1);
    }

    /// Takes a post. A full queue loses nothing: missed posts are read from their channel.
    pub fn post(&self, post: Post) {
        if self.posts.try_send(post).is_err() {
            self.miss();
        }
    }

    /// Takes an interaction. Sorted before queueing: whoever isn't known must not fill the queue of a human's stop. A
    /// stranger whose interaction is dropped sees that it failed.
    pub fn interaction(&self, interaction: Interaction) {
        if !self.knows(&interaction.person) {
            let _served = self.strangers.try_send(interaction).is_ok();
        } else if self.interactions.try_send(interaction).is_err() {
            self.report.emit(&Event::Warning { message: "more clicks than can be served: one was dropped".to_owned() });
        }
    }

    /// Returns whether a person may be one of those who act.
    fn knows(&self, person: &Person) -> bool {
        self.humans.contains(&person.user) || !self.roles.is_disjoint(&person.roles)
    }
}

#[cfg(test)]
mod tests {
    use super::super::interactions::Deed;
    use super::super::interactions::tests::interaction;
    use super::*;

    #[test]
    fn who_may_act_by_list_or_role_never_queues_behind_strangers() {
        let (posts, _read) = mpsc::channel(1);
        let (interactions, mut known) = mpsc::channel(2);
        let (strangers, mut others) = mpsc::channel(1);
        let (humans, roles) = ([UserId::new(7)].into(), [RoleId::new(50)].into());
        let (missed, report) = (watch::Sender::new(0), EventSink::new(|_| ()));
        let inlet = Inlet { posts, interactions, strangers, humans, roles, missed, report };
        for (user, roles) in [(9, &[] as &[u64]), (8, &[51]), (8, &[51, 50]), (7, &[])] {
            let mut clicked = interaction(Deed::Other);
            clicked.person.user = UserId::new(user);
            clicked.person.roles = roles.iter().copied().map(RoleId::new).collect();
            inlet.interaction(clicked);
        }
        let user = |one: Interaction| one.person.user.number();
        assert_eq!(known.try_recv().ok().map(user), Some(8), "by its role");
        assert_eq!(known.try_recv().ok().map(user), Some(7), "by the list");
        assert_eq!(others.try_recv().ok().map(user), Some(9), "the other one found no place");
        assert!(others.try_recv().is_err() && known.try_recv().is_err());
    }
}
