//! Conversations: lists, trees, and the distance to every limit.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use lastword_broker::identity::TurnSigner;
use lastword_core::State;
use lastword_core::state::{Conversation, Grant, Phase};
use lastword_facts::fact::EndReason;
use lastword_facts::ids::{ClaimId, ConvId, GrantId};
use lastword_facts::status::Running;
use lastword_wire::{
    ConversationStatus, ConversationSummary, ConversationView, Counters, Distance, GrantKind, GrantView, Outcome,
    StoredMessage, TreeNode, rfc3339,
};

use super::claims::claim;
use super::held::held_in_conversation;
use crate::trace::Traces;

/// Returns a conversation's summary for a list.
pub(crate) fn summary(state: &State, conv: &Conversation) -> ConversationSummary {
    ConversationSummary {
        reference: conv.reference.to_string(),
        parent_ref: conv.parent.and_then(|p| state.ref_of(p)).map(ToString::to_string),
        opener: state.name_of(conv.opener).to_owned(),
        state: conv.running,
        latched: is_latched(state, conv),
        waits_for_human: waits_for_human(state, conv),
        waits_for_user: waiting(state, conv),
        counters: Counters {
            messages: conv.messages,
            agent_messages: conv.agent_messages,
            deepest: conv.deepest,
            open_tasks: conv.open_tasks.len() as u64,
        },
        outcome: outcome(state, conv),
        opened_at: rfc3339(conv.opened_at),
        last_at: rfc3339(conv.last_at),
        nearest: nearest(state, conv),
        subject: String::new(),
        tokens: 0,
        cost_microusd: 0,
    }
}

/// Returns the agents at work in a conversation whose program waits for its own user.
fn waiting(state: &State, conv: &Conversation) -> Vec<String> {
    let turns = conv.open_tasks.iter().filter_map(|task| state.turns.get(&state.tasks.get(task)?.turn()?));
    let waiting = turns.filter(|turn| turn.waits_for_user);
    waiting.map(|turn| state.name_of(turn.agent).to_owned()).collect()
}

/// Returns the limit of the conversation or its open grants with the largest share used.
fn nearest(state: &State, conv: &Conversation) -> Option<Distance> {
    let open = state.at_work_in(conv).filter_map(|id| state.grants.get(&id)).filter(|grant| grant.end.is_none());
    fullest(own_limits(state, conv).into_iter().chain(open.flat_map(|grant| totals(state, grant))))
}

/// Returns the limit with the largest share used; limits of 0 are off.
pub fn fullest<D: Borrow<Distance>>(all: impl Iterator<Item = D>) -> Option<D> {
    // Compares a/b < c/d as a·d < c·b in 128 bits, which can't overflow.
    let part = |x: &Distance, y: &Distance| u128::from(x.current) * u128::from(y.limit);
    let compare = |a: &Distance, b: &Distance| part(a, b).cmp(&part(b, a));
    all.filter(|one| one.borrow().limit > 0).max_by(|a, b| compare(a.borrow(), b.borrow()))
}

/// Returns the distance of a conversation to each of its own limits.
pub(super) fn own_limits(state: &State, conv: &Conversation) -> Vec<Distance> {
    let limits = &state.limits;
    vec![
        distance("depth_max", limits.depth_max, conv.deepest.into()),
        distance("turns_soft_max", limits.turns_soft_max, conv.agent_messages),
        distance("turns_hard_max", limits.turns_hard_max, conv.agent_messages),
    ]
}

/// Returns whether a tripped limit holds work in a conversation.
pub(crate) fn is_latched(state: &State, conv: &Conversation) -> bool {
    let holds = |id| state.grants.get(&id).is_some_and(|grant| grant.latched.is_some());
    conv.latched || state.at_work_in(conv).any(holds)
}

/// Returns whether work of a conversation's open grants waits for a human.
pub fn waits_for_human(state: &State, conv: &Conversation) -> bool {
    let waits = |id| state.grants.get(&id).is_some_and(|grant| grant.human_waits > 0);
    !conv.open_tasks.is_empty() && state.at_work_in(conv).any(waits)
}

/// Returns the status of a conversation. Open work below a paused or stopped conversation, or in such a workspace, is paused
/// or stopped.
pub fn standing(state: &State, conv: &Conversation) -> ConversationStatus {
    let open = !conv.open_tasks.is_empty();
    let above = || state.conv_of(conv.reference.as_str()).map_or(Running::Active, |id| state.running_in(id));
    let running = if open { conv.running.max(above()).max(state.running) } else { conv.running };
    ConversationStatus::of(running, is_latched(state, conv), open)
}

/// Returns how the last work in a conversation ended: the first request that arrived in it under its last grant. `None`
/// while a request is open, and once that work is forgotten.
pub fn outcome(state: &State, conv: &Conversation) -> Option<Outcome> {
    let grant = state.grants.get(&conv.grant.get()?).filter(|_| conv.open_tasks.is_empty())?;
    let mut tasks = grant.tasks.iter().filter_map(|id| state.tasks.get(id));
    match tasks.find(|task| state.ref_of(task.conv) == Some(&conv.reference))?.phase {
        Phase::Closed(status, cause) => Some(Outcome::of(status, cause == EndReason::Stopped)),
        Phase::Queued | Phase::Open(_) | Phase::Waiting => None,
    }
}

