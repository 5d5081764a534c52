//! The request FSM as a table (§5): `Idle → RequestSent → Waiting → ResponseReceived → Idle`.

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// Where a request stands.
    RequestState {
        /// Not sent yet, or its answer was delivered.
        Idle = "idle",
        /// Sent, not acknowledged.
        RequestSent = "request_sent",
        /// Acknowledged: the clock is the turn's lease from now on.
        Waiting = "waiting",
        /// Answered; the answer is not delivered yet.
        ResponseReceived = "response_received",
    }
}

words! {
    /// What happens to a request.
    RequestEvent {
        /// The REQUEST was admitted.
        Sent = "sent",
        /// Its delivery was taken.
        Taken = "taken",
        /// STATUS `acknowledged` came.
        Acknowledged = "acknowledged",
        /// It is run again: time-out, lost lease, rejection or failed parts.
        Requeued = "requeued",
        /// The one terminal RESPONSE, whoever made it.
        Settled = "settled",
        /// The RESPONSE was delivered to the asker.
        Delivered = "delivered",
    }
}

/// Where each event leads from each state; what is not listed is refused or late (Q7).
pub const TRANSITIONS: &[(RequestState, RequestEvent, RequestState)] = &[
    (RequestState::Idle, RequestEvent::Sent, RequestState::RequestSent),
    (RequestState::RequestSent, RequestEvent::Taken, RequestState::Waiting),
    (RequestState::RequestSent, RequestEvent::Acknowledged, RequestState::Waiting),
    (RequestState::RequestSent, RequestEvent::Requeued, RequestState::RequestSent),
    (RequestState::RequestSent, RequestEvent::Settled, RequestState::ResponseReceived),
    (RequestState::Waiting, RequestEvent::Taken, RequestState::Waiting),
    (RequestState::Waiting, RequestEvent::Acknowledged, RequestState::Waiting),
    (RequestState::Waiting, RequestEvent::Requeued, RequestState::RequestSent),
    (RequestState::Waiting, RequestEvent::Settled, RequestState::ResponseReceived),
    (RequestState::ResponseReceived, RequestEvent::Delivered, RequestState::Idle),
];

/// The state after an event; `None` where the event has no place in that state.
#[must_use]
pub fn next(state: RequestState, event: RequestEvent) -> Option<RequestState> {
    TRANSITIONS.iter().find(|(from, on, _)| *from == state && *on == event).map(|(_, _, to)| *to)
}
