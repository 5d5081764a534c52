//! The guards: each is a pure predicate over a view of one message that is about to be sent.
//!
//! They are asked in the order of [`GUARDS`] (G5). The first refusal wins, and nothing is charged until all have passed
//! (G2). To add one, follow *Your first guard* in `CONTRIBUTING.md`.

use lastword_facts::envelope::{Draft, MessageType};
use lastword_facts::fact::Place;
use lastword_facts::guards::GUARDS;
use lastword_facts::ids::{AgentId, ConvId, TaskId, Time, TurnId};
use lastword_facts::names::Ref;
use lastword_facts::refusal::Refusal;

use crate::state::{Agent, Grant, State, Task};

mod addressing;
mod budget;
mod bytes;
mod chain;
mod depth;
mod hops;
mod identity;
mod quota;
mod references;
mod roots;
mod running;
mod saturation;
mod stall;
mod totals;
mod tracker;
mod turn;
mod wait;
mod windows;

pub(crate) use budget::{day_ends_turns, ends_turns, exceeded as budget_of_grant, exceeded_by_day as budget_of_day};
pub(crate) use bytes::exceeded as bytes_of_day;
pub(crate) use totals::{overrun, trips_again};
pub(crate) use windows::{claim_rate, write_rate};

/// Returns the refusal of a message that breaks the guard's rule.
pub(crate) type Judge = fn(&View<'_>) -> Option<Refusal>;

/// What each guard of [`GUARDS`] judges, by its name and in the same order.
pub(crate) const JUDGES: [(&str, Judge); GUARDS.len()] = [
    ("from_mismatch", identity::from_mismatch),
    ("too_large", saturation::too_large),
    ("malformed", addressing::malformed),
    ("caused_by_refused", addressing::caused_by_refused),
    ("lease_lost", turn::lease_lost),
    ("turn_required", turn::turn_required),
    ("turns_hard", tracker::turns_hard),
    ("turns_soft", tracker::turns_soft),
    ("stopped", running::stopped),
    ("paused", running::paused),
    ("latched", running::latched),
    ("turn_closed", turn::turn_closed),
    ("unknown_recipient", addressing::unknown_recipient),
    ("self_send", chain::self_send),
    ("reply_not_expected", addressing::reply_not_expected),
    ("ref_required", references::ref_required),
    ("passive_reply", chain::passive_reply),
    ("cycle", chain::cycle),
    ("ref_conflict", references::ref_conflict),
    ("ref_in_use", references::ref_in_use),
    ("task_closed", turn::task_closed),
    ("depth_mismatch", identity::depth_mismatch),
    ("hop_cap", hops::hop_cap),
    ("depth_cap", depth::depth_cap),
    ("task_requests", quota::task_requests),
    ("no_progress", stall::no_progress),
    ("unattended", roots::unattended),
    ("root_allowance", roots::root_allowance),
    ("mutual_wait", wait::mutual_wait),
    ("pair_rate", windows::pair_rate),
    ("sender_rate", windows::sender_rate),
    ("fan_out", windows::fan_out),
    ("quota_bytes", bytes::quota_bytes),
    ("saturated", saturation::saturated),
    ("grant_expired", totals::grant_expired),
    ("grant_messages", totals::grant_messages),
    ("grant_turns", totals::grant_turns),
    ("grant_agents", totals::grant_agents),
    ("budget", budget::budget),
];

// Another order doesn't compile.
const _: () = {
    let mut at = 0;
    while at < GUARDS.len() {
        let (named, judged) = (GUARDS[at].name.as_bytes(), JUDGES[at].0.as_bytes());
        assert!(named.len() == judged.len());
        let mut byte = 0;
        while byte < named.len() {
            assert!(named[byte] == judged[byte]);
            byte += 1;
        }
        at += 1;
    }
};

/// The context in which a sender sends (D1, D7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendContext {
    /// The sender is a human.
    Human,
    /// In an open turn of an agent.
    Turn(TurnId, TaskId),
    /// Outside every turn, but judged inside one of its tasks in a grant that is still open (D7).
    Inside(TaskId),
    /// Outside every turn, starting work of its own.
    Root,
    /// Starting work because of a prompt that this human typed into the sender's session (H8).
    Typed(AgentId),
    /// Outside every turn, with a message that wakes no agent.
    Outside,
    /// With several open turns, naming none.
    Ambiguous,
    /// Naming a turn that is over.
    Lost,
}

impl SendContext {
    /// Returns the task in which the message is sent.
    #[must_use]
    pub const fn task(self) -> Option<TaskId> {
        match self {
            Self::Turn(_, task) | Self::Inside(task) => Some(task),
            Self::Human | Self::Root | Self::Typed(_) | Self::Outside | Self::Ambiguous | Self::Lost => None,
        }
    }

