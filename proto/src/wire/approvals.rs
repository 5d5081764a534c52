//! Approvals: tool calls that are held for a decision (H2).

use alloc::string::String;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::fact::Decision;
use crate::names::RequestId;
use crate::state::ApprovalState;

/// A tool call to be held; `POST /v1/approvals`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldCall {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Value,
    /// Why it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A decision; `POST /v1/approvals/{id}/decision`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    /// `approve`, `reject`, `respond`, `ignore` or `edit`.
    pub decision: Decision,
    /// In which words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// For `edit`: the arguments to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The digest of the call that was looked at, in hexadecimal; required to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The call for which an approval is used up; `POST /v1/approvals/{id}/use`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UseApproval {
    /// The tool.
    pub tool: String,
    /// Its arguments.
    #[serde(default)]
    pub arguments: Value,
}

/// A held call, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovalView {
    /// Its id, `apr-1`.
    pub id: String,
    /// The digest of the call that may be made, in hexadecimal.
    pub digest: String,
    /// Where it stands.
    pub state: ApprovalState,
    /// When it is denied by itself.
    pub expires_at: String,
    /// Who would make the call.
    pub agent: String,
    /// The tool.
    pub tool: String,
    /// The arguments that may be used.
    pub arguments: Value,
    /// Why it is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The conversation of the task in which it would be made.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request of that task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When it was asked.
    pub created_at: String,
    /// The decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// Who decided; `policy` where a rule of it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The rule of the policy that is about the call, such as `Bash(rm *)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The tier of that rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// In which words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}
