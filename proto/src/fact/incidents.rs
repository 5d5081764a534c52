//! Where messages are counted, and what a latch holds (R1, R3).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{ConvId, GrantId, RoomId};

/// Where agent messages are counted (R1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Place {
    /// A conversation.
    Conversation(ConvId),
    /// A room.
    Room(RoomId),
}

impl Place {
    /// The conversation, if it is one.
    #[must_use]
    pub const fn conversation(self) -> Option<ConvId> {
        match self {
            Self::Conversation(conv) => Some(conv),
            Self::Room(_) => None,
        }
    }
}

words! {
    /// A threshold of the turn tracker (R1).
    Crossing {
        /// Warns.
        Soft = "soft",
        /// Latches.
        Hard = "hard",
    }
}

/// What a latch holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Latched {
    /// All work of a grant.
    Grant(GrantId),
    /// All work in a conversation, or all posts in a room.
    Place(Place),
}
