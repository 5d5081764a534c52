//! Decisions on held calls (H2).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

/// A SHA-256 of a held call: tool, canonical arguments, agent and task (H2).
pub type Digest = [u8; 32];

words! {
    /// A decision on an approval (H2).
    Decision {
        /// The call may be made, once.
        Approve = "approve",
        /// It may not.
        Reject = "reject",
        /// It may not, and here is what to do instead.
        Respond = "respond",
        /// It may not, and nobody looks into it.
        Ignore = "ignore",
        /// Not this call, but the edited one.
        Edit = "edit",
        /// Nobody decided in time.
        Expire = "expire",
    }
}
