//! Facts as events for clients that watch the stream (H5).

use std::sync::Arc;

use lastword_proto::fact::{Latched, ModelSpend, Place, Recipient, SYSTEM, Scope};
use lastword_proto::ids::{AgentId, ApprovalId, ConvId, EscalationId, GrantId, IncidentId, TaskId, TurnId};
use lastword_proto::progress::Curve;
use lastword_proto::state::Agent;
use lastword_proto::wire::{Event, rfc3339};
use lastword_proto::{Code, Entry, Fact, Principal, Refusal, Seq, State};
use serde_json::{Map, Value, json};

use super::incidents::counts_cost;
use super::messages::{Labels, label, may_read, stored};

/// The member that says that the numbers of an event are money, in millionths of a dollar.
const IS_COST: &str = "is_cost";

/// An event whose message has its names, but not its text yet.
pub(crate) struct EventDraft {
    event: Event,
    message: Option<(Arc<Entry>, Labels)>,
}

impl EventDraft {
    /// Completes the event with its message.
    pub(crate) fn finish(self) -> Event {
        let Self { mut event, message } = self;
        if let Some((entry, labels)) = message
            && let Fact::Accepted { message } = &entry.fact
        {
            event.message = Some(stored(Seq(event.seq), &entry, message, None, labels));
        }
        event
    }
}

/// What a fact concerns; fields that don't apply are `None`.
#[derive(Default)]
struct About {
    kind: &'static str,
    agent: Option<AgentId>,
    conv: Option<ConvId>,
    task: Option<TaskId>,
    data: Map<String, Value>,
}

impl About {
    fn new(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }

    const fn agent(mut self, agent: AgentId) -> Self {
        self.agent = Some(agent);
        self
    }

    const fn conv(mut self, conv: ConvId) -> Self {
        self.conv = Some(conv);
        self
    }

    const fn task(mut self, task: TaskId) -> Self {
        self.task = Some(task);
        self
    }

    fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.data.insert(name.to_owned(), value.into());
        self
    }

    /// Adds the reason of a refusal: the code, its rule and the numbers.
    fn refusal(self, refusal: &Refusal) -> Self {
        let mut about = self.with("code", refusal.code.word()).with("rule", refusal.code.rule());
        if let Some(subject) = &refusal.subject {
            about = about.with("subject", &**subject);
        }
        if refusal.is_cost() {
            about = about.with(IS_COST, true);
        }
        let numbers =
            [("limit", refusal.limit), ("current", refusal.current), ("retry_after_ms", refusal.retry_after_ms)];
        numbers
            .into_iter()
            .filter_map(|(name, number)| Some((name, number?)))
            .fold(about, |about, (name, number)| about.with(name, number))
    }

    /// Adds the incident of a limit that tripped, with its numbers.
    fn met(self, state: &State, (incident, code): (IncidentId, Code), (limit, current): (u64, u64)) -> Self {
        let about = self.with("incident", incident.to_string()).with("code", code.word());
        let about = if counts_cost(state, incident) { about.with(IS_COST, true) } else { about };
        about.with("limit", limit).with("current", current)
    }

    fn turn(self, state: &State, turn: TurnId) -> Self {
        let about = self.with("turn", turn.to_string());
        match state.turns.get(&turn) {
            Some(known) => about.agent(known.agent).task(known.task),
            None => about,
        }
    }

    fn grant(self, state: &State, grant: GrantId) -> Self {
        let about = self.with("grant", grant.to_string());
        match state.grants.get(&grant) {
            Some(known) => about.conv(known.conv),
            None => about,
        }
    }

    fn place(self, state: &State, place: Place) -> Self {
        match place {
            Place::Conversation(conv) => self.conv(conv),
            Place::Room(room) => match state.rooms.get(&room) {
                Some(known) => self.with("room", known.name.as_str()),
                None => self,
            },
        }
    }
}

