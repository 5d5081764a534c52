//! What each fact concerns: the one list of facts that the fold, the read model, the events and the console share.

use serde::{Deserialize, Serialize};

use super::{
    AgentGranted, ApprovalAsked, ApprovalDecided, Claimed, ConversationOpened, EscalationOpened, Fact, GrantOpened,
    IncidentNoted, LatchSet, Latched, Place, PostKeyed, Refused, Registered, Requeued, RootStarted, RoundsGranted,
    Scope, Stalled, StepKept, TokenRotated, TurnCharged, TurnClosed, TurnFinished, TurnOpened, WorkedOutside,
    WriteRefused,
};
use crate::envelope::words;
use crate::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, RoomId, TaskId, TurnId};

macro_rules! kinds {
    ($($kind:ident = $word:literal,)*) => {
        words! {
            /// The kind of an event. Facts that say the same in two editions share one.
            EventKind { $(#[doc = concat!("`", $word, "`")] $kind = $word,)* }
        }
    };
}

kinds! {
    Configured = "configured",
    LimitChanged = "limit_changed",
    PolicyChanged = "policy_changed",
    Registered = "registered",
    Amended = "amended",
    Rekeyed = "rekeyed",
    Removed = "removed",
    RoleSet = "role_set",
    DisplayNameSet = "display_name_set",
    AgentLimited = "agent_limited",
    AgentGranted = "agent_granted",
    AgentRests = "agent_rests",
    AgentGoesOn = "agent_goes_on",
    HumanActed = "human_acted",
    PromptTyped = "prompt_typed",
    PromptEnded = "prompt_ended",
    Unattended = "unattended",
    Noticed = "noticed",
    NoticeRead = "notice_read",
    Controlled = "controlled",
    Idled = "idled",
    Upgraded = "upgraded",
    EpochBegan = "epoch_began",
    Forgot = "forgot",
    Heard = "heard",
    Warned = "warned",
    Refused = "refused",
    Observed = "observed",
    WriteRefused = "write_refused",
    RefusalsSummed = "refusals_summed",
    Keyed = "keyed",
    Rearmed = "rearmed",
    Stalled = "stalled",
    LatchSet = "latch_set",
    LatchLifted = "latch_lifted",
    IncidentNoted = "incident_noted",
    BudgetWarned = "budget_warned",
    GrantOpened = "grant_opened",
    GrantExtended = "grant_extended",
    GrantClosed = "grant_closed",
    GrantAged = "grant_aged",
    RoundsGranted = "rounds_granted",
    RequestsGranted = "requests_granted",
    ConversationOpened = "conversation_opened",
    RootStarted = "root_started",
    RootEnded = "root_ended",
    Accepted = "accepted",
    AlertRaised = "alert_raised",
    TurnOpened = "turn_opened",
    Joined = "joined",
    Collected = "collected",
    Renewed = "renewed",
    WaitsForUser = "waits_for_user",
    TurnClosed = "turn_closed",
    Spent = "spent",
    SpentOn = "spent_on",
    WorkedOutside = "worked_outside",
    Late = "late",
    Requeued = "requeued",
    SessionBegan = "session_began",
    StepKept = "step_kept",
    GrantTraced = "grant_traced",
    EscalationOpened = "escalation_opened",
    EscalationKeyed = "escalation_keyed",
    EscalationLifts = "escalation_lifts",
    EscalationNoted = "escalation_noted",
    EscalationExpired = "escalation_expired",
    LiftChosen = "lift_chosen",
    ApprovalAsked = "approval_asked",
    ApprovalRuled = "approval_ruled",
    ApprovalOffered = "approval_offered",
    ApprovalDecided = "approval_decided",
    ApprovalUsed = "approval_used",
    Claimed = "claimed",
    Released = "released",
    ClaimBroken = "claim_broken",
    Dismissed = "dismissed",
    LinkSet = "link_set",
    RoomOpened = "room_opened",
    Posted = "posted",
    PostKeyed = "post_keyed",
    ScheduleSet = "schedule_set",
    ScheduleRemoved = "schedule_removed",
    ScheduleTicked = "schedule_ticked",
    ScheduleSkipped = "schedule_skipped",
}

/// The area that a fact changes, by which open pages know what to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Messages and turns.
    Work,
    /// Questions to humans, and held calls.
    Desk,
    /// The notices that a human has read.
    Notices,
    /// The registered agents and humans.
    People,
    /// A human's control: pause, resume or stop.
    Control,
    /// Limits that tripped or were lifted.
    Incidents,
    /// Rooms and claims.
    Rooms,
    /// Limits, policy and schedules.
    Settings,
}

/// What a fact concerns, by what it names itself: the state may tell more, such as the agent of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// The kind of its event.
    pub kind: EventKind,
    /// The area that it changes.
    pub area: Area,
    /// Whether it stands in the history of a conversation; `false` for bookkeeping and for what is not about work.
    pub in_history: bool,
    /// The agent or human that it is about.
    pub agent: Option<AgentId>,
    /// The conversation.
    pub conv: Option<ConvId>,
    /// The room.
    pub room: Option<RoomId>,
    /// The task that it is a step of.
    pub task: Option<TaskId>,
    /// The turn that it is a step of.
    pub turn: Option<TurnId>,
    /// The grant.
    pub grant: Option<GrantId>,
    /// The question to a human.
    pub escalation: Option<EscalationId>,
    /// The held call.
    pub approval: Option<ApprovalId>,
}

