//! The state machine of a request as a table (§5): `Idle → RequestSent → Waiting → ResponseReceived → Idle`.

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// The state of a request.
    RequestState {
        /// Not sent yet, or its answer was delivered.
        Idle = "idle",
        /// Sent, but not acknowledged.
        RequestSent = "request_sent",
        /// Acknowledged: from now on the lease of its turn limits the time.
        Waiting = "waiting",
        /// Answered, but the answer is not delivered yet.
        ResponseReceived = "response_received",
    }
}

words! {
    /// An event in the life of a request.
    RequestEvent {
        /// The REQUEST was admitted.
        Sent = "sent",
        /// The recipient took its delivery.
        Taken = "taken",
        /// A STATUS with `acknowledged` arrived.
        Acknowledged = "acknowledged",
        /// The request runs again after a time-out, a lost lease, a rejection or failed parts.
        Requeued = "requeued",
        /// The one terminal RESPONSE was admitted, from the agent or from the broker.
        Settled = "settled",
        /// The RESPONSE was delivered to the requester.
        Delivered = "delivered",
    }
}

/// The transitions of the state machine. An event that is not listed for a state is refused or late (Q7).
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

/// Returns the state after an event; `None` if the state has no such transition.
#[must_use]
pub fn next(state: RequestState, event: RequestEvent) -> Option<RequestState> {
    TRANSITIONS.iter().find(|(from, on, _)| *from == state && *on == event).map(|(_, _, to)| *to)
}
