//! How a conversation stands, in one word that is the same on every surface.

use super::ConversationSummary;
use crate::state::Running;

/// How a conversation stands, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationStatus {
    /// A human stopped it.
    Stopped,
    /// A limit holds it, or a grant that is open in it, until a human lifts it.
    Latched,
    /// A human paused it.
    Paused,
    /// A request is open in it.
    Active,
    /// Nothing is to be done in it.
    Idle,
}

impl ConversationStatus {
    /// All of them, what wants a human's eye first.
    pub const ALL: [Self; 5] = [Self::Latched, Self::Active, Self::Paused, Self::Stopped, Self::Idle];

    /// How something stands that runs so, is latched or not, and has open requests or not.
    #[must_use]
    pub const fn of(state: Running, latched: bool, open: bool) -> Self {
        match (state, latched, open) {
            (Running::Stopped, ..) => Self::Stopped,
            (Running::Active | Running::Paused, true, _) => Self::Latched,
            (Running::Paused, false, _) => Self::Paused,
            (Running::Active, false, true) => Self::Active,
            (Running::Active, false, false) => Self::Idle,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Latched => "latched",
            Self::Paused => "paused",
            Self::Active => "active",
            Self::Idle => "idle",
        }
    }
}

impl ConversationSummary {
    /// How it stands.
    #[must_use]
    pub const fn standing(&self) -> ConversationStatus {
        ConversationStatus::of(self.state, self.latched, self.counters.open_tasks > 0)
    }
}
