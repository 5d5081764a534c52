//! R1: how many agent messages there were here since a human spoke. The count has been raised already.

use super::View;
use crate::refusal::{Code, Refusal};

/// The hard limit is reached or passed.
pub(super) fn turns_hard(view: &View<'_>) -> Option<Refusal> {
    over(view, view.state.limits.turns_hard_max, Code::TurnsHard)
}

/// The soft limit is reached or passed.
pub(super) fn turns_soft(view: &View<'_>) -> Option<Refusal> {
    over(view, view.state.limits.turns_soft_max, Code::TurnsSoft)
}

fn over(view: &View<'_>, max: u64, code: Code) -> Option<Refusal> {
    let (_, turns) = view.heard?;
    (turns >= max).then(|| Refusal::new(code).numbers(max, turns))
}
