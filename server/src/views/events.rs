//! Facts as events for clients that watch the stream (H5).

use std::sync::Arc;

use lastword_core::state::Agent;
use lastword_core::{Principal, State};
use lastword_facts::fact::{
    AgentGranted, ApprovalAsked, ApprovalDecided, Area, Claimed, EscalationOpened, EventKind, GrantOpened,
    IncidentNoted, LatchSet, Latched, LimitChanged, ModelSpend, PostKeyed, Recipient, Refused, Registered, Requeued,
    RoundsGranted, SYSTEM, Scope, Spend, Stalled, StepKept, TokenRotated, TurnCharged, TurnClosed, TurnFinished,
    TurnOpened, WorkedOutside, WriteRefused,
};
use lastword_facts::ids::{AgentId, ConvId, GrantId, IncidentId, TaskId};
use lastword_facts::names::Ref;
use lastword_facts::stall::Curve;
use lastword_facts::{Code, Entry, Fact, Refusal, Seq};
use lastword_wire::{Event, rfc3339};
use serde_json::{Map, Value, json};

use super::incidents::counts_cost;
use super::messages::{Labels, label, may_read, stored};
use super::words;

/// The member that says that the numbers of an event are money, in millionths of a dollar.
const IS_COST: &str = "is_cost";

/// An event whose message has its names, but not its text yet.
pub struct EventDraft {
    event: Event,
    message: Option<(Arc<Entry>, Labels)>,
}

impl EventDraft {
    /// Completes the event with its message.
    pub fn finish(self) -> Event {
        let Self { mut event, message } = self;
        if let Some((entry, labels)) = message
            && let Fact::Accepted { message } = &entry.fact
        {
            event.message = Some(stored(Seq(event.seq), &entry, message, None, labels));
        }
        event
    }
}

/// Whom and what a fact concerns, by what it names and what the state knows of that.
struct Concerned {
    kind: EventKind,
    area: Area,
    agent: Option<AgentId>,
    conv: Option<ConvId>,
    task: Option<TaskId>,
    data: Data,
}

impl Concerned {
    fn by(state: &State, fact: &Fact) -> Self {
        let about = fact.about();
        // A refusal is told to who was refused, and not to those who share its turn's conversation.
        let turn = about.turn.filter(|_| !matches!(fact, Fact::Refused(_) | Fact::WriteRefused(_)));
        let known = turn.and_then(|turn| state.turns.get(&turn));
        let held = about.approval.and_then(|approval| state.approvals.get(&approval));
        let asked = about.escalation.and_then(|escalation| state.escalations.get(&escalation));
        let task = about.task.or(known.map(|turn| turn.task)).or_else(|| held?.task);
        let of_task = || Some(state.tasks.get(&task?)?.conv);
        let of_grant = || Some(state.grants.get(&about.grant?)?.conv);
        let agent = about.agent.or(known.map(|turn| turn.agent)).or(held.map(|held| held.agent));
        let room = about.room.and_then(|room| state.rooms.get(&room)).map(|room| room.name.to_string());
        let data = Data::default()
            .with_some("turn", turn.map(|turn| turn.to_string()))
            .with_some("approval", about.approval.map(|approval| approval.to_string()))
            .with_some("escalation", about.escalation.map(|escalation| escalation.to_string()))
            .with_some("room", room);
        Self {
            kind: about.kind,
            area: about.area,
            agent: agent.or(asked.map(|asked| asked.agent)),
            conv: about.conv.or_else(of_task).or(asked.map(|asked| asked.conv)).or_else(of_grant),
            task,
            data,
        }
    }
}

/// The members of an event that its kind has alone.
#[derive(Default)]
struct Data(Map<String, Value>);

