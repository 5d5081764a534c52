//! The guards: each a pure predicate over one view of a message about to be sent.
//!
//! They are asked in the order of [`GUARDS`] (G5), the first refusal wins, and none is charged before all
//! have passed (G2). To add one: a file here, a line in [`GUARDS`], a transcript, a row in `docs/rules.md`.

use crate::envelope::{Draft, MessageType};
use crate::fact::Place;
use crate::ids::{AgentId, ConvId, TaskId, Time, TurnId};
use crate::names::Ref;
use crate::refusal::Refusal;
use crate::state::{Agent, Grant, State, Task};

mod addressing;
mod budget;
mod chain;
mod depth;
mod hops;
mod identity;
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

pub(crate) use budget::{MONEY, exceeded as budget_of_grant, exceeded_by_day as budget_of_day};
pub(crate) use totals::{overrun, trips_again};

/// A rule that can refuse a message.
#[derive(Clone, Copy)]
pub struct Guard {
    /// Its name: the code that it gives, or the first of them.
    pub name: &'static str,
    /// The rule that it enforces.
    pub rule: &'static str,
    /// Whether it may be put into observation (G7).
    pub observable: bool,
    /// Whether it holds for humans too.
    pub humans: bool,
    /// The predicate.
    pub judge: fn(&View<'_>) -> Option<Refusal>,
}

/// Every guard, in the order in which they are asked.
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
    always("unattended", "D12", roots::unattended),
    always("root_allowance", "D7", roots::root_allowance),
    guard("mutual_wait", "Q8", wait::mutual_wait),
    guard("pair_rate", "G1", windows::pair_rate),
    guard("sender_rate", "G1", windows::sender_rate),
    guard("fan_out", "G1", windows::fan_out),
    for_all("saturated", "L4", saturation::saturated),
    always("grant_expired", "D8", totals::grant_expired),
    always("grant_messages", "D8", totals::grant_messages),
    always("grant_turns", "D8", totals::grant_turns),
    always("grant_agents", "D8", totals::grant_agents),
    always("budget", "B1", budget::budget),
];

type Judge = fn(&View<'_>) -> Option<Refusal>;

const fn guard(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: true, humans: false, judge }
}

const fn always(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: false, humans: false, judge }
}

const fn for_all(name: &'static str, rule: &'static str, judge: Judge) -> Guard {
    Guard { name, rule, observable: false, humans: true, judge }
}

/// Where a sender stands when it sends (D1, D7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendContext {
    /// A human.
    Human,
    /// In an open turn.
    Turn(TurnId, TaskId),
    /// Outside every turn, judged inside one of its tasks in a grant that is still open (D7).
    Inside(TaskId),
    /// Outside every turn, starting work of its own.
    Root,
    /// Outside every turn, with a message that wakes nobody.
    Outside,
    /// In several open turns, naming none.
    Ambiguous,
    /// In a turn that is over.
    Lost,
}

impl SendContext {
    /// The task in which the message is sent.
    #[must_use]
    pub const fn task(self) -> Option<TaskId> {
        match self {
            Self::Turn(_, task) | Self::Inside(task) => Some(task),
            Self::Human | Self::Root | Self::Outside | Self::Ambiguous | Self::Lost => None,
        }
    }

    /// The open turn in which it is sent.
    #[must_use]
    pub const fn turn(self) -> Option<TurnId> {
        match self {
            Self::Turn(turn, _) => Some(turn),
            Self::Inside(_) | Self::Human | Self::Root | Self::Outside | Self::Ambiguous | Self::Lost => None,
        }
    }
}

/// The conversation in which a message would be (D2, D3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Which one.
    pub plan: Plan,
    /// What is wrong with its REF.
    pub fault: Option<RefProblem>,
    /// The depth that the message would have there.
    pub depth: u8,
}

/// A conversation that is there or would be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// It is there.
    Existing(ConvId),
    /// It would be opened, with this REF, below this one.
    Open(Ref, Option<ConvId>),
    /// None can be told.
    None,
}

/// What is wrong with a REF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefProblem {
    /// There is none, and there has to be.
    Required,
    /// It belongs to a conversation that the sender can't start or join.
    InUse(Ref),
    /// The task has another conversation with this agent.
    Conflict(Ref),
}

/// What the messages of one send that come before this one would charge (D11, G2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Ahead<'a> {
    /// Their recipients.
    pub targets: &'a [AgentId],
}

impl Ahead<'_> {
    /// How many they are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.targets.len() as u64
    }
}

/// One message about to be sent, with all that a guard may look at.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Everything that is.
    pub state: &'a State,
    /// Now.
    pub now: Time,
    /// Who sends; proven.
    pub sender: AgentId,
    /// What it hands in.
    pub draft: &'a Draft,
    /// Where it stands.
    pub standing: SendContext,
    /// Why no recipient was found.
    pub unresolved: Option<&'a Refusal>,
    /// The recipient; none where there is none, or where it is everybody.
    pub to: Option<AgentId>,
    /// The conversation.
    pub line: &'a Placement,
    /// Where it was counted, and the count (R1).
    pub heard: Option<(Place, u64)>,
    /// What comes before it in the same send.
    pub ahead: Ahead<'a>,
    /// The records of these.
    pub records: Records<'a>,
}

/// The records that guards look at, found once for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Records<'a> {
    sender: Option<&'a Agent>,
    recipient: Option<&'a Agent>,
    task: Option<&'a Task>,
    grant: Option<&'a Grant>,
}

impl<'a> Records<'a> {
    /// Finds them.
    #[must_use]
    pub fn find(state: &'a State, sender: AgentId, standing: SendContext, to: Option<AgentId>) -> Self {
        let task = standing.task().and_then(|task| state.tasks.get(&task));
        let grant = task.and_then(|task| state.grants.get(&task.grant));
        Self { sender: state.agent(sender), recipient: to.and_then(|to| state.agent(to)), task, grant }
    }
}

impl<'a> View<'a> {
    /// Whether it is a REQUEST, which is all that ever wakes an agent by itself (E4).
    #[must_use]
    pub fn is_request(&self) -> bool {
        self.draft.kind == MessageType::Request
    }

    /// The task in which it is sent.
    #[must_use]
    pub const fn task(&self) -> Option<&'a Task> {
        self.records.task
    }

    /// The grant under which it is sent.
    #[must_use]
    pub const fn grant(&self) -> Option<&'a Grant> {
        self.records.grant
    }

    /// The recipient's record.
    #[must_use]
    pub const fn recipient(&self) -> Option<&'a Agent> {
        self.records.recipient
    }

    /// The sender's record.
    #[must_use]
    pub const fn sender(&self) -> Option<&'a Agent> {
        self.records.sender
    }

    /// Whether the recipient is a human, so that the message adds no depth and wakes no agent.
    #[must_use]
    pub fn to_human(&self) -> bool {
        self.recipient().is_some_and(Agent::is_human)
    }

    /// The conversation, where it is there already.
    #[must_use]
    pub const fn conv(&self) -> Option<ConvId> {
        match self.line.plan {
            Plan::Existing(conv) => Some(conv),
            Plan::Open(..) | Plan::None => None,
        }
    }
}
