//! Agents, conversations and grants: who is there, where they speak, and what work starts from.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use super::{Few, Opt, Running, Sorted, TaskSet};
use crate::fact::{AgentLimits, Credential, Extension, GrantEnd, Kind, Profile, Role, Spend};
use crate::ids::{AgentId, ConvId, GrantId, IncidentId, Seq, TaskId, Time, TurnId};
use crate::limits::Limits;
use crate::names::{AgentName, Ref};
use crate::refusal::Code;

/// Partners in 64 bytes, which is what memory gives at once.
const PARTNERS_A_LINE: usize = 64 / size_of::<(AgentId, TaskId)>();
/// Where a list of partners is longer, looking at all of it costs more than waiting.
const PARTNERS_LINES_MAX: usize = 16;

/// An agent or a human.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agent {
    /// Its name; none for the broker.
    pub name: Option<AgentName>,
    /// What it is.
    pub kind: Kind,
    /// What it may do, where it is a human (H7).
    pub role: Role,
    /// How often the name was registered.
    pub incarnation: u32,
    /// Whether it is registered now.
    pub live: bool,
    /// Whether it runs.
    pub running: Running,
    /// What it may do.
    pub profile: Box<Profile>,
    /// Requests to open and tasks whose answers are ready, in the order in which they are taken.
    pub queue: Sorted<(Time, TaskId), 1>,
    /// Its open turns.
    pub turns: ThinVec<TurnId>,
    /// What it is to be shown with its next delivery, oldest first.
    pub notices: VecDeque<(Seq, Time)>,
    /// Its recent messages: when, and to whom (`SYSTEM` for everybody).
    pub recent: VecDeque<(Time, AgentId)>,
    /// Its recent roots.
    pub roots: ThinVec<Time>,
    /// What it used up today.
    pub day: DayUse,
    /// Its tasks in grants that are open, closed tasks included: each once for everybody who asked for it or serves a
    /// request of it, in their order.
    pub partners: Sorted<(AgentId, TaskId), 1>,
    /// Its open escalations.
    pub escalations_open: u64,
    /// Its undecided approvals.
    pub approvals_open: u64,
    /// Its claims.
    pub claims: u64,
    /// What only few agents have.
    pub(crate) rare: Option<Box<AgentRare>>,
    pub(crate) credential: Box<Credential>,
    pub(crate) ack: AckClock,
}

/// What only few agents have: limits of their own, refusals of late, a rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgentRare {
    /// Limits of its own (§1).
    pub(crate) limits: AgentLimits,
    /// What a human gave more for a day (B1).
    pub(crate) more: Option<(u64, Spend)>,
    /// Until when it rests (B1).
    pub(crate) rests_until: Opt<Time>,
    /// Its refused writes of late (G2).
    pub(crate) refused: VecDeque<Time>,
    /// Its refusals of late that are recorded whatever their number, up to a limit for each code (G2).
    pub(crate) exempt: VecDeque<(Time, Code)>,
    /// Its ALERTs of late that were put before humans (E4).
    pub(crate) alerts: ThinVec<Time>,
    /// The day on which its root allowance ran out last (D7).
    pub(crate) allowance_out: Option<u64>,
    /// When an incident about it was noted last, by its code.
    pub(crate) noted: ThinVec<(Code, Time)>,
}

/// What an agent used up in one UTC day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayUse {
    /// Which day.
    pub day: u64,
    /// Waking messages that its own roots caused.
    pub root_messages: u64,
    /// What it spent.
    pub spend: Spend,
}

impl DayUse {
    /// The use of the day of `now`: zero once the day is over.
    #[must_use]
    pub fn on(self, now: Time) -> Self {
        if self.day == now.day() { self } else { Self { day: now.day(), ..Self::default() } }
    }
}

/// Time to acknowledge runs only while the recipient is free: a clock of its free time (Q2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AckClock {
    /// Free time before `since`, in ms.
    pub(crate) free_ms: u64,
    /// Since when it is free.
    pub(crate) since: Opt<Time>,
    /// Unacknowledged requests by the free time at which they are due.
    pub(crate) due: Sorted<(u64, TaskId), 1>,
    /// The moment of the timer that is set.
    pub(crate) timer: Opt<Time>,
}

