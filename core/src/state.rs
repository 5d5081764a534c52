//! The state: the result of folding all facts. Guards and edges read it; only the fold changes it.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use index::Index;
use lastword_facts::fact::{Credential, Kind, Made, Place};
use lastword_facts::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, Seq, TaskId, Time, TurnId,
};
use lastword_facts::limits::Limits;
use lastword_facts::names::{Label, Ref, RequestId};
use lastword_facts::policy::Policy;
use lastword_facts::stall::Reading;
use lastword_facts::status::Running;

mod above;
mod ack_clock;
mod agent_budget;
mod agents;
mod approvals;
mod attendance;
mod claims;
mod clock;
mod control;
mod conversations;
mod epochs;
mod escalations;
mod exchanges;
mod fold;
mod forget;
mod grant_clock;
mod grants;
mod incidents;
mod index;
mod keys;
mod lifts;
mod links;
mod messages;
mod needs;
mod requests;
mod rooms;
mod schedules;
mod small;
mod stored_bytes;
mod table;
mod tasks;
mod timers;
mod turns;
mod typed;
mod waits;

pub(crate) use ack_clock::AckClock;
pub(crate) use agent_budget::is_about_authority;
pub use agents::{Agent, DayUse};
pub use approvals::Approval;
use approvals::AskedCall;
pub use attendance::Attendance;
pub(crate) use claims::CLAIMS;
pub use claims::{Claim, ClaimHolder};
pub use conversations::{Conversation, RootLine};
pub use epochs::{Epochs, Numbered};
pub use escalations::{Escalation, Lifts};
pub use exchanges::{Exchange, Hold};
pub(crate) use grant_clock::GrantDue;
pub use grants::Grant;
pub use incidents::{Incident, IncidentOn};
pub use keys::{Keys, Known, RequestNumber};
pub use links::{LINK_MS_MAX, Link};
pub use requests::{Partial, Request};
pub use rooms::Room;
pub use schedules::Scheduled;
pub use small::{Few, Opt, Sorted, TaskSet};
pub use table::{Number, Table};
pub(crate) use tasks::step_bytes;
pub use tasks::{Asker, Delegate, Phase, Ready, Task};
pub use timers::{Timer, Timers};
pub use turns::Turn;
pub use typed::Typed;

/// Proof that a token was checked, with the principal and its incarnation. Only [`State::prove`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    agent: AgentId,
    incarnation: u32,
    kind: Kind,
}

impl Principal {
    /// Returns the number of the agent or human.
    #[must_use]
    pub const fn agent(self) -> AgentId {
        self.agent
    }

    /// Whether the principal is a human.
    #[must_use]
    pub const fn is_human(self) -> bool {
        matches!(self.kind, Kind::Human)
    }
}

/// The result of folding all facts so far.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The position of the last fact.
    pub seq: Seq,
    /// The time of the last fact.
    pub at: Time,
    /// The limits in force.
    pub limits: Limits,
    /// Whether a human paused or stopped the whole workspace.
    pub running: Running,
    /// All agents and humans ever registered, by number; number 0 is the broker.
    pub agents: Vec<Agent>,
    /// The agent or human that each token hash authenticates.
    pub credentials: BTreeMap<Credential, AgentId>,
    /// The live agents that serve each action.
    pub actions: BTreeMap<Label, BTreeSet<AgentId>>,
    /// The live agents in each group.
    pub groups: BTreeMap<Label, BTreeSet<AgentId>>,
    /// The remembered conversations, by number.
    pub conversations: Table<ConvId, Conversation>,
    refs: Index,
    agents_by_name: Index,
    /// The remembered grants, by number.
    pub grants: Table<GrantId, Grant>,
    /// The open tasks and the remembered closed ones, by number.
    pub tasks: Table<TaskId, Task>,
    /// The tasks of humans' requests that ended without their result, until a human dismisses them.
    pub failed: BTreeSet<TaskId>,
    /// The links by which anybody reads a conversation, expired ones included.
    pub links: BTreeMap<ConvId, Link>,
    /// The turns of those tasks, by number.
    pub turns: Table<TurnId, Turn>,
    /// The idempotency keys and request ids in use.
    pub keys: Keys,
    /// The open escalations and the remembered closed ones.
    pub escalations: BTreeMap<EscalationId, Escalation>,
    /// The pending approvals and the remembered decided ones.
    pub approvals: BTreeMap<ApprovalId, Approval>,
    /// The rules for held calls in force.
    pub policy: Policy,
    /// The claims that are held.
    pub claims: BTreeMap<ClaimId, Claim>,
    /// The rooms, by number.
    pub rooms: BTreeMap<RoomId, Room>,
    /// The numbers of the rooms, by name.
    pub room_names: BTreeMap<Ref, RoomId>,
    /// The latches that hold, and remembered incidents; newest last.
    pub incidents: BTreeMap<IncidentId, Incident>,
    /// All timers, with the moment at which each is due.
    pub timers: Timers,
    /// The time of the last act of a human (D12).
    pub last_human_act: Time,
    /// The result of each write with an idempotency key, by sender and key (Q1).
    pub made: BTreeMap<(AgentId, RequestId), MadeOnce>,
    /// The edition of the rules under which facts are recorded from here on.
    pub edition: u32,
    /// The schedules, by name (D13).
    pub schedules: BTreeMap<Label, Scheduled>,
    pub(crate) attendance: Attendance,
    /// The number of conversations that are paused, stopped or latched. While it is 0, no walk upwards is needed to
    /// know that nothing holds a conversation.
    pub(crate) held_convs: u32,
    /// The number of REFs that begin with a text and `/`, by the hash of that text.
    pub(crate) prefixes: BTreeMap<u32, u32>,
    /// Closed records with the time of their end, oldest first; forgotten after `retention_ms`.
    pub(crate) closed: VecDeque<(Time, Closed)>,
    /// The last number minted of each kind.
    pub(crate) minted: Minted,
    /// The epochs that ended with a restore.
    pub epochs: Epochs,
    pub(crate) exchanges: exchanges::Exchanges,
    /// What the message of the next fact amounts to, if the shell computed it; otherwise the fold does.
    #[serde(skip)]
    pub(crate) reading: Option<Box<Reading>>,
}

