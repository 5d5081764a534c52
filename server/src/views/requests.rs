//! Requests and their history.

use lastword_core::State;
use lastword_core::state::{Phase, Request, Task};
use lastword_facts::ids::{AgentId, TaskId};
use lastword_facts::names::SYSTEM_NAME;
use lastword_wire::{HistoryItem, RequestView, rfc3339};

use super::held::held_by;

pub(super) fn request_of(state: &State, task: Option<TaskId>) -> Option<String> {
    Some(state.tasks.get(&task?)?.request.as_ref()?.id.to_string())
}

/// Returns a request without its response; `None` for an agent's root task.
pub(crate) fn request(state: &State, id: TaskId, task: &Task) -> Option<RequestView> {
    let request = task.request.as_ref()?;
    let name = |agent: AgentId| state.name_of(agent).to_owned();
    let status = match task.phase {
        Phase::Closed(status, _) => Some(status),
        Phase::Queued | Phase::Open(_) | Phase::Waiting => None,
    };
    Some(RequestView {
        request_id: request.id.to_string(),
        state: request.state,
        attempts: task.attempt,
        deadline: request.deadline.get().map(rfc3339),
        from: task.asker.agent().map_or_else(|| SYSTEM_NAME.to_owned(), name),
        to: name(task.agent),
        tried: task.tried().map(name).collect(),
        reference: state.ref_of(task.conv).map_or_else(String::new, ToString::to_string),
        message: request.message.to_string(),
        priority: request.priority,
        queue_position: queue_position(state, id, task),
        status,
        response: None,
        held_by: if status.is_some() { Vec::new() } else { held_by(state, id) },
        history: history(state, task, request),
    })
}

fn queue_position(state: &State, id: TaskId, task: &Task) -> Option<u64> {
    let queue = &state.agent(task.agent)?.queue;
    queue.iter().position(|(_, queued)| *queued == id).map(|position| position as u64)
}

fn history(state: &State, task: &Task, request: &Request) -> Vec<HistoryItem> {
    let item = |at, event: &str, agent, attempt| HistoryItem {
        at: rfc3339(at),
        event: event.to_owned(),
        agent: state.name_of(agent).to_owned(),
        attempt,
    };
    let asker = task.asker.agent().unwrap_or(lastword_facts::fact::SYSTEM);
    let mut items = vec![item(task.created_at, "sent", asker, None)];
    let turns = task.turns.iter().filter_map(|turn| state.turns.get(turn));
    items.extend(turns.map(|turn| item(turn.opened_at, "taken", turn.agent, Some(turn.attempt))));
    if request.answer.is_some() {
        let last = task.turns.last().and_then(|turn| state.turns.get(turn));
        let at = last.and_then(|turn| turn.progress_at.get()).unwrap_or(state.at).min(state.at);
        items.push(item(at, "settled", task.agent, Some(task.attempt)));
    }
    items
}
