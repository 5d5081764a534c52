//! D5 and D6: no message goes to its sender, to the requester, or to an ancestor in the chain. Only answers travel up.

use lastword_facts::envelope::MessageType;
use lastword_facts::refusal::{Code, Refusal};

use super::View;

/// Refuses a message to its own sender.
pub(super) fn self_send(view: &View<'_>) -> Option<Refusal> {
    (view.to == Some(view.sender)).then(|| Refusal::new(Code::SelfSend))
}

/// Refuses a message to the requester of this task. STATUS and ALERT, which wake no agent, are exempt.
pub(super) fn passive_reply(view: &View<'_>) -> Option<Refusal> {
    let asker = view.task()?.asker.agent()?;
    (addresses_work(view) && view.to == Some(asker) && !view.to_human())
        .then(|| Refusal::new(Code::PassiveReply).about(view.state.name_of(asker)))
}

/// Refuses a message to any other ancestor in the causal chain.
pub(super) fn cycle(view: &View<'_>) -> Option<Refusal> {
    let to = view.to.filter(|_| addresses_work(view) && !view.to_human())?;
    view.state
        .ancestors(view.context.task()?)
        // The first ancestor is the requester, which `passive_reply` has refused with its own hint.
        .skip(1)
        .any(|ancestor| ancestor == to)
        .then(|| Refusal::new(Code::Cycle).about(view.state.name_of(to)))
}

fn addresses_work(view: &View<'_>) -> bool {
    matches!(view.draft.kind, MessageType::Request | MessageType::Info | MessageType::Response)
}
