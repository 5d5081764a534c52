//! The recipients that each message type may have (E4, E5, D11, L3).

use lastword_facts::envelope::{Address, MessageType};
use lastword_facts::refusal::{Code, Refusal};

use super::{SendContext, View};

/// Refuses a REQUEST to all, a list that is empty or too long, or a BROADCAST to single recipients.
pub(super) fn malformed(view: &View<'_>) -> Option<Refusal> {
    let max = view.state.limits.list_max;
    if view.is_request() && view.to_human() {
        return Some(Refusal::new(Code::Malformed).about("a human is asked by an escalation, one at a time"));
    }
    // An empty list resolves to no recipient, and without a refusal.
    if view.is_request() && view.to.is_none() && view.unresolved.is_none() && view.draft.to != Address::All {
        return Some(Refusal::new(Code::Malformed).about("`to` is empty"));
    }
    if let Address::List(items) = &view.draft.to
        && items.contains(&Address::All)
    {
        return Some(Refusal::new(Code::Malformed).about("`all` can't be in a list"));
    }
    match (&view.draft.to, view.draft.kind) {
        (Address::All, MessageType::Request) => {
            Some(Refusal::new(Code::Malformed).about("a REQUEST can't go to `all`"))
        }
        (Address::List(items), _) if items.is_empty() => Some(Refusal::new(Code::Malformed).about("`to` is empty")),
        (Address::List(items), _) if items.len() as u64 > max => {
            Some(Refusal::new(Code::Malformed).numbers(max, items.len() as u64).about("`to` has too many names"))
        }
        (to, MessageType::Broadcast) if *to != Address::All => {
            Some(Refusal::new(Code::Malformed).about("a BROADCAST goes to `all`"))
        }
        _ => None,
    }
}

/// Refuses a REQUEST from outside that a message of this workspace caused: it would be a grant out of itself (D10).
pub(super) fn caused_by_refused(view: &View<'_>) -> Option<Refusal> {
    let caused = view.draft.caused_by.filter(|_| view.is_request())?;
    Some(Refusal::new(Code::CausedByRefused).about(caused))
}

/// Refuses a name, group or action that no live agent or human has.
pub(super) fn unknown_recipient(view: &View<'_>) -> Option<Refusal> {
    view.unresolved.cloned()
}

/// Refuses a RESPONSE that answers no open request, such as one to a STATUS, INFO, ALERT or BROADCAST.
pub(super) fn reply_not_expected(view: &View<'_>) -> Option<Refusal> {
    // `send` routes every RESPONSE to its turn or escalation before the guards; this refuses one that gets here anyway.
    let replies = view.draft.kind == MessageType::Response;
    let stray_status = view.draft.kind == MessageType::Status && view.context == SendContext::Outside;
    (replies || stray_status).then(|| Refusal::new(Code::ReplyNotExpected))
}
