//! A sample of each fact, with the name under which its bytes are stored.

use lastword_facts::fact::{
    AgentGranted, AgentLimits, Answer, ApprovalAsked, ApprovalDecided, ClaimMode, Claimed, Control, ConversationOpened,
    Crossing, Decision, EndReason, EscalationCause, EscalationOpened, Extension, GrantEnd, GrantOpened, IncidentNoted,
    Key, Kind, LatchSet, Latched, Level, Lift, LimitChanged, Made, Message, Met, ModelSpend, Part, PartialResult,
    Place, PostKeyed, Profile, Recipient, Refused, Registered, Requeued, Rerun, Role, RootStarted, RoundsGranted,
    Schedule, Scope, Spend, Stalled, StepKept, Terms, TokenRotated, TurnCharged, TurnClosed, TurnEnd, TurnFinished,
    TurnOpened, WorkedOutside, WriteKind, WriteRefused,
};
use lastword_facts::ids::{
    AgentId, ApprovalId, ClaimId, ConvId, EscalationId, GrantId, IncidentId, RoomId, TaskId, TurnId,
};
use lastword_facts::limits::Approvers;
use lastword_facts::names::{AgentName, DisplayName, Label, ModelName, Ref, RequestId, Resource};
use lastword_facts::policy::{ApprovalRule, CallPattern, Policy, Ruling};
use lastword_facts::stall::{Curve, StallCause};
use lastword_facts::trace::TraceContext;
use lastword_facts::{
    Address, AnswerStatus, Code, Entry, Fact, FinishStatus, Limits, MessageType, Priority, Refusal, Seq, Time,
};

use crate::sample::{at, message, post, refused};

/// Returns all samples, in the order in which they are stored.
pub(super) fn samples() -> Vec<(&'static str, Entry)> {
    let facts = [registry(), conversations(), turns(), control(), humans(), shared()];
    let mut samples: Vec<_> =
        facts.into_iter().flatten().map(|(name, fact)| (name, at(1_700_000_000_123, fact))).collect();
    samples.push(("Accepted/plain", message(20, 1, 0, 3, "héllo")));
    samples.push(("Refused", refused(30, 2, Code::PairRate)));
    samples.push(("Posted", post(40, 5, "a post")));
    samples.push(("without a grant", Entry { at: Time(0), grant: None, fact: Fact::Removed { agent: AgentId(4) } }));
    let later = policy()
        .into_iter()
        .chain(edition())
        .chain(limits())
        .chain(lifts())
        .chain(attendance())
        .chain(schedules())
        .chain(usage())
        .chain(epochs())
        .chain(tokens())
        .chain(exchanges())
        .chain(models())
        .chain(later())
        .chain(prompts());
    samples.extend(later.map(|(name, fact)| (name, at(1_700_000_000_123, fact))));
    samples
}

fn registry() -> Vec<(&'static str, Fact)> {
    let profile = Profile { actions: vec![label("review_code")], groups: vec![label("team")], turns_max: 2 };
    let agent = AgentId(7);
    vec![
        ("Configured", Fact::Configured { limits: Box::new(first_limits()) }),
        (
            "Registered",
            Fact::Registered(Registered {
                agent,
                name: AgentName::new("kilo").unwrap(),
                kind: Kind::Human,
                incarnation: 3,
                profile: profile.clone(),
                credential: [0xab; 32],
            }),
        ),
        ("Amended", Fact::Amended { agent, profile }),
        ("Rekeyed", Fact::Rekeyed { agent, credential: [1; 32] }),
        ("Removed", Fact::Removed { agent }),
    ]
}

