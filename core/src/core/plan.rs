//! Plans a draft: the turn it belongs to, its recipients, its conversation. Decides nothing and changes nothing.

use alloc::vec::Vec;
use core::ops::Deref;

use lastword_facts::envelope::{Address, Draft, MessageType};
use lastword_facts::fact::SYSTEM;
use lastword_facts::ids::{AgentId, ConvId, TaskId};
use lastword_facts::names::Ref;
use lastword_facts::refusal::{Code, Refusal};

use super::Step;
use crate::guards::{Placement, Plan, RefProblem, SendContext};
use crate::state::{Agent, Asker, Few, Task};

/// The recipients of a draft.
pub(super) type Targets = Few<AgentId, 4>;

/// A draft with the conversation that its REF names, looked up once because all REFs share one large table.
pub(super) struct Named<'a> {
    draft: &'a Draft,
    conv: Option<ConvId>,
}

impl Deref for Named<'_> {
    type Target = Draft;

    fn deref(&self) -> &Draft {
        self.draft
    }
}

impl Step<'_> {
    /// Returns the context of a send (D1, D7).
    pub(super) fn context(&self, sender: AgentId, draft: &Named<'_>, targets: &[AgentId]) -> SendContext {
        let state = self.state();
        let Some(agent) = state.agent(sender) else { return SendContext::Outside };
        if agent.is_human() {
            return SendContext::Human;
        }
        if let Some(turn) = draft.turn {
            return match state.turns.get(&turn).filter(|t| t.open && t.agent == sender) {
                Some(open) => SendContext::Turn(turn, open.task),
                None => SendContext::Lost,
            };
        }
        match (agent.turns.as_slice(), draft.kind) {
            ([turn], kind) => {
                let Some(open) = state.turns.get(turn) else { return SendContext::Lost };
                // What a human types during a turn that nobody else waits for is a word of its own (H8).
                let own = kind == MessageType::Request && self.asker_of(open.task) == Asker::Nobody;
                let typed = own.then(|| self.typed_context(sender)).flatten();
                typed.filter(|typed| typed.task() != Some(open.task)).unwrap_or(SendContext::Turn(*turn, open.task))
            }
            ([_, _, ..], _) => SendContext::Ambiguous,
            ([], MessageType::Request) => self.outside(sender, draft, targets),
            ([], _) => SendContext::Outside,
        }
    }

    /// Returns the context of a REQUEST outside every turn: because of a typed prompt, inside a task of a grant that is
    /// still open, or a root (H8, D7, D3).
    fn outside(&self, sender: AgentId, draft: &Named<'_>, targets: &[AgentId]) -> SendContext {
        let state = self.state();
        if let Some(typed) = self.typed_context(sender) {
            return typed;
        }
        let with = |to: &AgentId| state.tie(sender, *to);
        // The newest tie counts: numbers grow, so it is the largest.
        if let Some(task) = targets.iter().filter_map(with).max() {
            return SendContext::Inside(task);
        }
        let root = draft.conv.and_then(|c| state.conversations[&c].root).filter(|r| r.agent == sender);
        let open = |task: &Task| state.grants.get(&task.grant).is_some_and(|g| g.end.is_none());
        match root.filter(|r| state.tasks.get(&r.task).is_some_and(open)) {
            Some(root) => SendContext::Inside(root.task),
            None => SendContext::Root,
        }
    }

    /// Returns the draft with the conversation that its REF names.
    pub(super) fn named<'a>(&self, draft: &'a Draft) -> Named<'a> {
        let conv = draft.reference.as_ref().and_then(|reference| self.state().conv_of(reference.as_str()));
        Named { draft, conv }
    }

    /// Returns the recipients, in order, each once.
    pub(super) fn targets(&self, sender: AgentId, draft: &Draft) -> Result<Targets, Refusal> {
        let mut targets = Targets::new();
        self.resolve(sender, draft, &draft.to, &mut targets)?;
        if targets.len() > 1 {
            let mut seen = alloc::collections::BTreeSet::new();
            targets.retain(|t| seen.insert(*t));
        }
        let max = self.state().limits.list_max;
        if targets.len() as u64 > max {
            return Err(Refusal::new(Code::Malformed).numbers(max, targets.len() as u64).about(&draft.to));
        }
        Ok(targets)
    }

    fn resolve(&self, sender: AgentId, draft: &Draft, to: &Address, targets: &mut Targets) -> Result<(), Refusal> {
        let state = self.state();
        let unknown = || Refusal::new(Code::UnknownRecipient).about(to);
        match to {
            Address::All => {}
            Address::Name(name) => {
                let named = state.live(name.as_str()).ok_or_else(unknown)?;
                state.agents[named.0 as usize].touch();
                targets.push(named);
            }
            Address::User => targets.push(self.human_of(sender, draft).ok_or_else(unknown)?),
            Address::Group(group) => {
                let members = state.groups.get(group.as_str()).ok_or_else(unknown)?;
                let before = targets.len();
                targets.extend(members.iter().copied().filter(|m| *m != sender));
                if targets.len() == before {
                    return Err(unknown());
                }
            }
            Address::Action(action) => {
                let task = self.context(sender, &self.named(draft), &[]).task();
                // Outside a turn its requesters are no choice either: a request to one of them would be refused (D7).
                let tasks = state.agent(sender).into_iter().flat_map(Agent::grant_tasks);
                let askers: Vec<AgentId> = tasks.filter_map(|t| state.tasks.get(&t)?.asker.agent()).collect();
                targets.push(self.serves(action.as_str(), sender, task, &askers).ok_or_else(unknown)?);
            }
            Address::List(items) => {
                for item in items {
                    self.resolve(sender, draft, item, targets)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the agent that serves an action and has the least work: not a human, the sender, an agent that was
    /// tried, nor an ancestor (Q4, D5).
    pub(super) fn serves(
        &self,
        action: &str,
        sender: AgentId,
        task: Option<TaskId>,
        tried: &[AgentId],
    ) -> Option<AgentId> {
        let state = self.state();
        let ancestors: Vec<AgentId> = task.map(|t| state.ancestors(t).collect()).unwrap_or_default();
        let agent = |id: &AgentId| state.agent(*id).is_some_and(|agent| !agent.is_human());
        let free = |id: &AgentId| *id != sender && !tried.contains(id) && !ancestors.contains(id);
        let fits = |id: &AgentId| agent(id) && free(id) && state.may_take(*id);
        let load = |id: &AgentId| state.agent(*id).map_or(usize::MAX, |a| a.queue.len() + a.turns.len());
        // The lower number wins between equals, so that the choice is deterministic.
        state.actions.get(action)?.iter().copied().filter(fits).min_by_key(|id| (load(id), *id))
    }

    /// Resolves `to: user`: the human who gave the grant, otherwise any human of the workspace.
    fn human_of(&self, sender: AgentId, draft: &Draft) -> Option<AgentId> {
        let state = self.state();
        let task = self.context(sender, &self.named(draft), &[]).task();
        Some(state.human_for(task)).filter(|id| *id != SYSTEM)
    }

    /// Returns the conversation of the message to `to`; `fresh` children were planned before it in the same send.
    pub(super) fn placement(
        &self,
        sender: AgentId,
        draft: &Named<'_>,
        context: SendContext,
        to: Option<AgentId>,
        fresh: u32,
    ) -> Placement {
        let state = self.state();
        let placement = match context {
            SendContext::Human => self.human_placement(draft),
            SendContext::Turn(_, task) | SendContext::Inside(task) if draft.kind == MessageType::Request => {
                self.request_placement(sender, draft, context, task, to, fresh)
            }
            SendContext::Turn(_, task) | SendContext::Inside(task) => self.note_placement(sender, draft, Some(task)),
            SendContext::Root => self.root_placement(sender, draft),
            SendContext::Typed(_) => {
                let placement = self.root_placement(sender, draft);
                match placement.plan {
                    Plan::Existing(conv) => Placement { fault: self.typed_fault(sender, conv, to), ..placement },
                    Plan::Open(..) | Plan::None => placement,
                }
            }
            SendContext::Outside | SendContext::Ambiguous | SendContext::Lost => {
                self.note_placement(sender, draft, None)
            }
        };
        // A child named by the broker is below the sender's own conversation, so only named REFs need the check.
        let named = draft.reference.is_some() || draft.request_id.is_some();
        let opening = if context == SendContext::Human || placement.fault.is_some() {
            None
        } else {
            self.opening_fault(sender, &placement.plan, named)
        };
        let placement = Placement { fault: placement.fault.or(opening), ..placement };
        #[cfg(feature = "rules-off")]
        let placement = self.naive_placement(placement);
        let depth = self.depth(sender, context, &placement.plan);
        let human = to.and_then(|t| state.agent(t)).is_some_and(Agent::is_human);
        // A message to a human adds no depth (D2).
        Placement { depth: if human { 0 } else { depth }, ..placement }
    }

    fn depth(&self, sender: AgentId, context: SendContext, plan: &Plan) -> u8 {
        let state = self.state();
        #[cfg(feature = "rules-off")]
        if let Some(depth) = self.naive_depth(context) {
            return depth;
        }
        let Plan::Existing(conv) = plan else { return 0 };
        if let Some(task) = context.task().and_then(|t| state.tasks.get(&t)) {
            return task.depth_in(*conv);
        }
        let root = state.conversations[conv].root.filter(|r| context == SendContext::Root && r.agent == sender);
        root.and_then(|r| r.received).map_or(0, |d| d.saturating_add(1))
    }

    fn human_placement(&self, draft: &Named<'_>) -> Placement {
        let (plan, fault) = match (&draft.reference, draft.conv) {
            (_, Some(conv)) => (Plan::Existing(conv), None),
            (Some(reference), None) => (Plan::Open(reference.clone(), None), None),
            (None, None) if names_work(draft) => self.work_of_request(draft),
            (None, None) => (self.minted_work(), None),
        };
        Placement { plan, fault, depth: 0 }
    }

    /// Returns the work item of a REQUEST without a REF: its request_id, if that is a REF that is not in use (Q1).
    fn work_of_request(&self, draft: &Named<'_>) -> (Plan, Option<RefProblem>) {
        let id = draft.request_id.as_ref().filter(|_| names_work(draft));
        let named = id.and_then(|id| Ref::new(id.as_str()).ok());
        match named.filter(|reference| self.state().conv_of(reference.as_str()).is_none()) {
            Some(reference) => (Plan::Open(reference, None), None),
            None => (Plan::None, Some(RefProblem::Required)),
        }
    }

    /// Whether an agent may open a REF: it takes part in the nearest conversation above, and in all below (§1).
    pub(super) fn may_open(&self, sender: AgentId, reference: &str) -> bool {
        let state = self.state();
        let part = |conv: ConvId| state.conversations.get(&conv).is_some_and(|c| c.has_part(sender));
        let above = state.named_above(reference).next().is_none_or(part);
        above && state.named_below(reference).all(part)
    }

    /// Returns the problem with a REF that an agent would open above or below another conversation.
    fn opening_fault(&self, sender: AgentId, plan: &Plan, named: bool) -> Option<RefProblem> {
        let Plan::Open(reference, parent) = plan else { return None };
        if !named && parent.is_some() && !self.state().may_have_below(reference.as_str()) {
            return None;
        }
        (!self.may_open(sender, reference.as_str())).then(|| RefProblem::InUse(reference.clone()))
    }

    /// Returns a new work item with a minted REF.
    pub(super) fn minted_work(&self) -> Plan {
        let minted = self.minted("work-", self.state().minted_conversations());
        minted.map_or(Plan::None, |reference| Plan::Open(reference, None))
    }

    fn minted(&self, prefix: &str, after: u32) -> Option<Ref> {
        // A sender may have used the next minted REF for a work item of its own.
        let mut tries = (after + 1..).map(|n| Ref::new(&alloc::format!("{prefix}{n}")));
        tries.find_map(|r| r.ok().filter(|r| self.state().conv_of(r.as_str()).is_none()))
    }

    /// Returns the placement of a REQUEST inside a task: its own REF, a delegate's conversation, or a child (D3).
    fn request_placement(
        &self,
        sender: AgentId,
        draft: &Named<'_>,
        context: SendContext,
        id: TaskId,
        to: Option<AgentId>,
        fresh: u32,
    ) -> Placement {
        let state = self.state();
        let task = &state.tasks[&id];
        // If it asked this delegate under several REFs, the one that is named is meant, otherwise the last.
        let of = |conv: ConvId| task.delegates.iter().rev().find(|d| Some(d.agent) == to && d.conv == conv);
        let delegate = draft.conv.and_then(of).or_else(|| to.and_then(|t| task.delegate(t)));
        let known = delegate.map(|d| (d, &state.conversations[&d.conv].reference));
        let another = known.filter(|(_, own)| draft.reference.as_ref().is_some_and(|r| r != *own));
        // A request may name several REFs; its task may then use one conversation for each, even with one delegate.
        // A human may type any number of work items, and each is a child of its own (H8).
        let typed = state.grants.get(&task.grant).is_some_and(|grant| grant.typed) && task.asker == Asker::Nobody;
        let named = draft.reference.as_ref().is_some_and(|r| typed || task.names(r));
        let conflict = another.filter(|_| !named);
        let known = known.filter(|_| another.is_none() || conflict.is_some());
        if let (Some((delegate, reference)), None) = (known, conflict) {
            let unanswered = state.tasks.get(&delegate.task).is_some_and(|t| !t.is_closed());
            // Inside a turn the sender may ask again; outside, that would be a second request for the same work.
            let repeats = unanswered && context.turn().is_none();
            let fault = repeats.then(|| RefProblem::InUse(reference.clone()));
            return Placement { plan: Plan::Existing(delegate.conv), fault, depth: 0 };
        }
        let own = |c: ConvId| c == task.conv || task.delegates.iter().any(|d| d.conv == c);
        let (plan, foreign) = match (&draft.reference, draft.conv) {
            (Some(_), Some(conv)) => (Plan::Existing(conv), !own(conv)),
            (Some(reference), None) => (Plan::Open(reference.clone(), Some(task.conv)), false),
            (None, _) => (self.child(task.conv, fresh), false),
        };
        // Asking a delegate again continues the conversation with it; another REF for it is refused.
        let fault = match (conflict, &draft.reference) {
            (Some((_, reference)), _) => Some(RefProblem::Conflict(reference.clone())),
            (None, Some(_)) if foreign && typed => draft.conv.and_then(|conv| self.typed_fault(sender, conv, to)),
            (None, Some(reference)) if foreign => Some(RefProblem::InUse(reference.clone())),
            (None, _) => (plan == Plan::None).then_some(RefProblem::Required),
        };
        Placement { plan, fault, depth: 0 }
    }

    /// Returns the problem with a conversation that exists, for the request of a typed prompt: its sender takes no part
    /// in it, or still waits for the same agent there. A human's word is free to continue any other (D9, H8).
    fn typed_fault(&self, sender: AgentId, conv: ConvId, to: Option<AgentId>) -> Option<RefProblem> {
        let state = self.state();
        let known = &state.conversations[&conv];
        let open = known.open_tasks.iter().filter_map(|task| state.tasks.get(task));
        let waits = open.filter(|task| task.asker.agent() == Some(sender)).any(|task| Some(task.agent) == to);
        (waits || !known.has_part(sender)).then(|| RefProblem::InUse(known.reference.clone()))
    }

    fn child(&self, parent: ConvId, fresh: u32) -> Plan {
        let state = self.state();
        let conv = &state.conversations[&parent];
        // Children that this send will open are not counted in the conversation yet.
        let first = conv.children + 1 + fresh;
        let free = (first..).map_while(|n| conv.reference.child(n)).find(|r| state.conv_of(r.as_str()).is_none());
        free.map_or(Plan::None, |r| Plan::Open(r, Some(parent)))
    }

    /// Returns the placement of a root: a new REF, or one that the sender rooted before in a grant that has closed (D3).
    fn root_placement(&self, sender: AgentId, draft: &Named<'_>) -> Placement {
        let Some(reference) = &draft.reference else {
            let (plan, fault) = self.work_of_request(draft);
            return Placement { plan, fault, depth: 0 };
        };
        let Some(conv) = draft.conv else {
            return Placement { plan: Plan::Open(reference.clone(), None), fault: None, depth: 0 };
        };
        let own = self.state().conversations[&conv].root.is_some_and(|r| r.agent == sender);
        let fault = (!own).then(|| RefProblem::InUse(reference.clone()));
        Placement { plan: Plan::Existing(conv), fault, depth: 0 }
    }

    /// Returns the placement of a message that wakes no agent: the task's own REF, one that its sender takes part in,
    /// or a new one.
    fn note_placement(&self, sender: AgentId, draft: &Named<'_>, task: Option<TaskId>) -> Placement {
        let state = self.state();
        let own = task.and_then(|t| state.tasks.get(&t)).map(|t| t.conv);
        let (plan, fault) = match (&draft.reference, draft.conv, own) {
            (Some(reference), Some(conv), _) => {
                let part = state.conversations[&conv].has_part(sender);
                (Plan::Existing(conv), (!part).then(|| RefProblem::InUse(reference.clone())))
            }
            (Some(reference), None, parent) => (Plan::Open(reference.clone(), parent), None),
            (None, _, Some(conv)) => (Plan::Existing(conv), None),
            (None, _, None) => (Plan::None, Some(RefProblem::Required)),
        };
        Placement { plan, fault, depth: 0 }
    }

    /// Returns the requester of a task.
    pub(super) fn asker_of(&self, task: TaskId) -> Asker {
        self.state().tasks.get(&task).map_or(Asker::Nobody, |t| t.asker)
    }
}

/// Whether a draft without a REF names its work item by its request_id (Q1).
fn names_work(draft: &Draft) -> bool {
    draft.kind == MessageType::Request && draft.request_id.is_some() && !draft.key_only
}
