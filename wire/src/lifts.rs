//! The one step by which a human lifts the limit, latch, pause or stop that refused a call (H6).

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use lastword_facts::fact::{Extension, Lift};
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::refusal::RefusedAbout;
use lastword_facts::refusal::{Code, Refusal};

/// The step by which a human lifts a limit, a latch, a pause or a stop.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LiftStep {
    /// The HTTP call with its body, such as `POST /v1/conversations/T-1/grant {"rounds":2}`.
    pub call: String,
    /// The command, such as `lastword grant T-1 --rounds 2`.
    pub cli: String,
    /// A sentence that says what the step does.
    pub text: String,
}

/// The reason that holds work, and the one step by which a human resumes it (R3, H6).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HeldBy {
    /// The reason, as a sentence without a full stop.
    pub text: String,
    /// The step that lifts it.
    pub lift: LiftStep,
}

/// The conversation and agent that a refused call was about, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefusedAt<'a> {
    /// The REF of the conversation.
    pub reference: Option<&'a str>,
    /// The agent that was refused.
    pub agent: Option<&'a str>,
    /// Whether the work has settled, so that only a new task of a human goes on with it.
    pub settled: bool,
}

impl<'a> From<&'a RefusedAbout> for RefusedAt<'a> {
    fn from(about: &'a RefusedAbout) -> Self {
        Self {
            reference: about.reference.as_ref().map(Ref::as_str),
            agent: about.agent.as_ref().map(AgentName::as_str),
            settled: about.settled,
        }
    }
}

impl LiftStep {
    /// Returns the step that lifts what refuses posts in a room: any post of a human.
    #[must_use]
    pub fn of_room(name: &str) -> Self {
        Self {
            call: format!("POST /v1/rooms/{}/messages {{\"body\":\"…\"}}", encoded(name)),
            cli: format!("lastword resume --room {name}"),
            text: format!("A human posts in {name}."),
        }
    }

    /// Returns the step that lifts this refusal; `None` if no human's step does.
    #[must_use]
    #[expect(clippy::wildcard_enum_match_arm, reason = "every other code is lifted by an extension, or by nothing")]
    pub fn of(refusal: &Refusal, at: RefusedAt<'_>) -> Option<Self> {
        let cost = refusal.limit.filter(|_| refusal.is_cost());
        let of_day = refusal.code == Code::Budget && refusal.retry_after_ms.is_some();
        match refusal.code {
            Code::RootAllowance if refusal.subject.is_some() => {
                at.agent.map(|agent| the_task_itself(agent, at.reference))
            }
            Code::RootAllowance => at.agent.map(|agent| more_roots(agent, refusal.limit)),
            Code::Budget if of_day => at.agent.map(|agent| more_for_today(agent, cost)),
            Code::Unattended => Some(Self {
                call: "POST /v1/workspace/resume".into(),
                cli: "lastword resume --workspace".into(),
                text: "Any human act lets agents start work again: open the console, answer a question, or run this."
                    .into(),
            }),
            Code::Paused | Code::Stopped => refusal.subject.as_deref().map(|on| resume(on, at)),
            Code::TurnsSoft | Code::TurnsHard if refusal.room().is_some() => refusal.room().map(Self::of_room),
            Code::Latched | Code::TurnsSoft | Code::TurnsHard | Code::NoProgress => {
                let lifted = |on| Self {
                    text: format!("A human lifts the hold on {on}."),
                    ..resume(on, RefusedAt { agent: None, ..at })
                };
                at.reference.map(lifted)
            }
            code => {
                let (lift, on) = (Lift::of(code, refusal.lacks(), cost.unwrap_or(0))?, at.reference?);
                if at.settled { at.agent.map(|agent| the_task_itself(agent, Some(on))) } else { extend(lift, on) }
            }
        }
    }
}

/// Returns the body of `POST /v1/conversations/{ref}/grant` that extends as the lift does; `None` for a lift that
/// extends nothing.
#[must_use]
pub fn grant_body(lift: Lift) -> Option<Value> {
    let Extension { messages, turns, requests, agents, tokens, time_ms, cost_microusd } = lift.extension();
    if let Lift::Rounds(rounds) = lift {
        return Some(json!({ "rounds": rounds }));
    }
    let mut body = serde_json::Map::new();
    // By name, as a map without an order of its own would have them.
    for (name, value) in [
        ("agents", agents.into()),
        ("cost_usd", dollars(cost_microusd)),
        ("messages", messages.into()),
        ("requests", requests.into()),
        ("time_ms", time_ms.into()),
        ("tokens", tokens.into()),
        ("turns", turns.into()),
    ] {
        let value: Value = value;
        if value.as_f64() > Some(0.0) {
            body.insert(name.to_string(), value);
        }
    }
    (!body.is_empty()).then_some(Value::Object(body))
}

fn extend(lift: Lift, reference: &str) -> Option<LiftStep> {
    let body = grant_body(lift)?;
    let flags: String = body.as_object()?.iter().fold(String::new(), |mut flags, (name, value)| {
        let (name, value) = match (name.as_str(), value.as_u64()) {
            ("time_ms", Some(ms)) => ("time".to_string(), format!("{}h", ms / lastword_facts::ids::HOUR_MS)),
            ("cost_usd", _) => ("cost".to_string(), value.to_string()),
            (name, _) => (name.to_string(), value.to_string()),
        };
        flags.push_str(&format!(" --{name} {value}"));
        flags
    });
    Some(LiftStep {
        call: format!("POST /v1/conversations/{}/grant {body}", encoded(reference)),
        cli: format!("lastword grant {reference}{flags}"),
        text: format!("A human extends {reference}: {lift}."),
    })
}

