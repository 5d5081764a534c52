//! The limits that a task meets, and the steps that lift them (H6).

use serde::{Deserialize, Serialize};

use super::Extension;
use crate::ids::{ConvId, GrantId, HOUR_MS, RoomId};
use crate::refusal::Code;

/// The number of rounds that one step offers.
const ROUNDS: u64 = 2;
/// The number of waking messages that one step offers.
const MESSAGES: u64 = 20;
/// The number of turns that one step offers.
const TURNS: u64 = 20;
/// The number of requests that one step offers to the task that asks.
const REQUESTS: u64 = 4;
/// The number of distinct agents that one step offers.
const AGENTS: u64 = 1;
/// The number of tokens that one step offers.
const TOKENS: u64 = 50_000;
/// The number of hours that one step offers.
const HOURS: u64 = 24;

/// A limit that a task met, with the numbers that its escalation shows (H6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// The code of the refusal.
    pub code: Code,
    /// The limit at the time.
    pub limit: u64,
    /// The value that the refused message would have reached.
    pub current: u64,
    /// The conversation, for a limit that belongs to one; otherwise `None`.
    pub conv: Option<ConvId>,
    /// The grant that the task belongs to.
    pub grant: GrantId,
    /// How often a human extended that grant or conversation before.
    pub extended: u64,
}

/// One step that lifts a limit (H6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lift {
    /// More rounds in the conversation, of two messages each.
    Rounds(u64),
    /// More waking messages in the grant.
    Messages(u64),
    /// More turns in the grant.
    Turns(u64),
    /// More requests of the task that asks.
    Requests(u64),
    /// More distinct agents in the grant.
    Agents(u64),
    /// More tokens in the grant.
    Tokens(u64),
    /// More cost in the grant, in millionths of a dollar.
    CostMicroUsd(u64),
    /// More time for the grant, in ms.
    TimeMs(u64),
    /// Resets the counters of the conversation to 0.
    Rearm,
    /// Resets the counter of a room to 0: the human's yes is a post of theirs in it.
    RearmRoom(RoomId),
}

impl Lift {
    /// Returns the step that lifts the limit with this code for a task that met it and lacks so much; `None` if no human's
    /// step does.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "no human's step lifts any other code")]
    pub fn of(code: Code, lacks: u64, cost_microusd_max: u64) -> Option<Self> {
        Some(match code {
            // A round is two messages deep.
            Code::DepthCap => Self::Rounds(ROUNDS.max(lacks.div_ceil(2))),
            Code::GrantMessages => Self::Messages(MESSAGES.max(lacks)),
            Code::GrantTurns => Self::Turns(TURNS.max(lacks)),
            Code::TaskRequests => Self::Requests(REQUESTS.max(lacks)),
            Code::GrantAgents => Self::Agents(AGENTS.max(lacks)),
            Code::Budget if cost_microusd_max > 0 => Self::CostMicroUsd(cost_microusd_max),
            Code::Budget => Self::Tokens(TOKENS),
            Code::GrantExpired => Self::TimeMs(HOURS * HOUR_MS),
            Code::TurnsSoft | Code::TurnsHard | Code::NoProgress => Self::Rearm,
            _ => return None,
        })
    }

    /// Returns the extension of a grant by this lift. Rounds need what [`Extension::for_rounds`] returns.
    #[must_use]
    pub fn extension(self) -> Extension {
        let none = Extension::NONE;
        match self {
            Self::Rounds(rounds) => Extension::for_rounds(rounds),
            Self::Messages(messages) => Extension { messages, ..none },
            Self::Turns(turns) => Extension { turns, ..none },
            // A request is only useful with its own message, its answer's, and a turn for each.
            Self::Requests(requests) => Extension { requests, messages: requests * 2, turns: requests * 2, ..none },
            Self::Agents(agents) => Extension { agents, ..none },
            Self::Tokens(tokens) => Extension { tokens, ..none },
            Self::CostMicroUsd(cost_microusd) => Extension { cost_microusd, ..none },
            Self::TimeMs(time_ms) => Extension { time_ms, ..none },
            Self::Rearm | Self::RearmRoom(_) => none,
        }
    }
}

impl core::fmt::Display for Lift {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let (count, one, many) = match *self {
            Self::Rounds(n) => (n, "round", "rounds"),
            Self::Messages(n) => (n, "message", "messages"),
            Self::Turns(n) => (n, "turn", "turns"),
            Self::Requests(n) => (n, "request", "requests"),
            Self::Agents(n) => (n, "agent", "agents"),
            Self::Tokens(n) => (n, "token", "tokens"),
            Self::CostMicroUsd(n) => return write!(f, "{}.{:06} more US dollars", n / 1_000_000, n % 1_000_000),
            Self::TimeMs(n) => (n / HOUR_MS, "hour", "hours"),
            Self::Rearm => return f.write_str("go on, counted from 0"),
            Self::RearmRoom(room) => return write!(f, "go on in {room}, counted from 0"),
        };
        write!(f, "{count} more {}", if count == 1 { one } else { many })
    }
}
