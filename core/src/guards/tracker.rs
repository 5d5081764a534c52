//! R1: the agent messages in a place since a human last spoke. The count includes this message.

use lastword_facts::refusal::{Code, Refusal};

use super::View;

/// Refuses a message that reaches or passes the hard limit.
pub(super) fn turns_hard(view: &View<'_>) -> Option<Refusal> {
    over(view, view.state.limits.turns_hard_max, Code::TurnsHard)
}

/// Refuses a message that reaches or passes the soft limit.
pub(super) fn turns_soft(view: &View<'_>) -> Option<Refusal> {
    over(view, view.state.limits.turns_soft_max, Code::TurnsSoft)
}

fn over(view: &View<'_>, max: u64, code: Code) -> Option<Refusal> {
    let (_, turns) = view.heard?;
    (turns >= max).then(|| Refusal::new(code).numbers(max, turns))
}