    /// Returns who gives the grant that a request opens, if it starts work of the sender's.
    #[must_use]
    pub const fn starts_for(self, sender: AgentId) -> Option<AgentId> {
        match self {
            Self::Root => Some(sender),
            Self::Typed(by) => Some(by),
            Self::Human | Self::Turn(..) | Self::Inside(_) | Self::Outside | Self::Ambiguous | Self::Lost => None,
        }
    }

    /// Returns the open turn in which the message is sent.
    #[must_use]
    pub const fn turn(self) -> Option<TurnId> {
        match self {
            Self::Turn(turn, _) => Some(turn),
            Self::Inside(_)
            | Self::Human
            | Self::Root
            | Self::Typed(_)
            | Self::Outside
            | Self::Ambiguous
            | Self::Lost => None,
        }
    }
}

/// The conversation that a message would be placed in (D2, D3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The conversation that exists or would be opened.
    pub plan: Plan,
    /// The problem with its REF, if there is one.
    pub fault: Option<RefProblem>,
    /// The depth that the message would have in it.
    pub depth: u8,
}

/// A conversation that exists or would be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The conversation exists.
    Existing(ConvId),
    /// The conversation would be opened with this REF, below this one.
    Open(Ref, Option<ConvId>),
    /// No conversation can be determined.
    None,
}

/// A problem with a REF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefProblem {
    /// The message has no REF, but needs one.
    Required,
    /// The REF belongs to a conversation that the sender can't start or join.
    InUse(Ref),
    /// The task has another conversation with this agent.
    Conflict(Ref),
}

/// The messages that precede this one in the same send; their charges count already (D11, G2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead<'a> {
    /// The recipients of those messages.
    pub targets: &'a [AgentId],
}

impl Ahead<'_> {
    /// Returns the number of those messages.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.targets.len() as u64
    }
}

/// One message about to be sent, with everything that a guard may read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The state before the send.
    pub state: &'a State,
    /// The time of the send.
    pub now: Time,
    /// The authenticated sender.
    pub sender: AgentId,
    /// The message as its sender submitted it.
    pub draft: &'a Draft,
    /// The context in which it is sent.
    pub context: SendContext,
    /// The reason why no recipient was found.
    pub unresolved: Option<&'a Refusal>,
    /// The recipient; `None` if there is none or if the message goes to all.
    pub to: Option<AgentId>,
    /// The conversation that it would be placed in.
    pub placement: &'a Placement,
    /// The place where it was counted, and the count (R1).
    pub heard: Option<(Place, u64)>,
    /// Whether a human's typed prompt reaches the conversation with it, which lifts the latch there (H8).
    pub by_prompt: bool,
    /// The messages that precede it in the same send.
    pub ahead: Ahead<'a>,
    /// The records of sender, recipient, task and grant.
    pub records: Records<'a>,
}

/// The records that guards read, looked up once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    sender: Option<&'a Agent>,
    recipient: Option<&'a Agent>,
    task: Option<&'a Task>,
    grant: Option<&'a Grant>,
}

impl<'a> Records<'a> {
    /// Looks up the records.
    #[must_use]
    pub fn find(state: &'a State, sender: AgentId, context: SendContext, to: Option<AgentId>) -> Self {
        let task = context.task().and_then(|task| state.tasks.get(&task));
        let grant = task.and_then(|task| state.grants.get(&task.grant));
        Self { sender: state.agent(sender), recipient: to.and_then(|to| state.agent(to)), task, grant }
    }
}

impl<'a> View<'a> {
    /// Whether it is a REQUEST, the only type that wakes an agent without being an answer (E4).
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.draft.kind == MessageType::Request
    }

    /// Returns the task in which it is sent.
    #[must_use]
    pub const fn task(&self) -> Option<&'a Task> {
        self.records.task
    }

    /// Returns the grant under which it is sent.
    #[must_use]
    pub const fn grant(&self) -> Option<&'a Grant> {
        self.records.grant
    }

    /// Returns the recipient's record.
    #[must_use]
    pub const fn recipient(&self) -> Option<&'a Agent> {
        self.records.recipient
    }

    /// Returns the sender's record.
    #[must_use]
    pub const fn sender(&self) -> Option<&'a Agent> {
        self.records.sender
    }

    /// Whether the recipient is a human, so that the message adds no depth and wakes no agent.
    #[must_use]
    pub fn to_human(&self) -> bool {
        self.recipient().is_some_and(Agent::is_human)
    }

    /// Returns the conversation, if it exists already.
    #[must_use]
    pub const fn conv(&self) -> Option<ConvId> {
        match self.placement.plan {
            Plan::Existing(conv) => Some(conv),
            Plan::Open(..) | Plan::None => None,
        }
    }
}
