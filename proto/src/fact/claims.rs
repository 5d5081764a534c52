//! Leases on resources (C1).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// How a claim shares its resource (C1).
    ClaimMode {
        /// Nobody else.
        Exclusive = "exclusive",
        /// Other shared claims.
        Shared = "shared",
    }
}
