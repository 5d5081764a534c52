//! R5: the requests of one task to one delegate that make no progress.

use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::stall::{HOLD_DRY, SAME_MAX, StallCause};

use super::View;

/// Refuses a request of an exchange that is held.
pub(super) fn no_progress(view: &View<'_>) -> Option<Refusal> {
    let (task, to) = (view.context.task()?, view.to.filter(|_| view.is_request())?);
    let exchange = view.state.exchange(task, to)?;
    let hold = exchange.hold()?;
    // Held while the guard only observed: no human was asked, so its next message decides.
    if !hold.enforced && !view.state.limits.observed.observes("no_progress") {
        return None;
    }
    let (limit, current) = match hold.stall {
        StallCause::Dry => (HOLD_DRY / 1_000, exchange.curve().dry.div_ceil(1_000)),
        StallCause::Stuck => (SAME_MAX.into(), SAME_MAX.into()),
    };
    Some(Refusal::new(Code::NoProgress).numbers(limit, current).about(view.state.name_of(to)))
}
