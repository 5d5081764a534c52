//! Approvals: held calls and their decisions.

use lastword_core::State;
use lastword_facts::Time;
use lastword_facts::fact::{SYSTEM, hex};
use lastword_facts::ids::{ApprovalId, TaskId};
use lastword_facts::status::{ApprovalState, Running};
use lastword_wire::{ApprovalView, Arguments, rfc3339};

use super::requests::request_of;

/// Returns an approval; `None` if the id is unknown or forgotten.
pub(crate) fn approval(state: &State, id: ApprovalId) -> Option<ApprovalView> {
    let known = state.approvals.get(&id)?;
    let task = known.task.and_then(|task| state.tasks.get(&task));
    Some(ApprovalView {
        id: id.to_string(),
        digest: hex(&known.digest),
        state: known.state,
        ended: task.filter(|_| known.state == ApprovalState::Withdrawn).and_then(|task| state.ended(task)),
        expires_at: rfc3339(known.expires_at),
        lease_until: known
            .task
            .filter(|_| known.state == ApprovalState::Pending)
            .and_then(|task| lease_until(state, task))
            .map(rfc3339),
        agent: state.name_of(known.agent).to_owned(),
        tool: known.tool.to_string(),
        arguments: Arguments::stored(&known.arguments),
        requested: known.requested.as_deref().map(Arguments::stored),
        reason: known.reason.as_ref().map(ToString::to_string),
        reference: task.and_then(|task| state.ref_of(task.conv)).map(ToString::to_string),
        request_id: request_of(state, known.task),
        created_at: rfc3339(known.at),
        decision: known.decision,
        decided_at: known.decided_at.get().map(rfc3339),
        by: known.by.map(|by| if by == SYSTEM { "policy" } else { state.name_of(by) }.to_owned()),
        by_kind: known.by.filter(|by| *by != SYSTEM).and_then(|by| state.agent(by)).map(|by| by.kind),
        policy: known.rule.as_ref().map(|rule| rule.call.to_string()),
        tier: known.rule.as_ref().and_then(|rule| rule.tier.as_ref()).map(ToString::to_string),
        comment: known.comment.as_ref().map(ToString::to_string),
    })
}

/// Returns when the open turn of a task ends, and what waits in it with it, unless its agent is heard of until then. None
/// while the agent is paused: it gets what it lost only once it is resumed, and what waits stays.
pub fn lease_until(state: &State, task: TaskId) -> Option<Time> {
    let turn = state.turns.get(&state.tasks.get(&task)?.turn()?)?;
    let runs = state.agent(turn.agent).is_some_and(|agent| agent.running.max(state.running) == Running::Active);
    runs.then_some(turn.lease_until)
}
