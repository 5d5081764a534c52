//! Facts: recorded decisions, in the past tense. The log is a list of facts, and folding it rebuilds the state.
//!
//! A released variant never changes. A new form is a new variant at the end, so that every log ever written stays
//! readable (`store/tests` holds a sample of each). A fact with four fields or more is a type of its own, in the module of
//! its concept.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::AnswerStatus;
use crate::ids::{AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, RoomId, Seq, TaskId, Time, TurnId};
use crate::limits::Limits;
use crate::names::{DisplayName, Label, Ref};
use crate::policy::{ApprovalRule, Policy};
use crate::refusal::{Code, Refusal};
use crate::trace::TraceContext;

mod about;
mod agents;
mod approvals;
mod claims;
mod control;
mod conversations;
mod escalations;
mod exchanges;
mod grants;
mod incidents;
mod lifts;
mod messages;
mod schedules;
mod turns;

pub use about::{About, Area, EventKind};
pub use agents::{AgentGranted, AgentLimits, Kind, Profile, Registered, Role, TokenRotated, WriteKind, WriteRefused};
pub use approvals::{ApprovalAsked, ApprovalDecided, Decision};
pub use claims::{ClaimMode, Claimed};
pub use control::{Control, LimitChanged, Scope};
pub use conversations::{ConversationOpened, RootStarted};
pub use escalations::{EscalationCause, EscalationOpened};
pub use exchanges::{Level, Stalled};
pub use grants::{Extension, GrantEnd, GrantOpened, ModelSpend, RoundsGranted, Spend};
pub use incidents::{Crossing, IncidentNoted, LatchSet, Latched, Place};
pub use lifts::{Lift, Met};
pub use messages::{Answer, Key, Made, Message, Part, PostKeyed, Recipient, Refused, SYSTEM, Terms};
pub use schedules::Schedule;
pub use turns::{
    EndReason, PartialResult, Requeued, Rerun, StepKept, TurnCharged, TurnClosed, TurnEnd, TurnFinished, TurnOpened,
    WorkedOutside,
};

pub use crate::digest::{Credential, Digest, hex};

/// The edition of the rules under which this program records; see [`Fact::Upgraded`].
pub const EDITION: u32 = 2;

/// One record of the log: the time, the grant that the fact belongs to with its potential, and the fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The time of the fact by the shell's clock; never decreases.
    pub at: Time,
    /// The grant that the fact belongs to, and that grant's Φ after the fact: an upper bound of the waking messages
    /// that it can still cause. Only an opening, an extension or a new configuration raises Φ.
    pub grant: Option<(GrantId, u64)>,
    /// The recorded decision.
    pub fact: Fact,
}

