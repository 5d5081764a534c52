//! Numbers that identify things: positions in the log, counters of the workspace, and time.
//!
//! Every id is derived from a position in the log or a counter of the state, so a replay mints the same ids.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $int:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// The prefix of the printed form.
            pub const PREFIX: &'static str = $prefix;

            /// Parses the printed form (`PREFIX-NUMBER`); returns `None` for anything else.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                let digits = text.strip_prefix($prefix)?.strip_prefix('-')?;
                if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                    return None;
                }
                digits.parse().ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "-{}"), self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A position in the log, from 1. A message's id is the position of its `Accepted` fact.
    Seq, u64, "msg"
);
number!(
    /// An agent or a human of the workspace. A name that is registered again gets a new number.
    AgentId, u32, "agent"
);
number!(
    /// A conversation, which has one REF.
    ConvId, u32, "conv"
);
number!(
    /// A task: one REQUEST being served, or the root task of an agent that starts work of its own.
    TaskId, u64, "task"
);
number!(
    /// One turn of an agent.
    TurnId, u64, "turn"
);
number!(
    /// A source of work: a human's message, a schedule's tick or a root of an agent.
    GrantId, u64, "grant"
);
number!(
    /// A question to a human.
    EscalationId, u64, "esc"
);
number!(
    /// A tool call held for a decision.
    ApprovalId, u64, "apr"
);
number!(
    /// A lease on a shared resource. Also its fence, which only grows.
    ClaimId, u64, "clm"
);
number!(
    /// A room of the workspace.
    RoomId, u32, "room"
);
number!(
    /// The record of a limit that tripped.
    IncidentId, u64, "inc"
);

/// A moment, in milliseconds since the Unix epoch by the shell's clock.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// Returns the moment `ms` milliseconds later; saturates at the largest one.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Returns the milliseconds from `earlier` to this moment; 0 if `earlier` is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the UTC day, counted in days since the Unix epoch.
    #[must_use]
    pub const fn day(self) -> u64 {
        self.0 / DAY_MS
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Milliseconds in a day.
pub const DAY_MS: u64 = 86_400_000;
/// Milliseconds in an hour.
pub const HOUR_MS: u64 = 3_600_000;