impl About {
    const fn new(kind: EventKind, area: Area) -> Self {
        Self {
            kind,
            area,
            in_history: false,
            agent: None,
            conv: None,
            room: None,
            task: None,
            turn: None,
            grant: None,
            escalation: None,
            approval: None,
        }
    }

    /// Creates a fact that stands in the history of its conversation.
    const fn history(kind: EventKind, area: Area) -> Self {
        Self { in_history: true, ..Self::new(kind, area) }
    }

    const fn agent(self, agent: AgentId) -> Self {
        Self { agent: Some(agent), ..self }
    }

    const fn conv(self, conv: ConvId) -> Self {
        Self { conv: Some(conv), ..self }
    }

    const fn room(self, room: RoomId) -> Self {
        Self { room: Some(room), ..self }
    }

    const fn task(self, task: TaskId) -> Self {
        Self { task: Some(task), ..self }
    }

    const fn turn(self, turn: TurnId) -> Self {
        Self { turn: Some(turn), ..self }
    }

    const fn grant(self, grant: GrantId) -> Self {
        Self { grant: Some(grant), ..self }
    }

    const fn escalation(self, escalation: EscalationId) -> Self {
        Self { escalation: Some(escalation), ..self }
    }

    const fn approval(self, approval: ApprovalId) -> Self {
        Self { approval: Some(approval), ..self }
    }

    const fn place(self, place: Place) -> Self {
        match place {
            Place::Conversation(conv) => self.conv(conv),
            Place::Room(room) => self.room(room),
        }
    }

    const fn latched(self, on: Latched) -> Self {
        match on {
            Latched::Grant(grant) => self.grant(grant),
            Latched::Place(place) => self.place(place),
        }
    }

    const fn scope(self, scope: Scope) -> Self {
        match scope {
            Scope::Workspace => self,
            Scope::Agent(agent) => self.agent(agent),
            Scope::Conversation(conv) => self.conv(conv),
        }
    }
}