impl Data {
    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.insert(name.to_owned(), value.into());
        self
    }

    fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    fn by(self, state: &State, by: AgentId) -> Self {
        self.with("by", state.name_of(by))
    }

    fn grant(self, grant: GrantId) -> Self {
        self.with("grant", grant.to_string())
    }

    fn tokens(self, spend: &Spend) -> Self {
        self.with("tokens", spend.tokens)
    }

    fn latched(self, on: Latched) -> Self {
        match on {
            Latched::Grant(grant) => self.grant(grant),
            Latched::Place(_) => self,
        }
    }

    /// Adds the reason of a refusal: the code, its rule and the numbers.
    fn refusal(self, refusal: &Refusal) -> Self {
        self.with("code", refusal.code.word())
            .with("rule", refusal.code.rule())
            .with_some("subject", refusal.subject.as_deref())
            .with_some(IS_COST, refusal.is_cost().then_some(true))
            .with_some("limit", refusal.limit)
            .with_some("current", refusal.current)
            .with_some("retry_after_ms", refusal.retry_after_ms)
    }

    /// Adds the incident of a limit that tripped, with its numbers.
    fn met(self, state: &State, incident: IncidentId, code: Code, limit: u64, current: u64) -> Self {
        let data = self.with("incident", incident.to_string()).with("code", code.word());
        let data = data.with_some(IS_COST, counts_cost(state, incident).then_some(true));
        data.with("limit", limit).with("current", current)
    }

    /// Adds the numbers of an exchange that makes no progress (R5).
    fn curve(self, curve: Curve) -> Self {
        let Curve { messages, dry, units, context, read_again } = curve;
        self.with("messages", messages)
            .with("dry", dry)
            .with("units", units)
            .with("context", context)
            .with("read_again", read_again)
    }
}

/// Returns the event of a fact; `None` if `who` is an agent that it doesn't concern.
pub fn event(state: &State, who: Principal, seq: Seq, entry: &Arc<Entry>) -> Option<EventDraft> {
    let Concerned { kind, agent, conv, task, data, .. } = Concerned::by(state, &entry.fact);
    let message = if let Fact::Accepted { message } = &entry.fact { Some(message) } else { None };
    let concerned = agent == Some(who.agent())
        || message.is_some_and(|message| may_read(state, who, message))
        || conv.and_then(|c| state.conversations.get(&c)).is_some_and(|c| c.has_part(who.agent()));
    if !concerned && !who.is_human() {
        return None;
    }
    let task = task.and_then(|task| state.tasks.get(&task));
    let event = Event {
        seq: seq.0,
        kind: kind.word().to_owned(),
        at: rfc3339(entry.at),
        agent: agent.map(|agent| state.name_of(agent).to_owned()),
        reference: conv.and_then(|conv| state.ref_of(conv)).map(ToString::to_string),
        request_id: task.and_then(|task| task.request.as_ref()).map(|request| request.id.to_string()),
        message: None,
        data: detailed(data, state, &entry.fact).0,
    };
    let message = message.map(|message| (Arc::clone(entry), label(state, seq, message).read_by(who)));
    Some(EventDraft { event, message })
}

