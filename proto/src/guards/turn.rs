//! To which turn a send belongs, and whether that turn may still send (D1, D7, F5, F6).

use super::{SendContext, View};
use crate::refusal::{Code, Refusal};
use crate::state::Task;

/// The turn that is named is over.
pub(super) fn lease_lost(view: &View<'_>) -> Option<Refusal> {
    (view.standing == SendContext::Lost).then(|| Refusal::new(Code::LeaseLost))
}

/// Several turns are open and none is named.
pub(super) fn turn_required(view: &View<'_>) -> Option<Refusal> {
    (view.standing == SendContext::Ambiguous).then(|| Refusal::new(Code::TurnRequired))
}

/// Refusals have closed the turn for sending.
pub(super) fn turn_closed(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.turn_refusals_max;
    let turn = view.state.turns.get(&view.standing.turn()?)?;
    (turn.refusals >= max).then(|| Refusal::new(Code::TurnClosed).numbers(max, turn.refusals))
}

/// A task that has ended can't go on in a grant that is still open; only its asker can.
pub(super) fn task_closed(view: &View<'_>) -> Option<Refusal> {
    view.task().is_some_and(Task::is_closed).then(|| Refusal::new(Code::TurnClosed))
}