impl Fact {
    /// Returns what the fact concerns. Every fact is named, so that a new one must say so.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "one line a fact")]
    pub fn about(&self) -> About {
        use Area::{Control, Desk, Incidents, Notices, People, Rooms, Settings, Work};
        use EventKind as K;
        match self {
            Self::Configured { .. } | Self::PolicyConfigured { .. } => About::new(K::Configured, Settings),
            Self::LimitChanged(_) => About::new(K::LimitChanged, Settings),
            Self::PolicyChanged { .. } => About::new(K::PolicyChanged, Settings),
            Self::Upgraded { .. } => About::new(K::Upgraded, Settings),
            Self::EpochBegan { .. } => About::new(K::EpochBegan, Settings),
            Self::Forgot { .. } => About::new(K::Forgot, Settings),
            Self::Idled { .. } => About::new(K::Idled, Control),
            Self::Controlled { scope, .. } => About::history(K::Controlled, Control).scope(*scope),

            Self::Registered(Registered { agent, .. }) => About::new(K::Registered, People).agent(*agent),
            Self::Amended { agent, .. } => About::new(K::Amended, People).agent(*agent),
            Self::Rekeyed { agent, .. } | Self::TokenRotated(TokenRotated { agent, .. }) => {
                About::new(K::Rekeyed, People).agent(*agent)
            }
            Self::Removed { agent } => About::new(K::Removed, People).agent(*agent),
            Self::DisplayNameSet { agent, .. } => About::new(K::DisplayNameSet, People).agent(*agent),
            Self::RoleSet { human, .. } => About::new(K::RoleSet, People).agent(*human),
            Self::AgentLimited { agent, .. } => About::new(K::AgentLimited, People).agent(*agent),
            Self::AgentGranted(AgentGranted { agent, .. }) => About::new(K::AgentGranted, People).agent(*agent),
            Self::AgentRested { agent, until: Some(_) } => About::new(K::AgentRests, People).agent(*agent),
            Self::AgentRested { agent, until: None } => About::new(K::AgentGoesOn, People).agent(*agent),
            Self::HumanActed { by } => About::new(K::HumanActed, People).agent(*by),
            Self::Keyed { agent, .. } => About::new(K::Keyed, People).agent(*agent),
            Self::PromptTyped { agent, .. } => About::new(K::PromptTyped, Work).agent(*agent),
            Self::PromptEnded { agent } => About::new(K::PromptEnded, Work).agent(*agent),
            Self::Unattended { .. } => About::new(K::Unattended, Incidents),
            Self::Noticed { agent, .. } => About::new(K::Noticed, Notices).agent(*agent),
            Self::NoticeRead { agent, .. } => About::new(K::NoticeRead, Notices).agent(*agent),

            Self::Heard { agent, place, .. } => About::new(K::Heard, Work).agent(*agent).place(*place),
            Self::Warned { place, .. } => About::history(K::Warned, Work).place(*place),
            Self::Rearmed { conv, .. } => About::history(K::Rearmed, Work).conv(*conv),
            Self::Refused(Refused { agent, turn, .. }) => {
                About { turn: *turn, ..About::history(K::Refused, Work).agent(*agent) }
            }
            Self::Observed { agent, .. } => About::new(K::Observed, Work).agent(*agent),
            Self::WriteRefused(WriteRefused { agent, turn, .. }) => {
                About { turn: *turn, in_history: turn.is_some(), ..About::new(K::WriteRefused, Work).agent(*agent) }
            }
            Self::RefusalsSummed { agent, .. } => About::new(K::RefusalsSummed, Work).agent(*agent),
            Self::Stalled(Stalled { task, conv, .. }) => About::history(K::Stalled, Work).task(*task).conv(*conv),
            Self::LatchSet(LatchSet { on, .. }) => About::history(K::LatchSet, Incidents).latched(*on),
            Self::LatchLifted { on, .. } => About::history(K::LatchLifted, Incidents).latched(*on),
            Self::IncidentNoted(IncidentNoted { agent, .. }) => About::new(K::IncidentNoted, Incidents).agent(*agent),

            Self::GrantOpened(GrantOpened { grant, giver, conv, .. }) => {
                About::history(K::GrantOpened, Work).grant(*grant).agent(*giver).conv(*conv)
            }
            Self::GrantExtended { grant, .. } => About::history(K::GrantExtended, Work).grant(*grant),
            Self::GrantTraced { grant, .. } => About::new(K::GrantTraced, Work).grant(*grant),
            Self::GrantClosed { grant, .. } => About::history(K::GrantClosed, Work).grant(*grant),
            Self::GrantAged { grant, .. } => About::history(K::GrantAged, Desk).grant(*grant),
            Self::BudgetWarned { grant, agent, .. } => {
                About::history(K::BudgetWarned, Work).grant(*grant).agent(*agent)
            }
            Self::RoundsGranted(RoundsGranted { grant, conv, .. }) => {
                About::history(K::RoundsGranted, Work).grant(*grant).conv(*conv)
            }
            Self::RequestsGranted { task, .. } => About::history(K::RequestsGranted, Work).task(*task),

            Self::ConversationOpened(ConversationOpened { conv, opener, .. }) => {
                About::history(K::ConversationOpened, Work).conv(*conv).agent(*opener)
            }
            Self::RootStarted(RootStarted { task, agent, conv, grant, .. }) => {
                About::history(K::RootStarted, Work).task(*task).agent(*agent).conv(*conv).grant(*grant)
            }
            Self::RootEnded { task, .. } => About::history(K::RootEnded, Work).task(*task),
            Self::Accepted { message } => {
                let about = About::new(K::Accepted, Work).agent(message.from).conv(message.conv);
                About { grant: message.grant, ..about }
            }
            Self::AlertRaised { agent, .. } => About::new(K::AlertRaised, Desk).agent(*agent),
            Self::TurnOpened(TurnOpened { turn, task, .. }) => {
                About::history(K::TurnOpened, Work).turn(*turn).task(*task)
            }
            Self::Joined { turn, .. } => About::new(K::Joined, Work).turn(*turn),
            Self::Collected { task, .. } => About::new(K::Collected, Work).task(*task),
            Self::Renewed { turn, .. } => About::new(K::Renewed, Work).turn(*turn),
            Self::WaitsForUser { turn, .. } => About::new(K::WaitsForUser, Work).turn(*turn),
            Self::TurnClosed(TurnClosed { turn, .. })
            | Self::TurnFinished(TurnFinished { turn, .. })
            | Self::TurnCharged(TurnCharged { turn, .. }) => About::history(K::TurnClosed, Work).turn(*turn),
            Self::Spent { turn, .. } => About::history(K::Spent, Work).turn(*turn),
            Self::SpentOn { turn, .. } => About::history(K::SpentOn, Work).turn(*turn),
            Self::WorkedOutside(WorkedOutside { turn, grant, .. }) => {
                About::history(K::WorkedOutside, Work).turn(*turn).grant(*grant)
            }
            Self::Late { turn, .. } => About::history(K::Late, Work).turn(*turn),
            Self::Requeued(Requeued { task, agent, .. }) => About::history(K::Requeued, Work).task(*task).agent(*agent),
            Self::SessionBegan { task } => About::history(K::SessionBegan, Work).task(*task),
            Self::StepKept(StepKept { task, agent, .. }) => About::history(K::StepKept, Work).task(*task).agent(*agent),

            Self::EscalationOpened(EscalationOpened { escalation, task, agent, conv, .. }) => {
                let about = About::history(K::EscalationOpened, Desk).escalation(*escalation);
                About { task: *task, ..about.agent(*agent).conv(*conv) }
            }
            Self::EscalationKeyed { escalation, agent, .. } => {
                About::new(K::EscalationKeyed, Desk).escalation(*escalation).agent(*agent)
            }
            Self::EscalationLifts { escalation, met, .. } => {
                About::history(K::EscalationLifts, Desk).escalation(*escalation).grant(met.grant)
            }
            Self::EscalationNoted { escalation, .. } | Self::EscalationAnswered { escalation, .. } => {
                About::history(K::EscalationNoted, Desk).escalation(*escalation)
            }
            Self::EscalationExpired { escalation } => {
                About::history(K::EscalationExpired, Desk).escalation(*escalation)
            }
            Self::LiftChosen { escalation, .. } => About::history(K::LiftChosen, Desk).escalation(*escalation),
            // No step of the task: its agent is not concerned.
            Self::Dismissed { by, .. } => About::new(K::Dismissed, Desk).agent(*by),
            Self::LinkSet { conv, by, .. } => About::history(K::LinkSet, Desk).conv(*conv).agent(*by),
            Self::ApprovalAsked(ApprovalAsked { approval, task, agent, .. }) => {
                About { task: *task, ..About::history(K::ApprovalAsked, Desk).approval(*approval).agent(*agent) }
            }
            Self::ApprovalRuled { approval, .. } => About::new(K::ApprovalRuled, Desk).approval(*approval),
            Self::ApprovalOffered { approval, .. } => About::new(K::ApprovalOffered, Desk).approval(*approval),
            Self::ApprovalDecided(ApprovalDecided { approval, .. }) => {
                About::history(K::ApprovalDecided, Desk).approval(*approval)
            }
            Self::ApprovalUsed { approval } => About::history(K::ApprovalUsed, Desk).approval(*approval),

            // A claim isn't a step of the task that it is held for.
            Self::Claimed(Claimed { agent, .. }) => About::new(K::Claimed, Rooms).agent(*agent),
            Self::Released { .. } => About::new(K::Released, Rooms),
            Self::ClaimBroken { by, .. } => About::new(K::ClaimBroken, Rooms).agent(*by),
            Self::RoomOpened { .. } => About::new(K::RoomOpened, Rooms),
            Self::Posted { room, from, .. } => About::new(K::Posted, Rooms).agent(*from).room(*room),
            Self::PostKeyed(PostKeyed { room, agent, .. }) => About::new(K::PostKeyed, Rooms).agent(*agent).room(*room),

            Self::ScheduleSet { by, .. } => About::new(K::ScheduleSet, Settings).agent(*by),
            Self::ScheduleRemoved { .. } => About::new(K::ScheduleRemoved, Settings),
            Self::ScheduleTicked { grant, .. } => About::history(K::ScheduleTicked, Settings).grant(*grant),
            Self::ScheduleSkipped { .. } => About::new(K::ScheduleSkipped, Settings),
        }
    }
}
