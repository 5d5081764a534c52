//! Facts: recorded decisions, in the past tense. The log is a list of facts, and folding it rebuilds the state.
//!
//! A released variant never changes. A new form is a new variant at the end, so that every log ever written stays
//! readable (`store/tests` holds a sample of each).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::{Address, AnswerStatus, FinishStatus, JsonText, MessageType};
use crate::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, Seq, TaskId, Time, TurnId,
};
use crate::limits::Limits;
use crate::names::{AgentName, DisplayName, Label, Ref, RequestId, Resource};
use crate::policy::{ApprovalRule, Policy};
use crate::refusal::{Code, Refusal};
use crate::stall::{Curve, StallCause};
use crate::trace::TraceContext;

mod about;
mod agents;
mod approvals;
mod claims;
mod control;
mod escalations;
mod exchanges;
mod grants;
mod incidents;
mod lifts;
mod messages;
mod schedules;
mod turns;

pub use about::{About, Area, EventKind};
pub use agents::{AgentLimits, Kind, Profile, Role, WriteKind};
pub use approvals::Decision;
pub use claims::ClaimMode;
pub use control::{Control, Scope};
pub use escalations::EscalationCause;
pub use exchanges::Level;
pub use grants::{Extension, GrantEnd, ModelSpend, Spend};
pub use incidents::{Crossing, Latched, Place};
pub use lifts::{Lift, Met};
pub use messages::{Answer, Key, Made, Message, Part, Recipient, SYSTEM, Terms};
pub use schedules::Schedule;
pub use turns::{EndReason, PartialResult, Rerun, TurnEnd};

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
    Registered {
        /// The next free number; a name that is registered again gets a new one.
        agent: AgentId,
        /// A name that no live agent or human has.
        name: AgentName,
        /// Whether a program or a human holds the name.
        kind: Kind,
        /// Counts the registrations of the name, from 1 (§1).
        incarnation: u32,
        /// The actions, groups and number of parallel turns that it registers with.
        profile: Profile,
        /// The hash of the token that it authenticates with.
        credential: Credential,
    },
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
    Refused {
        /// The agent that sent the refused message.
        agent: AgentId,
        /// The turn in which it was sent; `None` outside every turn.
        turn: Option<TurnId>,
        /// The type of the refused message.
        kind: MessageType,
        /// The address as the sender gave it.
        to: Address,
        /// The REF that the sender gave, or the one that the message would have had.
        reference: Option<Ref>,
        /// The code, numbers and hint that the sender gets.
        refusal: Refusal,
    },
    /// A guard under observation would have refused a message, which was admitted (G7).
    Observed {
        /// The agent that sent the message.
        agent: AgentId,
        /// The refusal that the guard would have given.
        refusal: Refusal,
    },
    /// A grant was opened: a source of work (D7, D9).
    GrantOpened {
        /// The next number.
        grant: GrantId,
        /// The human who gave it, or the agent that started it as its own root.
        giver: AgentId,
        /// The conversation in which its work starts.
        conv: ConvId,
        /// The end of its time, unless a human extends it or its clock is stopped (D8).
        expires_at: Time,
    },
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
    ConversationOpened {
        /// The next number.
        conv: ConvId,
        /// The REF that names the conversation.
        reference: Ref,
        /// The conversation of the task that opened it; `None` for one without a task above.
        parent: Option<ConvId>,
        /// The agent or human that opened it.
        opener: AgentId,
    },
    /// An agent started work of its own: a root task (D7).
    RootStarted {
        /// The next task number.
        task: TaskId,
        /// The agent that starts and serves the root.
        agent: AgentId,
        /// The conversation that the root works in.
        conv: ConvId,
        /// The grant that was opened for the root.
        grant: GrantId,
        /// The depth at which the root continues an existing conversation; `None` in a new one.
        received: Option<u8>,
    },
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
    TurnOpened {
        /// The next number.
        turn: TurnId,
        /// The task that the turn serves.
        task: TaskId,
        /// The attempt at the task, from 1.
        attempt: u32,
        /// The position of the delivered message.
        message: Seq,
        /// The end of the lease, unless activity renews it.
        lease_until: Time,
    },
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
    TurnClosed {
        /// The turn that ended.
        turn: TurnId,
        /// Whether it finished, lost its lease or was withdrawn.
        end: TurnEnd,
        /// The status that the agent finished with; `None` if the agent did not finish the turn.
        status: Option<FinishStatus>,
        /// The tokens and the cost that are charged for the turn.
        spend: Spend,
    },
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
    Requeued {
        /// The task of the request.
        task: TaskId,
        /// The agent that serves the next attempt; another one after a rejection (Q4).
        agent: AgentId,
        /// The reason for another attempt.
        why: Rerun,
        /// The new time to acknowledge, in ms.
        ack_ms: u64,
        /// For `partial`: the result of the first run.
        result: Option<Box<PartialResult>>,
    },
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
    LatchSet {
        /// The number of the incident that records the latch.
        incident: IncidentId,
        /// The grant, conversation or room that is held.
        on: Latched,
        /// The code of the limit that tripped.
        code: Code,
        /// The limit at the time.
        limit: u64,
        /// The value that reached or passed the limit.
        current: u64,
    },
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
    EscalationOpened {
        /// The next number.
        escalation: EscalationId,
        /// The task that asked and waits, or the task of the request that timed out; `None` for a question outside
        /// every turn.
        task: Option<TaskId>,
        /// The agent whose task or request the question is about.
        agent: AgentId,
        /// The conversation that the question is about.
        conv: ConvId,
        /// Whether an agent asked, or a request that timed out caused it.
        cause: EscalationCause,
        /// The text of the question.
        body: Box<str>,
        /// The answers that the human can choose from; empty for a free-text answer.
        options: Vec<Box<str>>,
    },
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
    ApprovalAsked {
        /// The next number.
        approval: ApprovalId,
        /// The task in which the agent would make the call; `None` outside every turn.
        task: Option<TaskId>,
        /// The agent that would make the call.
        agent: AgentId,
        /// The name of the tool.
        tool: Box<str>,
        /// The arguments, as canonical JSON.
        arguments: JsonText,
        /// The agent's reason for the call, if it gave one.
        reason: Option<Box<str>>,
        /// The digest of tool, arguments, agent and task.
        digest: Digest,
        /// The time at which the call is denied if no decision is made.
        expires_at: Time,
    },
    /// A held call was decided, or expired. Happens once per approval.
    ApprovalDecided {
        /// The approval that was decided.
        approval: ApprovalId,
        /// The human or agent who decided, or [`SYSTEM`] for a rule of the policy; `None` when it expired.
        by: Option<AgentId>,
        /// The decision on the call.
        decision: Decision,
        /// The comment that came with the decision, if any.
        comment: Option<Box<str>>,
        /// For `edit`: the arguments and digest that are approved instead.
        edited: Option<(JsonText, Digest)>,
    },
    /// The approved call was made; the approval is used up.
    ApprovalUsed {
        /// The approval that was used.
        approval: ApprovalId,
    },
    /// A claim was granted, which is a lease on a resource, or its lease was renewed (C1).
    Claimed {
        /// The next number, which is also the claim's fence; its own at a renewal.
        claim: ClaimId,
        /// The agent or human that holds the claim.
        agent: AgentId,
        /// The task for which it is held; `None` outside every turn.
        task: Option<TaskId>,
        /// The name of the claimed resource.
        resource: Resource,
        /// Whether other claims may share the resource.
        mode: ClaimMode,
        /// The end of the lease.
        expires_at: Time,
    },
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
    PostKeyed {
        /// The room of the post.
        room: RoomId,
        /// The author of the post.
        agent: AgentId,
        /// The key of the post.
        key: Key,
        /// Whether the post was admitted. If so, it is the next fact.
        admitted: bool,
    },
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
    TurnFinished {
        /// The turn that the agent finished.
        turn: TurnId,
        /// The status of the finish as the broker resolved it.
        status: FinishStatus,
        /// The tokens and the cost that are charged for the turn.
        spend: Spend,
        /// The fingerprint of the finish, to recognise a retry of it (F6).
        said: u64,
    },
    /// The limits of one agent were set (§1).
    AgentLimited {
        /// The agent that they apply to.
        agent: AgentId,
        /// All of its own limits; replaces the ones before.
        limits: Box<AgentLimits>,
    },
    /// A human extended an agent's budget for one UTC day (B1).
    AgentGranted {
        /// The agent whose budget grows.
        agent: AgentId,
        /// The human who extended it.
        by: AgentId,
        /// The day, counted in days since the Unix epoch.
        day: u64,
        /// The tokens and the cost that are added.
        spend: Spend,
    },
    /// An agent used up its budget of the day and rests, or its rest ended (B1).
    AgentRested {
        /// The agent that rests or rested.
        agent: AgentId,
        /// The end of the rest; `None` when the rest ends with this fact.
        until: Option<Time>,
    },
    /// A post, question, held call or claim was refused (G4).
    WriteRefused {
        /// The agent that wrote it.
        agent: AgentId,
        /// The turn in which it was written; `None` outside every turn.
        turn: Option<TurnId>,
        /// The kind of write that was refused.
        write: WriteKind,
        /// The code, numbers and hint that the agent gets.
        refusal: Refusal,
    },
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
    IncidentNoted {
        /// The next number.
        incident: IncidentId,
        /// The agent that the incident is about.
        agent: AgentId,
        /// The code of the limit that tripped.
        code: Code,
        /// The limit at the time.
        limit: u64,
        /// The value that reached or passed the limit.
        current: u64,
    },
    /// A grant has used up most of its time: its giver is notified (D8).
    GrantAged {
        /// The grant that is about to expire.
        grant: GrantId,
        /// The used share of its time, in percent.
        percent: u64,
    },
    /// A human extended a conversation by rounds, with the messages, turns and requests that they need (D2).
    RoundsGranted {
        /// The grant that pays for the rounds.
        grant: GrantId,
        /// The task that sends requests in the conversation; `None` if there is none.
        task: Option<TaskId>,
        /// The conversation whose depth limit rises.
        conv: ConvId,
        /// The human who extended it.
        by: AgentId,
        /// The number of rounds, of two messages each.
        rounds: u64,
    },
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
    TurnCharged {
        /// The turn that the agent finished.
        turn: TurnId,
        /// The status of the finish as the broker resolved it.
        status: FinishStatus,
        /// The tokens and the cost of the whole turn, including those that [`Fact::Spent`] charged before.
        spend: Spend,
        /// Whether the tokens are estimated from the length of the text.
        estimated: bool,
        /// The fingerprint of the finish, to recognise a retry of it (F6).
        said: u64,
    },
    /// A restore went back to the position before this fact, and a new epoch begins (L8). Positions and minted numbers
    /// jump, so that none of them was ever issued in the abandoned facts.
    EpochBegan {
        /// The position of this fact.
        first: Seq,
    },
    /// The token of an agent or human was replaced by one that expires, or the one before it stays valid for a while.
    TokenRotated {
        /// The agent or human that the token authenticates.
        agent: AgentId,
        /// The hash of the new token.
        credential: Credential,
        /// The time from which the new token is refused; `None` if it doesn't expire.
        expires_at: Option<Time>,
        /// The time from which the token before it is refused; `None` if that ended at once.
        former_until: Option<Time>,
    },
    /// The message before this fact showed that an exchange makes no progress (R5).
    Stalled {
        /// The task that asks.
        task: TaskId,
        /// The delegate that it asks.
        agent: AgentId,
        /// The conversation of the message.
        conv: ConvId,
        /// Whether the asker is warned, or the exchange is held.
        level: Level,
        /// Why.
        stall: StallCause,
        /// Whether this had an effect; `false` if the guard only observed (G7).
        enforced: bool,
        /// The numbers after the message.
        curve: Curve,
        /// The broker's question to a human, for an exchange that is held.
        escalation: Option<EscalationId>,
    },
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
    WorkedOutside {
        /// The turn after which it worked: the agent's last one.
        turn: TurnId,
        /// The agent.
        agent: AgentId,
        /// The grant of the turn.
        grant: GrantId,
        /// What the program used beyond its turns.
        spend: Spend,
    },
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
    StepKept {
        /// The task that the step belongs to.
        task: TaskId,
        /// The agent that works on it.
        agent: AgentId,
        /// The key of the step, one for the task.
        key: RequestId,
        /// The result, as JSON.
        result: JsonText,
    },
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
}
