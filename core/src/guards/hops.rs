//! D4: how often work is delegated.

use lastword_facts::refusal::{Code, Refusal};

use super::View;

/// Refuses a delegation beyond the limit.
pub(super) fn hop_cap(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.hops_max;
    let hop = view.task().map_or(0, |task| u64::from(task.hop)) + 1;
    (view.is_request() && !view.to_human() && hop > max).then(|| Refusal::new(Code::HopCap).numbers(max, hop))
}