fn resume(on: &str, at: RefusedAt<'_>) -> LiftStep {
    let (call, cli) = match on {
        "workspace" if at.reference != Some(on) => {
            ("POST /v1/workspace/resume".to_string(), "lastword resume --workspace".to_string())
        }
        name if Some(name) == at.agent => {
            (format!("POST /v1/agents/{name}/resume"), format!("lastword resume --agent {name}"))
        }
        reference => {
            (format!("POST /v1/conversations/{}/resume", encoded(reference)), format!("lastword resume {reference}"))
        }
    };
    LiftStep { call, cli, text: format!("A human resumes {on}.") }
}

fn more_roots(agent: &str, limit: Option<u64>) -> LiftStep {
    // An agent's own limit of 0 is that of the workspace, so it is at least 1.
    let twice = limit.unwrap_or(10).saturating_mul(2).max(1);
    LiftStep {
        call: format!("PATCH /v1/agents/{agent} {{\"limits\":{{\"roots_per_hour_max\":{twice}}}}}"),
        cli: format!("lastword agent set {agent} --roots-per-hour {twice}"),
        text: format!("A human raises the roots per hour of {agent}, or sends it the task."),
    }
}

/// An agent whose own work can't be extended can still do it under a human's grant, on the same REF if it had one.
fn the_task_itself(agent: &str, reference: Option<&str>) -> LiftStep {
    let (member, flag, under) = match reference {
        Some(on) => (format!(",\"ref\":\"{on}\""), format!(" --ref {on}"), format!(" under {on}")),
        None => Default::default(),
    };
    LiftStep {
        call: format!("POST /v1/messages {{\"type\":\"request\",\"to\":\"{agent}\"{member},\"body\":\"…\"}}"),
        cli: format!("lastword ask {agent} \"…\"{flag}"),
        text: format!("A human sends {agent} the task{under}."),
    }
}

fn more_for_today(agent: &str, cost: Option<u64>) -> LiftStep {
    let (field, flag, amount) = match cost {
        Some(microusd) => ("cost_usd", "cost", dollars(microusd)),
        None => ("tokens", "tokens", json!(50_000)),
    };
    LiftStep {
        call: format!("POST /v1/agents/{agent}/grant {{\"{field}\":{amount}}}"),
        cli: format!("lastword grant --agent {agent} --{flag} {amount}"),
        text: format!("A human extends the {flag} of {agent} for today."),
    }
}

fn dollars(microusd: u64) -> Value {
    json!(microusd as f64 / 1e6)
}

/// Encodes a REF as one segment of a path.
fn encoded(reference: &str) -> String {
    reference.replace('#', "%23").replace('/', "%2F").replace(':', "%3A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_that_a_human_can_lift_names_the_step() {
        let at = RefusedAt { reference: Some("T-1/2"), agent: Some("kilo"), settled: false };
        let step = LiftStep::of(&Refusal::new(Code::DepthCap), at).unwrap();
        assert_eq!(step.call, "POST /v1/conversations/T-1%2F2/grant {\"rounds\":2}");
        assert_eq!(step.cli, "lastword grant T-1/2 --rounds 2");
        let settled = LiftStep::of(&Refusal::new(Code::DepthCap), RefusedAt { settled: true, ..at }).unwrap();
        assert_eq!(settled.cli, "lastword ask kilo \"…\" --ref T-1/2", "nothing is left to extend");
        let list = Refusal::new(Code::GrantMessages).numbers(64, 96);
        assert_eq!(LiftStep::of(&list, at).unwrap().cli, "lastword grant T-1/2 --messages 32", "all that is lacking");
        let step = LiftStep::of(&Refusal::new(Code::GrantExpired), at).unwrap();
        assert_eq!(step.cli, "lastword grant T-1/2 --time 24h");
        let step = LiftStep::of(&Refusal::new(Code::Budget).retry_after(5), at).unwrap();
        assert_eq!(step.cli, "lastword grant --agent kilo --tokens 50000");
        let step = LiftStep::of(&Refusal::new(Code::Budget).numbers(2_000_000, 2_000_000).about("money"), at).unwrap();
        assert_eq!(step.cli, "lastword grant T-1/2 --cost 2.0");
        let day = Refusal::new(Code::Budget).numbers(2_500_000, 2_500_000).retry_after(5);
        let step = LiftStep::of(&day.clone().about("money of kilo's day"), at).unwrap();
        assert_eq!(step.call, "POST /v1/agents/kilo/grant {\"cost_usd\":2.5}");
        assert_eq!(step.cli, "lastword grant --agent kilo --cost 2.5");
        let step = LiftStep::of(&day.about("money"), at).unwrap();
        assert_eq!(step.cli, "lastword grant --agent kilo --tokens 50000", "an agent of that name");
        let step = LiftStep::of(&Refusal::new(Code::TurnsSoft), at).unwrap();
        assert_eq!(step.cli, "lastword resume T-1/2");
        let step = LiftStep::of(&Refusal::new(Code::TurnsSoft).about("den"), at).unwrap();
        assert_eq!(step.cli, "lastword resume --room den");
        let roots = Refusal::new(Code::RootAllowance).numbers(30, 31);
        assert_eq!(LiftStep::of(&roots, at).unwrap().cli, "lastword agent set kilo --roots-per-hour 60");
        let step = LiftStep::of(&roots.about("waking messages of kilo's day"), at).unwrap();
        assert_eq!(step.cli, "lastword ask kilo \"…\" --ref T-1/2");
        assert_eq!(LiftStep::of(&Refusal::new(Code::Cycle), at), None);
    }
}