fn conversations() -> Vec<(&'static str, Fact)> {
    let (grant, conv, agent, task) = (GrantId(9), ConvId(300), AgentId(1), TaskId(70_000));
    let place = Place::Conversation(conv);
    vec![
        ("Heard", Fact::Heard { agent, place, agent_messages: 20 }),
        ("Warned", Fact::Warned { place: Place::Room(RoomId(2)), crossing: Crossing::Hard, agent_messages: 100 }),
        (
            "Refused/full",
            Fact::Refused(Refused {
                agent,
                turn: Some(TurnId(5)),
                kind: MessageType::Request,
                to: Address::List(vec![Address::User, Address::Group(label("team")), Address::Action(label("test"))]),
                reference: Some(reference()),
                refusal: Refusal::new(Code::ClaimHeld).numbers(10, 11).retry_after(500).about("hive"),
            }),
        ),
        ("Observed", Fact::Observed { agent, refusal: Refusal::new(Code::MalformedHeader) }),
        ("GrantOpened", Fact::GrantOpened(GrantOpened { grant, giver: agent, conv, expires_at: Time(5) })),
        ("GrantExtended", Fact::GrantExtended { grant, by: agent, extension: extension() }),
        ("GrantClosed", Fact::GrantClosed { grant, end: GrantEnd::Expired }),
        (
            "ConversationOpened",
            Fact::ConversationOpened(ConversationOpened {
                conv,
                reference: reference(),
                parent: Some(ConvId(1)),
                opener: agent,
            }),
        ),
        ("RootStarted", Fact::RootStarted(RootStarted { task, agent, conv, grant, received: Some(4) })),
        ("RootEnded", Fact::RootEnded { task, status: AnswerStatus::Exhausted }),
        ("Accepted/request", accepted(MessageType::Request, Part::Request(terms()))),
        ("Accepted/answer", accepted(MessageType::Response, Part::Answer(answer()))),
        ("Accepted/reply", accepted(MessageType::Response, Part::Reply { task, escalation: Some(EscalationId(3)) })),
        (
            "Accepted/status",
            accepted(MessageType::Status, Part::Status { task, acknowledged: true, eta_ms: Some(60_000) }),
        ),
    ]
}

fn turns() -> Vec<(&'static str, Fact)> {
    let (turn, task, message, lease_until) = (TurnId(8), TaskId(6), Seq(1_000), Time(99));
    let spend = Spend { tokens: 1_234, cost_microusd: 56 };
    let result = PartialResult { body: "half".into(), completed: texts(), failed: texts() };
    vec![
        ("TurnOpened", Fact::TurnOpened(TurnOpened { turn, task, attempt: 2, message, lease_until })),
        ("Joined", Fact::Joined { turn, message, lease_until }),
        ("Collected", Fact::Collected { task, message }),
        ("Renewed", Fact::Renewed { turn, lease_until }),
        (
            "TurnClosed",
            Fact::TurnClosed(TurnClosed { turn, end: TurnEnd::Withdrawn, status: Some(FinishStatus::Waiting), spend }),
        ),
        ("Late", Fact::Late { turn, agent: AgentId(1), body: "too late".into() }),
        (
            "Requeued",
            Fact::Requeued(Requeued {
                task,
                agent: AgentId(2),
                why: Rerun::Partial,
                ack_ms: 30_000,
                result: Some(Box::new(result)),
            }),
        ),
        ("Noticed", Fact::Noticed { agent: AgentId(2), through: message }),
        ("BudgetWarned", Fact::BudgetWarned { grant: GrantId(1), agent: AgentId(2), percent: 81 }),
    ]
}

fn control() -> Vec<(&'static str, Fact)> {
    let on = Latched::Place(Place::Room(RoomId(3)));
    let by = AgentId(1);
    vec![
        (
            "LatchSet",
            Fact::LatchSet(LatchSet { incident: IncidentId(1), on, code: Code::TurnsHard, limit: 100, current: 100 }),
        ),
        ("LatchLifted", Fact::LatchLifted { on: Latched::Grant(GrantId(4)), by }),
        ("Controlled/agent", Fact::Controlled { scope: Scope::Agent(AgentId(2)), control: Control::Stop, by }),
        ("Controlled/workspace", Fact::Controlled { scope: Scope::Workspace, control: Control::Pause, by }),
    ]
}

fn humans() -> Vec<(&'static str, Fact)> {
    let (escalation, approval, agent) = (EscalationId(2), ApprovalId(3), AgentId(4));
    vec![
        (
            "EscalationOpened",
            Fact::EscalationOpened(EscalationOpened {
                escalation,
                task: Some(TaskId(1)),
                agent,
                conv: ConvId(1),
                cause: EscalationCause::TimedOut,
                body: "which?".into(),
                options: texts(),
            }),
        ),
        ("EscalationNoted", Fact::EscalationNoted { escalation, by: agent, body: "this".into() }),
        (
            "ApprovalAsked",
            Fact::ApprovalAsked(ApprovalAsked {
                approval,
                task: None,
                agent,
                tool: "shell".into(),
                arguments: "{}".into(),
                reason: Some("because".into()),
                digest: [2; 32],
                expires_at: Time(7),
            }),
        ),
        (
            "ApprovalDecided",
            Fact::ApprovalDecided(ApprovalDecided {
                approval,
                by: Some(agent),
                decision: Decision::Edit,
                comment: Some("rather".into()),
                edited: Some(("[]".into(), [3; 32])),
            }),
        ),
        ("ApprovalUsed", Fact::ApprovalUsed { approval }),
    ]
}

