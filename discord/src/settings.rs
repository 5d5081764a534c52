//! The settings of a bridge: its channels, bots and humans.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use lastword_client::Endpoint;
use lastword_facts::fact::Role;
use serde::Deserialize;

use super::by_channel::ByChannel;

/// The name of the broker's bot in reports.
pub const BROKER: &str = "broker";

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
    pub(crate) fn reveal(&self) -> &str {
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
    Ours {
        /// The bot's Discord token; `None` if it can't be read.
        token: Option<Secret>,
    },
    /// A foreign bot: it runs on Discord alone and posts for its agent; the bridge takes the agent's deliveries.
    Theirs {
        /// The bot's Discord user.
        user: u64,
        /// The agent's Lastword token; `None` renews it at each start.
        token: Option<Secret>,
    },
}

/// In whose name a person of Discord acts in the workspace.
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
    pub(crate) const fn token(&self) -> Option<&Secret> {
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
    /// Envelopes that mention the recipient's bot with a literal `<@id>`.
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
    /// Discord's REST address; `None` for the default.
    pub api: Option<String>,
    /// Discord's gateway address; `None` for the default.
    pub gateway: Option<String>,
    /// The channels in which the bridge takes part; at least one.
    pub channels: BTreeSet<u64>,
    /// The channel in which conversations that began outside of Discord get a thread; `None` doesn't show them.
    pub home: Option<u64>,
    /// The Discord token of the broker's bot, which reads, warns and hints; `None` if it can't be read.
    pub broker: Option<Secret>,
    /// The agents' bots; at least one, and at most one per agent.
    pub bots: Vec<Bot>,
    /// Which envelopes of foreign bots are submitted.
    pub policy: BotPolicy,
    /// If not empty, only envelopes of these bots' Discord users are submitted.
    pub trusted: BTreeSet<u64>,
    /// The Discord users who may act as humans, and in whose name.
    pub humans: BTreeMap<u64, Speaker>,
    /// The roles of the Discord server whose members act as humans of the workspace, and the role that each gives there.
    pub roles: BTreeMap<u64, Role>,
    /// How headers are shown.
    pub header: HeaderStyle,
    /// What single channels have of their own.
    pub by_channel: ByChannel,
    /// The path of the bridge's own file.
    pub book: PathBuf,
    /// The tokens that can't be read: the agent or Discord user, and why. Those bots and humans are out of service.
    pub unread: Vec<(String, String)>,
}

impl Settings {
    /// Returns the token of the broker's bot, or why there is none.
    pub(crate) fn broker_token(&self) -> Result<&Secret, String> {
        self.broker.as_ref().ok_or_else(|| format!("the broker's bot: {}", self.unreadable(BROKER)))
    }

    /// Returns why a bot's token can't be read.
    pub(crate) fn unreadable(&self, about: &str) -> String {
        let found = self.unread.iter().find(|(whose, _)| whose == about);
        found.map_or_else(|| "its token can't be read".to_owned(), |(_, what)| what.clone())
    }

    /// Checks the settings for contradictions, without any call.
    ///
    /// # Errors
    /// A list is empty, the home channel isn't listed, or an agent or user is listed twice; the text says what to do
    /// instead.
    pub fn check(&self) -> Result<(), String> {
        if self.channels.is_empty() {
            return Err("channels is empty: list the ids of the channels in which the bridge takes part".into());
        }
        if let Some(home) = self.home.filter(|home| !self.channels.contains(home)) {
            return Err(format!("home = {home} is not among channels: add it there"));
        }
        if self.bots.is_empty() {
            return Err("no [[discord.bot]]: add one for each agent's bot".into());
        }
        self.check_channels()?;
        let mut users = BTreeSet::new();
        let mut agents = BTreeSet::new();
        for bot in &self.bots {
            if !agents.insert(&bot.agent) {
                return Err(format!("two bots name the agent {}: an agent has one bot", bot.agent));
            }
            if let Identity::Theirs { user, .. } = &bot.identity {
                if !users.insert(user) {
                    return Err(format!("two bots name the Discord user {user}"));
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
    use super::*;

    pub(crate) fn settings() -> Settings {
        Settings {
            broker_at: Endpoint::new("http://127.0.0.1:9"),
            token: Secret::new("lw_canary"),
            api: None,
            gateway: None,
            channels: [1].into(),
            home: None,
            broker: Some(Secret::new("canary")),
            bots: vec![Bot { agent: "kilo".into(), identity: Identity::Ours { token: Some(Secret::new("canary")) } }],
            policy: BotPolicy::All,
            trusted: BTreeSet::new(),
            humans: [(7, Speaker::Own(Secret::new("canary")))].into(),
            roles: BTreeMap::new(),
            header: HeaderStyle::Text,
            by_channel: ByChannel::new(),
            book: "discord.sqlite".into(),
            unread: Vec::new(),
        }
    }

    #[test]
    fn no_token_is_printed() {
        assert!(!format!("{:?}", settings()).contains("canary"));
    }

    #[test]
    fn what_can_not_work_is_refused_with_the_reason() {
        assert_eq!(settings().check(), Ok(()));
        let theirs = |user| Bot { agent: format!("a{user}"), identity: Identity::Theirs { user, token: None } };
        for (wrong, word) in [
            (Settings { channels: BTreeSet::new(), ..settings() }, "channels"),
            (Settings { home: Some(2), ..settings() }, "home"),
            (Settings { bots: Vec::new(), ..settings() }, "[[discord.bot]]"),
            (Settings { bots: vec![settings().bots[0].clone(), settings().bots[0].clone()], ..settings() }, "kilo"),
            (Settings { bots: vec![theirs(7)], ..settings() }, "as a human"),
        ] {
            assert!(wrong.check().unwrap_err().contains(word), "{word}");
        }
    }
}