/// The last number minted of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Minted {
    pub(crate) conv: u32,
    pub(crate) grant: u64,
    pub(crate) task: u64,
    pub(crate) turn: u64,
    pub(crate) request: u64,
    pub(crate) escalation: u64,
    pub(crate) approval: u64,
    pub(crate) claim: u64,
    pub(crate) room: u32,
    pub(crate) incident: u64,
}

/// A closed record that may be forgotten. A minted request id is forgotten with its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Closed {
    Task(TaskId),
    Grant(GrantId),
    Key(Box<RequestId>),
    Escalation(EscalationId),
    Approval(ApprovalId),
    Incident(IncidentId),
    Conversation(ConvId),
    Made(Box<(AgentId, RequestId)>),
}

/// The result of a write under an idempotency key, and the hash of its content (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeOnce {
    /// The hash of the content that the key was used with.
    pub fingerprint: u64,
    /// The result that a retry gets.
    pub made: Made,
}

impl Default for State {
    fn default() -> Self {
        Self {
            seq: Seq(0),
            at: Time(0),
            limits: Limits::default(),
            running: Running::Active,
            agents: alloc::vec![Agent::new(None, Kind::Agent, [0; 32])],
            credentials: BTreeMap::new(),
            actions: BTreeMap::new(),
            groups: BTreeMap::new(),
            conversations: Table::new(),
            refs: Index::default(),
            agents_by_name: Index::default(),
            grants: Table::new(),
            tasks: Table::new(),
            failed: BTreeSet::new(),
            links: BTreeMap::new(),
            turns: Table::new(),
            keys: Keys::default(),
            escalations: BTreeMap::new(),
            approvals: BTreeMap::new(),
            policy: Policy::default(),
            claims: BTreeMap::new(),
            rooms: BTreeMap::new(),
            room_names: BTreeMap::new(),
            incidents: BTreeMap::new(),
            timers: Timers::default(),
            last_human_act: Time(0),
            made: BTreeMap::new(),
            edition: 1,
            schedules: BTreeMap::new(),
            attendance: Attendance::default(),
            held_convs: 0,
            prefixes: BTreeMap::new(),
            closed: VecDeque::new(),
            minted: Minted::default(),
            epochs: Epochs::default(),
            exchanges: exchanges::Exchanges::default(),
            reading: None,
        }
    }
}

impl State {
    /// Proves which agent or human holds the token with this hash; `None` if it is not one that is live.
    #[must_use]
    pub fn prove(&self, credential: &Credential) -> Option<Principal> {
        let agent = *self.credentials.get(credential)?;
        let known = self.agent(agent)?;
        known.live.then_some(Principal { agent, incarnation: known.incarnation, kind: known.kind })
    }

    /// Whether the proof is still valid: the same incarnation is still registered.
    #[must_use]
    pub fn recognizes(&self, principal: Principal) -> bool {
        self.agent(principal.agent).is_some_and(|a| a.live && a.incarnation == principal.incarnation)
    }

    /// Returns the next timer that is due, and the reason.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, &'static str)> {
        self.timers.first().map(|(at, timer)| (at, timer.why()))
    }

    /// Returns the agent messages counted in a place since a human last spoke.
    #[must_use]
    pub fn agent_messages_in(&self, place: Place) -> u64 {
        match place {
            Place::Conversation(conv) => self.conversations.get(&conv).map_or(0, |c| c.agent_messages),
            Place::Room(room) => self.rooms.get(&room).map_or(0, |r| r.agent_messages),
        }
    }
}

/// The last numbers minted, from which the core derives the next ones.
impl State {
    pub(crate) const fn minted_conversations(&self) -> u32 {
        self.minted.conv
    }

    pub(crate) const fn last_grant(&self) -> u64 {
        self.minted.grant
    }

    pub(crate) const fn last_task(&self) -> u64 {
        self.minted.task
    }

    pub(crate) const fn last_turn(&self) -> u64 {
        self.minted.turn
    }

    pub(crate) const fn last_request(&self) -> u64 {
        self.minted.request
    }

    pub(crate) const fn last_escalation(&self) -> u64 {
        self.minted.escalation
    }

    pub(crate) const fn last_approval(&self) -> u64 {
        self.minted.approval
    }

    pub(crate) const fn last_claim(&self) -> u64 {
        self.minted.claim
    }

    pub(crate) const fn last_room(&self) -> u32 {
        self.minted.room
    }

    pub(crate) const fn last_incident(&self) -> u64 {
        self.minted.incident
    }
}

#[cfg(all(test, target_pointer_width = "64"))]
mod tests {
    use super::*;

    /// These make up most of the memory of an open conversation (`lastword-bench memory`); the test shows the cost of a
    /// new field.
    #[test]
    fn records_are_small() {
        let sizes = [size_of::<Conversation>(), size_of::<Grant>(), size_of::<Task>(), size_of::<Request>()];
        assert_eq!(sizes, [160, 200, 176, 112]);
        assert_eq!([size_of::<Turn>(), size_of::<Ready>(), size_of::<Agent>()], [96, 40, 296]);
        assert_eq!(size_of::<Option<Task>>(), size_of::<Task>(), "a place in a table takes no more than its record");
        assert_eq!(size_of::<(Time, Closed)>(), 24);
    }
}
