//! D5 and D6: nothing is sent to oneself, to the asker, or to anybody above in the chain; answers travel up alone.

use super::View;
use crate::envelope::MessageType;
use crate::refusal::{Code, Refusal};

/// A message to its own sender.
pub(super) fn self_send(view: &View<'_>) -> Option<Refusal> {
    (view.to == Some(view.sender)).then(|| Refusal::new(Code::SelfSend))
}

/// A message to who waits for this task's answer. STATUS and ALERT, which wake nobody, are free.
pub(super) fn passive_reply(view: &View<'_>) -> Option<Refusal> {
    let asker = view.task()?.asker.agent()?;
    (addresses_work(view) && view.to == Some(asker) && !view.to_human())
        .then(|| Refusal::new(Code::PassiveReply).about(view.state.name_of(asker)))
}

/// A message to any other ancestor in the causal chain.
pub(super) fn cycle(view: &View<'_>) -> Option<Refusal> {
    let to = view.to.filter(|_| addresses_work(view) && !view.to_human())?;
    view.state
        .ancestors(view.standing.task()?)
        .skip(1)
        .any(|ancestor| ancestor == to)
        .then(|| Refusal::new(Code::Cycle).about(view.state.name_of(to)))
}

fn addresses_work(view: &View<'_>) -> bool {
    matches!(view.draft.kind, MessageType::Request | MessageType::Info | MessageType::Response)
}