/// A conversation: one REF (D2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its REF.
    pub reference: Ref,
    /// The conversation from which it was opened.
    pub parent: Option<ConvId>,
    /// Who opened it.
    pub opener: AgentId,
    /// The agent whose own root it is, and that root's task and depth (D3).
    pub root: Option<RootLine>,
    /// Who sent or received something in it, in order of their numbers.
    pub participants: Few<AgentId, 4>,
    /// Agent messages since a human spoke (R1).
    pub agent_messages: u64,
    /// Messages in it.
    pub messages: u64,
    /// Deepest of them.
    pub deepest: u8,
    /// How much deeper than the limit humans let it go (D2).
    pub depth_more: u8,
    /// How often humans did so.
    pub depth_extensions: u8,
    /// Whether it runs.
    pub running: Running,
    /// Whether the hard limit holds it (R3).
    pub latched: bool,
    /// Conversations that were opened from it, those that are forgotten included.
    pub children: u32,
    /// Open tasks whose requests came in it.
    pub open_tasks: TaskSet,
    /// Tasks of open grants that were asked, or ask, in it: it isn't forgotten before they are over.
    pub(crate) users: u32,
    /// The grant of its last request.
    pub grant: Opt<GrantId>,
    /// When something happened last.
    pub last_at: Time,
    /// When it was opened.
    pub opened_at: Time,
}

/// The root task of a conversation that an agent started by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootLine {
    /// Who started it.
    pub agent: AgentId,
    /// Its last root task.
    pub task: TaskId,
    /// The deepest message that the root received in it.
    pub received: Option<u8>,
}

/// A grant (§0, D8).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The human who gave it, or the agent whose own root it is.
    pub giver: AgentId,
    /// Whether it is an agent's own root.
    pub own_root: bool,
    /// Whether it is of a tick of a schedule (D13).
    pub scheduled: bool,
    /// Where it started.
    pub conv: ConvId,
    /// When it was given.
    pub opened_at: Time,
    /// When it ends, if its clock doesn't stand still any longer.
    pub expires_at: Time,
    /// Since when its clock stands still.
    pub clock_stopped_at: Opt<Time>,
    /// Waking messages, those reserved for answers included.
    pub messages: u64,
    /// Answers reserved and not yet sent.
    pub owed: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents woken.
    pub agents: Few<AgentId, 4>,
    /// What was spent.
    pub spend: Spend,
    /// Whether its agent was told that the budget nears its end.
    pub budget_warned: bool,
    /// Whether its giver was told that its time nears its end (D8).
    pub clock_warned: bool,
    /// Its open turns: while there is one its clock runs (D8).
    pub(crate) open_turns: u32,
    /// Its requests that wait for an agent with a time to acknowledge of its own (D8).
    pub(crate) slow: u32,
    /// Since when a latch holds it, or the conversation where it started.
    pub(crate) held_since: Opt<Time>,
    /// The moment of the timer that is set.
    pub(crate) timer: Opt<Time>,
    /// What humans gave besides, where they did.
    pub(crate) extended: Option<Box<Extension>>,
    /// How often humans gave more.
    pub extensions: u32,
    /// All tasks, in order; the first is its root task.
    pub tasks: Few<TaskId, 2>,
    /// How many of them are open.
    pub open_tasks: u32,
    /// Escalations and approvals that are waited for.
    pub human_waits: u64,
    /// What holds it.
    pub latched: Opt<IncidentId>,
    /// How it ended.
    pub end: Option<GrantEnd>,
    /// The structural part of Φ: what its open tasks can still cause (reliability).
    pub(crate) structure: u64,
}

impl Grant {
    pub(super) fn new(
        giver: AgentId,
        own_root: bool,
        conv: ConvId,
        (at, expires_at): (Time, Time),
        structure: u64,
    ) -> Self {
        Self {
            giver,
            own_root,
            scheduled: false,
            conv,
            opened_at: at,
            expires_at,
            clock_stopped_at: Opt::none(),
            messages: 0,
            owed: 0,
            turns: 0,
            agents: Few::new(),
            spend: Spend::default(),
            budget_warned: false,
            clock_warned: false,
            open_turns: 0,
            slow: 0,
            held_since: Opt::none(),
            timer: Opt::none(),
            extensions: 0,
            extended: None,
            tasks: Few::new(),
            open_tasks: 0,
            human_waits: 0,
            latched: Opt::none(),
            end: None,
            structure,
        }
    }

    /// The task with which it started, once there is one.
    #[must_use]
    pub fn root_task(&self) -> Option<TaskId> {
        self.tasks.first().copied()
    }

    /// What humans gave besides.
    #[must_use]
    pub fn extension(&self) -> &Extension {
        const NONE: &Extension = &Extension::NONE;
        self.extended.as_deref().unwrap_or(NONE)
    }

