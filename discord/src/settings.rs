//! The settings of a bridge to Discord.

use std::collections::BTreeMap;

use lastword_bridge::settings::Secret;

use super::dialect::DISCORD;

/// The name of the broker's bot in reports.
pub const BROKER: &str = "broker";

/// The settings of a bridge to Discord.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscordSettings {
    /// What is set for a bridge to any platform.
    pub bridge: lastword_bridge::settings::Settings,
    /// Discord's REST address; `None` for the default.
    pub api: Option<String>,
    /// Discord's gateway address; `None` for the default.
    pub gateway: Option<String>,
    /// The Discord token of the broker's bot, which reads, warns and hints; `None` if it can't be read.
    pub broker: Option<Secret>,
    /// The Discord tokens of the bots that the bridge posts with, by agent, as far as they can be read.
    pub tokens: BTreeMap<String, Secret>,
}

impl DiscordSettings {
    /// Returns the token of the broker's bot, or why there is none.
    pub(crate) fn broker_token(&self) -> Result<&Secret, String> {
        self.broker.as_ref().ok_or_else(|| format!("the broker's bot: {}", self.bridge.unreadable(BROKER)))
    }

    /// Checks the settings for contradictions, without any call.
    ///
    /// # Errors
    /// A list is empty, the home channel isn't listed, or an agent or user is listed twice; the text says what to do
    /// instead.
    pub fn check(&self) -> Result<(), String> {
        self.bridge.check(&DISCORD)
    }
}
