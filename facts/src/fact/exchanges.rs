//! Exchanges that make no progress (R5).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ConvId, EscalationId, TaskId};
use crate::stall::{Curve, StallCause};

words! {
    /// What followed from an exchange that makes no progress.
    Level {
        /// The asker is warned, once.
        Warned = "warned",
        /// Further requests are refused until a human says something.
        Held = "held",
    }
}

/// An exchange that makes no progress (R5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stalled {
    /// The task that asks.
    pub task: TaskId,
    /// The delegate that it asks.
    pub agent: AgentId,
    /// The conversation of the message.
    pub conv: ConvId,
    /// Whether the asker is warned, or the exchange is held.
    pub level: Level,
    /// Why.
    pub stall: StallCause,
    /// Whether this had an effect; `false` if the guard only observed (G7).
    pub enforced: bool,
    /// The numbers after the message.
    pub curve: Curve,
    /// The broker's question to a human, for an exchange that is held.
    pub escalation: Option<EscalationId>,
}