/// Returns the event of a fact; `None` if `who` is an agent that it doesn't concern.
pub(crate) fn event(state: &State, who: Principal, seq: Seq, entry: &Arc<Entry>) -> Option<EventDraft> {
    let mut about = about(state, &entry.fact);
    let task = about.task.and_then(|task| state.tasks.get(&task));
    if let Some(task) = task {
        about.conv = about.conv.or(Some(task.conv));
    }
    let message = if let Fact::Accepted { message } = &entry.fact { Some(message) } else { None };
    let concerned = about.agent == Some(who.agent())
        || message.is_some_and(|message| may_read(state, who, message))
        || about.conv.and_then(|c| state.conversations.get(&c)).is_some_and(|c| c.has_part(who.agent()));
    if !concerned && !who.is_human() {
        return None;
    }
    let event = Event {
        seq: seq.0,
        kind: about.kind.to_owned(),
        at: rfc3339(entry.at),
        agent: about.agent.map(|agent| state.name_of(agent).to_owned()),
        reference: about.conv.and_then(|conv| state.ref_of(conv)).map(ToString::to_string),
        request_id: task.and_then(|task| task.request.as_ref()).map(|request| request.id.to_string()),
        message: None,
        data: about.data,
    };
    let message = message.map(|message| (Arc::clone(entry), label(state, seq, message)));
    Some(EventDraft { event, message })
}

