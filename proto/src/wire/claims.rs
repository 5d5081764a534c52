//! Claims: leases on resources (C1).

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::fact::ClaimMode;
use crate::names::RequestId;

const fn exclusive() -> ClaimMode {
    ClaimMode::Exclusive
}

/// A lease on a resource to be had; `POST /v1/claims` (C1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewClaim {
    /// The resource: `repo:src/auth/*`.
    pub resource: String,
    /// `exclusive` (the default) or `shared`.
    #[serde(default = "exclusive")]
    pub mode: ClaimMode,
    /// How long, in ms; the longest that is allowed where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A lease on a resource.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimView {
    /// Its id.
    pub id: String,
    /// A number that only grows: who holds a higher one came later.
    pub fence: u64,
    /// The resource.
    pub resource: String,
    /// How it is shared.
    pub mode: ClaimMode,
    /// Who holds it.
    pub agent: String,
    /// For which request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When it ends.
    pub expires_at: String,
}
