//! Questions to humans (H1).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// Why an escalation is in the human's inbox.
    EscalationCause {
        /// An agent asked (H1).
        Asked = "asked",
        /// A request timed out for good (Q3).
        TimedOut = "timed_out",
    }
}
