//! The links by which anybody reads a conversation: at most one of each.

use lastword_facts::ids::{AgentId, ConvId, DAY_MS, Seq, Time};
use serde::{Deserialize, Serialize};

use super::State;

/// The longest time after which a link expires, in ms.
pub const LINK_MS_MAX: u64 = 7 * DAY_MS;

/// The link to a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The position of its fact, which no other link has.
    pub made: Seq,
    /// When it expires.
    pub until: Time,
    /// The human who made it.
    pub by: AgentId,
}

impl State {
    pub(super) fn link_set(&mut self, conv: ConvId, until: Option<Time>, by: AgentId) {
        match until {
            Some(until) => _ = self.links.insert(conv, Link { made: self.seq, until, by }),
            None => _ = self.links.remove(&conv),
        }
    }
}
