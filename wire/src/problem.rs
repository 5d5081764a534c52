//! Refusals in the form of RFC 9457.

use serde::{Deserialize, Serialize};

use lastword_facts::names::AgentName;
use lastword_facts::refusal::{Code, Refusal};

use crate::{LiftStep, amount};

/// A refusal, as `application/problem+json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Problem {
    /// A URI for the code, such as `urn:lastword:budget`.
    #[serde(rename = "type")]
    pub kind: String,
    /// A short sentence that describes the code.
    pub title: String,
    /// The HTTP status of the response.
    pub status: u16,
    /// The stable code.
    pub code: Code,
    /// The problem of this call: the member, the name, the numbers.
    pub detail: String,
    /// The rule that the code enforces.
    pub rule: String,
    /// Whether the two numbers are money, in millionths of a dollar; absent if they aren't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cost: bool,
    /// The limit that the call met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The value that the call would have reached, or the current count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<u64>,
    /// The time after which a retry may succeed, in ms from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// What to do instead, in one sentence.
    pub hint: String,
    /// The one step by which a human lifts it, if there is one (H6).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lift: Option<LiftStep>,
    /// The record of the refusal, if the log has one; `GET /v1/explanations/{id}` explains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<String>,
}

fn detail(refusal: &Refusal) -> String {
    let mut text = String::from(refusal.code.title());
    if let Some(subject) = &refusal.subject {
        text.push_str(": ");
        text.push_str(subject);
    }
    if let (Some(limit), Some(current)) = (refusal.limit, refusal.current) {
        let [limit, current] = [limit, current].map(|n| amount(refusal.is_cost(), n));
        text.push_str(&format!(" (limit {limit}, would be {current})"));
    }
    text
}

/// Returns the hint of the code, for this refusal.
fn hint(refusal: &Refusal) -> String {
    match (refusal.code, &refusal.subject) {
        // There are as many as there may be, and none goes away by itself.
        (Code::Saturated, None) if refusal.limit.is_some() && refusal.retry_after_ms.is_none() => {
            "Remove or reuse one that is no longer needed, because waiting makes no room.".into()
        }
        (Code::NameTaken, Some(name)) if AgentName::new(name).is_ok() => refusal.code.hint().replace("NAME", name),
        (Code::NameTaken, Some(_)) => "Choose a name that doesn't read as another's.".into(),
        _ => refusal.code.hint().into(),
    }
}

impl Problem {
    /// Returns the problem for a refusal, with its default detail.
    #[must_use]
    pub fn new(refusal: &Refusal) -> Self {
        Self::detailed(refusal, detail(refusal))
    }

    /// Returns the problem for a refusal with a detail that names more, such as the invalid member.
    #[must_use]
    pub fn detailed(refusal: &Refusal, detail: String) -> Self {
        let code = refusal.code;
        Self {
            kind: format!("urn:lastword:{code}"),
            title: code.title().into(),
            status: code.http_status(),
            code,
            detail,
            rule: code.rule().into(),
            is_cost: refusal.is_cost(),
            limit: refusal.limit,
            current: refusal.current,
            retry_after_ms: refusal.retry_after_ms,
            hint: hint(refusal),
            lift: None,
            record: None,
        }
    }
}