    /// Φ: the waking messages that the grant can still cause. Each one lowers it, and nothing but a
    /// human's extension or a new configuration raises it.
    #[must_use]
    pub fn phi(&self, limits: &Limits) -> u64 {
        if self.end.is_some() {
            return 0;
        }
        let total = limits.grant_messages_max.saturating_add(self.extension().messages);
        let by_total = total.saturating_sub(self.messages).saturating_add(self.owed);
        if limits.observed.observes("hop_cap") || limits.observed.observes("task_requests") {
            return by_total;
        }
        by_total.min(self.structure)
    }
}

impl Agent {
    pub(crate) fn new(name: Option<AgentName>, kind: Kind, credential: Credential) -> Self {
        Self {
            name,
            kind,
            role: Role::Owner,
            incarnation: 0,
            live: false,
            running: Running::Active,
            profile: Box::new(Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 }),
            queue: Sorted::default(),
            turns: ThinVec::new(),
            notices: VecDeque::new(),
            recent: VecDeque::new(),
            roots: ThinVec::new(),
            day: DayUse::default(),
            partners: Sorted::default(),
            escalations_open: 0,
            approvals_open: 0,
            claims: 0,
            rare: None,
            credential: Box::new(credential),
            ack: AckClock::default(),
        }
    }

    /// Reads a little of each list that a send looks at or adds to, for the reason of [`super::State::touch`].
    pub(crate) fn touch(&self) {
        let queue = self.queue.last().map_or(0, |(at, _)| at.0);
        let due = self.ack.due.last().map_or(0, |(due, _)| *due);
        let recent = self.recent.back().map_or(0, |(at, _)| at.0) ^ self.roots.last().map_or(0, |at| at.0);
        let partners = self.partners.iter().step_by(PARTNERS_A_LINE).take(PARTNERS_LINES_MAX);
        core::hint::black_box(partners.fold(queue ^ due ^ recent, |sum, (_, task)| sum ^ task.0));
    }

    /// Its name; `system` for the broker itself.
    #[must_use]
    pub fn name(&self) -> &str {
        self.name.as_ref().map_or("system", AgentName::as_str)
    }

    /// Its tasks in grants that are open, closed tasks included, in their order.
    #[must_use]
    pub fn grant_tasks(&self) -> Vec<TaskId> {
        let mut tasks: Vec<TaskId> = self.partners.iter().map(|(_, task)| *task).collect();
        tasks.sort_unstable();
        tasks.dedup();
        tasks
    }

    /// Where among its notices a fact is.
    pub(crate) fn notice(&self, seq: Seq) -> Option<usize> {
        self.notices.binary_search_by_key(&seq, |(notice, _)| *notice).ok()
    }

    /// Its newest task that `partner` asked for or serves a request of, and that is still its own.
    #[must_use]
    pub fn task_with(&self, partner: AgentId, own: impl Fn(TaskId) -> bool) -> Option<TaskId> {
        let with = self.partners.within(&(partner, TaskId(0)), &(partner, TaskId(u64::MAX)));
        with.iter().rev().map(|(_, task)| *task).find(|task| own(*task))
    }

    /// Whether it is a human who may do everything (H7).
    #[must_use]
    pub const fn is_owner(&self) -> bool {
        self.is_human() && matches!(self.role, Role::Owner)
    }

    /// Whether it is a human whose words reset and lift (H7, R4).
    #[must_use]
    pub const fn is_heard(&self) -> bool {
        self.is_human() && !matches!(self.role, Role::Viewer)
    }

    /// Whether it is a human.
    #[must_use]
    pub const fn is_human(&self) -> bool {
        matches!(self.kind, Kind::Human)
    }
}

impl Conversation {
    pub(super) fn new(at: Time, reference: Ref, parent: Option<ConvId>, opener: AgentId) -> Self {
        Self {
            reference,
            parent,
            opener,
            root: None,
            participants: Few::from_slice(&[opener]),
            agent_messages: 0,
            messages: 0,
            deepest: 0,
            depth_more: 0,
            depth_extensions: 0,
            running: Running::Active,
            latched: false,
            children: 0,
            open_tasks: TaskSet::default(),
            users: 0,
            grant: Opt::none(),
            last_at: at,
            opened_at: at,
        }
    }

    /// Whether `agent` sent or received something in it.
    #[must_use]
    pub fn has_part(&self, agent: AgentId) -> bool {
        self.participants.binary_search(&agent).is_ok()
    }
}
