//! The state: what the fold of all facts is. Read by guards and edges, changed only by the fold.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

use crate::fact::{Credential, Kind, Made, Place};
use crate::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, Seq, TaskId, Time, TurnId,
};
use crate::limits::Limits;
use crate::names::{Label, Ref, RequestId};
use crate::policy::Policy;
use index::Index;

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
mod escalations;
mod fold;
mod forget;
mod grant_clock;
mod grants;
mod incidents;
mod index;
mod keys;
mod lifts;
mod messages;
mod requests;
mod rooms;
mod schedules;
mod small;
mod table;
mod tasks;
mod timers;
mod turns;

pub(crate) use ack_clock::AckClock;
pub(crate) use agent_budget::is_about_authority;
pub use agents::{Agent, DayUse};
use approvals::AskedCall;
pub use approvals::{Approval, ApprovalState};
pub use attendance::Attendance;
pub use claims::Claim;
pub use conversations::{Conversation, RootLine};
pub use escalations::{Escalation, EscalationState, Lifts};
pub(crate) use grant_clock::GrantDue;
pub use grants::Grant;
pub use incidents::{Incident, IncidentOn};
pub use keys::{Keys, Known, RequestNumber};
pub use requests::{Partial, Request};
pub use rooms::Room;
pub use schedules::Scheduled;
pub use small::{Few, Opt, Sorted, TaskSet};
pub use table::{Number, Table};
pub use tasks::{Asker, Delegate, Phase, Ready, Task};
pub use timers::{Timer, Timers};
pub use turns::Turn;

/// Proof that a token was checked: who acts, and in which incarnation. Only [`State::prove`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Principal {
    agent: AgentId,
    incarnation: u32,
    kind: Kind,
}

impl Principal {
    /// Who acts.
    #[must_use]
    pub const fn agent(self) -> AgentId {
        self.agent
    }

    /// Whether it is a human.
    #[must_use]
    pub const fn is_human(self) -> bool {
        matches!(self.kind, Kind::Human)
    }
}

/// Everything that the facts so far amount to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Position of the last fact.
    pub seq: Seq,
    /// When the last fact happened.
    pub at: Time,
    /// The numbers in force.
    pub limits: Limits,
    /// Whether the whole workspace runs.
    pub running: Running,
    /// All agents and humans ever registered, by number; the first is the broker itself.
    pub agents: Vec<Agent>,
    /// Who holds the token with this hash.
    pub credentials: BTreeMap<Credential, AgentId>,
    /// Live agents by the actions that they serve.
    pub actions: BTreeMap<Label, BTreeSet<AgentId>>,
    /// Live agents by group.
    pub groups: BTreeMap<Label, BTreeSet<AgentId>>,
    /// Conversations by number.
    pub conversations: Table<ConvId, Conversation>,
    refs: Index,
    agents_by_name: Index,
    /// Grants.
    pub grants: Table<GrantId, Grant>,
    /// Tasks, open ones and remembered ones.
    pub tasks: Table<TaskId, Task>,
    /// Turns of those tasks.
    pub turns: Table<TurnId, Turn>,
    /// Idempotency keys and request ids.
    pub keys: Keys,
    /// Escalations.
    pub escalations: BTreeMap<EscalationId, Escalation>,
    /// Approvals.
    pub approvals: BTreeMap<ApprovalId, Approval>,
    /// The policy of held calls.
    pub policy: Policy,
    /// Leases on resources.
    pub claims: BTreeMap<ClaimId, Claim>,
    /// Rooms by number.
    pub rooms: BTreeMap<RoomId, Room>,
    /// Rooms by name.
    pub room_names: BTreeMap<Ref, RoomId>,
    /// Latches that hold, and those lifted, newest last.
    pub incidents: BTreeMap<IncidentId, Incident>,
    /// What is due when.
    pub timers: Timers,
    /// When a human acted last (D12).
    pub last_human_act: Time,
    /// What was made under the keys of each sender (Q1).
    pub made: BTreeMap<(AgentId, RequestId), MadeOnce>,
    /// The edition of the rules under which facts are recorded from here on.
    pub edition: u32,
    /// Schedules by name (D13).
    pub schedules: BTreeMap<Label, Scheduled>,
    pub(crate) attendance: Attendance,
    /// Conversations that are paused, stopped or latched: where there is none, nothing above holds another.
    pub(crate) held_convs: u32,
    /// How many REFs begin with a text and `/`, by the hash of that text.
    pub(crate) prefixes: BTreeMap<u32, u32>,
    /// What was closed when, to be forgotten after `retention_ms`.
    pub(crate) closed: VecDeque<(Time, Closed)>,
    /// Last numbers given.
    pub(crate) minted: Minted,
}

/// Last numbers given, one of each kind.
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

/// What may be forgotten. A key that the core minted goes with its task.
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

/// What was made under a key, and of which content (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeOnce {
    /// The content that the key stands for.
    pub fingerprint: u64,
    /// What was made.
    pub made: Made,
}

/// Whether something runs (H4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Running {
    /// It does.
    #[default]
    Active,
    /// Nothing is taken or sent; what is there is kept.
    Paused,
    /// It was ended by a human.
    Stopped,
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
        }
    }
}

impl State {
    /// Proves who holds the token with this hash; `None` when nobody live does.
    #[must_use]
    pub fn prove(&self, credential: &Credential) -> Option<Principal> {
        let agent = *self.credentials.get(credential)?;
        let known = self.agent(agent)?;
        known.live.then_some(Principal { agent, incarnation: known.incarnation, kind: known.kind })
    }

    /// Whether the proof still holds: the same incarnation is still registered.
    #[must_use]
    pub fn recognizes(&self, principal: Principal) -> bool {
        self.agent(principal.agent).is_some_and(|a| a.live && a.incarnation == principal.incarnation)
    }

    /// The next timer, and why.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Time, &'static str)> {
        self.timers.first().map(|(at, timer)| (at, timer.why()))
    }

    /// Agent messages counted in a place since a human spoke.
    #[must_use]
    pub fn agent_messages_in(&self, place: Place) -> u64 {
        match place {
            Place::Conversation(conv) => self.conversations.get(&conv).map_or(0, |c| c.agent_messages),
            Place::Room(room) => self.rooms.get(&room).map_or(0, |r| r.agent_messages),
        }
    }
}

/// The last numbers given, for what the core mints next.
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

    /// What an open conversation takes is mostly these (`lastword-bench memory`): who adds a field sees what it costs.
    #[test]
    fn records_are_small() {
        let sizes = [size_of::<Conversation>(), size_of::<Grant>(), size_of::<Task>(), size_of::<Request>()];
        assert_eq!(sizes, [160, 192, 176, 112]);
        assert_eq!([size_of::<Turn>(), size_of::<Ready>(), size_of::<Agent>()], [96, 40, 288]);
        assert_eq!(size_of::<Option<Task>>(), size_of::<Task>(), "a place in a table takes no more than its record");
        assert_eq!(size_of::<(Time, Closed)>(), 24);
    }
}
