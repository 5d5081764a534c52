//! The wrong decisions of a broker without the fixes of the bug trail, with which `trail.rs` shows that each bug comes
//! back.

use lastword_facts::Limits;

use super::fix::{Fix, holds};
use super::inbound::{TurnPlace, turn_place};
use super::model::Post;
use super::names::Roster;
use super::outbound::{Poster, Posting, warning, warns};
use super::runs::Run;

/// Warns at every post past the limit, with its own number, and as every bot: each where that fix is disabled.
pub(crate) fn warnings(
    kind: &str,
    agent_messages: u64,
    crossing: &str,
    what: &str,
    inside: bool,
    roster: &Roster,
) -> Vec<Posting> {
    let past = kind == "heard" && agent_messages >= Limits::default().turns_soft_max;
    if !warns(kind) && (holds(Fix::OneFactOneWarning) || !past) {
        return Vec::new();
    }
    let number = if holds(Fix::NumbersOfTheBroker) { agent_messages } else { 1_000 };
    let Some(posting) = warning(number, crossing, what, inside) else { return Vec::new() };
    if holds(Fix::BrokerWarns) {
        return vec![posting];
    }
    let agents = roster.agents().map(|agent| Poster::Agent(agent.to_owned()));
    agents.map(|poster| Posting { poster, ..posting.clone() }).collect()
}

/// Keys a thread by its parent, if that is known.
pub(crate) fn place(channel: u64, parent: Option<u64>) -> TurnPlace {
    turn_place(if holds(Fix::OneKey) { channel } else { parent.unwrap_or(channel) })
}

/// Takes a reply to the broker's notice as one to the first agent.
pub(crate) fn replied(user: u64, roster: &Roster) -> Option<String> {
    let naive = roster.is_broker(user) && !holds(Fix::NoticesInvolveNobody);
    naive.then(|| roster.agents().next().map(str::to_owned)).flatten()
}

/// Takes the ping of a reply as a mention.
pub(crate) fn counts_as_mention(run: &Run, user: Option<u64>) -> bool {
    !holds(Fix::LiteralMentions) && user.is_some() && run.first().and_then(Post::replies_to) == user
}
