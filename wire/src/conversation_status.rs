//! The status of a conversation in one word, the same on every surface.

use lastword_facts::status::Running;

use crate::{ConversationSummary, Outcome};

/// The status of a conversation in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversationStatus {
    /// A human stopped it.
    Stopped,
    /// A limit holds it, or a grant that is open in it, until a human lifts the latch.
    Latched,
    /// A human paused it.
    Paused,
    /// A request is open in it.
    Active,
    /// No request is open in it.
    Idle,
}

impl ConversationStatus {
    /// All statuses, those that need a human's attention first.
    pub const ALL: [Self; 5] = [Self::Latched, Self::Active, Self::Paused, Self::Stopped, Self::Idle];

    /// Returns the status from the state that a human set, from whether a latch holds it, and from whether a request is
    /// open.
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

    /// Returns the word that programs read.
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

    /// Returns the word that a human reads: `held` for `latched`, and `ended` for `idle`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Latched => "held",
            Self::Idle => "ended",
            Self::Stopped | Self::Paused | Self::Active => self.word(),
        }
    }
}

impl ConversationSummary {
    /// Returns the status of the conversation.
    #[must_use]
    pub const fn standing(&self) -> ConversationStatus {
        ConversationStatus::of(self.state, self.latched, self.counters.open_tasks > 0)
    }

    /// Returns the outcome of a conversation that ended; `None` while it has a status of its own.
    #[must_use]
    pub fn ended(&self) -> Option<Outcome> {
        self.outcome.filter(|_| self.standing() == ConversationStatus::Idle)
    }
}
