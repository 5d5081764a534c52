//! Numbers that name things: positions in the log, counters of the workspace, and time.
//!
//! Every id is minted by the fold from a position or a counter, so a replay mints the same ones.

use core::fmt;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $int:ty, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $int);

        impl $name {
            /// What the printed form starts with.
            pub const PREFIX: &'static str = $prefix;

            /// Reads the printed form (`PREFIX-NUMBER`); `None` for anything else.
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
    /// A position in the log, from 1; a message's id is the position of its `Accepted` fact.
    Seq, u64, "msg"
);
number!(
    /// An agent or a human of the workspace; survives re-registration of the same name.
    AgentId, u32, "agent"
);
number!(
    /// A conversation, which is one REF.
    ConvId, u32, "conv"
);
number!(
    /// A task: one REQUEST being served, or the root task of an agent that starts by itself.
    TaskId, u64, "task"
);
number!(
    /// One run of an agent.
    TurnId, u64, "turn"
);
number!(
    /// Where work comes from: a human's message or a root of an agent.
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
    /// A lease on a shared resource; also its fencing number, which only grows.
    ClaimId, u64, "clm"
);
number!(
    /// A room.
    RoomId, u32, "room"
);
number!(
    /// A latch that tripped.
    IncidentId, u64, "inc"
);

/// A moment, in milliseconds since the Unix epoch, as the shell's clock gave it.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// The moment `ms` milliseconds later; saturates at the end of time.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment, 0 if it is not earlier.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The UTC day, counted from the epoch.
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
