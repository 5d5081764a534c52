//! What holds the work on a request until a human acts, and the step that lifts each hold (R3, H6).

use lastword_core::State;
use lastword_core::state::{Agent, Asker, Escalation, Incident, IncidentOn};
use lastword_facts::fact::Latched;
use lastword_facts::ids::{ApprovalId, ConvId, EscalationId, GrantId, RoomId, TaskId};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::{Code, Refusal, Time};
use lastword_wire::quote::word;
use lastword_wire::{HeldBy, Hold, LiftStep, RefusedAt, amount, rfc3339};

use super::explanations::ExplainContext;
use super::incidents::is_cost;
use super::words;

/// Returns the holds of a task and of every task that works for it.
pub(crate) fn held_by(state: &State, id: TaskId) -> Vec<HeldBy> {
    let Some(grant) = state.tasks.get(&id).map(|task| task.grant) else { return Vec::new() };
    let below: Vec<TaskId> = state.open_tasks_of(grant).filter(|task| works_for(state, *task, id)).collect();
    of_tasks(state, &[], &below)
}

/// Returns the holds of the subject of an explanation, and of the work that its task caused.
pub(crate) fn held(state: &State, context: ExplainContext) -> Vec<HeldBy> {
    let mut found = of_tasks(state, &[ExplainContext { task: None, ..context }], &[]);
    let below = context.task.map_or_else(Vec::new, |task| held_by(state, task));
    found.extend(below.into_iter().filter(|held| !found.contains(held)).collect::<Vec<_>>());
    found
}

/// Returns the holds of a grant and of its open tasks.
pub(crate) fn held_in_grant(state: &State, id: GrantId) -> Vec<HeldBy> {
    let conv = state.grants.get(&id).map(|grant| grant.conv);
    let tasks: Vec<TaskId> = state.open_tasks_of(id).collect();
    of_tasks(state, &[ExplainContext { grant: Some(id), conv, ..ExplainContext::default() }], &tasks)
}

/// Returns the hold of a grant by its own latch.
pub(crate) fn latch_of(state: &State, id: GrantId) -> Option<HeldBy> {
    let context = ExplainContext { grant: Some(id), ..ExplainContext::default() };
    context.holds(state).iter().find(|hold| hold.state == "latched").and_then(|hold| of_hold(state, hold))
}

/// Returns the holds of a conversation, of its grants and of its open tasks.
pub(crate) fn held_in_conversation(state: &State, id: ConvId) -> Vec<HeldBy> {
    let Some(conv) = state.conversations.get(&id) else { return Vec::new() };
    let mut wider = vec![ExplainContext { conv: Some(id), ..ExplainContext::default() }];
    wider
        .extend(state.at_work_in(conv).map(|grant| ExplainContext { grant: Some(grant), ..ExplainContext::default() }));
    let tasks: Vec<TaskId> = conv.open_tasks.iter().copied().collect();
    of_tasks(state, &wider, &tasks)
}

/// Returns the hold of a latched room.
pub(crate) fn held_in_room(state: &State, id: RoomId, incident: &Incident) -> Option<HeldBy> {
    let room = state.rooms.get(&id).filter(|room| room.latched && incident.lifted.is_none())?;
    let text = format!("room {} is held: {}", room.name, limit_of(state, incident));
    Some(HeldBy { text, lift: LiftStep::of_room(room.name.as_str()) })
}

/// Returns the limit of an incident in words.
fn limit_of(state: &State, incident: &Incident) -> String {
    format!("{} (limit {})", incident.code.title(), amount(is_cost(state, incident), incident.limit))
}

/// Returns the holds of these contexts, and of these tasks with their questions and calls, each once.
fn of_tasks(state: &State, wider: &[ExplainContext], tasks: &[TaskId]) -> Vec<HeldBy> {
    let mut found: Vec<HeldBy> = Vec::new();
    let mut add = |held: Option<HeldBy>| found.extend(held.filter(|held| !found.contains(held)));
    let agent = |task: &TaskId| Some((*task, state.tasks.get(task)?.agent));
    let context = |(task, agent)| ExplainContext::in_task(state, Some(task), agent);
    for context in wider.iter().copied().chain(tasks.iter().filter_map(agent).map(context)) {
        for hold in context.holds(state) {
            add(of_hold(state, &hold));
        }
        let agent = context.task.and_then(|task| state.agent(state.tasks.get(&task)?.agent));
        add(agent.and_then(|agent| of_rest(state, agent)));
    }
    let of = |task: Option<TaskId>| task.is_some_and(|task| tasks.contains(&task));
    for (id, known) in state.escalations.iter().filter(|(_, known)| of(known.task)) {
        add((known.state == EscalationState::Open).then(|| of_question(state, *id, known)));
    }
    for (id, known) in state.approvals.iter().filter(|(_, known)| of(known.task)) {
        let pending = known.state == ApprovalState::Pending;
        add(pending.then(|| of_call(*id, state.name_of(known.agent), &known.tool)));
    }
    found
}

