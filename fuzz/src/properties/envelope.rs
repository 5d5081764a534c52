//! The JSON envelope (E2): what it means doesn't change when it is written and read again, and no sender can set what
//! the broker mints.

use lastword_wire::Envelope;
use serde_json::Value;

/// Members that only the broker sets (E3).
const MINTED: [&str; 4] = ["hops", "cause", "grant", "conversation"];

/// Checks one request body.
pub fn check(data: &[u8]) {
    let Ok(envelope) = serde_json::from_slice::<Envelope>(data) else { return };
    let written = serde_json::to_vec(&envelope).expect("an envelope is written");
    let again: Envelope = serde_json::from_slice(&written).expect("and read again");
    assert_eq!(serde_json::to_vec(&again).expect("an envelope is written"), written, "both are written alike");

    let minted = envelope.unknown.keys().any(|member| MINTED.contains(&&**member));
    let payload = envelope.payload.clone();
    let (draft, same) = (envelope.draft(), again.draft());
    assert_eq!(draft, same, "both mean the same");
    let draft = match draft {
        Ok(draft) => draft,
        Err(fault) => return assert!(!fault.field.is_empty() && !fault.problem.is_empty()),
    };
    assert!(!minted, "a minted member is refused");
    assert_eq!(draft.payload.is_some(), payload.as_ref().is_some_and(|payload| !payload.is_null()));
    for text in [&draft.payload, &draft.metadata].into_iter().flatten() {
        let value: Value = serde_json::from_str(text).expect("canonical JSON is JSON");
        let mut sorted = value.clone();
        sorted.sort_all_objects();
        assert_eq!(sorted.to_string(), **text, "its members are in one order");
    }
}
