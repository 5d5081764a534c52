//! The settings of a bridge: its channels, bots and humans.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use lastword_client::Endpoint;
use lastword_facts::fact::Role;
use serde::Deserialize;

use super::by_channel::ByChannel;
use super::dialect::Dialect;
use super::ids::{ChannelId, RoleId, UserId};

/// A token; its `Debug` form hides it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes a token from a file or variable; trims white space.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// Returns the token itself, for the call that needs it.
    #[must_use]
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The program that posts as a bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The bridge posts as the bot; its agent is connected to Lastword.
    Ours,
    /// A foreign bot: it runs on the platform alone and posts for its agent; the bridge takes the agent's deliveries.
    Theirs {
        /// The bot's user.
        user: UserId,
        /// The agent's Lastword token; `None` renews it at each start.
        token: Option<Secret>,
    },
}

/// In whose name a person of the platform acts in the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// In the name of the bridge's human.
    Bridge,
    /// In the name of the human with this token.
    Own(Secret),
    /// In a name of their own, which the bridge makes at the first start; with this role, or as a viewer whom an owner
    /// may give another one.
    Enrolled(Option<Role>),
}

impl Speaker {
    /// Returns the token that the settings name.
    #[must_use]
    pub const fn token(&self) -> Option<&Secret> {
        match self {
            Self::Own(token) => Some(token),
            Self::Bridge | Self::Enrolled(_) => None,
        }
    }
}

/// A bot of an agent of the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bot {
    /// The agent's name.
    pub agent: String,
    /// The program that posts as the bot.
    pub identity: Identity,
}

/// Which envelopes of foreign bots are submitted. All of their posts count, whatever the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BotPolicy {
    /// No envelopes; posts with a header are counted as plain posts.
    Off,
    /// Envelopes that mention the recipient's bot in the text.
    Mentions,
    /// Envelopes to every recipient.
    #[default]
    All,
}

/// How a message's header is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderStyle {
    /// The full header, as text.
    #[default]
    Text,
    /// One short line, with the whole envelope behind a button.
    Compact,
}

/// The settings of a bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The broker's address, and how its certificate is verified.
    pub broker_at: Endpoint,
    /// A human's token: the bridge reads the workspace with it and acts for humans without their own token.
    pub token: Secret,
    /// The channels in which the bridge takes part; at least one.
    pub channels: BTreeSet<ChannelId>,
    /// The channel in which conversations that began outside of the platform get a thread; `None` doesn't show them.
    pub home: Option<ChannelId>,
    /// The agents' bots; at least one, and at most one per agent.
    pub bots: Vec<Bot>,
    /// Which envelopes of foreign bots are submitted.
    pub policy: BotPolicy,
    /// If not empty, only envelopes of these bots' users are submitted.
    pub trusted: BTreeSet<UserId>,
    /// The users who may act as humans, and in whose name.
    pub humans: BTreeMap<UserId, Speaker>,
    /// The roles of the server whose members act as humans of the workspace, and the role that each gives there.
    pub roles: BTreeMap<RoleId, Role>,
    /// How headers are shown.
    pub header: HeaderStyle,
    /// What single channels have of their own.
    pub by_channel: ByChannel,
    /// The path of the bridge's own file.
    pub book: PathBuf,
    /// The tokens that can't be read: the agent or user, and why. Those bots and humans are out of service.
    pub unread: Vec<(String, String)>,
}

impl Settings {
    /// Returns whether a token of an agent or user can't be read.
    pub(crate) fn is_unread(&self, about: &str) -> bool {
        self.unread.iter().any(|(whose, _)| whose == about)
    }

    /// Returns why a bot's token can't be read.
    #[must_use]
    pub fn unreadable(&self, about: &str) -> String {
        let found = self.unread.iter().find(|(whose, _)| whose == about);
        found.map_or_else(|| "its token can't be read".to_owned(), |(_, what)| what.clone())
    }

    /// Checks the settings for contradictions, without any call.
    ///
    /// # Errors
    /// A list is empty, the home channel isn't listed, or an agent or user is listed twice; the text says what to do
    /// instead.
    pub fn check(&self, dialect: &Dialect) -> Result<(), String> {
        if self.channels.is_empty() {
            return Err("channels is empty: list the ids of the channels in which the bridge takes part".into());
        }
        if let Some(home) = self.home.filter(|home| !self.channels.contains(home)) {
            return Err(format!("home = {home} is not among channels: add it there"));
        }
        if self.bots.is_empty() {
            return Err(format!("no [[{}.bot]]: add one for each agent's bot", dialect.name));
        }
        self.check_channels(dialect)?;
        let mut users = BTreeSet::new();
        let mut agents = BTreeSet::new();
        for bot in &self.bots {
            if !agents.insert(&bot.agent) {
                return Err(format!("two bots name the agent {}: an agent has one bot", bot.agent));
            }
            if let Identity::Theirs { user, .. } = &bot.identity {
                if !users.insert(user) {
                    return Err(format!("two bots name the {} user {user}", dialect.title));
                }
                if self.humans.contains_key(user) {
                    return Err(format!("{user} is listed as a bot and as a human"));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::dialect::tests::PLAIN;
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            broker_at: Endpoint::new("http://127.0.0.1:9"),
            token: Secret::new("lw_canary"),
            channels: [ChannelId::new(1)].into(),
            home: None,
            bots: vec![Bot { agent: "kilo".into(), identity: Identity::Ours }],
            policy: BotPolicy::All,
            trusted: BTreeSet::new(),
            humans: [(UserId::new(7), Speaker::Own(Secret::new("canary")))].into(),
            roles: BTreeMap::new(),
            header: HeaderStyle::Text,
            by_channel: ByChannel::new(),
            book: "chat.sqlite".into(),
            unread: Vec::new(),
        }
    }

    #[test]
    fn no_token_is_printed() {
        assert!(!format!("{:?}", settings()).contains("canary"));
    }

    #[test]
    fn what_can_not_work_is_refused_with_the_reason() {
        assert_eq!(settings().check(&PLAIN), Ok(()));
        let theirs = |user| Bot {
            agent: format!("a{user}"),
            identity: Identity::Theirs { user: UserId::new(user), token: None },
        };
        for (wrong, word) in [
            (Settings { channels: BTreeSet::new(), ..settings() }, "channels"),
            (Settings { home: Some(ChannelId::new(2)), ..settings() }, "home"),
            (Settings { bots: Vec::new(), ..settings() }, "[[chat.bot]]"),
            (Settings { bots: vec![settings().bots[0].clone(), settings().bots[0].clone()], ..settings() }, "kilo"),
            (Settings { bots: vec![theirs(7)], ..settings() }, "as a human"),
        ] {
            assert!(wrong.check(&PLAIN).unwrap_err().contains(word), "{word}");
        }
    }
}