fn about(state: &State, fact: &Fact) -> About {
    about_people(state, fact)
        .or_else(|| about_work(state, fact))
        .or_else(|| about_desk(state, fact))
        .or_else(|| about_lifts(state, fact))
        .or_else(|| about_schedules(state, fact))
        .unwrap_or_else(|| About::new("configured"))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the functions below match the other facts")]
fn about_people(state: &State, fact: &Fact) -> Option<About> {
    Some(match fact {
        Fact::Registered { agent, kind, incarnation, .. } => {
            About::new("registered").agent(*agent).with("kind", kind.word()).with("incarnation", *incarnation)
        }
        Fact::Amended { agent, .. } => About::new("amended").agent(*agent),
        Fact::Rekeyed { agent, .. } => About::new("rekeyed").agent(*agent),
        Fact::TokenRotated { agent, expires_at, former_until, .. } => {
            let times = [("expires_at", expires_at), ("former_until", former_until)];
            let known = times.into_iter().filter_map(|(name, at)| Some((name, rfc3339((*at)?))));
            known.fold(About::new("rekeyed").agent(*agent), |about, (name, at)| about.with(name, at))
        }
        Fact::Removed { agent } => About::new("removed").agent(*agent),
        Fact::Heard { agent, place, agent_messages } => {
            About::new("heard").agent(*agent).place(state, *place).with("agent_messages", *agent_messages)
        }
        Fact::Warned { place, crossing, agent_messages } => About::new("warned")
            .place(state, *place)
            .with("crossing", crossing.word())
            .with("agent_messages", *agent_messages),
        Fact::Refused { agent, kind, to, reference, refusal, .. } => {
            let about = About::new("refused").agent(*agent).refusal(refusal);
            let about = about.with("type", kind.word()).with("to", to.to_string());
            match reference {
                Some(reference) => about.with("ref", reference.as_str()),
                None => about,
            }
        }
        Fact::Observed { agent, refusal } => About::new("observed").agent(*agent).refusal(refusal),
        Fact::NoticeRead { agent, message } => {
            About::new("notice_read").agent(*agent).with("message", message.to_string())
        }
        Fact::Noticed { agent, through } => About::new("noticed").agent(*agent).with("through", through.0),
        Fact::Controlled { scope, control, by } => {
            let about = About::new("controlled").with("control", control.word()).with("by", state.name_of(*by));
            match scope {
                Scope::Workspace => about.with("scope", "workspace"),
                Scope::Agent(agent) => about.agent(*agent),
                Scope::Conversation(conv) => about.conv(*conv),
            }
        }
        Fact::RoomOpened { name, .. } => About::new("room_opened").with("room", name.as_str()),
        Fact::Posted { room, from, body } => {
            let about = About::new("posted").agent(*from).with("body", &**body);
            about.place(state, Place::Room(*room))
        }
        Fact::PostKeyed { room, agent, key, admitted } => {
            let about = About::new("post_keyed").agent(*agent).place(state, Place::Room(*room));
            about.with("key", key.id.as_str()).with("admitted", *admitted)
        }
        Fact::Rearmed { conv, by } => About::new("rearmed").conv(*conv).with("by", state.name_of(*by)),
        Fact::PolicyChanged { policy, by } => {
            let about = About::new("policy_changed").with("by", state.name_of(*by));
            about.with("rules", policy.rules.len() as u64)
        }
        Fact::Idled { ms, by } => {
            let about = About::new("idled").with("ms", *ms);
            match by {
                Some(by) => about.with("by", state.name_of(*by)),
                None => about,
            }
        }
        _ => return None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the functions beside it match the other facts")]
fn about_work(state: &State, fact: &Fact) -> Option<About> {
    Some(match fact {
        Fact::GrantOpened { grant, giver, conv, .. } => {
            About::new("grant_opened").agent(*giver).conv(*conv).with("grant", grant.to_string())
        }
        Fact::GrantExtended { grant, by, .. } => {
            About::new("grant_extended").grant(state, *grant).with("by", state.name_of(*by))
        }
        Fact::GrantClosed { grant, end } => About::new("grant_closed").grant(state, *grant).with("end", end.word()),
        Fact::ConversationOpened { conv, opener, .. } => About::new("conversation_opened").conv(*conv).agent(*opener),
        Fact::RootStarted { task, agent, conv, .. } => About::new("root_started").agent(*agent).conv(*conv).task(*task),
        Fact::RootEnded { task, status } => About::new("root_ended").task(*task).with("status", status.word()),
        Fact::Accepted { message } => About::new("accepted").agent(message.from).conv(message.conv),
        Fact::TurnOpened { turn, attempt, message, .. } => {
            let about = About::new("turn_opened").turn(state, *turn).with("attempt", *attempt);
            about.with("message", message.to_string())
        }
        Fact::Joined { turn, message, .. } => {
            About::new("joined").turn(state, *turn).with("message", message.to_string())
        }
        Fact::Collected { task, message } => About::new("collected").task(*task).with("message", message.to_string()),
        Fact::Renewed { turn, .. } => About::new("renewed").turn(state, *turn),
        Fact::WaitsForUser { turn, waits } => About::new("waits_for_user").turn(state, *turn).with("waits", *waits),
        Fact::TurnFinished { turn, spend, .. } => {
            let about = About::new("turn_closed").turn(state, *turn);
            about.with("end", "finished").with("tokens", spend.tokens)
        }
        Fact::TurnCharged { turn, spend, estimated, .. } => {
            let about = About::new("turn_closed").turn(state, *turn);
            about.with("end", "finished").with("tokens", spend.tokens).with("estimated", *estimated)
        }
        Fact::WorkedOutside { turn, spend, .. } => {
            About::new("worked_outside").turn(state, *turn).with("tokens", spend.tokens)
        }
        Fact::Spent { turn, spend } => About::new("spent").turn(state, *turn).with("tokens", spend.tokens),
        Fact::SpentOn { turn, models, .. } => {
            let part = |part: &ModelSpend| {
                json!({
                    "model": part.model.as_str(),
                    "tokens": part.spend.tokens,
                    "cost_microusd": part.spend.cost_microusd,
                })
            };
            About::new("spent_on").turn(state, *turn).with("models", models.iter().map(part).collect::<Vec<_>>())
        }
        Fact::TurnClosed { turn, end, spend, .. } => {
            let about = About::new("turn_closed").turn(state, *turn);
            about.with("end", end.word()).with("tokens", spend.tokens).with("estimated", true)
        }
        Fact::Late { turn, body, .. } => About::new("late").turn(state, *turn).with("body", &**body),
        Fact::Requeued { task, agent, why, .. } => {
            About::new("requeued").task(*task).agent(*agent).with("why", why.word())
        }
        _ => return None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the functions beside it match the other facts")]
fn about_desk(state: &State, fact: &Fact) -> Option<About> {
    Some(match fact {
        Fact::BudgetWarned { grant, agent, percent } => {
            About::new("budget_warned").grant(state, *grant).agent(*agent).with("percent", *percent)
        }
        Fact::LatchSet { incident, on, code, limit, current } => {
            latch(state, About::new("latch_set"), *on).met(state, (*incident, *code), (*limit, *current))
        }
        Fact::LatchLifted { on, by } => latch(state, About::new("latch_lifted"), *on).with("by", state.name_of(*by)),
        Fact::EscalationOpened { escalation, agent, conv, body, .. } => {
            let about = About::new("escalation_opened").agent(*agent).conv(*conv);
            about.with("escalation", escalation.to_string()).with("body", &**body)
        }
        Fact::EscalationNoted { escalation, by, .. } | Fact::EscalationAnswered { escalation, by, .. } => {
            of_escalation(state, *escalation, *by)
        }
        Fact::ApprovalAsked { approval, agent, tool, .. } => {
            let about = of_approval(state, About::new("approval_asked"), *approval);
            about.agent(*agent).with("tool", &**tool)
        }
        Fact::ApprovalRuled { approval, rule } => {
            let about = of_approval(state, About::new("approval_ruled"), *approval);
            about.with("rule", rule.call.to_string()).with("ruling", rule.ruling.word())
        }
        Fact::ApprovalDecided { approval, decision, by, .. } => {
            let by = by.map_or("nobody", |by| if by == SYSTEM { "policy" } else { state.name_of(by) });
            let about = of_approval(state, About::new("approval_decided"), *approval);
            about.with("decision", decision.word()).with("by", by)
        }
        Fact::ApprovalUsed { approval } => of_approval(state, About::new("approval_used"), *approval),
        Fact::Claimed { claim, agent, resource, .. } => {
            let about = About::new("claimed").agent(*agent).with("claim", claim.to_string());
            about.with("resource", resource.as_str())
        }
        Fact::Released { claim } => About::new("released").with("claim", claim.to_string()),
        _ => return None,
    })
}

fn stalled(state: &State, fact: &Fact) -> Option<About> {
    let Fact::Stalled { task, agent, conv, level, stall, enforced, curve, escalation } = fact else { return None };
    let Curve { messages, dry, units, context, read_again } = *curve;
    let about = About::new("stalled").task(*task).conv(*conv).with("delegate", state.name_of(*agent));
    let about = about.with("level", level.word()).with("stall", stall.word()).with("enforced", *enforced);
    let about = about.with("messages", messages).with("dry", dry).with("units", units);
    let about = about.with("context", context).with("read_again", read_again);
    Some(match escalation {
        Some(escalation) => about.with("escalation", escalation.to_string()),
        None => about,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the functions beside it match the other facts")]
fn about_lifts(state: &State, fact: &Fact) -> Option<About> {
    Some(match fact {
        Fact::WriteRefused { agent, write, refusal, .. } => {
            About::new("write_refused").agent(*agent).refusal(refusal).with("write", write.word())
        }
        Fact::RefusalsSummed { agent, code, count } => {
            About::new("refusals_summed").agent(*agent).with("code", code.word()).with("count", *count)
        }
        Fact::IncidentNoted { incident, agent, code, limit, current } => {
            About::new("incident_noted").agent(*agent).met(state, (*incident, *code), (*limit, *current))
        }
        Fact::AgentLimited { agent, limits } => limits
            .values()
            .iter()
            .filter(|(_, value)| *value > 0)
            .fold(About::new("agent_limited").agent(*agent), |about, (name, value)| about.with(name, *value)),
        Fact::AgentGranted { agent, by, spend, .. } => {
            let about = About::new("agent_granted").agent(*agent).with("by", state.name_of(*by));
            about.with("tokens", spend.tokens)
        }
        Fact::AgentRested { agent, until } => {
            About::new(if until.is_some() { "agent_rests" } else { "agent_goes_on" }).agent(*agent)
        }
        Fact::GrantAged { grant, percent } => About::new("grant_aged").grant(state, *grant).with("percent", *percent),
        Fact::RoundsGranted { conv, by, rounds, .. } => {
            let about = About::new("rounds_granted").conv(*conv).with("by", state.name_of(*by));
            about.with("rounds", *rounds)
        }
        Fact::RequestsGranted { task, by, requests } => {
            let about = About::new("requests_granted").task(*task).with("by", state.name_of(*by));
            about.with("requests", *requests)
        }
        Fact::EscalationLifts { escalation, met, lifts } => {
            let lifts: Vec<String> = lifts.iter().map(|lift| state.lift_words(*lift)).collect();
            let about = About::new("escalation_lifts").with("escalation", escalation.to_string());
            about.with("code", met.code.word()).with("lifts", lifts)
        }
        Fact::Stalled { .. } => stalled(state, fact)?,
        Fact::SessionBegan { task } => About::new("session_began").task(*task),
        Fact::LiftChosen { escalation, lift, by } => {
            let about = About::new("lift_chosen").with("escalation", escalation.to_string());
            about.with("lift", format!("lift-{lift}")).with("by", state.name_of(*by))
        }
        Fact::EscalationExpired { escalation } => {
            About::new("escalation_expired").with("escalation", escalation.to_string())
        }
        Fact::AlertRaised { agent, message, pushed } => {
            let about = About::new("alert_raised").agent(*agent).with("message", message.to_string());
            about.with("pushed", *pushed)
        }
        Fact::ApprovalOffered { approval, to } => {
            let names: Vec<&str> = to.iter().map(|to| state.name_of(*to)).collect();
            of_approval(state, About::new("approval_offered"), *approval).with("to", names)
        }
        Fact::HumanActed { by } => About::new("human_acted").agent(*by),
        Fact::PromptTyped { agent, by } => About::new("prompt_typed").agent(*agent).with("by", state.name_of(*by)),
        Fact::PromptEnded { agent } => About::new("prompt_ended").agent(*agent),
        Fact::Unattended { percent } => About::new("unattended").with("percent", *percent),
        Fact::RoleSet { human, role } => About::new("role_set").agent(*human).with("role", role.word()),
        Fact::Keyed { agent, key, .. } => About::new("keyed").agent(*agent).with("key", key.id.as_str()),
        Fact::Forgot { items } => About::new("forgot").with("items", *items),
        Fact::EpochBegan { .. } => About::new("epoch_began").with("epoch", state.epochs.current() as u64),
        Fact::Upgraded { edition } => About::new("upgraded").with("edition", *edition),
        _ => return None,
    })
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the functions beside it match the other facts")]
fn about_schedules(state: &State, fact: &Fact) -> Option<About> {
    Some(match fact {
        Fact::ScheduleSet { by, schedule, .. } => {
            About::new("schedule_set").agent(*by).with("schedule", schedule.name.as_str())
        }
        Fact::ScheduleRemoved { name } => About::new("schedule_removed").with("schedule", name.as_str()),
        Fact::ScheduleTicked { name, grant, .. } => {
            About::new("schedule_ticked").grant(state, *grant).with("schedule", name.as_str())
        }
        Fact::ScheduleSkipped { name, code, .. } => {
            let why = code.map_or("still_open", lastword_proto::Code::word);
            About::new("schedule_skipped").with("schedule", name.as_str()).with("why", why)
        }
        _ => return None,
    })
}

fn latch(state: &State, about: About, on: Latched) -> About {
    match on {
        Latched::Grant(grant) => about.grant(state, grant),
        Latched::Place(place) => about.place(state, place),
    }
}

fn of_escalation(state: &State, id: EscalationId, by: AgentId) -> About {
    let about = About::new("escalation_noted").with("escalation", id.to_string()).with("by", state.name_of(by));
    match state.escalations.get(&id) {
        Some(known) => about.agent(known.agent).conv(known.conv),
        None => about,
    }
}

fn of_approval(state: &State, about: About, id: ApprovalId) -> About {
    let about = about.with("approval", id.to_string());
    match state.approvals.get(&id) {
        Some(known) => match known.task {
            Some(task) => about.agent(known.agent).task(task),
            None => about.agent(known.agent),
        },
        None => about,
    }
}

/// The area that a fact changes, by which open pages know what to reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
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

/// Returns the area that a fact changes, and the conversation that it concerns.
pub(crate) fn subject(state: &State, fact: &Fact) -> (Subject, Option<ConvId>) {
    let about = about(state, fact);
    let task = about.task.and_then(|task| state.tasks.get(&task));
    let refused = if let Fact::Refused { turn, reference, .. } = fact {
        let task = turn.and_then(|turn| state.turns.get(&turn)).and_then(|turn| state.tasks.get(&turn.task));
        let named = reference.as_ref().and_then(|reference| state.conv_of(reference.as_str()));
        task.map(|task| task.conv).or(named)
    } else {
        None
    };
    let conv = about.conv.or(task.map(|task| task.conv)).or(refused);
    (subject_of(state, fact), conv)
}

#[expect(clippy::too_many_lines, reason = "every fact is named, so that a new one must state its subject")]
fn subject_of(state: &State, fact: &Fact) -> Subject {
    match fact {
        Fact::ScheduleSet { .. }
        | Fact::ScheduleRemoved { .. }
        | Fact::ScheduleTicked { .. }
        | Fact::ScheduleSkipped { .. } => Subject::Settings,
        Fact::Configured { .. } | Fact::PolicyConfigured { .. } | Fact::PolicyChanged { .. } => Subject::Settings,
        Fact::Upgraded { .. } | Fact::EpochBegan { .. } | Fact::Forgot { .. } => Subject::Settings,
        Fact::Registered { .. }
        | Fact::Amended { .. }
        | Fact::Rekeyed { .. }
        | Fact::TokenRotated { .. }
        | Fact::Removed { .. }
        | Fact::AgentLimited { .. }
        | Fact::AgentGranted { .. }
        | Fact::AgentRested { .. }
        | Fact::HumanActed { .. }
        | Fact::Keyed { .. }
        | Fact::RoleSet { .. } => Subject::People,
        Fact::Noticed { .. } | Fact::NoticeRead { .. } => Subject::Notices,
        Fact::Controlled { .. } | Fact::Idled { .. } => Subject::Control,
        Fact::LatchSet { .. } | Fact::LatchLifted { .. } | Fact::IncidentNoted { .. } | Fact::Unattended { .. } => {
            Subject::Incidents
        }
        Fact::RoomOpened { .. }
        | Fact::Posted { .. }
        | Fact::PostKeyed { .. }
        | Fact::Claimed { .. }
        | Fact::Released { .. } => Subject::Rooms,
        Fact::EscalationOpened { .. }
        | Fact::EscalationNoted { .. }
        | Fact::EscalationAnswered { .. }
        | Fact::EscalationKeyed { .. }
        | Fact::EscalationLifts { .. }
        | Fact::LiftChosen { .. }
        | Fact::EscalationExpired { .. }
        | Fact::AlertRaised { .. }
        | Fact::GrantAged { .. }
        | Fact::ApprovalOffered { .. }
        | Fact::ApprovalAsked { .. }
        | Fact::ApprovalRuled { .. }
        | Fact::ApprovalDecided { .. }
        | Fact::ApprovalUsed { .. } => Subject::Desk,
        // A human's answer settles an escalation, and a message to a human changes the inbox.
        Fact::Accepted { message } if is_human(state, message.from) || to_human(state, message.to) => Subject::Desk,
        Fact::Observed { .. } | Fact::Stalled { .. } | Fact::SessionBegan { .. } => Subject::Work,
        Fact::PromptTyped { .. } | Fact::PromptEnded { .. } => Subject::Work,
        Fact::TurnCharged { .. } | Fact::Spent { .. } | Fact::SpentOn { .. } | Fact::WorkedOutside { .. } => {
            Subject::Work
        }
        Fact::Accepted { .. }
        | Fact::Heard { .. }
        | Fact::Warned { .. }
        | Fact::Refused { .. }
        | Fact::GrantOpened { .. }
        | Fact::GrantExtended { .. }
        | Fact::GrantClosed { .. }
        | Fact::ConversationOpened { .. }
        | Fact::RootStarted { .. }
        | Fact::RootEnded { .. }
        | Fact::TurnOpened { .. }
        | Fact::Joined { .. }
        | Fact::Collected { .. }
        | Fact::Renewed { .. }
        | Fact::WaitsForUser { .. }
        | Fact::TurnClosed { .. }
        | Fact::TurnFinished { .. }
        | Fact::WriteRefused { .. }
        | Fact::RefusalsSummed { .. }
        | Fact::RoundsGranted { .. }
        | Fact::RequestsGranted { .. }
        | Fact::Late { .. }
        | Fact::Requeued { .. }
        | Fact::Rearmed { .. }
        | Fact::BudgetWarned { .. } => Subject::Work,
    }
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