/// Every kind of fact that a log can hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// New limits take effect from this fact on.
    Configured {
        /// The complete table; replaces every limit, not only those that changed.
        limits: Box<Limits>,
    },
    /// An agent or human was registered, possibly under a name that a removed one had.
    Registered(Registered),
    /// The profile of an agent or human was replaced.
    Amended {
        /// The agent or human that the profile belongs to.
        agent: AgentId,
        /// The new profile; replaces every field of the old one.
        profile: Profile,
    },
    /// The token of an agent or human was replaced; the old one stops working.
    Rekeyed {
        /// The agent or human that the token authenticates.
        agent: AgentId,
        /// The hash of the new token.
        credential: Credential,
    },
    /// An agent or human was removed.
    Removed {
        /// The agent or human that was removed; its number is not reused.
        agent: AgentId,
    },
    /// A message of an agent was counted, before any rule was checked (R1).
    Heard {
        /// The agent that sent the message.
        agent: AgentId,
        /// The conversation or room in which it counts.
        place: Place,
        /// Agent messages there since a human last spoke, including this one (R1).
        agent_messages: u64,
    },
    /// The single warning that a count crossed a limit (R2). It is shown, but never delivered or counted.
    Warned {
        /// The conversation or room whose count crossed the limit.
        place: Place,
        /// The limit that was crossed: soft or hard.
        crossing: Crossing,
        /// Agent messages there since a human last spoke (R1).
        agent_messages: u64,
    },
    /// A message was refused.
    Refused(Refused),
    /// A guard under observation would have refused a message, which was admitted (G7).
    Observed {
        /// The agent that sent the message.
        agent: AgentId,
        /// The refusal that the guard would have given.
        refusal: Refusal,
    },
    /// A grant was opened: a source of work (D7, D9).
    GrantOpened(GrantOpened),
    /// A human extended a grant (D9).
    GrantExtended {
        /// The extended grant.
        grant: GrantId,
        /// The human who extended it.
        by: AgentId,
        /// The amounts that are added to its totals.
        extension: Extension,
    },
    /// A grant was closed: it causes no more work.
    GrantClosed {
        /// The closed grant.
        grant: GrantId,
        /// Whether it finished, expired or was stopped.
        end: GrantEnd,
    },
    /// A conversation was opened for a REF.
    ConversationOpened(ConversationOpened),
    /// An agent started work of its own: a root task (D7).
    RootStarted(RootStarted),
    /// A root task ended. A root has no requester, so its finish is routed to none.
    RootEnded {
        /// The root task.
        task: TaskId,
        /// The status that the task ended with.
        status: AnswerStatus,
    },
    /// A message was admitted. A REQUEST creates its task; an answer settles its task.
    Accepted {
        /// The message as it was stored.
        message: Box<Message>,
    },
    /// A delivery opened a turn (F1).
    TurnOpened(TurnOpened),
    /// An answer joined the open turn of its task (F1).
    Joined {
        /// The turn that the answer is delivered in.
        turn: TurnId,
        /// The position of the answer.
        message: Seq,
        /// The renewed end of the lease.
        lease_until: Time,
    },
    /// A send that waited for its answer returned it; no turn is opened for the answer (Q8).
    Collected {
        /// The task that sent the request.
        task: TaskId,
        /// The position of the answer.
        message: Seq,
    },
    /// The lease of a turn was renewed.
    Renewed {
        /// The turn that showed activity.
        turn: TurnId,
        /// The new end of the lease.
        lease_until: Time,
    },
    /// A turn ended (F2).
    TurnClosed(TurnClosed),
    /// A finish arrived for a turn that was already over. It is shown to the requester and wakes no agent (F6).
    Late {
        /// The turn that was over.
        turn: TurnId,
        /// The agent that finished too late.
        agent: AgentId,
        /// The answer that came too late.
        body: Box<str>,
    },
    /// A request runs again, on the same task.
    Requeued(Requeued),
    /// A human read the notices in their inbox up to a position.
    Noticed {
        /// The human who read them.
        agent: AgentId,
        /// The position of the last notice that was read.
        through: Seq,
    },
    /// A grant neared a budget limit; its agent is warned once (B1).
    BudgetWarned {
        /// The grant whose budget runs low.
        grant: GrantId,
        /// The agent that gets the warning as a notice.
        agent: AgentId,
        /// The used share of the budget, in percent.
        percent: u64,
    },
    /// A limit tripped; its latch holds the work until a human lifts it (R3).
    LatchSet(LatchSet),
    /// A latch was lifted.
    LatchLifted {
        /// The grant, conversation or room that was held.
        on: Latched,
        /// The human who lifted it.
        by: AgentId,
    },
    /// A human paused, resumed or stopped the workspace, an agent or a conversation (H4).
    Controlled {
        /// The part of the workspace that the control applies to.
        scope: Scope,
        /// Whether the human paused, resumed or stopped it.
        control: Control,
        /// The human who did so.
        by: AgentId,
    },
    /// An escalation was opened: a question to a human (H1).
    EscalationOpened(EscalationOpened),
    /// An escalation for which no task waits was answered.
    EscalationNoted {
        /// The answered escalation.
        escalation: EscalationId,
        /// The human who answered.
        by: AgentId,
        /// The text of the answer.
        body: Box<str>,
    },
    /// A tool call was held for a decision (H2).
    ApprovalAsked(ApprovalAsked),
    /// A held call was decided, or expired. Happens once per approval.
    ApprovalDecided(ApprovalDecided),
    /// The approved call was made; the approval is used up.
    ApprovalUsed {
        /// The approval that was used.
        approval: ApprovalId,
    },
    /// A claim was granted, which is a lease on a resource, or its lease was renewed (C1).
    Claimed(Claimed),
    /// A claim ended: it was released, it expired, or its task or agent ended.
    Released {
        /// The claim that ended.
        claim: ClaimId,
    },
    /// A room was opened, or its members changed.
    RoomOpened {
        /// The next number, or the room's own when its members change.
        room: RoomId,
        /// The name of the room.
        name: Ref,
        /// All members, including those that were there before.
        members: Vec<AgentId>,
    },
    /// A post, which has no envelope, was admitted to a room.
    Posted {
        /// The room that holds the post.
        room: RoomId,
        /// The author of the post.
        from: AgentId,
        /// The text of the post.
        body: Box<str>,
    },
    /// New rules for held calls take effect from this fact on (H2).
    PolicyConfigured {
        /// The complete policy; replaces the one before.
        policy: Box<Policy>,
    },
    /// A rule of the policy applies to a call that was held.
    ApprovalRuled {
        /// The approval of the held call.
        approval: ApprovalId,
        /// A copy of the rule as it was when the call was held.
        rule: Box<ApprovalRule>,
    },
    /// A question to a human was sent as a message with a key: a retry gets this question again (Q1).
    EscalationKeyed {
        /// The escalation that a retry with the key gets.
        escalation: EscalationId,
        /// The agent that asked.
        agent: AgentId,
        /// The key of the message.
        key: Key,
    },
    /// A human's waiting send returned the answer, which leaves their inbox (Q8).
    NoticeRead {
        /// The human who got the answer.
        agent: AgentId,
        /// The position of the answer.
        message: Seq,
    },
    /// A post to a room had a key: a retry gets this post again and is not counted a second time (Q1).
    PostKeyed(PostKeyed),
    /// A human's post in a room was about this conversation: its counters start again from 0 (R4).
    Rearmed {
        /// The conversation whose counters are reset.
        conv: ConvId,
        /// The human who posted.
        by: AgentId,
    },
    /// The clock jumped to this fact's time across a period in which the broker did not run (L6).
    Idled {
        /// The length of the period, in ms.
        ms: u64,
        /// The human who accepted the jump; `None` if the shell detected the period.
        by: Option<AgentId>,
    },
    /// The oldest closed records were examined, between two inputs: each was forgotten or queued once more (L7).
    Forgot {
        /// The number of records that were examined.
        items: u32,
    },
    /// The rules of a newer edition hold from this fact on. Earlier facts keep the meaning that they had.
    Upgraded {
        /// The edition, as in [`EDITION`].
        edition: u32,
    },
    /// An agent finished its turn (F2). Replaces [`Fact::TurnClosed`], which the first edition wrote.
    TurnFinished(TurnFinished),
    /// The limits of one agent were set (§1).
    AgentLimited {
        /// The agent that they apply to.
        agent: AgentId,
        /// All of its own limits; replaces the ones before.
        limits: Box<AgentLimits>,
    },
    /// A human extended an agent's budget for one UTC day (B1).
    AgentGranted(AgentGranted),
    /// An agent used up its budget of the day and rests, or its rest ended (B1).
    AgentRested {
        /// The agent that rests or rested.
        agent: AgentId,
        /// The end of the rest; `None` when the rest ends with this fact.
        until: Option<Time>,
    },
    /// A post, question, held call or claim was refused (G4).
    WriteRefused(WriteRefused),
    /// Refusals that were not recorded one by one, as a sum (G2).
    RefusalsSummed {
        /// The agent that was refused.
        agent: AgentId,
        /// The code that all of them have.
        code: Code,
        /// The number of refusals.
        count: u64,
    },
    /// An incident was noted: a human has to know of it, but it holds no work (D7, G2, B1).
    IncidentNoted(IncidentNoted),
    /// A grant has used up most of its time: its giver is notified (D8).
    GrantAged {
        /// The grant that is about to expire.
        grant: GrantId,
        /// The used share of its time, in percent.
        percent: u64,
    },
    /// A human extended a conversation by rounds, with the messages, turns and requests that they need (D2).
    RoundsGranted(RoundsGranted),
    /// A human extended the requests of a task (D9).
    RequestsGranted {
        /// The task that may send more requests.
        task: TaskId,
        /// The human who extended it.
        by: AgentId,
        /// The number of requests that are added.
        requests: u64,
    },
    /// A limit caused an escalation: the facts for the broker's own sentence, and the lifts that a human may choose
    /// (H6).
    EscalationLifts {
        /// The escalation that the limit caused.
        escalation: EscalationId,
        /// The limit that the task met.
        met: Met,
        /// The lifts that a human may choose, in the order of their numbers.
        lifts: Vec<Lift>,
    },
    /// A human chose a lift of an escalation (H6).
    LiftChosen {
        /// The escalation that offered the lift.
        escalation: EscalationId,
        /// The number of the lift in the escalation's list, from 1.
        lift: u32,
        /// The human who chose it.
        by: AgentId,
    },
    /// No human answered an escalation in time (H1).
    EscalationExpired {
        /// The escalation that expired.
        escalation: EscalationId,
    },
    /// A write with an idempotency key succeeded: a retry gets its result again (Q1).
    Keyed {
        /// The agent or human that used the key.
        agent: AgentId,
        /// The key and the fingerprint of its content.
        key: Key,
        /// The result that a retry gets.
        made: Made,
    },
    /// An ALERT was shown to the humans, or only counted (E4).
    AlertRaised {
        /// The position of the ALERT.
        message: Seq,
        /// The agent that sent it.
        agent: AgentId,
        /// Whether it was shown to the humans; `false` when the agent sent too many.
        pushed: bool,
    },
    /// Agents that may decide an approval were notified of it (H3).
    ApprovalOffered {
        /// The approval that awaits a decision.
        approval: ApprovalId,
        /// The agents that get the notice.
        to: Vec<AgentId>,
    },
    /// A human acted in a way that no other fact records: signed in, or opened a page (D12).
    HumanActed {
        /// The human who acted.
        by: AgentId,
    },
    /// No human has acted for a large part of `unattended_ms`: the humans are notified (D12).
    Unattended {
        /// The used share of `unattended_ms`, in percent.
        percent: u64,
    },
    /// The role of a human was changed (H7).
    RoleSet {
        /// The human whose role changed.
        human: AgentId,
        /// The new role.
        role: Role,
    },
    /// A human set a schedule: a recurring request (D13).
    ScheduleSet {
        /// The human in whose name its ticks send.
        by: AgentId,
        /// The schedule; replaces one of the same name.
        schedule: Box<Schedule>,
        /// The time of its next tick.
        next_at: Time,
    },
    /// A schedule was removed, by a human or together with the human who set it.
    ScheduleRemoved {
        /// The name of the removed schedule.
        name: Label,
    },
    /// A schedule ticked: the grant that was opened just before belongs to it, and does not count as an act of a human
    /// (D12, D13).
    ScheduleTicked {
        /// The name of the schedule.
        name: Label,
        /// The grant that the tick opened.
        grant: GrantId,
        /// The time of the next tick; `None` if a human ran the schedule between two ticks.
        next_at: Option<Time>,
    },
    /// A schedule's tick opened no grant.
    ScheduleSkipped {
        /// The name of the schedule.
        name: Label,
        /// The code of the refusal; `None` if the grant of the last tick was still open.
        code: Option<Code>,
        /// The time of the next tick.
        next_at: Time,
    },
    /// An open turn reported what it has spent so far, which is charged at once (B1).
    Spent {
        /// The open turn.
        turn: TurnId,
        /// The tokens and the cost since the turn was opened; never less than in the report before.
        spend: Spend,
    },
    /// An agent finished its turn (F2). Replaces [`Fact::TurnFinished`], which doesn't tell an estimate from a
    /// measurement.
    TurnCharged(TurnCharged),
    /// A restore went back to the position before this fact, and a new epoch begins (L8). Positions and minted numbers
    /// jump, so that none of them was ever issued in the abandoned facts.
    EpochBegan {
        /// The position of this fact.
        first: Seq,
    },
    /// The token of an agent or human was replaced by one that expires, or the one before it stays valid for a while.
    TokenRotated(TokenRotated),
    /// The message before this fact showed that an exchange makes no progress (R5).
    Stalled(Stalled),
    /// The agent of a task goes on in a new session, which knows nothing of what it said before (R5).
    SessionBegan {
        /// The task that it works on.
        task: TaskId,
    },
    /// A human changed the rules for held calls while the broker runs; they take effect from this fact on (H2).
    PolicyChanged {
        /// The complete policy; replaces the one before.
        policy: Box<Policy>,
        /// The human who changed it.
        by: AgentId,
    },
    /// A turn's report splits its tokens and cost by model. The fact after this one charges the whole, and the rest
    /// belongs to no known model. Replaces an earlier one of the same turn (B1).
    SpentOn {
        /// The turn that reports.
        turn: TurnId,
        /// The agent whose turn it is.
        agent: AgentId,
        /// The parts, each of another model; together no more than the turn's charge.
        models: Vec<ModelSpend>,
    },
    /// An escalation for which no task waits was answered by a message of the human to the agent that asked.
    EscalationAnswered {
        /// The answered escalation.
        escalation: EscalationId,
        /// The human who answered.
        by: AgentId,
        /// The position of the message.
        message: Seq,
    },
    /// A human typed a prompt into an agent's session: the next root of the agent opens a grant in that human's name
    /// (H8).
    PromptTyped {
        /// The agent in whose session it was typed.
        agent: AgentId,
        /// The human who typed it.
        by: AgentId,
    },
    /// What an agent does from here on is no longer due to the prompt that was last typed into its session (H8).
    PromptEnded {
        /// The agent.
        agent: AgentId,
    },
    /// The program of an agent worked by itself after a turn had ended, which is charged to the turn's grant (H4).
    WorkedOutside(WorkedOutside),
    /// A dialog of an agent's program opened or closed, which only the program's own user can answer (D8).
    WaitsForUser {
        /// The open turn in which it did.
        turn: TurnId,
        /// Whether it is open.
        waits: bool,
    },
    /// The display name of an agent or human was set or removed (§1).
    DisplayNameSet {
        /// The agent or human.
        agent: AgentId,
        /// The display name; `None` removes it.
        display_name: Option<DisplayName>,
    },
    /// An agent keeps the result of a step of its work, which every later turn of the task gets (F7).
    StepKept(StepKept),
    /// The grant before this fact belongs to a trace that began elsewhere.
    GrantTraced {
        /// The grant that was just opened.
        grant: GrantId,
        /// Where in the trace its work begins.
        context: TraceContext,
    },
    /// A human ended the claim of another (C1).
    ClaimBroken {
        /// The claim that ended.
        claim: ClaimId,
        /// The human.
        by: AgentId,
    },
    /// A human dismissed a request of a human that ended without its result.
    Dismissed {
        /// The task of the request.
        task: TaskId,
        /// The human who dismissed it.
        by: AgentId,
    },
    /// A human made the link by which anybody reads a conversation, in the place of the one before, or ended it.
    LinkSet {
        /// The conversation.
        conv: ConvId,
        /// When the link expires; `None` if it ended.
        until: Option<Time>,
        /// The human.
        by: AgentId,
    },
    /// A human changed a limit while the broker runs; it is in force from this fact on.
    LimitChanged(LimitChanged),
}
