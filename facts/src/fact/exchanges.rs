//! Exchanges that make no progress (R5).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// What followed from an exchange that makes no progress.
    Level {
        /// The asker is warned, once.
        Warned = "warned",
        /// Further requests are refused until a human says something.
        Held = "held",
    }
}