fn shared() -> Vec<(&'static str, Fact)> {
    let (claim, room) = (ClaimId(11), RoomId(12));
    vec![
        (
            "Claimed",
            Fact::Claimed(Claimed {
                claim,
                agent: AgentId(1),
                task: Some(TaskId(2)),
                resource: Resource::new("repo:src/*").unwrap(),
                mode: ClaimMode::Shared,
                expires_at: Time(8),
            }),
        ),
        ("Released", Fact::Released { claim }),
        ("RoomOpened", Fact::RoomOpened { room, name: reference(), members: vec![AgentId(1), AgentId(200)] }),
    ]
}

fn policy() -> [(&'static str, Fact); 7] {
    let kilo = AgentName::new("kilo").unwrap();
    let rule = ApprovalRule {
        call: CallPattern::parse("Bash(rm *)").unwrap(),
        agents: vec![kilo.clone()],
        ruling: Ruling::Ask,
        tier: Some(label("high")),
        who: Some(Approvers { asker: true, agents: vec![kilo] }),
        timeout_ms: Some(60_000),
    };
    let policy = Box::new(Policy { rules: vec![rule.clone()] });
    [
        ("PolicyConfigured", Fact::PolicyConfigured { policy }),
        ("ApprovalRuled", Fact::ApprovalRuled { approval: ApprovalId(3), rule: Box::new(rule) }),
        ("EscalationKeyed", {
            let key = Key { id: RequestId::new("which-colour").unwrap(), fingerprint: 7 };
            Fact::EscalationKeyed { escalation: EscalationId(2), agent: AgentId(1), key }
        }),
        ("NoticeRead", Fact::NoticeRead { agent: AgentId(1), message: Seq(300) }),
        ("PostKeyed", {
            let key = Key { id: RequestId::new("discord:12").unwrap(), fingerprint: 9 };
            Fact::PostKeyed(PostKeyed { room: RoomId(2), agent: AgentId(1), key, admitted: true })
        }),
        ("Rearmed", Fact::Rearmed { conv: ConvId(300), by: AgentId(1) }),
        ("Idled", Fact::Idled { ms: 259_200_000, by: Some(AgentId(1)) }),
    ]
}

fn usage() -> [(&'static str, Fact); 2] {
    let (turn, spend) = (TurnId(8), Spend { tokens: 3_584_982, cost_microusd: 1_250_000 });
    let status = FinishStatus::Completed;
    [
        ("Spent", Fact::Spent { turn, spend }),
        ("TurnCharged", Fact::TurnCharged(TurnCharged { turn, status, spend, estimated: true, said: 7 })),
    ]
}

fn epochs() -> [(&'static str, Fact); 1] {
    [("EpochBegan", Fact::EpochBegan { first: Seq(59_760_451_000_001) })]
}

fn exchanges() -> [(&'static str, Fact); 3] {
    let curve = Curve { messages: 9, dry: 5_000, units: 73, context: 564, read_again: 2_792 };
    let (task, agent, conv) = (TaskId(6), AgentId(7), ConvId(300));
    let (level, stall, escalation) = (Level::Held, StallCause::Dry, Some(EscalationId(2)));
    [
        ("Stalled", Fact::Stalled(Stalled { task, agent, conv, level, stall, enforced: true, curve, escalation })),
        ("SessionBegan", Fact::SessionBegan { task }),
        ("PolicyChanged", Fact::PolicyChanged { policy: Box::new(Policy::default()), by: AgentId(1) }),
    ]
}

/// The lifts that came later, each in a fact of its own.
fn later() -> [(&'static str, Fact); 2] {
    let met = Met { code: Code::TurnsSoft, limit: 20, current: 20, conv: None, grant: GrantId(4), extended: 0 };
    let lifts = vec![Lift::RearmRoom(RoomId(12))];
    let (escalation, by) = (EscalationId(2), AgentId(4));
    [
        ("EscalationLifts/room", Fact::EscalationLifts { escalation, met, lifts }),
        ("EscalationAnswered", Fact::EscalationAnswered { escalation, by, message: Seq(9) }),
    ]
}

fn prompts() -> [(&'static str, Fact); 11] {
    let agent = AgentId(7);
    [
        ("PromptTyped", Fact::PromptTyped { agent, by: AgentId(1) }),
        ("PromptEnded", Fact::PromptEnded { agent }),
        (
            "WorkedOutside",
            Fact::WorkedOutside(WorkedOutside {
                turn: TurnId(3),
                agent,
                grant: GrantId(2),
                spend: Spend { tokens: 900, cost_microusd: 5 },
            }),
        ),
        ("WaitsForUser", Fact::WaitsForUser { turn: TurnId(3), waits: true }),
        ("DisplayNameSet", Fact::DisplayNameSet { agent, display_name: DisplayName::new("研究员").ok() }),
        (
            "StepKept",
            Fact::StepKept(StepKept {
                task: TaskId(6),
                agent,
                key: RequestId::new("3.fetch").unwrap(),
                result: r#"{"rows":7}"#.into(),
            }),
        ),
        (
            "GrantTraced",
            Fact::GrantTraced {
                grant: GrantId(2),
                context: TraceContext { trace: [7; 16], parent: [9; 8], sampled: true },
            },
        ),
        ("ClaimBroken", Fact::ClaimBroken { claim: ClaimId(11), by: AgentId(1) }),
        ("Dismissed", Fact::Dismissed { task: TaskId(6), by: AgentId(1) }),
        ("LinkSet", Fact::LinkSet { conv: ConvId(4), until: Some(Time(9)), by: AgentId(1) }),
        (
            "LimitChanged",
            Fact::LimitChanged(LimitChanged { limit: "depth_max".into(), before: 5, value: 300, by: AgentId(1) }),
        ),
    ]
}

fn models() -> [(&'static str, Fact); 1] {
    let part = |model, tokens| ModelSpend {
        model: ModelName::new(model).unwrap(),
        spend: Spend { tokens, cost_microusd: 1_250_000 },
    };
    let models = vec![part("claude-sonnet-4-5", 3_584_982), part("é", 0)];
    [("SpentOn", Fact::SpentOn { turn: TurnId(8), agent: AgentId(7), models })]
}

fn edition() -> [(&'static str, Fact); 3] {
    let spend = Spend { tokens: 1_234, cost_microusd: 56 };
    let status = FinishStatus::Partial;
    [
        ("Forgot", Fact::Forgot { items: 300 }),
        ("Upgraded", Fact::Upgraded { edition: 2 }),
        ("TurnFinished", Fact::TurnFinished(TurnFinished { turn: TurnId(8), status, spend, said: u64::MAX })),
    ]
}

fn limits() -> [(&'static str, Fact); 7] {
    let agent = AgentId(7);
    let own = AgentLimits { pair_messages_max: 20, ack_ms: 86_400_000, ..AgentLimits::NONE };
    let spend = Spend { tokens: 50_000, cost_microusd: 0 };
    let refusal = Refusal::new(Code::ClaimHeld).about("hive");
    let (code, incident) = (Code::RootAllowance, IncidentId(5));
    [
        ("AgentLimited", Fact::AgentLimited { agent, limits: Box::new(own) }),
        ("AgentGranted", Fact::AgentGranted(AgentGranted { agent, by: AgentId(1), day: 19_675, spend })),
        ("AgentRested", Fact::AgentRested { agent, until: Some(Time(86_400_000)) }),
        (
            "WriteRefused",
            Fact::WriteRefused(WriteRefused { agent, turn: Some(TurnId(5)), write: WriteKind::Claim, refusal }),
        ),
        ("RefusalsSummed", Fact::RefusalsSummed { agent, code: Code::ApproverNotAllowed, count: 900 }),
        ("IncidentNoted", Fact::IncidentNoted(IncidentNoted { incident, agent, code, limit: 200, current: 202 })),
        ("GrantAged", Fact::GrantAged { grant: GrantId(9), percent: 80 }),
    ]
}

fn lifts() -> [(&'static str, Fact); 5] {
    let (grant, task, conv, by) = (GrantId(9), TaskId(6), ConvId(300), AgentId(1));
    let escalation = EscalationId(2);
    let met = Met { code: Code::DepthCap, limit: 5, current: 6, conv: Some(conv), grant, extended: 1 };
    let lifts = vec![
        Lift::Rounds(2),
        Lift::Messages(20),
        Lift::Turns(20),
        Lift::Requests(4),
        Lift::Agents(1),
        Lift::Tokens(50_000),
        Lift::CostMicroUsd(1),
        Lift::TimeMs(86_400_000),
        Lift::Rearm,
    ];
    [
        ("RoundsGranted", Fact::RoundsGranted(RoundsGranted { grant, task: Some(task), conv, by, rounds: 2 })),
        ("RequestsGranted", Fact::RequestsGranted { task, by, requests: 4 }),
        ("EscalationLifts", Fact::EscalationLifts { escalation, met, lifts }),
        ("LiftChosen", Fact::LiftChosen { escalation, lift: 1, by }),
        ("EscalationExpired", Fact::EscalationExpired { escalation }),
    ]
}

fn attendance() -> Vec<(&'static str, Fact)> {
    let (agent, by) = (AgentId(7), AgentId(1));
    let key = || Key { id: RequestId::new("once").unwrap(), fingerprint: 11 };
    let keyed = |name, made| (name, Fact::Keyed { agent, key: key(), made });
    vec![
        keyed("Keyed/escalation", Made::Escalation(EscalationId(2))),
        keyed("Keyed/approval", Made::Approval(ApprovalId(3))),
        keyed("Keyed/claim", Made::Claim(ClaimId(11))),
        keyed("Keyed/room", Made::Room(RoomId(12))),
        keyed("Keyed/agent", Made::Agent(agent)),
        ("AlertRaised", Fact::AlertRaised { message: Seq(300), agent, pushed: true }),
        ("ApprovalOffered", Fact::ApprovalOffered { approval: ApprovalId(3), to: vec![agent, AgentId(200)] }),
        ("HumanActed", Fact::HumanActed { by }),
        ("Unattended", Fact::Unattended { percent: 80 }),
        ("RoleSet", Fact::RoleSet { human: by, role: Role::Viewer }),
    ]
}

fn schedules() -> Vec<(&'static str, Fact)> {
    let (name, next_at) = (Label::new("nightly").unwrap(), Time(1_790_000_000_000));
    let schedule = Schedule {
        name: name.clone(),
        cron: "0 2 * * *".into(),
        time_zone: "Europe/Berlin".into(),
        to: Address::Name(AgentName::new("kilo").unwrap()),
        body: "run the tests".into(),
        reference: Some("RUN-{n}".into()),
    };
    let (grant, code) = (GrantId(4), Some(Code::Unattended));
    vec![
        ("ScheduleSet", Fact::ScheduleSet { by: AgentId(1), schedule: Box::new(schedule), next_at }),
        ("ScheduleRemoved", Fact::ScheduleRemoved { name: name.clone() }),
        ("ScheduleTicked", Fact::ScheduleTicked { name: name.clone(), grant, next_at: Some(next_at) }),
        ("ScheduleSkipped", Fact::ScheduleSkipped { name, code, next_at }),
    ]
}

fn tokens() -> Vec<(&'static str, Fact)> {
    let (agent, at) = (AgentId(7), Some(Time(1_790_000_000_000)));
    let rotated = |expires_at, former_until| {
        Fact::TokenRotated(TokenRotated { agent, credential: [1; 32], expires_at, former_until })
    };
    vec![("TokenRotated/expires", rotated(at, None)), ("TokenRotated/overlaps", rotated(at, at))]
}

fn accepted(kind: MessageType, part: Part) -> Fact {
    let key = Key { id: RequestId::new("req-0042").unwrap(), fingerprint: u64::MAX };
    let message = Message {
        from: AgentId(1),
        to: Recipient::One(AgentId(2)),
        kind,
        conv: ConvId(3),
        depth: 4,
        hops: 2,
        grant: Some(GrantId(5)),
        sender_task: Some(TaskId(6)),
        cause: Some(Seq(7)),
        in_reply_to: Some(Seq(8)),
        key: Some(key),
        action: Some(label("review_code")),
        payload: Some("{\"a\":1}".into()),
        body: "body".into(),
        metadata: Some("{}".into()),
        part,
    };
    Fact::Accepted { message: Box::new(message) }
}

fn terms() -> Terms {
    Terms {
        task: TaskId(6),
        request: RequestId::new("req-0001").unwrap(),
        priority: Priority::High,
        ack_ms: 30_000,
        deadline: Some(Time(9)),
        wait_until: None,
    }
}

fn answer() -> Answer {
    let base = Answer::outcome(TaskId(6), AnswerStatus::Partial, EndReason::Cancelled);
    Answer { reason: Some("why".into()), completed: texts(), failed: texts(), earlier: Some(Seq(3)), ..base }
}

fn extension() -> Extension {
    Extension { messages: 1, turns: 2, agents: 3, requests: 4, tokens: 5, cost_microusd: 6, time_ms: 7 }
}

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn reference() -> Ref {
    Ref::new("EDGA-1450/1").unwrap()
}

fn texts() -> Vec<Box<str>> {
    vec!["one".into(), "two".into()]
}

/// The defaults with which the sample was stored.
fn first_limits() -> Limits {
    Limits { grant_tokens_max: 200_000, agent_day_tokens_max: 2_000_000, ..Limits::default() }
}
