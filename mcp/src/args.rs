//! The arguments of the tools, as models send them.

use lastword_facts::envelope::FinishStatus;
use lastword_facts::fact::{ClaimMode, Decision};
use lastword_wire::To;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Send {
    pub(super) target_agent_id: To,
    pub(super) message: String,
    #[serde(rename = "ref")]
    pub(super) reference: Option<String>,
    pub(super) action: Option<String>,
    pub(super) payload: Option<Value>,
    pub(super) timeout_ms: Option<u64>,
    #[serde(default)]
    pub(super) wait: bool,
    pub(super) turn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Escalate {
    pub(super) message: String,
    #[serde(default)]
    pub(super) options: Vec<String>,
    #[serde(rename = "ref")]
    pub(super) reference: Option<String>,
    pub(super) turn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Resolve {
    pub(super) approval_id: String,
    pub(super) decision: Decision,
    pub(super) digest: Option<String>,
    pub(super) comment: Option<String>,
    pub(super) input: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Next {
    pub(super) wait_ms: Option<u64>,
    pub(super) turn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FinishTurn {
    #[serde(default)]
    pub(super) answer: String,
    pub(super) status: Option<FinishStatus>,
    pub(super) payload: Option<Value>,
    #[serde(default)]
    pub(super) completed: Vec<String>,
    #[serde(default)]
    pub(super) failed: Vec<String>,
    pub(super) reason: Option<String>,
    pub(super) turn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    #[serde(default)]
    pub(super) note: String,
    pub(super) eta_ms: Option<u64>,
    pub(super) turn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approve {
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) input: Value,
    pub(super) reason: Option<String>,
    pub(super) turn: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Use {
    pub(super) approval_id: String,
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) input: Value,
}

/// The arguments that Claude Code sends to its permission-prompt tool. Unknown members are ignored, because later
/// versions may add some.
#[derive(Deserialize)]
pub(super) struct Permit {
    pub(super) tool_name: String,
    #[serde(default)]
    pub(super) input: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ById {
    pub(super) request_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Check {
    pub(super) request_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ByRef {
    #[serde(rename = "ref")]
    pub(super) reference: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    pub(super) resource: String,
    pub(super) mode: Option<ClaimMode>,
    pub(super) ttl_ms: Option<u64>,
    pub(super) wait_ms: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Release {
    pub(super) claim_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Answer {
    pub(super) escalation_id: String,
    #[serde(default)]
    pub(super) answer: String,
    pub(super) lift: Option<String>,
}
