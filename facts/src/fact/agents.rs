//! Agents and humans: their kind, profile, role and own limits (§1, H7).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::Spend;
use crate::digest::Credential;
use crate::envelope::words;
use crate::ids::{AgentId, Time, TurnId};
use crate::names::{AgentName, Label};
use crate::refusal::Refusal;

words! {
    /// The kind of principal that holds a name (§1).
    Kind {
        /// A program that serves and sends requests.
        Agent = "agent",
        /// A human with a role, which allows them to grant, resume and decide.
        Human = "human",
    }
}

words! {
    /// The role of a human (H7). Each role may do all that the next one may.
    Role {
        /// May do everything.
        Owner = "owner",
        /// May stop, pause, resume, grant and ask, and all that an approver may.
        Operator = "operator",
        /// May answer questions and decide approvals, and all that a viewer may.
        Approver = "approver",
        /// May only read.
        Viewer = "viewer",
    }
}

/// The part of an agent's registration that `POST` and `PATCH /v1/agents` set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// The actions that it serves; a request to `#action` may be routed to it.
    pub actions: Vec<Label>,
    /// The groups that it belongs to; a message to `@group` reaches it.
    pub groups: Vec<Label>,
    /// The number of turns that it may have open at once; 0 means the workspace's default.
    pub turns_max: u64,
}

macro_rules! agent_limits {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Limits of one agent in place of the workspace's (§1); 0 means that the workspace's limit applies.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "Vec<(Box<str>, u64)>", into = "Vec<(Box<str>, u64)>")]
        pub struct AgentLimits {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AgentLimits {
            /// The names of the limits, in the order of the fields.
            pub const NAMES: [&'static str; 7] = [$(stringify!($name),)*];

            /// No limits of its own: every limit of the workspace applies.
            pub const NONE: Self = Self { $($name: 0,)* };

            /// Returns each limit with its name.
            #[must_use]
            pub const fn values(&self) -> [(&'static str, u64); 7] {
                [$((stringify!($name), self.$name),)*]
            }

            /// Sets the limit called `name`. Returns `false` if no limit has that name.
            pub fn set(&mut self, name: &str, value: u64) -> bool {
                match name { $(stringify!($name) => self.$name = value,)* _ => return false }
                true
            }
        }
    };
}

agent_limits! {
    /// Messages to one recipient in any window (G1).
    pair_messages_max,
    /// Messages in any window (G1).
    sender_messages_max,
    /// Roots in any hour (D7).
    roots_per_hour_max,
    /// Turns open at once (F1).
    agent_turns_max,
    /// Time to acknowledge, in ms (Q2).
    ack_ms,
    /// Tokens in a UTC day (B1).
    agent_day_tokens_max,
    /// Cost in a UTC day, in millionths of a dollar (B1).
    agent_day_cost_microusd_max,
}

/// The stored form is by name, so that a later version can add a limit.
impl From<AgentLimits> for Vec<(Box<str>, u64)> {
    fn from(limits: AgentLimits) -> Self {
        limits.values().into_iter().filter(|(_, value)| *value > 0).map(|(name, value)| (name.into(), value)).collect()
    }
}

impl From<Vec<(Box<str>, u64)>> for AgentLimits {
    fn from(stored: Vec<(Box<str>, u64)>) -> Self {
        let mut limits = Self::default();
        for (name, value) in &stored {
            limits.set(name, *value);
        }
        limits
    }
}

words! {
    /// The kinds of write besides messages (G1, G4).
    WriteKind {
        /// A post in a room.
        Post = "post",
        /// A question to a human.
        Escalation = "escalation",
        /// A tool call held for a decision.
        Approval = "approval",
        /// A lease on a resource.
        Claim = "claim",
    }
}

/// The registration of an agent or human.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registered {
    /// The next free number; a name that is registered again gets a new one.
    pub agent: AgentId,
    /// A name that no live agent or human has.
    pub name: AgentName,
    /// Whether a program or a human holds the name.
    pub kind: Kind,
    /// Counts the registrations of the name, from 1 (§1).
    pub incarnation: u32,
    /// The actions, groups and number of parallel turns that it registers with.
    pub profile: Profile,
    /// The hash of the token that it authenticates with.
    pub credential: Credential,
}

/// An extension of an agent's budget for one day (B1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentGranted {
    /// The agent whose budget grows.
    pub agent: AgentId,
    /// The human who extended it.
    pub by: AgentId,
    /// The day, counted in days since the Unix epoch.
    pub day: u64,
    /// The tokens and the cost that are added.
    pub spend: Spend,
}

/// The refusal of a post, question, held call or claim (G4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteRefused {
    /// The agent that wrote it.
    pub agent: AgentId,
    /// The turn in which it was written; `None` outside every turn.
    pub turn: Option<TurnId>,
    /// The kind of write that was refused.
    pub write: WriteKind,
    /// The code, numbers and hint that the agent gets.
    pub refusal: Refusal,
}

/// The replacement of a token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRotated {
    /// The agent or human that the token authenticates.
    pub agent: AgentId,
    /// The hash of the new token.
    pub credential: Credential,
    /// The time from which the new token is refused; `None` if it doesn't expire.
    pub expires_at: Option<Time>,
    /// The time from which the token before it is refused; `None` if that ended at once.
    pub former_until: Option<Time>,
}
