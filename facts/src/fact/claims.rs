//! Leases on resources (C1).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// How a claim shares its resource (C1).
    ClaimMode {
        /// No other claim may overlap.
        Exclusive = "exclusive",
        /// Other shared claims may overlap.
        Shared = "shared",
    }
}
