//! D3: the requests of a task's whole life.

use super::{SendContext, View};
use crate::refusal::{Code, Refusal};

/// The task has no request left.
pub(super) fn task_requests(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.task_requests_max;
    let left = match view.task() {
        Some(task) => task.quota_left,
        None if view.standing == SendContext::Root => max,
        None => return None,
    };
    let more = view.ahead.count() + 1;
    (view.is_request() && !view.to_human() && left < more)
        .then(|| Refusal::new(Code::TaskRequests).numbers(max, max.saturating_sub(left) + more))
}