/// Adds what the fact says beside what it is about. Every fact is named, so that a new one must say so.
#[expect(clippy::too_many_lines, reason = "a few lines a fact")]
fn detailed(data: Data, state: &State, fact: &Fact) -> Data {
    match fact {
        Fact::Registered(Registered { kind, incarnation, .. }) => {
            data.with("kind", kind.word()).with("incarnation", *incarnation)
        }
        Fact::TokenRotated(TokenRotated { expires_at, former_until, .. }) => {
            data.with_some("expires_at", expires_at.map(rfc3339)).with_some("former_until", former_until.map(rfc3339))
        }
        Fact::RoleSet { role, .. } => data.with("role", role.word()),
        Fact::DisplayNameSet { display_name, .. } => {
            data.with("display_name", display_name.as_ref().map_or("", |name| name.as_str()))
        }
        Fact::AgentLimited { limits, .. } => {
            let set = limits.values().into_iter().filter(|(_, value)| *value > 0);
            set.fold(data, |data, (name, value)| data.with(name, value))
        }
        Fact::AgentGranted(AgentGranted { by, spend, .. }) => data.by(state, *by).tokens(spend),
        Fact::PromptTyped { by, .. }
        | Fact::Rearmed { by, .. }
        | Fact::EscalationNoted { by, .. }
        | Fact::EscalationAnswered { by, .. } => data.by(state, *by),
        Fact::Unattended { percent } => data.with("percent", *percent),
        Fact::Keyed { key, .. } | Fact::EscalationKeyed { key, .. } => data.with("key", key.id.as_str()),
        Fact::Noticed { through, .. } => data.with("through", through.0),
        Fact::NoticeRead { message, .. } | Fact::Joined { message, .. } | Fact::Collected { message, .. } => {
            data.with("message", message.to_string())
        }

        Fact::LimitChanged(LimitChanged { limit, before, value, by }) => {
            data.by(state, *by).with("limit", &**limit).with("before", *before).with("value", *value)
        }
        Fact::PolicyChanged { policy, by } => data.by(state, *by).with("rules", policy.rules.len() as u64),
        Fact::Upgraded { edition } => data.with("edition", *edition),
        Fact::EpochBegan { .. } => data.with("epoch", state.epochs.current() as u64),
        Fact::Forgot { items } => data.with("items", *items),
        Fact::Idled { ms, by } => data.with("ms", *ms).with_some("by", by.map(|by| state.name_of(by))),
        Fact::Controlled { scope, control, by } => data
            .with("control", control.word())
            .by(state, *by)
            .with_some("scope", matches!(scope, Scope::Workspace).then_some("workspace")),

        Fact::Heard { agent_messages, .. } => data.with("agent_messages", *agent_messages),
        Fact::Warned { crossing, agent_messages, .. } => {
            data.with("crossing", crossing.word()).with("agent_messages", *agent_messages)
        }
        Fact::Refused(Refused { kind, to, reference, refusal, .. }) => data
            .refusal(refusal)
            .with("type", kind.word())
            .with("to", to.to_string())
            .with_some("ref", reference.as_ref().map(Ref::as_str)),
        Fact::Observed { refusal, .. } => data.refusal(refusal),
        Fact::WriteRefused(WriteRefused { write, refusal, .. }) => data.refusal(refusal).with("write", write.word()),
        Fact::RefusalsSummed { code, count, .. } => data.with("code", code.word()).with("count", *count),
        Fact::Stalled(Stalled { agent, level, stall, enforced, curve, escalation, .. }) => data
            .with("delegate", state.name_of(*agent))
            .with("level", level.word())
            .with("stall", stall.word())
            .with("enforced", *enforced)
            .curve(*curve)
            .with_some("escalation", escalation.map(|escalation| escalation.to_string())),
        Fact::LatchSet(LatchSet { incident, on, code, limit, current }) => {
            data.latched(*on).met(state, *incident, *code, *limit, *current)
        }
        Fact::LatchLifted { on, by } => data.latched(*on).by(state, *by),
        Fact::IncidentNoted(IncidentNoted { incident, code, limit, current, .. }) => {
            data.met(state, *incident, *code, *limit, *current)
        }

        Fact::GrantOpened(GrantOpened { grant, .. }) => data.grant(*grant),
        Fact::GrantTraced { grant, context } => data.grant(*grant).with("traceparent", context.to_string()),
        Fact::GrantExtended { grant, by, .. } => data.grant(*grant).by(state, *by),
        Fact::GrantClosed { grant, end } => data.grant(*grant).with("end", end.word()),
        Fact::GrantAged { grant, percent } | Fact::BudgetWarned { grant, percent, .. } => {
            data.grant(*grant).with("percent", *percent)
        }
        Fact::RoundsGranted(RoundsGranted { by, rounds, .. }) => data.by(state, *by).with("rounds", *rounds),
        Fact::RequestsGranted { by, requests, .. } => data.by(state, *by).with("requests", *requests),

        Fact::RootEnded { status, .. } => data.with("status", status.word()),
        Fact::AlertRaised { message, pushed, .. } => data.with("message", message.to_string()).with("pushed", *pushed),
        Fact::TurnOpened(TurnOpened { attempt, message, .. }) => {
            data.with("attempt", *attempt).with("message", message.to_string())
        }
        Fact::WaitsForUser { waits, .. } => data.with("waits", *waits),
        Fact::StepKept(StepKept { key, .. }) => data.with("key", key.as_str()),
        Fact::TurnFinished(TurnFinished { spend, .. }) => data.with("end", "finished").tokens(spend),
        Fact::TurnCharged(TurnCharged { spend, estimated, .. }) => {
            data.with("end", "finished").tokens(spend).with("estimated", *estimated)
        }
        Fact::TurnClosed(TurnClosed { end, spend, .. }) => {
            data.with("end", end.word()).tokens(spend).with("estimated", true)
        }
        Fact::Spent { spend, .. } | Fact::WorkedOutside(WorkedOutside { spend, .. }) => data.tokens(spend),
        Fact::SpentOn { models, .. } => {
            let part = |part: &ModelSpend| {
                json!({
                    "model": part.model.as_str(),
                    "tokens": part.spend.tokens,
                    "cost_microusd": part.spend.cost_microusd,
                })
            };
            data.with("models", models.iter().map(part).collect::<Vec<_>>())
        }
        Fact::EscalationOpened(EscalationOpened { task, cause, body, .. }) => {
            data.with("body", words::question(state, *task, *cause, body, None))
        }
        Fact::Late { body, .. } | Fact::Posted { body, .. } => data.with("body", &**body),
        Fact::Requeued(Requeued { why, .. }) => data.with("why", why.word()),

        Fact::EscalationLifts { met, lifts, .. } => {
            let lifts: Vec<String> = lifts.iter().map(|lift| words::lift(state, *lift)).collect();
            data.with("code", met.code.word()).with("lifts", lifts)
        }
        Fact::Dismissed { task, by } => {
            let request = state.tasks.get(task).and_then(|task| task.request.as_ref());
            data.with_some("request", request.map(|request| request.id.as_str())).by(state, *by)
        }
        Fact::LinkSet { until, by, .. } => data.with_some("until", until.map(rfc3339)).by(state, *by),
        Fact::LiftChosen { lift, by, .. } => data.with("lift", format!("lift-{lift}")).by(state, *by),
        Fact::ApprovalAsked(ApprovalAsked { tool, .. }) => data.with("tool", &**tool),
        Fact::ApprovalRuled { rule, .. } => data.with("rule", rule.call.to_string()).with("ruling", rule.ruling.word()),
        Fact::ApprovalOffered { to, .. } => {
            let names: Vec<&str> = to.iter().map(|to| state.name_of(*to)).collect();
            data.with("to", names)
        }
        Fact::ApprovalDecided(ApprovalDecided { decision, by, .. }) => {
            let by = by.map_or("nobody", |by| if by == SYSTEM { "policy" } else { state.name_of(by) });
            data.with("decision", decision.word()).with("by", by)
        }

        Fact::Claimed(Claimed { claim, resource, .. }) => {
            data.with("claim", claim.to_string()).with("resource", resource.as_str())
        }
        Fact::Released { claim } | Fact::ClaimBroken { claim, .. } => data.with("claim", claim.to_string()),
        Fact::RoomOpened { name, .. } => data.with("room", name.as_str()),
        Fact::PostKeyed(PostKeyed { key, admitted, .. }) => {
            data.with("key", key.id.as_str()).with("admitted", *admitted)
        }

        Fact::ScheduleSet { schedule, .. } => data.with("schedule", schedule.name.as_str()),
        Fact::ScheduleRemoved { name } => data.with("schedule", name.as_str()),
        Fact::ScheduleTicked { name, grant, .. } => data.grant(*grant).with("schedule", name.as_str()),
        Fact::ScheduleSkipped { name, code, .. } => {
            data.with("schedule", name.as_str()).with("why", code.map_or("still_open", Code::word))
        }

        Fact::Configured { .. }
        | Fact::PolicyConfigured { .. }
        | Fact::Amended { .. }
        | Fact::Rekeyed { .. }
        | Fact::Removed { .. }
        | Fact::AgentRested { .. }
        | Fact::HumanActed { .. }
        | Fact::PromptEnded { .. }
        | Fact::ConversationOpened(_)
        | Fact::RootStarted(_)
        | Fact::Accepted { .. }
        | Fact::Renewed { .. }
        | Fact::SessionBegan { .. }
        | Fact::EscalationExpired { .. }
        | Fact::ApprovalUsed { .. } => data,
    }
}

/// Returns the area that a fact changes, and the conversation that it concerns.
pub fn subject(state: &State, fact: &Fact) -> (Area, Option<ConvId>) {
    let Concerned { area, conv, .. } = Concerned::by(state, fact);
    if let Fact::Refused(Refused { turn, reference, .. }) = fact {
        let of_turn = || Some(state.tasks.get(&state.turns.get(&(*turn)?)?.task)?.conv);
        return (area, of_turn().or_else(|| state.conv_of(reference.as_ref()?.as_str())));
    }
    // A human's answer settles an escalation, and a message to a human changes the inbox.
    let of_human =
        matches!(fact, Fact::Accepted { message } if is_human(state, message.from) || to_human(state, message.to));
    (if of_human { Area::Desk } else { area }, conv)
}

fn is_human(state: &State, agent: AgentId) -> bool {
    state.agent(agent).is_some_and(Agent::is_human)
}

fn to_human(state: &State, to: Recipient) -> bool {
    match to {
        Recipient::One(agent) => is_human(state, agent),
        Recipient::All => false,
    }
}
