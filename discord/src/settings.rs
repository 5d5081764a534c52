//! What a bridge is told: where it takes part, and who is who.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;

/// A token, which has no printed form.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Box<str>);

impl Secret {
    /// Takes a token as it stands in a file or variable; white space around it is dropped.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().into())
    }

    /// The token itself, for the call that needs it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// How a bot comes to post.
#[derive(Clone, Debug)]
pub enum Identity {
    /// We post in its name: its agent is attached to Lastword.
    Ours {
        /// Its Discord token.
        token: Secret,
    },
    /// It lives in Discord alone, and posts by itself: the bridge takes its deliveries.
    Theirs {
        /// Its Discord user.
        user: u64,
        /// Its agent's Lastword token; renewed at each start where none is given.
        token: Option<Secret>,
    },
}

/// A bot, which is an agent of the workspace.
#[derive(Clone, Debug)]
pub struct Bot {
    /// The agent.
    pub agent: String,
    /// How it posts.
    pub identity: Identity,
}

/// Which envelopes of bots that are not ours are submitted. All of their posts count, whichever it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BotPolicy {
    /// None.
    Off,
    /// Those that mention the addressee's bot, with a literal `<@id>`.
    Mentions,
    /// All.
    #[default]
    All,
}

/// How the header of a message is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeaderStyle {
    /// In full, as text.
    #[default]
    Text,
    /// In a few words, with the whole envelope behind a button.
    Compact,
}

/// What a bridge is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Lastword's address.
    pub url: String,
    /// A human's token: the bridge sees the workspace and asks in the name of those who have no token of their own.
    pub token: Secret,
    /// Discord's REST address, where it is not the usual one.
    pub api: Option<String>,
    /// Discord's gateway address, where it is not the usual one.
    pub gateway: Option<String>,
    /// The channels in which it takes part.
    pub channels: BTreeSet<u64>,
    /// The channel in which conversations that began elsewhere get a thread; without it they are not shown.
    pub home: Option<u64>,
    /// The broker's own bot: it reads, warns and hints.
    pub broker: Secret,
    /// The bots.
    pub bots: Vec<Bot>,
    /// Which envelopes of foreign bots are submitted.
    pub policy: BotPolicy,
    /// Where it is not empty, envelopes of these bots alone are submitted.
    pub trusted: BTreeSet<u64>,
    /// The Discord users who may speak as humans; with a Lastword token of their own, or the bridge's.
    pub humans: BTreeMap<u64, Option<Secret>>,
    /// How headers are shown.
    pub header: HeaderStyle,
    /// The file in which the bridge keeps what it has done.
    pub book: PathBuf,
}

impl Settings {
    /// Looks for what can't work.
    ///
    /// # Errors
    /// Something can't; says what to do instead.
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
            url: "http://127.0.0.1:9".into(),
            token: Secret::new("lw_canary"),
            api: None,
            gateway: None,
            channels: [1].into(),
            home: None,
            broker: Secret::new("canary"),
            bots: vec![Bot { agent: "kilo".into(), identity: Identity::Ours { token: Secret::new("canary") } }],
            policy: BotPolicy::All,
            trusted: BTreeSet::new(),
            humans: [(7, Some(Secret::new("canary")))].into(),
            header: HeaderStyle::Text,
            book: "discord.sqlite".into(),
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
