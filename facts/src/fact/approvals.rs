//! Decisions on held calls (H2).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// A decision on an approval (H2).
    Decision {
        /// The agent may make the call, once.
        Approve = "approve",
        /// The agent may not make the call.
        Reject = "reject",
        /// The agent may not make the call; the comment says what to do instead.
        Respond = "respond",
        /// The agent may not make the call; the human did not examine it.
        Ignore = "ignore",
        /// The agent may make the edited call, once, in place of the one that it asked for.
        Edit = "edit",
        /// No decision was made in time.
        Expire = "expire",
    }
}
