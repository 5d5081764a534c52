//! Q8: two agents that block on each other would wait for ever.

use lastword_facts::refusal::{Code, Refusal};

use super::View;

/// Refuses a blocking request to an agent that blocks, directly or through others, on the sender.
pub(super) fn mutual_wait(view: &View<'_>) -> Option<Refusal> {
    let to = view.to.filter(|_| view.is_request() && view.draft.wait_ms.is_some())?;
    view.state
        .blocks_on(view.now, to, view.sender)
        .then(|| Refusal::new(Code::MutualWait).about(view.state.name_of(to)))
}
