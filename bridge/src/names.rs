//! Maps agents to users of the platform and back.

use std::collections::BTreeMap;

use super::dialect::Dialect;
use super::ids::{PostId, UserId, short};
use super::post::Post;
use super::runs::Run;

/// A bot that belongs to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RosterMember {
    pub(crate) agent: String,
    pub(crate) ours: bool,
}

/// The agents' bots, by user.
#[derive(Clone, Debug)]
pub(crate) struct Roster {
    members: BTreeMap<UserId, RosterMember>,
    /// The user of the broker's own bot, which isn't an agent's.
    pub(crate) broker: UserId,
    pub(crate) dialect: &'static Dialect,
}

impl Roster {
    pub(crate) const fn new(broker: UserId, dialect: &'static Dialect) -> Self {
        Self { members: BTreeMap::new(), broker, dialect }
    }

    pub(crate) fn add(&mut self, user: UserId, agent: &str, ours: bool) {
        self.members.insert(user, RosterMember { agent: agent.to_owned(), ours });
    }

    pub(crate) fn get(&self, user: UserId) -> Option<&RosterMember> {
        self.members.get(&user)
    }

    /// Returns whether the bridge posts as this user.
    pub(crate) fn is_ours(&self, user: UserId) -> bool {
        user == self.broker || self.members.get(&user).is_some_and(|member| member.ours)
    }

    /// Returns the agent whose message a human replies to; `None` for the broker's bot.
    pub(crate) fn replied(&self, user: UserId) -> Option<String> {
        Some(self.get(user)?.agent.clone())
    }

    pub(crate) fn user_of(&self, agent: &str) -> Option<UserId> {
        self.members.iter().find(|(_, member)| member.agent == agent).map(|(user, _)| *user)
    }

    /// Returns the agent's user if its bot is foreign.
    pub(crate) fn foreign(&self, agent: &str) -> Option<UserId> {
        self.user_of(agent).filter(|user| !self.is_ours(*user))
    }

    pub(crate) fn agents(&self) -> impl Iterator<Item = &str> {
        self.members.values().map(|member| member.agent.as_str())
    }

    /// Returns the agents that a text mentions, in the text's order.
    pub(crate) fn mentioned(&self, post: &Post) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for member in post.mentions.iter().filter_map(|mention| self.get(mention.user)) {
            if !found.contains(&member.agent) {
                found.push(member.agent.clone());
            }
        }
        found
    }

    /// Returns the text of a run with the names of agents in place of their mentions.
    pub(crate) fn named(&self, run: &Run) -> String {
        let mut text = run.text();
        for mention in run.mentions() {
            if let Some(member) = self.get(mention.user) {
                text = text.replace(&mention.written, &format!("@{}", member.agent));
            }
        }
        text.trim().to_owned()
    }
}

/// Names a hint about a post for its nonce, which has no room for the text: an FNV-1a hash replaces it.
pub(crate) fn hint_name(post: PostId, about: &str) -> String {
    let digest = format!("{post} {about}")
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("h{}", short(digest))
}

/// Returns a REF and its parents by name, the REF itself first.
pub(crate) fn lineage(reference: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(reference), |child| child.rsplit_once('/').map(|(parent, _)| parent))
}

#[cfg(test)]
mod tests {
    use super::super::dialect::tests::PLAIN;
    use super::super::ids::ChannelId;
    use super::super::post::tests::post;
    use super::*;

    #[test]
    fn a_ref_names_its_parents() {
        assert_eq!(lineage("A/1/2").collect::<Vec<_>>(), ["A/1/2", "A/1", "A"]);
    }

    #[test]
    fn two_hints_about_one_post_have_two_short_nonces() {
        let book = super::super::book::BridgeStore::in_memory().unwrap();
        let nonce = |post, about| book.nonce(&hint_name(PostId::new(post), about), 0);
        let posts = [7, 175_928_847_299_117_063, u64::MAX];
        let all = posts.map(|post| ["4:late", "4:this header can't be read"].map(|about| nonce(post, about)));
        assert!(all.iter().all(|[first, second]| first != second));
        assert!(all.iter().flatten().all(|nonce| nonce.len() <= 25), "{all:?}");
        assert_eq!(all[0][0], nonce(7, "4:late"), "another try has the same");
        assert_ne!(all[0][0], all[1][0]);
    }

    #[test]
    fn who_is_mentioned_comes_in_the_order_of_the_text_and_reads_as_a_name() {
        let [broker, kilo, hive] = [1, 2, 3].map(UserId::new);
        let mut roster = Roster::new(broker, &PLAIN);
        roster.add(kilo, "kilo", true);
        roster.add(hive, "hive", false);
        let said = post(1, ChannelId::new(9), UserId::new(7), false, "<@3> and <@2>, look, <@3>");
        assert_eq!(roster.mentioned(&said), ["hive", "kilo"]);
        assert_eq!(roster.named(&Run::of(said)), "@hive and @kilo, look, @hive");
        assert_eq!((roster.foreign("hive"), roster.foreign("kilo")), (Some(hive), None));
        assert!(roster.is_ours(broker) && roster.is_ours(kilo) && !roster.is_ours(hive));
    }
}
