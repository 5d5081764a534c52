//! What a grant spends, how a human extends it, and how it ends (D8, D9).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ConvId, GrantId, TaskId, Time};
use crate::names::ModelName;

words! {
    /// Why a grant closed.
    GrantEnd {
        /// Its root task finished and no other task is open.
        Finished = "finished",
        /// Its time ended.
        Expired = "expired",
        /// A human stopped it.
        Stopped = "stopped",
    }
}

/// An amount of tokens and cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spend {
    /// Input and output tokens together.
    pub tokens: u64,
    /// Cost in millionths of a dollar.
    pub cost_microusd: u64,
}

impl Spend {
    /// The most that one report of a turn counts for: no model reads and writes more, and no sum of such reports
    /// overflows (B1).
    pub const REPORT_MAX: Self = Self { tokens: 1_000_000_000_000, cost_microusd: 1_000_000_000_000 };

    /// Returns what a report counts for.
    #[must_use]
    pub fn counted(self) -> Self {
        self.min(Self::REPORT_MAX)
    }

    /// Adds another amount; saturates.
    pub const fn add(&mut self, more: Self) {
        self.tokens = self.tokens.saturating_add(more.tokens);
        self.cost_microusd = self.cost_microusd.saturating_add(more.cost_microusd);
    }

    /// Returns the larger amount of each kind.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { tokens: self.tokens.max(other.tokens), cost_microusd: self.cost_microusd.max(other.cost_microusd) }
    }

    /// Returns the smaller amount of each kind.
    #[must_use]
    pub fn min(self, other: Self) -> Self {
        Self { tokens: self.tokens.min(other.tokens), cost_microusd: self.cost_microusd.min(other.cost_microusd) }
    }

    /// Returns what exceeds an amount that is charged already.
    #[must_use]
    pub const fn beyond(self, charged: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_sub(charged.tokens),
            cost_microusd: self.cost_microusd.saturating_sub(charged.cost_microusd),
        }
    }
}

/// The part of a turn's tokens and cost that one model accounts for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSpend {
    /// The name of the model.
    pub model: ModelName,
    /// The part.
    pub spend: Spend,
}

/// The amounts by which a human extends a grant (D9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// Additional waking messages.
    pub messages: u64,
    /// Additional turns, whichever task they serve.
    pub turns: u64,
    /// Additional distinct agents.
    pub agents: u64,
    /// Additional requests of the grant's root task.
    pub requests: u64,
    /// Additional tokens, input and output together.
    pub tokens: u64,
    /// Additional cost, in millionths of a dollar.
    pub cost_microusd: u64,
    /// Additional time, in ms.
    pub time_ms: u64,
}

impl Extension {
    /// An extension by nothing.
    pub const NONE: Self =
        Self { messages: 0, turns: 0, agents: 0, requests: 0, tokens: 0, cost_microusd: 0, time_ms: 0 };

    /// Adds another extension, amount by amount; saturates.
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

    /// Returns what this number of rounds needs besides depth: a request and its answer for each, and a turn for both
    /// of them.
    #[must_use]
    pub fn for_rounds(rounds: u64) -> Self {
        let messages = rounds.saturating_mul(2);
        Self { messages, turns: messages, requests: rounds, ..Self::NONE }
    }
}

/// The opening of a grant (D7, D9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantOpened {
    /// The next number.
    pub grant: GrantId,
    /// The human who gave it, or the agent that started it as its own root.
    pub giver: AgentId,
    /// The conversation in which its work starts.
    pub conv: ConvId,
    /// The end of its time, unless a human extends it or its clock is stopped (D8).
    pub expires_at: Time,
}

/// An extension of a conversation by rounds (D2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundsGranted {
    /// The grant that pays for the rounds.
    pub grant: GrantId,
    /// The task that sends requests in the conversation; `None` if there is none.
    pub task: Option<TaskId>,
    /// The conversation whose depth limit rises.
    pub conv: ConvId,
    /// The human who extended it.
    pub by: AgentId,
    /// The number of rounds, of two messages each.
    pub rounds: u64,
}
