//! Maps agents to Discord users, and posts, channels and threads to Lastword's names.

use std::collections::BTreeMap;

use super::model::Post;

/// The agent in whose name posts of unknown bots and webhooks are counted.
pub(crate) const GUEST: &str = "discord-guest";
/// Prefix of the keys of calls that come from a post.
const KEY: &str = "discord:";
/// Prefix of the rooms in which posts count.
pub(crate) const ROOM: &str = KEY;
/// Prefix of the REF of a conversation that began with a post.
const REF: &str = "D-";
/// Digits of ids in a REF: Crockford's base 32.
const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// A bot that belongs to an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) agent: String,
    pub(crate) ours: bool,
}

/// The agents' bots, by Discord user.
#[derive(Clone, Debug, Default)]
pub(crate) struct Roster {
    members: BTreeMap<u64, Member>,
    /// The user of the broker's own bot, which isn't an agent's.
    broker: u64,
}

impl Roster {
    pub(crate) fn new(broker: u64) -> Self {
        Self { members: BTreeMap::new(), broker }
    }

    pub(crate) fn add(&mut self, user: u64, agent: &str, ours: bool) {
        self.members.insert(user, Member { agent: agent.to_owned(), ours });
    }

    pub(crate) fn get(&self, user: u64) -> Option<&Member> {
        self.members.get(&user)
    }

    /// Returns whether the bridge posts as this user.
    pub(crate) fn is_ours(&self, user: u64) -> bool {
        user == self.broker || self.members.get(&user).is_some_and(|member| member.ours)
    }

    /// Returns the agent whose message a human replies to; `None` for the broker's bot.
    pub(crate) fn replied(&self, user: u64) -> Option<String> {
        #[cfg(test)]
        if let Some(agent) = super::naive::replied(user, self) {
            return Some(agent);
        }
        Some(self.get(user)?.agent.clone())
    }

    /// Returns whether the user is the broker's own bot.
    pub(crate) fn is_broker(&self, user: u64) -> bool {
        user == self.broker
    }

    pub(crate) fn user_of(&self, agent: &str) -> Option<u64> {
        self.members.iter().find(|(_, member)| member.agent == agent).map(|(user, _)| *user)
    }

    /// Returns the agent's user if its bot is foreign.
    pub(crate) fn foreign(&self, agent: &str) -> Option<u64> {
        self.user_of(agent).filter(|user| !self.is_ours(*user))
    }

    pub(crate) fn agents(&self) -> impl Iterator<Item = &str> {
        self.members.values().map(|member| member.agent.as_str())
    }

    /// Returns the agents that a text mentions, in the text's order.
    pub(crate) fn mentioned(&self, post: &Post) -> Vec<String> {
        let place = |user: &u64| {
            [format!("<@{user}>"), format!("<@!{user}>")].iter().filter_map(|form| post.content.find(form)).min()
        };
        let mut found: Vec<(usize, &Member)> =
            self.members.iter().filter_map(|(user, member)| Some((place(user)?, member))).collect();
        found.sort_by_key(|(place, _)| *place);
        found.into_iter().map(|(_, member)| member.agent.clone()).collect()
    }

    /// Replaces mentions of agents with their names.
    pub(crate) fn named(&self, text: &str) -> String {
        // Most texts mention no user, and a roster may be long.
        if !text.contains("<@") {
            return text.trim().to_owned();
        }
        let mut text = text.to_owned();
        for (user, member) in &self.members {
            for form in [format!("<@{user}>"), format!("<@!{user}>")] {
                text = text.replace(&form, &format!("@{}", member.agent));
            }
        }
        text.trim().to_owned()
    }
}

/// Returns the room in which posts of a channel or thread count.
pub(crate) fn room(channel: u64) -> String {
    format!("{ROOM}{channel}")
}

/// Returns the idempotency key of a post's calls.
pub(crate) fn key(post: u64) -> String {
    format!("{KEY}{post}")
}

/// Returns the idempotency key of a message with a header: its post counts under [`key`], too.
pub(crate) fn message_key(post: u64) -> String {
    format!("{}.0", key(post))
}

/// Returns the post that a request came from, by the request's id.
pub(crate) fn post_of(request: &str) -> Option<u64> {
    request.strip_prefix(KEY)?.split('.').next()?.parse().ok()
}

/// Returns the REF of the conversation that begins with a post; the same for every reader of the post.
pub(crate) fn reference(post: u64) -> String {
    format!("{REF}{}", short(post))
}

/// Writes a Discord id in base 32, to save characters.
pub(crate) fn short(id: u64) -> String {
    let mut digits = Vec::new();
    let mut rest = id;
    while rest > 0 {
        digits.push(char::from(DIGITS[(rest % 32) as usize]));
        rest /= 32;
    }
    digits.iter().rev().collect()
}

/// Names a hint about a post for its nonce, which has no room for the text: an FNV-1a hash replaces it.
pub(crate) fn hint_name(post: u64, about: &str) -> String {
    let bytes = post.to_be_bytes().into_iter().chain(about.bytes());
    let digest =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |digest, byte| (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("h{}", short(digest))
}

/// Returns a REF and its parents by name, the REF itself first.
pub(crate) fn lineage(reference: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(reference), |child| child.rsplit_once('/').map(|(parent, _)| parent))
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::post;
    use super::*;

    #[test]
    fn names_lead_back_to_what_they_were_made_from() {
        assert_eq!(post_of(&format!("{}.2", key(77))), Some(77));
        assert_eq!((post_of("req-0001"), post_of("discord:x")), (None, None));
        assert_eq!(reference(175_928_847_299_117_063), "D-4W86BB0G4007");
        assert_eq!(lineage("A/1/2").collect::<Vec<_>>(), ["A/1/2", "A/1", "A"]);
    }

    #[test]
    fn two_hints_about_one_post_have_two_nonces_that_discord_takes() {
        let book = super::super::book::BridgeStore::in_memory().unwrap();
        let nonce = |post, about| book.nonce(&hint_name(post, about), 0);
        let posts = [7, 175_928_847_299_117_063, u64::MAX];
        let all = posts.map(|post| ["4:late", "4:this header can't be read"].map(|about| nonce(post, about)));
        assert!(all.iter().all(|[first, second]| first != second));
        assert!(all.iter().flatten().all(|nonce| nonce.len() <= 25), "{all:?}");
        assert_eq!(all[0][0], nonce(7, "4:late"), "another try has the same");
        assert_ne!(all[0][0], all[1][0]);
    }

    #[test]
    fn who_is_mentioned_comes_in_the_order_of_the_text_and_reads_as_a_name() {
        let mut roster = Roster::new(1);
        roster.add(2, "kilo", true);
        roster.add(3, "hive", false);
        let said = post(1, 9, 7, false, "<@!3> and <@2>, look");
        assert_eq!(roster.mentioned(&said), ["hive", "kilo"]);
        assert_eq!(roster.named(&said.content), "@hive and @kilo, look");
        assert_eq!((roster.foreign("hive"), roster.foreign("kilo")), (Some(3), None));
        assert!(roster.is_ours(1) && roster.is_ours(2) && !roster.is_ours(3));
    }
}