/// Returns a conversation with its grants and their traces, without its messages.
pub fn conversation(
    traces: &Traces,
    signer: &TurnSigner,
    state: &State,
    id: ConvId,
    conv: &Conversation,
) -> ConversationView {
    let open = state.open_grants_of(id);
    let last = conv.grant.get().filter(|_| open.is_empty());
    let traced = |id: GrantId| {
        let foreign = state.grants.get(&id)?.trace.as_deref().copied();
        let (trace, url) = traces.shown(signer, id, foreign).unzip();
        Some(GrantView { trace, trace_url: url.flatten(), ..grant(state, id)? })
    };
    let grants = open.into_iter().rev().chain(last).filter_map(traced).collect();
    let of = |claim: &&ClaimId| {
        let task = state.claims.get(claim).and_then(|claim| state.tasks.get(&claim.task?));
        task.is_some_and(|task| task.conv == id)
    };
    let claims = state.claims.keys().filter(of).filter_map(|id| claim(state, *id)).collect();
    ConversationView { grants, held_by: held_in_conversation(state, id), claims, ..listed(state, conv) }
}

/// Returns a conversation as a list shows it, without its grants and messages.
pub fn listed(state: &State, conv: &Conversation) -> ConversationView {
    ConversationView {
        summary: summary(state, conv),
        participants: conv.participants.iter().map(|p| state.name_of(*p).to_owned()).collect(),
        limits: own_limits(state, conv),
        grants: Vec::new(),
        tree: Vec::new(),
        left_out: 0,
        behind: 0,
        refusals: Vec::new(),
        questions: Vec::new(),
        held_by: Vec::new(),
        claims: Vec::new(),
    }
}

/// Returns a grant with its limits; `None` if the number is unknown.
pub fn grant(state: &State, id: GrantId) -> Option<GrantView> {
    let grant = state.grants.get(&id)?;
    Some(GrantView {
        id: id.to_string(),
        giver: state.name_of(grant.giver).to_owned(),
        kind: kind(grant),
        expires_at: rfc3339(grant.expires_at),
        open: grant.end.is_none(),
        latched: grant.latched.get().map(|incident| incident.to_string()),
        can_still_cause: grant.phi(&state.limits),
        limits: totals(state, grant),
        trace: None,
        trace_url: None,
    })
}

/// Returns the distance of a grant to each of its totals.
fn totals(state: &State, grant: &Grant) -> Vec<Distance> {
    let (limits, more) = (&state.limits, grant.extension());
    let tokens_max = limits.grant_tokens_max.saturating_add(more.tokens);
    let mut distances = vec![
        distance("grant_messages_max", limits.grant_messages_max.saturating_add(more.messages), grant.messages),
        distance("grant_turns_max", limits.grant_turns_max.saturating_add(more.turns), grant.turns),
        distance("grant_agents_max", limits.grant_agents_max.saturating_add(more.agents), grant.agents.len() as u64),
        Distance { estimated: grant.estimated, ..distance("grant_tokens_max", tokens_max, grant.spend.tokens) },
    ];
    if limits.grant_cost_microusd_max > 0 {
        let limit = limits.grant_cost_microusd_max.saturating_add(more.cost_microusd);
        distances.push(distance("grant_cost_microusd_max", limit, grant.spend.cost_microusd));
    }
    distances
}

/// Returns the distance to a limit; `left` is 0 once it is reached.
pub(super) fn distance(name: &str, limit: u64, current: u64) -> Distance {
    Distance { name: name.to_owned(), limit, current, left: limit.saturating_sub(current), estimated: false }
}

/// The deepest nesting of a tree. Deeper messages become siblings of their cause, so that every JSON parser can read
/// the tree.
const NESTING_MAX: usize = 24;

/// Builds the tree in which each message is a child of its cause.
pub fn tree(messages: Vec<StoredMessage>) -> Vec<TreeNode> {
    let known: BTreeSet<String> = messages.iter().map(|m| m.id.clone()).collect();
    let mut children: BTreeMap<Option<String>, Vec<StoredMessage>> = BTreeMap::new();
    for message in messages {
        let above = message.cause.clone().or_else(|| message.in_reply_to.clone());
        let above = above.filter(|id| known.contains(id) && *id != message.id);
        children.entry(above).or_default().push(message);
    }
    grow(&mut children, &None, 1)
}

/// Builds the nodes below `above`. The recursion is as deep as the causal chain, which the grant's totals bound (D8).
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
    TreeNode {
        message,
        children,
        turns: 0,
        tokens: 0,
        estimated: false,
        duration_ms: None,
        refusals: Vec::new(),
        questions: Vec::new(),
    }
}

const fn kind(grant: &Grant) -> GrantKind {
    match (grant.own_root, grant.typed, grant.scheduled) {
        (true, _, _) => GrantKind::Root,
        (_, true, _) => GrantKind::Typed,
        (_, _, true) => GrantKind::Schedule,
        (false, false, false) => GrantKind::Message,
    }
}
