//! The turn that a send belongs to, and whether that turn may still send (D1, D7, F5, F6).

use lastword_facts::refusal::{Code, Refusal};

use super::{SendContext, View};
use crate::state::Task;

/// Refuses a message that names a turn which is over.
pub(super) fn lease_lost(view: &View<'_>) -> Option<Refusal> {
    (view.context == SendContext::Lost).then(|| Refusal::new(Code::LeaseLost))
}

/// Refuses a message that names no turn while several are open.
pub(super) fn turn_required(view: &View<'_>) -> Option<Refusal> {
    (view.context == SendContext::Ambiguous).then(|| Refusal::new(Code::TurnRequired))
}

/// Refuses a message in a turn that too many refusals have closed for sending.
pub(super) fn turn_closed(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.turn_refusals_max;
    let turn = view.state.turns.get(&view.context.turn()?)?;
    let refusals = u64::from(turn.refusals);
    (refusals >= max).then(|| Refusal::new(Code::TurnClosed).numbers(max, refusals))
}

/// Refuses a message in a task that has ended, although its grant is still open; only its requester can continue the
/// work.
pub(super) fn task_closed(view: &View<'_>) -> Option<Refusal> {
    view.task().is_some_and(Task::is_closed).then(|| Refusal::new(Code::TurnClosed))
}
