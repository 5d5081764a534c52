//! Settings of single channels, which stand in for those of the whole bridge there and in the channel's threads.

use std::collections::{BTreeMap, BTreeSet};

use super::inbound::Act;
use super::model::Post;
use super::settings::{BotPolicy, HeaderStyle, Settings};

/// What a channel has of its own; `None` is the bridge's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Which envelopes of foreign bots are submitted there.
    pub policy: Option<BotPolicy>,
    /// If not empty, only envelopes of these bots' Discord users are submitted there.
    pub trusted: Option<BTreeSet<u64>>,
    /// The bridge's humans who may act there.
    pub humans: Option<BTreeSet<u64>>,
    /// The bridge's roles of the Discord server whose members may act there.
    pub roles: Option<BTreeSet<u64>>,
    /// The agents that may be asked there.
    pub agents: Option<BTreeSet<String>>,
    /// How headers are shown there.
    pub header: Option<HeaderStyle>,
}

impl Settings {
    pub(crate) fn own(&self, channel: u64) -> Option<&ChannelSettings> {
        self.by_channel.get(&channel)
    }

    pub(crate) fn policy_in(&self, channel: u64) -> BotPolicy {
        self.own(channel).and_then(|own| own.policy).unwrap_or(self.policy)
    }

    /// Returns whether a bot is trusted in a channel.
    pub(crate) fn trusts(&self, channel: u64, bot: u64) -> bool {
        let trusted = self.own(channel).and_then(|own| own.trusted.as_ref()).unwrap_or(&self.trusted);
        trusted.is_empty() || trusted.contains(&bot)
    }

    pub(crate) fn header_in(&self, channel: u64) -> HeaderStyle {
        self.own(channel).and_then(|own| own.header).unwrap_or(self.header)
    }

    /// Returns why a channel's own settings contradict the bridge's.
    pub(crate) fn check_channels(&self) -> Result<(), String> {
        for (channel, own) in &self.by_channel {
            if !self.channels.contains(channel) {
                return Err(format!("channel.{channel} is not among channels: add it there"));
            }
            let unknown = own.roles.iter().flatten().find(|role| !self.roles.contains_key(role));
            if let Some(role) = unknown {
                return Err(format!("channel.{channel}: {role} has no [[discord.role]]"));
            }
            let known = |agent: &&String| self.bots.iter().any(|bot| bot.agent == **agent);
            if let Some(agent) = own.agents.iter().flatten().find(|agent| !known(agent)) {
                return Err(format!("channel.{channel}: {agent} has no [[discord.bot]]"));
            }
        }
        Ok(())
    }

    /// Returns what remains of a post's acts where only some agents may be asked; who asked another one is told so.
    pub(crate) fn within_channel(&self, channel: u64, post: &Post, acts: Vec<Act>) -> Vec<Act> {
        let Some(agents) = self.own(channel).and_then(|own| own.agents.as_ref()) else { return acts };
        let refuse = |agent: &str| Act::Hint {
            about: format!("{}:{}:{agent} isn't asked here", post.channel, post.author.id),
            text: format!("{agent} isn't asked in this channel."),
        };
        let mut left = Vec::new();
        for act in acts {
            match act {
                Act::Say { user, mentions, about, opens, body } => {
                    let (here, elsewhere): (Vec<_>, Vec<_>) =
                        mentions.into_iter().partition(|name| agents.contains(name));
                    left.extend(elsewhere.iter().map(|agent| refuse(agent)));
                    let opens = opens && !here.is_empty();
                    // A conversation that isn't opened has no name.
                    let about = about.filter(|_| opens || !here.is_empty());
                    left.push(Act::Say { user, mentions: here, about, opens, body });
                }
                Act::Submit { voice, text } => {
                    let to = lastword_facts::header::parse(&text).ok().map(|(header, _)| header.to.to_string());
                    let bot = to.filter(|to| self.bots.iter().any(|bot| bot.agent == *to) && !agents.contains(to));
                    left.push(bot.map_or(Act::Submit { voice, text }, |agent| refuse(&agent)));
                }
                Act::Post { .. } | Act::Finish { .. } | Act::Early { .. } | Act::Hint { .. } | Act::Late => {
                    left.push(act)
                }
            }
        }
        left
    }
}

/// The settings of channels, by id.
pub type ByChannel = BTreeMap<u64, ChannelSettings>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbound::Voice;
    use crate::model::tests::post;
    use crate::settings::tests::settings;

    fn with(own: ChannelSettings) -> Settings {
        Settings { by_channel: [(1, own)].into(), channels: [1, 2].into(), ..settings() }
    }

    #[test]
    fn a_channels_own_settings_hold_there_and_nowhere_else() {
        let own = ChannelSettings {
            policy: Some(BotPolicy::Off),
            trusted: Some([5].into()),
            humans: Some([8].into()),
            roles: None,
            agents: None,
            header: Some(HeaderStyle::Compact),
        };
        let all = with(own);
        assert_eq!((all.policy_in(1), all.policy_in(2)), (BotPolicy::Off, BotPolicy::All));
        assert_eq!((all.header_in(1), all.header_in(2)), (HeaderStyle::Compact, HeaderStyle::Text));
        assert!(all.trusts(1, 5) && !all.trusts(1, 6) && all.trusts(2, 6));
        assert_eq!(all.check(), Ok(()));
        let elsewhere = Settings { by_channel: [(3, ChannelSettings::default())].into(), ..settings() };
        assert!(elsewhere.check().unwrap_err().contains("channel.3"));
        let nobody = with(ChannelSettings { agents: Some(["zoe".to_owned()].into()), ..ChannelSettings::default() });
        assert!(nobody.check().unwrap_err().contains("zoe"));
        let no_role = with(ChannelSettings { roles: Some([5].into()), ..ChannelSettings::default() });
        assert!(no_role.check().unwrap_err().contains("5 has no [[discord.role]]"));
    }

    #[test]
    fn an_agent_that_isnt_for_a_channel_is_not_asked_there_and_who_asked_is_told() {
        let own = ChannelSettings { agents: Some(["hive".to_owned()].into()), ..ChannelSettings::default() };
        let (all, said) = (with(own), post(1, 1, 7, false, "x"));
        let say = |mentions: &[&str], about: Option<&str>| Act::Say {
            user: 7,
            mentions: mentions.iter().map(|name| (*name).to_owned()).collect(),
            opens: about.is_some() && !mentions.is_empty(),
            about: about.map(str::to_owned),
            body: "x".into(),
        };
        let asked = vec![say(&["kilo"], Some("D-1"))];
        assert_eq!(all.within_channel(2, &said, asked.clone()), asked);
        let left = all.within_channel(1, &said, asked);
        assert!(matches!(&left[0], Act::Hint { text, .. } if text.contains("kilo")), "{left:?}");
        assert_eq!(left[1..], [say(&[], None)], "it counts and is readable");
        let both = all.within_channel(1, &said, vec![say(&["kilo", "hive"], Some("D-1"))]);
        assert_eq!(both[1..], [say(&["hive"], Some("D-1"))]);
        let text = "[FROM:hive][TO:kilo][TYPE:REQUEST][REF:D-1][DEPTH:1] go".to_owned();
        let submit = vec![Act::Submit { voice: Voice::Agent("hive".into()), text }];
        assert!(matches!(all.within_channel(1, &said, submit).as_slice(), [Act::Hint { .. }]));
    }
}
