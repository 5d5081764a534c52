//! Settings of single channels, which stand in for those of the whole bridge there and in the channel's threads.

use std::collections::{BTreeMap, BTreeSet};

use super::dialect::Dialect;
use super::ids::{ChannelId, RoleId, UserId};
use super::inbound::Act;
use super::post::Post;
use super::settings::{BotPolicy, HeaderStyle, Settings};

/// What a channel has of its own; `None` is the bridge's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Which envelopes of foreign bots are submitted there.
    pub policy: Option<BotPolicy>,
    /// If not empty, only envelopes of these bots' users are submitted there.
    pub trusted: Option<BTreeSet<UserId>>,
    /// The bridge's humans who may act there.
    pub humans: Option<BTreeSet<UserId>>,
    /// The bridge's roles of the server whose members may act there.
    pub roles: Option<BTreeSet<RoleId>>,
    /// The agents that may be asked there.
    pub agents: Option<BTreeSet<String>>,
    /// How headers are shown there.
    pub header: Option<HeaderStyle>,
}

impl Settings {
    /// Returns what a channel has of its own.
    #[must_use]
    pub fn own(&self, channel: ChannelId) -> Option<&ChannelSettings> {
        self.by_channel.get(&channel)
    }

    pub(crate) fn policy_in(&self, channel: ChannelId) -> BotPolicy {
        self.own(channel).and_then(|own| own.policy).unwrap_or(self.policy)
    }

    /// Returns whether a bot is trusted in a channel.
    pub(crate) fn trusts(&self, channel: ChannelId, bot: UserId) -> bool {
        let trusted = self.own(channel).and_then(|own| own.trusted.as_ref()).unwrap_or(&self.trusted);
        trusted.is_empty() || trusted.contains(&bot)
    }

    pub(crate) fn header_in(&self, channel: ChannelId) -> HeaderStyle {
        self.own(channel).and_then(|own| own.header).unwrap_or(self.header)
    }

    /// Returns why a channel's own settings contradict the bridge's.
    pub(crate) fn check_channels(&self, dialect: &Dialect) -> Result<(), String> {
        for (channel, own) in &self.by_channel {
            if !self.channels.contains(channel) {
                return Err(format!("channel.{channel} is not among channels: add it there"));
            }
            let unknown = own.roles.iter().flatten().find(|role| !self.roles.contains_key(role));
            if let Some(role) = unknown {
                return Err(format!("channel.{channel}: {role} has no [[{}.role]]", dialect.name));
            }
            let known = |agent: &&String| self.bots.iter().any(|bot| bot.agent == **agent);
            if let Some(agent) = own.agents.iter().flatten().find(|agent| !known(agent)) {
                return Err(format!("channel.{channel}: {agent} has no [[{}.bot]]", dialect.name));
            }
        }
        Ok(())
    }

    /// Returns what remains of a post's acts where only some agents may be asked; who asked another one is told so.
    pub(crate) fn within_channel(&self, channel: ChannelId, post: &Post, acts: Vec<Act>) -> Vec<Act> {
        let Some(agents) = self.own(channel).and_then(|own| own.agents.as_ref()) else { return acts };
        let refuse = |agent: &str| Act::Hint {
            about: format!("{}:{}:{agent} isn't asked here", post.channel, post.author.id),
            text: format!("{agent} isn't asked in this channel."),
        };
        let mut left = Vec::new();
        for act in acts {
            match act {
                Act::Say { user, mentions, reference, opens, body } => {
                    let (here, elsewhere): (Vec<_>, Vec<_>) =
                        mentions.into_iter().partition(|name| agents.contains(name));
                    left.extend(elsewhere.iter().map(|agent| refuse(agent)));
                    let opens = opens && !here.is_empty();
                    // A conversation that isn't opened has no name.
                    let reference = reference.filter(|_| opens || !here.is_empty());
                    left.push(Act::Say { user, mentions: here, reference, opens, body });
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
pub type ByChannel = BTreeMap<ChannelId, ChannelSettings>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dialect::tests::PLAIN;
    use crate::inbound::Voice;
    use crate::post::tests::post;
    use crate::settings::tests::settings;

    const HERE: ChannelId = ChannelId::new(1);
    const THERE: ChannelId = ChannelId::new(2);

    fn with(own: ChannelSettings) -> Settings {
        Settings { by_channel: [(HERE, own)].into(), channels: [HERE, THERE].into(), ..settings() }
    }

    #[test]
    fn a_channels_own_settings_hold_there_and_nowhere_else() {
        let own = ChannelSettings {
            policy: Some(BotPolicy::Off),
            trusted: Some([UserId::new(5)].into()),
            humans: Some([UserId::new(8)].into()),
            roles: None,
            agents: None,
            header: Some(HeaderStyle::Compact),
        };
        let all = with(own);
        assert_eq!((all.policy_in(HERE), all.policy_in(THERE)), (BotPolicy::Off, BotPolicy::All));
        assert_eq!((all.header_in(HERE), all.header_in(THERE)), (HeaderStyle::Compact, HeaderStyle::Text));
        let trusts = |channel, bot| all.trusts(channel, UserId::new(bot));
        assert!(trusts(HERE, 5) && !trusts(HERE, 6) && trusts(THERE, 6));
        assert_eq!(all.check(&PLAIN), Ok(()));
        let elsewhere = Settings { by_channel: [(ChannelId::new(3), ChannelSettings::default())].into(), ..settings() };
        assert!(elsewhere.check(&PLAIN).unwrap_err().contains("channel.3"));
        let nobody = with(ChannelSettings { agents: Some(["zoe".to_owned()].into()), ..ChannelSettings::default() });
        assert!(nobody.check(&PLAIN).unwrap_err().contains("zoe"));
        let no_role = with(ChannelSettings { roles: Some([RoleId::new(5)].into()), ..ChannelSettings::default() });
        assert!(no_role.check(&PLAIN).unwrap_err().contains("5 has no [[chat.role]]"));
    }

    #[test]
    fn an_agent_that_isnt_for_a_channel_is_not_asked_there_and_who_asked_is_told() {
        let own = ChannelSettings { agents: Some(["hive".to_owned()].into()), ..ChannelSettings::default() };
        let ann = UserId::new(7);
        let (all, said) = (with(own), post(1, HERE, ann, false, "x"));
        let say = |mentions: &[&str], reference: Option<&str>| Act::Say {
            user: ann,
            mentions: mentions.iter().map(|name| (*name).to_owned()).collect(),
            opens: reference.is_some() && !mentions.is_empty(),
            reference: reference.map(str::to_owned),
            body: "x".into(),
        };
        let asked = vec![say(&["kilo"], Some("D-1"))];
        assert_eq!(all.within_channel(THERE, &said, asked.clone()), asked);
        let left = all.within_channel(HERE, &said, asked);
        assert!(matches!(&left[0], Act::Hint { text, .. } if text.contains("kilo")), "{left:?}");
        assert_eq!(left[1..], [say(&[], None)], "it counts and is readable");
        let both = all.within_channel(HERE, &said, vec![say(&["kilo", "hive"], Some("D-1"))]);
        assert_eq!(both[1..], [say(&["hive"], Some("D-1"))]);
        let text = "[FROM:hive][TO:kilo][TYPE:REQUEST][REF:D-1][DEPTH:1] go".to_owned();
        let submit = vec![Act::Submit { voice: Voice::Agent("hive".into()), text }];
        assert!(matches!(all.within_channel(HERE, &said, submit).as_slice(), [Act::Hint { .. }]));
    }
}
