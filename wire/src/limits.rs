//! The limits in force, and the policy of held calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use lastword_facts::guards::GUARDS;
use lastword_facts::limits::{Approvers, LIMITS, LimitRow, Limits, Profile};
use lastword_facts::policy::{Policy, Ruling};

/// A limit in force.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitView {
    /// The name; its last word is the unit.
    pub name: String,
    /// The rule that the limit belongs to.
    pub rule: String,
    /// The value in force.
    pub value: u64,
    /// The default value.
    pub default: u64,
    /// The quantity that it bounds.
    pub meaning: String,
}

/// The limits in force; `GET /v1/limits`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitsView {
    /// The profile that the limits start from (R6).
    #[serde(default = "strict")]
    pub profile: Profile,
    /// Every limit, in the order of the documentation.
    pub items: Vec<LimitView>,
    /// For each guard, `enforce` or `observe` (G7).
    pub guards: BTreeMap<String, String>,
    /// An upper bound of the waking messages that one grant can cause.
    pub bound_messages: u64,
    /// The policy of held calls: the first rule that matches a call applies (H2).
    #[serde(default)]
    pub approvals: Vec<ApprovalRuleView>,
}

/// A rule of the policy of held calls.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovalRuleView {
    /// The calls that it applies to, such as `Bash(rm *)`.
    pub call: String,
    /// The agents whose calls it applies to; every agent's if empty.
    pub agents: Vec<String>,
    /// `ask` for a decision by `who`; `allow` or `deny` if the policy itself decides.
    pub decision: Ruling,
    /// The tier that `who` and the timeout come from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Who may decide: `human`, `asker` (the requester), or agents by name.
    pub who: Vec<String>,
    /// Time to decide, in ms; after it the call is denied.
    pub timeout_ms: u64,
}

/// Returns the profile of a server that doesn't know profiles.
const fn strict() -> Profile {
    Profile::Strict
}

fn who(approvers: &Approvers) -> Vec<String> {
    let asker = approvers.asker.then_some("asker");
    let words = ["human"].into_iter().chain(asker).map(Into::into);
    words.chain(approvers.agents.iter().map(ToString::to_string)).collect()
}

impl LimitsView {
    /// Returns the view of these limits and this policy. The last rule is the default for all other calls.
    #[must_use]
    pub fn of(limits: &Limits, policy: &Policy) -> Self {
        let row = |row: &LimitRow| LimitView {
            name: row.name.into(),
            rule: row.rule.into(),
            value: limits.value(row.name).unwrap_or(row.default),
            default: row.default,
            meaning: row.meaning.into(),
        };
        let mode = |name: &str| if limits.observed.observes(name) { "observe" } else { "enforce" };
        let otherwise = ApprovalRuleView {
            call: "*".into(),
            agents: Vec::new(),
            decision: Ruling::Ask,
            tier: None,
            who: who(&limits.approvers),
            timeout_ms: limits.approval_ms,
        };
        let ruled = policy.rules.iter().map(|rule| ApprovalRuleView {
            call: rule.call.to_string(),
            agents: rule.agents.iter().map(ToString::to_string).collect(),
            decision: rule.ruling,
            tier: rule.tier.as_ref().map(ToString::to_string),
            who: who(rule.who.as_ref().unwrap_or(&limits.approvers)),
            timeout_ms: rule.timeout_ms.unwrap_or(limits.approval_ms),
        });
        Self {
            profile: limits.profile,
            items: LIMITS.iter().map(row).collect(),
            guards: GUARDS.iter().map(|guard| (guard.name.into(), mode(guard.name).into())).collect(),
            bound_messages: limits.bound_messages(),
            approvals: ruled.chain([otherwise]).collect(),
        }
    }
}
