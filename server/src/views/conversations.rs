//! Conversations: lists, trees, and the distance to every limit.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use lastword_proto::State;
use lastword_proto::ids::{ConvId, GrantId};
use lastword_proto::state::{Conversation, Grant};
use lastword_proto::wire::{
    ConversationStatus, ConversationSummary, ConversationView, Counters, Distance, GrantView, StoredMessage, TreeNode,
    rfc3339,
};

/// A conversation in a list.
pub(crate) fn summary(state: &State, conv: &Conversation) -> ConversationSummary {
    ConversationSummary {
        reference: conv.reference.to_string(),
        parent_ref: conv.parent.and_then(|p| state.ref_of(p)).map(ToString::to_string),
        opener: state.name_of(conv.opener).to_owned(),
        state: conv.running,
        latched: is_latched(state, conv),
        counters: Counters {
            messages: conv.messages,
            agent_messages: conv.agent_messages,
            deepest: conv.deepest,
            open_tasks: conv.open_tasks.len() as u64,
        },
        opened_at: rfc3339(conv.opened_at),
        last_at: rfc3339(conv.last_at),
        nearest: nearest(state, conv),
    }
}

/// The limit of which the largest share is used.
fn nearest(state: &State, conv: &Conversation) -> Option<Distance> {
    let open = state.at_work_in(conv).filter_map(|id| state.grants.get(&id)).filter(|grant| grant.end.is_none());
    fullest(own_limits(state, conv).into_iter().chain(open.flat_map(|grant| totals(state, grant))))
}

/// That of these limits of which the largest share is used.
pub(crate) fn fullest<D: Borrow<Distance>>(all: impl Iterator<Item = D>) -> Option<D> {
    // a/b < c/d as a·d < c·b, in numbers that can't overflow.
    let part = |x: &Distance, y: &Distance| u128::from(x.current) * u128::from(y.limit);
    let compare = |a: &Distance, b: &Distance| part(a, b).cmp(&part(b, a));
    all.filter(|one| one.borrow().limit > 0).max_by(|a, b| compare(a.borrow(), b.borrow()))
}

/// How far a conversation is from each of its own limits.
pub(super) fn own_limits(state: &State, conv: &Conversation) -> Vec<Distance> {
    let limits = &state.limits;
    vec![
        distance("depth_max", limits.depth_max, conv.deepest.into()),
        distance("turns_soft_max", limits.turns_soft_max, conv.agent_messages),
        distance("turns_hard_max", limits.turns_hard_max, conv.agent_messages),
    ]
}

/// Whether a limit tripped that holds what runs in a conversation.
pub(crate) fn is_latched(state: &State, conv: &Conversation) -> bool {
    let holds = |id| state.grants.get(&id).is_some_and(|grant| grant.latched.is_some());
    conv.latched || state.at_work_in(conv).any(holds)
}

/// How a conversation stands.
pub(crate) fn standing(state: &State, conv: &Conversation) -> ConversationStatus {
    ConversationStatus::of(conv.running, is_latched(state, conv), !conv.open_tasks.is_empty())
}

/// A conversation with its grants and without its messages.
pub(crate) fn conversation(state: &State, id: ConvId, conv: &Conversation) -> ConversationView {
    let open = state.open_grants_of(id);
    let last = conv.grant.get().filter(|_| open.is_empty());
    let grants = open.into_iter().rev().chain(last).filter_map(|id| grant(state, id)).collect();
    ConversationView { grants, ..listed(state, conv) }
}

/// A conversation of a list: without its grants and messages.
pub(crate) fn listed(state: &State, conv: &Conversation) -> ConversationView {
    ConversationView {
        summary: summary(state, conv),
        participants: conv.participants.iter().map(|p| state.name_of(*p).to_owned()).collect(),
        limits: own_limits(state, conv),
        grants: Vec::new(),
        tree: Vec::new(),
        refusals: Vec::new(),
    }
}

pub(super) fn grant(state: &State, id: GrantId) -> Option<GrantView> {
    let grant = state.grants.get(&id)?;
    Some(GrantView {
        id: id.to_string(),
        giver: state.name_of(grant.giver).to_owned(),
        expires_at: rfc3339(grant.expires_at),
        open: grant.end.is_none(),
        latched: grant.latched.get().map(|incident| incident.to_string()),
        can_still_cause: grant.phi(&state.limits),
        limits: totals(state, grant),
    })
}

/// How far a grant is from each of its totals.
fn totals(state: &State, grant: &Grant) -> Vec<Distance> {
    let (limits, more) = (&state.limits, grant.extension());
    let mut distances = vec![
        distance("grant_messages_max", limits.grant_messages_max.saturating_add(more.messages), grant.messages),
        distance("grant_turns_max", limits.grant_turns_max.saturating_add(more.turns), grant.turns),
        distance("grant_agents_max", limits.grant_agents_max.saturating_add(more.agents), grant.agents.len() as u64),
        distance("grant_tokens_max", limits.grant_tokens_max.saturating_add(more.tokens), grant.spend.tokens),
    ];
    if limits.grant_cost_microusd_max > 0 {
        let limit = limits.grant_cost_microusd_max.saturating_add(more.cost_microusd);
        distances.push(distance("grant_cost_microusd_max", limit, grant.spend.cost_microusd));
    }
    distances
}

/// How far it is to a limit.
pub(super) fn distance(name: &str, limit: u64, current: u64) -> Distance {
    Distance { name: name.to_owned(), limit, current, left: limit.saturating_sub(current) }
}

/// Deepest nesting of a tree; deeper messages stand beside their cause, so that every JSON parser reads it.
const NESTING_MAX: usize = 24;

/// Hangs each message under the one that caused it.
pub(crate) fn tree(messages: Vec<StoredMessage>) -> Vec<TreeNode> {
    let known: BTreeSet<String> = messages.iter().map(|m| m.id.clone()).collect();
    let mut children: BTreeMap<Option<String>, Vec<StoredMessage>> = BTreeMap::new();
    for message in messages {
        let above = message.cause.clone().or_else(|| message.in_reply_to.clone());
        let above = above.filter(|id| known.contains(id) && *id != message.id);
        children.entry(above).or_default().push(message);
    }
    grow(&mut children, &None, 1)
}

/// The recursion is as deep as the causal chain, which the grant's totals bound (D8).
fn grow(
    children: &mut BTreeMap<Option<String>, Vec<StoredMessage>>,
    above: &Option<String>,
    depth: usize,
) -> Vec<TreeNode> {
    let mut nodes = Vec::new();
    for message in children.remove(above).unwrap_or_default() {
        let below = grow(children, &Some(message.id.clone()), depth + 1);
        if depth < NESTING_MAX {
            nodes.push(node(message, below));
        } else {
            nodes.push(node(message, Vec::new()));
            nodes.extend(below);
        }
    }
    nodes
}

const fn node(message: StoredMessage, children: Vec<TreeNode>) -> TreeNode {
    TreeNode { message, children, turns: 0, tokens: 0, duration_ms: None, refusals: Vec::new() }
}
