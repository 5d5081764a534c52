//! Leases on resources (C1).

use serde::{Deserialize, Serialize};

use crate::envelope::words;
use crate::ids::{AgentId, ClaimId, TaskId, Time};
use crate::names::Resource;

words! {
    /// How a claim shares its resource (C1).
    ClaimMode {
        /// No other claim may overlap.
        Exclusive = "exclusive",
        /// Other shared claims may overlap.
        Shared = "shared",
    }
}

/// A lease on a resource, granted or renewed (C1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claimed {
    /// The next number, which is also the claim's fence; its own at a renewal.
    pub claim: ClaimId,
    /// The agent or human that holds the claim.
    pub agent: AgentId,
    /// The task for which it is held; `None` outside every turn.
    pub task: Option<TaskId>,
    /// The name of the claimed resource.
    pub resource: Resource,
    /// Whether other claims may share the resource.
    pub mode: ClaimMode,
    /// The end of the lease.
    pub expires_at: Time,
}
