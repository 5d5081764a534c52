//! Facts: what happened. The log is a list of them, and folding the list gives the whole state.
//!
//! A variant is never changed once released: another form is another variant at the end, so that every
//! log ever written can be read (`store/tests` holds a sample of each).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::{Address, AnswerStatus, FinishStatus, JsonText, MessageType};
use crate::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, Seq, TaskId, Time, TurnId,
};
use crate::limits::Limits;
use crate::names::{AgentName, Label, Ref, Resource};
use crate::policy::{ApprovalRule, Policy};
use crate::refusal::{Code, Refusal};

mod agents;
mod approvals;
mod claims;
mod control;
mod escalations;
mod grants;
mod incidents;
mod lifts;
mod messages;
mod schedules;
mod turns;

pub use agents::{AgentLimits, Kind, Profile, Role, WriteKind};
pub use approvals::{Decision, Digest};
pub use claims::ClaimMode;
pub use control::{Control, Scope};
pub use escalations::EscalationCause;
pub use grants::{Extension, GrantEnd, Spend};
pub use incidents::{Crossing, Latched, Place};
pub use lifts::{Lift, Met};
pub use messages::{Answer, Key, Made, Message, Part, Recipient, SYSTEM, Terms};
pub use schedules::Schedule;
pub use turns::{EndReason, PartialResult, Rerun, TurnEnd};

/// The edition of the rules by which this program records; see [`Fact::Upgraded`].
pub const EDITION: u32 = 2;

/// One record of the log: when, of which grant with which potential, and what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When the shell's clock said it happened; never decreases.
    pub at: Time,
    /// The grant that it belongs to, and that grant's Φ after it: the waking messages that it can still
    /// cause. Only an opening, an extension or a new configuration raises Φ.
    pub grant: Option<(GrantId, u64)>,
    /// What happened.
    pub fact: Fact,
}

/// A SHA-256 of a bearer token.
pub type Credential = [u8; 32];

/// A digest or credential in lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8; 32]) -> String {
    bytes.iter().fold(String::with_capacity(64), |mut out, byte| {
        for nibble in [byte >> 4, byte & 15] {
            out.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
        out
    })
}

