//! D3: the requests of a task in its whole lifetime.

use lastword_facts::refusal::{Code, Refusal};

use super::{SendContext, View};

/// Refuses a request if the task has none left.
pub(super) fn task_requests(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.task_requests_max;
    let left = match view.task() {
        Some(task) => task.quota_left,
        // The task of a root is created only when its first request is accepted.
        None if matches!(view.context, SendContext::Root | SendContext::Typed(_)) => max,
        None => return None,
    };
    let more = view.ahead.count() + 1;
    (view.is_request() && !view.to_human() && left < more)
        .then(|| Refusal::new(Code::TaskRequests).numbers(max, max.saturating_sub(left) + more))
}
