//! D3: the requests of a task's whole life.

use super::View;
use crate::refusal::{Code, Refusal};

/// The task has no request left.
pub(super) fn task_requests(view: &View<'_>) -> Option<Refusal> {
    let task = view.task().filter(|_| view.is_request() && !view.to_human())?;
    let max = view.state.limits.task_requests_max;
    let more = view.ahead.count() + 1;
    (task.quota_left < more)
        .then(|| Refusal::new(Code::TaskRequests).numbers(max, max.saturating_sub(task.quota_left) + more))
}