/// Everything that can have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The numbers in force, from here on.
    Configured {
        /// All of them.
        limits: Box<Limits>,
    },
    /// An agent or human joined, or joined again under a name that was free.
    Registered {
        /// Its number: the next one, or its old one.
        agent: AgentId,
        /// Its name.
        name: AgentName,
        /// What it is.
        kind: Kind,
        /// Grows at each registration of the name.
        incarnation: u32,
        /// What it may do.
        profile: Profile,
        /// The hash of its token.
        credential: Credential,
    },
    /// Its profile changed.
    Amended {
        /// Who.
        agent: AgentId,
        /// The new profile.
        profile: Profile,
    },
    /// Its token was replaced.
    Rekeyed {
        /// Who.
        agent: AgentId,
        /// The hash of the new token.
        credential: Credential,
    },
    /// It left.
    Removed {
        /// Who.
        agent: AgentId,
    },
    /// An agent message was counted, before any rule was asked (R1).
    Heard {
        /// Who sent it.
        agent: AgentId,
        /// Where it counts.
        place: Place,
        /// Agent messages since a human spoke, with this one (R1).
        agent_messages: u64,
    },
    /// The one warning of a crossing (R2); shown, never delivered or counted.
    Warned {
        /// Where.
        place: Place,
        /// Which threshold.
        crossing: Crossing,
        /// Agent messages since a human spoke (R1).
        agent_messages: u64,
    },
    /// A message was refused.
    Refused {
        /// Whose.
        agent: AgentId,
        /// In which turn.
        turn: Option<TurnId>,
        /// Its type.
        kind: MessageType,
        /// Its address, as given.
        to: Address,
        /// Its REF, as given or as it would have been.
        reference: Option<Ref>,
        /// Why.
        refusal: Refusal,
    },
    /// A guard that only observes would have refused a message (G7).
    Observed {
        /// Whose.
        agent: AgentId,
        /// Why.
        refusal: Refusal,
    },
    /// A grant: work may start from here (D7, D9).
    GrantOpened {
        /// Its number.
        grant: GrantId,
        /// Who gave it: a human, or the agent whose own root it is.
        giver: AgentId,
        /// Where it starts.
        conv: ConvId,
        /// When it ends.
        expires_at: Time,
    },
    /// A human gave more (D9).
    GrantExtended {
        /// To which.
        grant: GrantId,
        /// Who.
        by: AgentId,
        /// How much.
        extension: Extension,
    },
    /// Nothing more comes of it.
    GrantClosed {
        /// Which.
        grant: GrantId,
        /// Why.
        end: GrantEnd,
    },
    /// A REF became a conversation.
    ConversationOpened {
        /// Its number: the next one.
        conv: ConvId,
        /// Its REF.
        reference: Ref,
        /// The conversation of the task that opened it.
        parent: Option<ConvId>,
        /// Who opened it.
        opener: AgentId,
    },
    /// An agent's own root task began (D7).
    RootStarted {
        /// The task.
        task: TaskId,
        /// Whose.
        agent: AgentId,
        /// In which conversation.
        conv: ConvId,
        /// Under which grant.
        grant: GrantId,
        /// The depth that goes on, where the conversation is continued.
        received: Option<u8>,
    },
    /// A root task ended; it finishes to nobody.
    RootEnded {
        /// Which.
        task: TaskId,
        /// How.
        status: AnswerStatus,
    },
    /// A message was admitted. A REQUEST creates its task, an answer settles its task.
    Accepted {
        /// The message.
        message: Box<Message>,
    },
    /// A delivery opened a turn (F1).
    TurnOpened {
        /// Its number.
        turn: TurnId,
        /// The task that it serves.
        task: TaskId,
        /// The attempt at the task.
        attempt: u32,
        /// The message delivered.
        message: Seq,
        /// When the lease ends.
        lease_until: Time,
    },
    /// An answer joined the task's open turn (F1).
    Joined {
        /// The turn.
        turn: TurnId,
        /// The answer.
        message: Seq,
        /// When the lease ends, renewed.
        lease_until: Time,
    },
    /// A sender that waited for the answer got it with its send; no turn is opened for it (Q8).
    Collected {
        /// The task that asked.
        task: TaskId,
        /// The answer.
        message: Seq,
    },
    /// A lease was renewed.
    Renewed {
        /// The turn.
        turn: TurnId,
        /// When the lease ends.
        lease_until: Time,
    },
    /// A turn ended (F2).
    TurnClosed {
        /// The turn.
        turn: TurnId,
        /// How.
        end: TurnEnd,
        /// What its agent said of it.
        status: Option<FinishStatus>,
        /// What it spent.
        spend: Spend,
    },
    /// A finish came for a turn that was over; shown to the asker, wakes nobody (F6).
    Late {
        /// The turn.
        turn: TurnId,
        /// Whose.
        agent: AgentId,
        /// The answer.
        body: Box<str>,
    },
    /// A request is run again, on the same task.
    Requeued {
        /// The task.
        task: TaskId,
        /// Who runs it now.
        agent: AgentId,
        /// Why.
        why: Rerun,
        /// Time to acknowledge, in ms.
        ack_ms: u64,
        /// For `partial`: what the first run gave.
        result: Option<Box<PartialResult>>,
    },
    /// Notices were read up to here.
    Noticed {
        /// By whom.
        agent: AgentId,
        /// The last one read.
        through: Seq,
    },
    /// A grant nears a budget limit; its agent is told once (B1).
    BudgetWarned {
        /// The grant.
        grant: GrantId,
        /// The agent.
        agent: AgentId,
        /// The share used, in percent.
        percent: u64,
    },
    /// A limit tripped and holds until a human lifts it (R3).
    LatchSet {
        /// Its number.
        incident: IncidentId,
        /// What it holds.
        on: Latched,
        /// Which limit.
        code: Code,
        /// The limit.
        limit: u64,
        /// The value.
        current: u64,
    },
    /// A latch was lifted.
    LatchLifted {
        /// What it held.
        on: Latched,
        /// By whom.
        by: AgentId,
    },
    /// A human paused, resumed or stopped something (H4).
    Controlled {
        /// What.
        scope: Scope,
        /// How.
        control: Control,
        /// By whom.
        by: AgentId,
    },
    /// A question to a human (H1).
    EscalationOpened {
        /// Its number.
        escalation: EscalationId,
        /// The task that waits for it.
        task: Option<TaskId>,
        /// Whose task or request it is about.
        agent: AgentId,
        /// In which conversation.
        conv: ConvId,
        /// Why it is there.
        cause: EscalationCause,
        /// The question.
        body: Box<str>,
        /// Answers to choose from.
        options: Vec<Box<str>>,
    },
    /// An escalation about no waiting task was answered.
    EscalationNoted {
        /// Which.
        escalation: EscalationId,
        /// By whom.
        by: AgentId,
        /// The answer.
        body: Box<str>,
    },
    /// A tool call was held (H2).
    ApprovalAsked {
        /// Its number.
        approval: ApprovalId,
        /// The task in which it would be made.
        task: Option<TaskId>,
        /// Who would make it.
        agent: AgentId,
        /// The tool.
        tool: Box<str>,
        /// Its arguments: a canonical JSON text.
        arguments: JsonText,
        /// Why it is needed.
        reason: Option<Box<str>>,
        /// The digest of the call.
        digest: Digest,
        /// When it is denied by itself.
        expires_at: Time,
    },
    /// It was decided, or expired; once.
    ApprovalDecided {
        /// Which.
        approval: ApprovalId,
        /// By whom; nobody when it expired.
        by: Option<AgentId>,
        /// How.
        decision: Decision,
        /// In which words.
        comment: Option<Box<str>>,
        /// For `edit`: the arguments and digest that are approved instead.
        edited: Option<(JsonText, Digest)>,
    },
    /// The approved call was made.
    ApprovalUsed {
        /// Which.
        approval: ApprovalId,
    },
    /// A lease on a resource (C1).
    Claimed {
        /// Its number, which is its fence.
        claim: ClaimId,
        /// Who holds it.
        agent: AgentId,
        /// For which task.
        task: Option<TaskId>,
        /// The resource.
        resource: Resource,
        /// How it is shared.
        mode: ClaimMode,
        /// When it ends.
        expires_at: Time,
    },
    /// It ended.
    Released {
        /// Which.
        claim: ClaimId,
    },
    /// A room was opened, or its members changed.
    RoomOpened {
        /// Its number.
        room: RoomId,
        /// Its name.
        name: Ref,
        /// Who takes part.
        members: Vec<AgentId>,
    },
    /// A post without an envelope, in a room.
    Posted {
        /// Where.
        room: RoomId,
        /// Who.
        from: AgentId,
        /// What.
        body: Box<str>,
    },
    /// The policy of held calls in force, from here on (H2).
    PolicyConfigured {
        /// All of its rules.
        policy: Box<Policy>,
    },
    /// The policy has a rule for a call that was held.
    ApprovalRuled {
        /// Which call.
        approval: ApprovalId,
        /// The rule, as it was when the call was held.
        rule: Box<ApprovalRule>,
    },
    /// A question to a human was sent as a message with a key: a retry is this question again (Q1).
    EscalationKeyed {
        /// Which.
        escalation: EscalationId,
        /// Who asked.
        agent: AgentId,
        /// The key.
        key: Key,
    },
    /// A human was shown an answer with the send that waited for it: it waits in no inbox any more (Q8).
    NoticeRead {
        /// Who.
        agent: AgentId,
        /// The answer.
        message: Seq,
    },
    /// A post to a room came with a key: a retry is this post again, and is counted no second time (Q1).
    PostKeyed {
        /// Where.
        room: RoomId,
        /// Who posts.
        agent: AgentId,
        /// The key.
        key: Key,
        /// Whether it was admitted: then it is the next fact.
        admitted: bool,
    },
    /// A human's post in a room is about this conversation: its counters begin again (R4).
    Rearmed {
        /// Which.
        conv: ConvId,
        /// Who spoke.
        by: AgentId,
    },
    /// The clock jumped to this fact's time over a stretch in which the broker didn't run (L6).
    Idled {
        /// How long it was, in ms.
        ms: u64,
        /// The human who accepted the jump; nobody where the shell noticed the stretch itself.
        by: Option<AgentId>,
    },
    /// The oldest closed records were looked at, between two inputs: each is forgotten, or waits once more (L7).
    Forgot {
        /// How many of them.
        items: u32,
    },
    /// The rules of a newer edition hold from here on; what was recorded before is read as it stands.
    Upgraded {
        /// The edition.
        edition: u32,
    },
    /// An agent finished its turn (F2); in place of [`Fact::TurnClosed`], which the first edition wrote.
    TurnFinished {
        /// The turn.
        turn: TurnId,
        /// How it ended, as resolved by the broker.
        status: FinishStatus,
        /// What it spent.
        spend: Spend,
        /// Fingerprint of what the agent said, to recognise the same finish when it comes again (F6).
        said: u64,
    },
    /// An agent has limits of its own (§1).
    AgentLimited {
        /// Which.
        agent: AgentId,
        /// All of them.
        limits: Box<AgentLimits>,
    },
    /// A human gave an agent more for one UTC day (B1).
    AgentGranted {
        /// Which.
        agent: AgentId,
        /// Who.
        by: AgentId,
        /// The day, counted from the epoch.
        day: u64,
        /// How much more.
        spend: Spend,
    },
    /// An agent's budget of the day is used up and it rests, or its rest is over (B1).
    AgentRested {
        /// Which.
        agent: AgentId,
        /// Until when; none where the rest ends here.
        until: Option<Time>,
    },
    /// A post, question, held call or claim was refused (G4).
    WriteRefused {
        /// Whose.
        agent: AgentId,
        /// In which turn.
        turn: Option<TurnId>,
        /// What it would have written.
        write: WriteKind,
        /// Why.
        refusal: Refusal,
    },
    /// Refusals that were not recorded one by one, as a sum (G2).
    RefusalsSummed {
        /// Whose.
        agent: AgentId,
        /// With which code.
        code: Code,
        /// How many.
        count: u64,
    },
    /// Something that a human has to know and that holds nothing (D7, G2, B1).
    IncidentNoted {
        /// Its number.
        incident: IncidentId,
        /// The agent that it is about.
        agent: AgentId,
        /// Which limit.
        code: Code,
        /// The limit.
        limit: u64,
        /// The value.
        current: u64,
    },
    /// A grant has used up most of its time: its giver is told (D8).
    GrantAged {
        /// Which.
        grant: GrantId,
        /// Share of its time that is over.
        percent: u64,
    },
    /// A human gave a conversation more rounds, with the messages, turns and requests that they need (D2).
    RoundsGranted {
        /// To which grant.
        grant: GrantId,
        /// The task that asks in the conversation.
        task: Option<TaskId>,
        /// The conversation.
        conv: ConvId,
        /// Who.
        by: AgentId,
        /// How many rounds, of two messages each.
        rounds: u64,
    },
    /// A human gave a task more requests (D9).
    RequestsGranted {
        /// Which task.
        task: TaskId,
        /// Who.
        by: AgentId,
        /// How many.
        requests: u64,
    },
    /// A limit caused an escalation: the broker's own sentence, and the steps that lift the limit (H6).
    EscalationLifts {
        /// Which escalation.
        escalation: EscalationId,
        /// The limit that was met.
        met: Met,
        /// The lifts that a human may choose.
        lifts: Vec<Lift>,
    },
    /// A human chose a lift of an escalation (H6).
    LiftChosen {
        /// Of which escalation.
        escalation: EscalationId,
        /// The number of the lift in it, from 1.
        lift: u32,
        /// Who.
        by: AgentId,
    },
    /// Nobody answered an escalation in time (H1).
    EscalationExpired {
        /// Which.
        escalation: EscalationId,
    },
    /// Something was made under a key: a retry is answered with it again (Q1).
    Keyed {
        /// By whom.
        agent: AgentId,
        /// The key.
        key: Key,
        /// What was made.
        made: Made,
    },
    /// An ALERT was shown to the humans, or only counted (E4).
    AlertRaised {
        /// The message.
        message: Seq,
        /// Who sent it.
        agent: AgentId,
        /// Whether it was put before the humans.
        pushed: bool,
    },
    /// Agents that may decide an approval were told of it (H3).
    ApprovalOffered {
        /// Which.
        approval: ApprovalId,
        /// To whom.
        to: Vec<AgentId>,
    },
    /// A human did something that is no other fact: signed in, or opened a page (D12).
    HumanActed {
        /// Who.
        by: AgentId,
    },
    /// No human has acted for a large part of `unattended_ms`: the humans are told (D12).
    Unattended {
        /// Which part of it is over.
        percent: u64,
    },
    /// A human got another role (H7).
    RoleSet {
        /// Who.
        human: AgentId,
        /// Which.
        role: Role,
    },
    /// A human set a schedule: work that begins again and again (D13).
    ScheduleSet {
        /// Who, in whose name its ticks are.
        by: AgentId,
        /// What, when and for whom.
        schedule: Box<Schedule>,
        /// When it ticks next.
        next_at: Time,
    },
    /// A schedule was taken away, by a human or with the human who set it.
    ScheduleRemoved {
        /// Which.
        name: Label,
    },
    /// A schedule ticked: the grant that was opened just before is of it, and no act of a human (D12, D13).
    ScheduleTicked {
        /// Which.
        name: Label,
        /// The grant.
        grant: GrantId,
        /// When it ticks next; none where a human let it run between two ticks.
        next_at: Option<Time>,
    },
    /// A tick made no grant.
    ScheduleSkipped {
        /// Which.
        name: Label,
        /// Why: what refused it, or none where its last grant is still open.
        code: Option<Code>,
        /// When it ticks next.
        next_at: Time,
    },
}
