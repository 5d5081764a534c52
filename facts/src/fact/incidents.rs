//! Where messages are counted, and what a latch holds (R1, R3).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ConvId, GrantId, IncidentId, RoomId};
use crate::refusal::Code;

/// Where agent messages are counted (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// Counts the messages of one conversation.
    Conversation(ConvId),
    /// Counts the posts of one room.
    Room(RoomId),
}

impl Place {
    /// Returns the conversation; `None` for a room.
    #[must_use]
    pub const fn conversation(self) -> Option<ConvId> {
        match self {
            Self::Conversation(conv) => Some(conv),
            Self::Room(_) => None,
        }
    }
}

words! {
    /// A limit of the message count (R1).
    Crossing {
        /// The broker warns once, and from here on refuses messages.
        Soft = "soft",
        /// The broker sets a latch.
        Hard = "hard",
    }
}

/// The work that a latch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Latched {
    /// All work of a grant.
    Grant(GrantId),
    /// All work in a conversation, or all posts in a room.
    Place(Place),
}

/// The latch of a limit that tripped (R3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatchSet {
    /// The number of the incident that records the latch.
    pub incident: IncidentId,
    /// The grant, conversation or room that is held.
    pub on: Latched,
    /// The code of the limit that tripped.
    pub code: Code,
    /// The limit at the time.
    pub limit: u64,
    /// The value that reached or passed the limit.
    pub current: u64,
}

/// An incident that holds no work (D7, G2, B1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IncidentNoted {
    /// The next number.
    pub incident: IncidentId,
    /// The agent that the incident is about.
    pub agent: AgentId,
    /// The code of the limit that tripped.
    pub code: Code,
    /// The limit at the time.
    pub limit: u64,
    /// The value that reached or passed the limit.
    pub current: u64,
}
