//! Questions to humans (H1).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// Why an escalation was opened.
    EscalationCause {
        /// An agent asked a question (H1).
        Asked = "asked",
        /// A request timed out and is not tried again (Q3).
        TimedOut = "timed_out",
        /// The requests of a task to one delegate are held because they make no progress (R5).
        NoProgress = "no_progress",
    }
}
