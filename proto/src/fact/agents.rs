//! Agents and humans: what each is, may do and is limited to (§1, H7).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::names::Label;

words! {
    /// What kind of principal a name is (§1).
    Kind {
        /// A program that serves and sends requests.
        Agent = "agent",
        /// A person, who grants, resumes and decides.
        Human = "human",
    }
}

words! {
    /// What a human may do (H7); each role may do what the one after it may.
    Role {
        /// Everything.
        Owner = "owner",
        /// Stop, pause, resume, grant, ask, and what an approver may.
        Operator = "operator",
        /// Answer questions and decide approvals, and look.
        Approver = "approver",
        /// Look.
        Viewer = "viewer",
    }
}

/// What an agent is and may do; what `POST` and `PATCH /v1/agents` set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Actions that it can serve.
    pub actions: Vec<Label>,
    /// Groups that it belongs to.
    pub groups: Vec<Label>,
    /// Open turns that it may have at once; 0 is the workspace's default.
    pub turns_max: u64,
}

macro_rules! agent_limits {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Limits of one agent in place of the workspace's (§1); 0 is none of its own.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(from = "Vec<(Box<str>, u64)>", into = "Vec<(Box<str>, u64)>")]
        pub struct AgentLimits {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl AgentLimits {
            /// The names, in the order of the fields.
            pub const NAMES: [&'static str; 7] = [$(stringify!($name),)*];

            /// No limit of its own.
            pub const NONE: Self = Self { $($name: 0,)* };

            /// The limits by their names.
            #[must_use]
            pub const fn values(&self) -> [(&'static str, u64); 7] {
                [$((stringify!($name), self.$name),)*]
            }

            /// Sets the limit called `name`; `false` when there is no such limit.
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
    /// Open turns at once (F1).
    agent_turns_max,
    /// Time to acknowledge, in ms (Q2).
    ack_ms,
    /// Tokens in a UTC day (B1).
    agent_day_tokens_max,
    /// Money in a UTC day, in millionths of a dollar (B1).
    agent_day_cost_microusd_max,
}

/// The stored form is by name, so that a limit may join.
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
    /// What an agent writes that is no message (G1, G4).
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
