//! What a grant spends, what a human gives more, and how it ends (D8, D9).

use serde::{Deserialize, Serialize};

use crate::envelope::words;

words! {
    /// Why a grant closed.
    GrantEnd {
        /// Its root task finished, and no task is open.
        Finished = "finished",
        /// Its time was over.
        Expired = "expired",
        /// A human stopped it.
        Stopped = "stopped",
    }
}

/// Tokens and money.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// Input and output tokens.
    pub tokens: u64,
    /// Millionths of a dollar.
    pub cost_microusd: u64,
}

impl Spend {
    /// Adds another one to it.
    pub const fn add(&mut self, more: Self) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(more.cost_microusd);
    }
}

/// What more a human gives to a grant (D9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// Waking messages.
    pub messages: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents.
    pub agents: u64,
    /// Requests of the grant's root task.
    pub requests: u64,
    /// Tokens.
    pub tokens: u64,
    /// Money, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Time, in ms.
    pub time_ms: u64,
}

impl Extension {
    /// Nothing more.
    pub const NONE: Self =
        Self { messages: 0, turns: 0, agents: 0, requests: 0, tokens: 0, cost_microusd: 0, time_ms: 0 };

    /// Adds another one to it.
    pub fn add(&mut self, more: &Self) {
        let pairs = [
            (&mut self.messages, more.messages),
            (&mut self.turns, more.turns),
            (&mut self.agents, more.agents),
            (&mut self.requests, more.requests),
            (&mut self.tokens, more.tokens),
            (&mut self.cost_microusd, more.cost_microusd),
            (&mut self.time_ms, more.time_ms),
        ];
        for (sum, value) in pairs {
            *sum = sum.saturating_add(value);
        }
    }
}