/// Returns whether a task is `of`, or was requested in it, directly or through other tasks.
fn works_for(state: &State, task: TaskId, of: TaskId) -> bool {
    let above = |id: &TaskId| match state.tasks.get(id)?.asker {
        Asker::Task { task, .. } => Some(task),
        Asker::Nobody | Asker::Human(_) => None,
    };
    std::iter::successors(Some(task), above).any(|id| id == of)
}

/// Returns a pause, a stop or a latch, with the step that lifts it.
fn of_hold(state: &State, hold: &Hold) -> Option<HeldBy> {
    let on = if hold.on.is_empty() { "workspace" } else { hold.on.as_str() };
    let agent = (hold.scope == "agent").then_some(on);
    let incident = state.incidents.iter().find(|(id, _)| Some(id.to_string()) == hold.incident).map(|(_, known)| known);
    let (refusal, reference, why) = match incident {
        None if hold.state == "latched" => (Refusal::new(Code::Latched), Some(on.to_owned()), String::new()),
        None => {
            let conversation = (hold.scope == "conversation").then(|| on.to_owned());
            (Refusal::new(Code::Paused).about(on), conversation, String::new())
        }
        Some(incident) => {
            let why = format!(": {}", limit_of(state, incident));
            let latched = if let IncidentOn::Latch(Latched::Grant(grant)) = incident.on { Some(grant) } else { None };
            let grant = latched.and_then(|grant| state.grants.get(&grant));
            let reference = match latched {
                Some(_) => grant.and_then(|grant| state.ref_of(grant.conv)).map(ToString::to_string),
                None => Some(on.to_owned()),
            };
            // For a budget, the lift extends tokens or cost, whichever is used up.
            let spent = grant.and_then(|grant| state.budget_used_up(grant)).filter(|spent| spent.code == incident.code);
            (spent.unwrap_or_else(|| Refusal::new(incident.code)), reference, why)
        }
    };
    let lift = LiftStep::of(&refusal, RefusedAt { reference: reference.as_deref(), agent, settled: false })?;
    let text = if on == "workspace" { "the workspace".to_owned() } else { format!("{} {on}", hold.scope) };
    // For people a limit holds it, where the API says `latched`.
    let state = if hold.state == "latched" { "held" } else { &hold.state };
    Some(HeldBy { text: format!("{text} is {state}{why}"), lift })
}

/// Returns the hold of an agent that has used up its day budget (B1).
pub(super) fn of_rest(state: &State, agent: &Agent) -> Option<HeldBy> {
    let until = agent.rests_until()?;
    // The last moment of the day that is used up.
    let spent = state.day_used_up(agent, Time(until.0.saturating_sub(1)));
    let refusal = spent.unwrap_or_else(|| Refusal::new(Code::Budget).retry_after(1));
    let lift = LiftStep::of(&refusal, RefusedAt { agent: Some(agent.name()), ..RefusedAt::default() })?;
    let text = format!("agent {} gets no work until {}: its day budget is used up", agent.name(), rfc3339(until));
    Some(HeldBy { text, lift })
}

fn of_question(state: &State, id: EscalationId, known: &Escalation) -> HeldBy {
    let offers = known.lifts.as_ref().and_then(|lifts| lifts.lifts.first());
    let (body, flags, text) = match offers {
        Some(lift) => (
            "{\"lift\":\"lift-1\"}",
            "--lift lift-1",
            format!("A human chooses \"{}\", or answers with a text.", words::lift(state, *lift)),
        ),
        None => ("{\"answer\":\"…\"}", "\"…\"", "A human gives the answer.".to_owned()),
    };
    let lift = LiftStep {
        call: format!("POST /v1/escalations/{id}/answer {body}"),
        cli: format!("lastword answer {id} {flags}"),
        text,
    };
    HeldBy { text: format!("{} waits for the answer to {id}", state.name_of(known.agent)), lift }
}

fn of_call(id: ApprovalId, agent: &str, tool: &str) -> HeldBy {
    let lift = LiftStep {
        call: format!("POST /v1/approvals/{id}/decision {{\"decision\":\"approve\"}}"),
        cli: format!("lastword approve {id}"),
        text: format!("A human reviews {id} and approves or rejects it."),
    };
    HeldBy { text: format!("{agent} waits for a decision about {id}, a call of {}", word(tool)), lift }
}
