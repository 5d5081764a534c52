//! The guards: each is a pure predicate over a view of one message that is about to be sent.
//!
//! They are asked in the order of [`GUARDS`] (G5). The first refusal wins, and nothing is charged until all have passed
//! (G2). To add one: a file here, a line in [`GUARDS`], a transcript, a row in `docs/rules.md`.

use crate::envelope::{Draft, MessageType};
use crate::fact::Place;
use crate::ids::{AgentId, ConvId, TaskId, Time, TurnId};
use crate::names::Ref;
use crate::refusal::Refusal;
use crate::state::{Agent, Grant, State, Task};

mod addressing;
mod budget;
mod bytes;
mod chain;
mod depth;
mod hops;
mod identity;
mod progress;
mod quota;
mod references;
mod roots;
mod running;
mod saturation;
mod totals;
mod tracker;
mod turn;
mod wait;
mod windows;

pub(crate) use budget::{
    MONEY, day_ends_turns, ends_turns, exceeded as budget_of_grant, exceeded_by_day as budget_of_day,
};
pub(crate) use bytes::exceeded as bytes_of_day;
pub(crate) use totals::{overrun, trips_again};
pub(crate) use windows::write_rate;

/// A rule that can refuse a message.
#[derive(Clone, Copy)]
pub struct Guard {
    /// Its name: the code of its refusals, or the first of several codes.
    pub name: &'static str,
    /// The rule that it enforces.
    pub rule: &'static str,
    /// Whether it may be put under observation (G7).
    pub observable: bool,
    /// Whether it is under observation unless the configuration says otherwise.
    pub observed: bool,
    /// Whether it also applies to humans.
    pub humans: bool,
    /// Returns the refusal, if the message breaks the rule.
    pub judge: fn(&View<'_>) -> Option<Refusal>,
}

/// All guards, in the order in which they are asked.
pub const GUARDS: &[Guard] = &[
    always("from_mismatch", "E3", identity::from_mismatch),
    for_all("too_large", "L4", saturation::too_large),
    for_all("malformed", "D11", addressing::malformed),
    for_all("caused_by_refused", "D10", addressing::caused_by_refused),
    always("lease_lost", "F6", turn::lease_lost),
    always("turn_required", "D1", turn::turn_required),
    guard("turns_hard", "R1", tracker::turns_hard),
    guard("turns_soft", "R1", tracker::turns_soft),
    for_all("stopped", "H4", running::stopped),
    always("paused", "H4", running::paused),
    always("latched", "R3", running::latched),
    guard("turn_closed", "F5", turn::turn_closed),
    for_all("unknown_recipient", "L3", addressing::unknown_recipient),
    guard("self_send", "D6", chain::self_send),
    always("reply_not_expected", "E4", addressing::reply_not_expected),
    always("ref_required", "E6", references::ref_required),
    guard("passive_reply", "D5", chain::passive_reply),
    guard("cycle", "D5", chain::cycle),
    guard("ref_conflict", "D3", references::ref_conflict),
    guard("ref_in_use", "D3", references::ref_in_use),
    always("task_closed", "D7", turn::task_closed),
    always("depth_mismatch", "E3", identity::depth_mismatch),
    guard("hop_cap", "D4", hops::hop_cap),
    guard("depth_cap", "D2", depth::depth_cap),
    guard("task_requests", "D3", quota::task_requests),
    observed("no_progress", "R5", progress::no_progress),
    always("unattended", "D12", roots::unattended),
    always("root_allowance", "D7", roots::root_allowance),
    guard("mutual_wait", "Q8", wait::mutual_wait),
    guard("pair_rate", "G1", windows::pair_rate),
    guard("sender_rate", "G1", windows::sender_rate),
    guard("fan_out", "G1", windows::fan_out),
    always("quota_bytes", "G2", bytes::quota_bytes),
    for_all("saturated", "L4", saturation::saturated),
    always("grant_expired", "D8", totals::grant_expired),
    always("grant_messages", "D8", totals::grant_messages),
    always("grant_turns", "D8", totals::grant_turns),
    always("grant_agents", "D8", totals::grant_agents),
    always("budget", "B1", budget::budget),
];

type Judge = fn(&View<'_>) -> Option<Refusal>;

const fn guard(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: true, observed: false, humans: false, judge }
}

const fn observed(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: true, observed: true, humans: false, judge }
}

const fn always(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: false, observed: false, humans: false, judge }
}

const fn for_all(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: false, observed: false, humans: true, judge }
}

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
    pub standing: SendContext,
    /// The reason why no recipient was found.
    pub unresolved: Option<&'a Refusal>,
    /// The recipient; `None` if there is none or if the message goes to all.
    pub to: Option<AgentId>,
    /// The conversation that it would be placed in.
    pub line: &'a Placement,
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
    pub fn find(state: &'a State, sender: AgentId, standing: SendContext, to: Option<AgentId>) -> Self {
        let task = standing.task().and_then(|task| state.tasks.get(&task));
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
        match self.line.plan {
            Plan::Existing(conv) => Some(conv),
            Plan::Open(..) | Plan::None => None,
        }
    }
}
