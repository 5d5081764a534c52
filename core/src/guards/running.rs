//! H4 and R3: work that a human has paused or stopped, or that a limit has latched.

use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::Running;

use super::{Plan, View};

/// Refuses a message if the workspace, the conversation, the sender or the recipient was stopped.
pub(super) fn stopped(view: &View<'_>) -> Option<Refusal> {
    held(view, Running::Stopped, Code::Stopped).or_else(|| {
        // A paused recipient keeps its queue, but a stopped one would never take the request.
        let to = view.recipient().filter(|to| view.is_request() && to.running == Running::Stopped)?;
        Some(Refusal::new(Code::Stopped).about(to.name()))
    })
}

/// Refuses a message if the workspace, the conversation or the sender was paused.
pub(super) fn paused(view: &View<'_>) -> Option<Refusal> {
    held(view, Running::Paused, Code::Paused)
}

/// Refuses a message if the grant or the conversation is latched.
pub(super) fn latched(view: &View<'_>) -> Option<Refusal> {
    // Both conversations count: a task must not go around its own latch by opening another REF.
    let own = view.task().map(|t| t.conv);
    let id = view.task().map(|t| t.grant);
    let mut convs = [view.conv().filter(|_| !view.by_prompt), own].into_iter().flatten();
    let grant = view.grant().is_some_and(|g| g.latched.is_some());
    (grant || convs.any(|conv| view.state.latched_in(conv, id))).then(|| Refusal::new(Code::Latched))
}

fn held(view: &View<'_>, running: Running, code: Code) -> Option<Refusal> {
    if view.state.running == running {
        return Some(Refusal::new(code).about("workspace"));
    }
    if let Some(sender) = view.sender().filter(|s| s.running == running && !s.is_human()) {
        return Some(Refusal::new(code).about(sender.name()));
    }
    let own = view.task().map(|t| t.conv);
    let held = [view.conv(), own].into_iter().flatten().find(|c| view.state.running_in(*c) == running);
    match (held, &view.placement.plan) {
        (Some(conv), _) => {
            // The REF that a human has to resume may be above the one that the message names.
            let holder = view.state.holder_of(conv, running).or_else(|| view.state.ref_of(conv))?;
            Some(Refusal::new(code).about(holder))
        }
        (None, Plan::Open(reference, parent)) if view.state.running_in_new(reference.as_str(), *parent) == running => {
            let holder = view.state.holder_of_new(reference.as_str(), *parent, running);
            Some(Refusal::new(code).about(holder.unwrap_or(reference)))
        }
        (None, Plan::Open(..)) => None,
        (None, Plan::Existing(_) | Plan::None) => None,
    }
}
