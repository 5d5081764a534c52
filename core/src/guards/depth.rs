//! D2: the depth of a conversation, including the answers that are still owed in it.

use lastword_facts::ids::{ConvId, TaskId};
use lastword_facts::refusal::{Code, Refusal};

use super::View;
use crate::state::{Asker, State};

/// Refuses a message that would be deeper than the limit; for a REQUEST, also if the last of the answers that it makes
/// owed would be.
pub(super) fn depth_cap(view: &View<'_>) -> Option<Refusal> {
    if view.to_human() {
        return None;
    }
    let conv = view.conv().and_then(|conv| view.state.conversations.get(&conv));
    let more = conv.map_or(0, |conv| u64::from(conv.depth_more));
    let max = view.state.limits.depth_max.saturating_add(more);
    let mut deepest = u64::from(view.placement.depth);
    if view.is_request() {
        // A REQUEST needs its own answer, one deeper, and every answer that is owed above it.
        deepest += 1;
        if let (Some(conv), Some(task)) = (view.conv(), view.context.task()) {
            deepest += answers_owed(view.state, conv, task);
        }
    }
    // The refusal shows the depth of the message itself if that alone is too deep.
    let own = u64::from(view.placement.depth);
    let current = if own > max { own } else { deepest };
    (deepest > max).then(|| Refusal::new(Code::DepthCap).numbers(max, current))
}

/// Returns the number of answers that the task and those above it still owe in the conversation.
fn answers_owed(state: &State, conv: ConvId, task: TaskId) -> u64 {
    let mut owed = 0;
    let mut next = Some(task);
    while let Some(task) = next.and_then(|id| state.tasks.get(&id)) {
        next = match task.asker {
            Asker::Task { task: above, .. } => {
                owed += u64::from(task.conv == conv);
                Some(above)
            }
            Asker::Nobody | Asker::Human(_) => None,
        };
    }
    owed
}
