//! Approvals: tool calls that are held for a decision (H2).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{Decision, EndReason, Kind};
use lastword_facts::names::RequestId;
use lastword_facts::status::ApprovalState;

use crate::Arguments;

/// Holds a tool call for a decision; `POST /v1/approvals`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct HeldCall {
    /// The name of the tool.
    pub tool: String,
    /// The arguments of the call, any JSON in which no member is there twice; numbers are kept digit by digit.
    #[serde(default)]
    pub arguments: Arguments,
    /// The reason for the call, shown for the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// Decides a held call; `POST /v1/approvals/{id}/decision`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    /// `approve`, `reject`, `respond`, `ignore` or `edit`.
    pub decision: Decision,
    /// A comment for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    /// For `edit`: the arguments to use instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Arguments>,
    /// The digest of the call that was shown, in hexadecimal; required to approve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// The call that uses up an approval; `POST /v1/approvals/{id}/use`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct UseApproval {
    /// The name of the tool.
    pub tool: String,
    /// The arguments of the call; must match the approved ones.
    #[serde(default)]
    pub arguments: Arguments,
    /// The idempotency key, sent in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A held call and its current state.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovalView {
    /// The id, such as `apr-1`.
    pub id: String,
    /// The digest of the call that may be made, in hexadecimal.
    pub digest: String,
    /// Whether the call awaits a decision, and how it was decided or used.
    pub state: ApprovalState,
    /// For a withdrawn call: what ended its task; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<EndReason>,
    /// The time at which the call is denied if no decision is made.
    pub expires_at: String,
    /// For a pending call of a turn: the time at which it is withdrawn unless its agent is heard of until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_until: Option<String>,
    /// The agent that would make the call.
    pub agent: String,
    /// The name of the tool.
    pub tool: String,
    /// The arguments that may be used: as requested, or as edited.
    pub arguments: Arguments,
    /// For an edited call: the arguments that the agent requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Arguments, required = false))]
    pub requested: Option<Arguments>,
    /// The agent's reason for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The conversation of the task in which the call would be made.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request that the task serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The time at which the call was held.
    pub created_at: String,
    /// The decision, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The time of the decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// The human or agent who decided; `policy` if a rule of the policy did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Whether a human or an agent decided; absent if a rule of the policy did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_kind: Option<Kind>,
    /// The rule of the policy that applies to the call, such as `Bash(rm *)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// The tier of that rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// The comment of the human or agent who decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
}

impl ApprovalView {
    /// Returns when a pending call ends if nothing happens: it is denied, or withdrawn with the turn of a silent agent.
    #[must_use]
    pub fn due(&self) -> &str {
        // Times of one form and zone are in the order of their texts.
        self.lease_until.as_deref().filter(|lease| *lease < self.expires_at.as_str()).unwrap_or(&self.expires_at)
    }

    /// Returns how a call ended that nobody decided, as a clause for humans.
    #[must_use]
    pub const fn undecided(&self) -> Option<&'static str> {
        match self.state {
            ApprovalState::Expired => Some("no human decided in time"),
            ApprovalState::Withdrawn => Some(match self.ended {
                Some(EndReason::Stopped) => "a human stopped its work",
                Some(EndReason::Cancelled) => "its request was cancelled",
                Some(EndReason::AskerEnded) => "the work above it ended",
                Some(EndReason::Deadline) => "the deadline of its request passed",
                Some(EndReason::GrantExpired) => "the grant of its work expired",
                Some(EndReason::Unanswered) => "no human answered its agent's question in time",
                Some(EndReason::NotAcknowledged | EndReason::LeaseLost) => "its agent lost the work",
                Some(EndReason::NobodyLeft) => "no agent is left for its work",
                Some(EndReason::RecipientGone) => "its agent was removed",
                Some(EndReason::Answered | EndReason::Empty) => "its agent ended the work without it",
                None => "its agent was removed, or its work started again",
            }),
            ApprovalState::Pending
            | ApprovalState::Approved
            | ApprovalState::Rejected
            | ApprovalState::Ignored
            | ApprovalState::Used => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_with_its_own_time_or_with_the_lease_of_a_silent_agent() {
        let of = |lease: Option<&str>| {
            let view = serde_json::json!({
                "id": "apr-1", "digest": "00", "state": "pending", "expires_at": "2026-01-31T09:05:00.000Z",
                "lease_until": lease, "agent": "coder", "tool": "Bash", "arguments": {}, "created_at": "2026-01-31T09:00:00.000Z",
            });
            serde_json::from_value::<ApprovalView>(view).unwrap().due().to_owned()
        };
        assert_eq!(of(None), "2026-01-31T09:05:00.000Z");
        assert_eq!(of(Some("2026-01-31T09:04:59.999Z")), "2026-01-31T09:04:59.999Z");
        assert_eq!(of(Some("2026-01-31T10:00:00.000Z")), "2026-01-31T09:05:00.000Z");
    }
}
