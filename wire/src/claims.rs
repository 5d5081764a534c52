//! Claims: leases on resources (C1).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::ClaimMode;
use lastword_facts::names::{RequestId, Resource};

const fn exclusive() -> ClaimMode {
    ClaimMode::Exclusive
}

/// Claims a resource; `POST /v1/claims` (C1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewClaim {
    /// The name of the resource, such as `repo:src/auth/*`: a path, which covers what is in it, or a pattern as in git.
    pub resource: String,
    /// `exclusive` (the default) or `shared`.
    #[serde(default = "exclusive")]
    pub mode: ClaimMode,
    /// The length of the lease, in ms; the longest that is allowed if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub ttl_ms: Option<u64>,
    /// How long to wait for the release of a resource that another task holds, in ms; not at all if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// Who may claim certain paths, and how; `[[claim]]` in the configuration (C1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClaimRule {
    /// The paths, and patterns of paths.
    pub paths: Vec<Pattern>,
    /// What holds for them.
    pub mode: PathMode,
}

/// What holds for the paths of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PathMode {
    /// Each claim of them is shared: several tasks add to them.
    Shared,
    /// Only a human claims them.
    Human,
}

/// The name of a resource in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pattern(pub Resource);

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Resource::new(&text).map(Self).map_err(|error| format!("{text:?} {error}"))
    }
}

/// A claim: a lease on a resource.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimView {
    /// The id, such as `clm-1`.
    pub id: String,
    /// A number that only grows: a higher fence belongs to a later claim.
    pub fence: u64,
    /// The name of the claimed resource.
    pub resource: String,
    /// Whether other claims may share the resource.
    pub mode: ClaimMode,
    /// The agent or human that holds the claim.
    pub agent: String,
    /// The request of the task that it is held for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The work item of that request.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The time at which the holder began the turn in which it works at that request; missing between two turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub works_since: Option<String>,
    /// The time at which the lease expires.
    pub expires_at: String,
}

impl ClaimView {
    /// Returns the path or pattern in its name, without the tree that it is in.
    #[must_use]
    pub fn path(&self) -> &str {
        self.resource.split_once(':').map_or(&self.resource, |(_, path)| path)
    }
}
