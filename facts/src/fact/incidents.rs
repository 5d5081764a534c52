//! Where messages are counted, and what a latch holds (R1, R3).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{ConvId, GrantId, RoomId};

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
