//! `lastword bound`: what one grant can cause at most, in the configuration's numbers.

use lastword_proto::Limits;
use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::out::table;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// The numbers of the termination theorem.
#[derive(Debug, Serialize)]
struct Bound {
    /// K, the tasks.
    tasks: u64,
    /// 2K − 1, the waking messages that the tree's shape alone allows.
    structural_messages: u64,
    /// A(2K − 1), the turns that it allows.
    structural_turns: u64,
    /// The smaller of that and the grant's total.
    messages: u64,
    /// The smaller of that and the grant's total.
    turns: u64,
    /// Most distinct agents woken.
    agents: u64,
    /// Longest life, in ms.
    age_ms: u64,
    /// Above this number of messages it warns.
    warning_messages: u64,
    /// Above this number it refuses.
    ceiling_messages: u64,
}

pub(crate) fn run(_args: &Args, cx: &Context) -> Result<(), Failure> {
    let bound = Bound::of(&cx.settings.limits);
    cx.out.show(&bound, |bound, out| {
        let mut text = table(&["of one grant", "at most", "why"], &bound.rows(&cx.settings.limits), out);
        if bound.messages > bound.warning_messages {
            text.push_str(&format!("\nwarning: more than {} messages for one word of a human", bound.warning_messages));
        }
        text
    })?;
    check(&cx.settings.limits)
}

/// Refuses numbers under which a grant could cause more than the ceiling; `serve` asks here too.
pub(super) fn check(limits: &Limits) -> Result<(), Failure> {
    let (messages, ceiling) = (limits.bound_messages(), limits.bound_ceiling_messages);
    if messages <= ceiling {
        return Ok(());
    }
    Err(Failure::refused(format!("a grant could cause {messages} waking messages, and {ceiling} is the ceiling")).hint(
        "lower grant_messages_max, task_requests_max or hops_max in lastword.toml, or raise bound_ceiling_messages",
    ))
}

impl Bound {
    fn of(limits: &Limits) -> Self {
        let structural_messages = limits.potential(0);
        let structural_turns = structural_messages.saturating_mul(limits.runs_max);
        Self {
            tasks: limits.bound_tasks(),
            structural_messages,
            structural_turns,
            messages: limits.bound_messages(),
            turns: structural_turns.min(limits.grant_turns_max),
            agents: limits.grant_agents_max,
            age_ms: limits.grant_age_ms,
            warning_messages: limits.bound_warning_messages,
            ceiling_messages: limits.bound_ceiling_messages,
        }
    }

    fn rows(&self, limits: &Limits) -> Vec<Vec<String>> {
        let (requests, hops) = (limits.task_requests_max, limits.hops_max);
        let row = |what: &str, most: u64, why: String| vec![what.to_owned(), most.to_string(), why];
        vec![
            row("tasks by shape, K", self.tasks, format!("{requests} requests a task, {hops} hops (D3, D4)")),
            row("waking messages by shape", self.structural_messages, "2K − 1: each task's request and answer".into()),
            row("turns by shape", self.structural_turns, format!("{} runs a request (Q5)", limits.runs_max)),
            row("waking messages", self.messages, format!("grant_messages_max = {} (D8)", limits.grant_messages_max)),
            row("turns", self.turns, format!("grant_turns_max = {} (D8)", limits.grant_turns_max)),
            row("distinct agents", self.agents, "grant_agents_max (D8)".into()),
            row("milliseconds", self.age_ms, "grant_age_ms (D8)".into()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_bounded_by_their_totals() {
        let bound = Bound::of(&Limits::default());
        assert_eq!((bound.tasks, bound.structural_messages, bound.structural_turns), (4369, 8737, 34948));
        assert_eq!((bound.messages, bound.turns), (64, 100));
        assert!(check(&Limits::default()).is_ok());
    }

    #[test]
    fn a_configuration_without_a_bound_is_refused() {
        let limits = Limits { grant_messages_max: u64::MAX, hops_max: 60, ..Limits::default() };
        assert_eq!(check(&limits).unwrap_err().exit, crate::failure::Exit::Refused);
        let large = Limits { grant_messages_max: 10_000, hops_max: 60, ..Limits::default() };
        assert!(check(&large).is_ok(), "the ceiling itself is allowed");
    }
}
