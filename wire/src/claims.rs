//! Claims: leases on resources (C1).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::ClaimMode;
use lastword_facts::names::RequestId;

const fn exclusive() -> ClaimMode {
    ClaimMode::Exclusive
}

/// Claims a resource; `POST /v1/claims` (C1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewClaim {
    /// The name of the resource, such as `repo:src/auth/*`; a trailing `*` covers every name that begins with the text
    /// before it.
    pub resource: String,
    /// `exclusive` (the default) or `shared`.
    #[serde(default = "exclusive")]
    pub mode: ClaimMode,
    /// The length of the lease, in ms; the longest that is allowed if omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(minimum = 1))]
    pub ttl_ms: Option<u64>,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
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
    /// The time at which the lease expires.
    pub expires_at: String,
}
