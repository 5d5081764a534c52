//! `lastword bound`: shows the most that one grant can cause under the configured limits.

use lastword_facts::Limits;
use lastword_facts::limits::Profile;
use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// The numbers of the termination theorem.
#[derive(Debug, Serialize)]
struct Bound {
    /// K, the most tasks.
    tasks: u64,
    /// 2K − 1, the waking messages that the shape of the tree alone allows.
    structural_messages: u64,
    /// A(2K − 1 + CK), the turns that the shape of the tree alone allows.
    structural_turns: u64,
    /// The smaller of `structural_messages` and the grant's total.
    messages: u64,
    /// The smaller of `structural_turns` and the grant's total.
    turns: u64,
    /// Most distinct agents woken.
    agents: u64,
    /// The grant's clock, in ms; it stops while something in the grant waits.
    age_ms: u64,
    /// Longest life in ms, including the time in which the clock is stopped.
    life_ms: u64,
    /// Waking messages that each agent's own roots cause after a human's last act; `None` if unbounded.
    unattended_messages_per_agent: Option<u64>,
    /// The same for each schedule that ticks as often as allowed; `None` if unbounded.
    unattended_messages_per_schedule: Option<u64>,
    /// Waking messages that the prompts typed into the session of each agent add in a day (H8).
    typed_messages_per_session_day: u64,
    /// Time until all work has ended after a human's last act, in ms; `None` if unbounded.
    rest_ms: Option<u64>,
    /// The number of messages above which the program warns.
    warning_messages: u64,
    /// The number of messages above which the program refuses the configuration.
    ceiling_messages: u64,
    /// The profile that the limits start from (R6).
    profile: Profile,
    /// The bound of one grant in each profile as it is.
    profiles: Vec<OfProfile>,
}

/// The bound of one grant in a profile.
#[derive(Debug, Serialize)]
struct OfProfile {
    profile: Profile,
    messages: u64,
    turns: u64,
    agents: u64,
}

pub(crate) fn run(_args: &Args, cx: &Context) -> Result<(), Failure> {
    let bound = Bound::of(&cx.settings.limits);
    cx.out.show(&bound, |bound, out| {
        let mut text = table(&["of one grant", "at most", "why"], &bound.rows(&cx.settings.limits), out);
        text.push_str("\n\nExtensions by a human come on top; each states its amount.\n\n");
        text.push_str(&bound.unattended(out));
        text.push_str(&format!("\n\n{}", bound.typed(&cx.settings.limits, out)));
        text.push_str(&format!("\n\n{}", bound.profiles(out)));
        if bound.warns() {
            text.push_str(&format!(
                "\nwarning: more than {} waking messages per human message",
                bound.warning_messages
            ));
        }
        text
    })?;
    check(&cx.settings.limits)
}

/// Refuses limits under which a grant could cause more than the ceiling; `serve` checks them, too.
pub(super) fn check(limits: &Limits) -> Result<(), Failure> {
    let (messages, ceiling) = (limits.bound_messages(), limits.bound_ceiling_messages);
    if messages <= ceiling {
        return Ok(());
    }
    Err(Failure::refused(format!("a grant could cause {messages} waking messages, and {ceiling} is the ceiling")).hint(
        "lower grant_messages_max, task_requests_max or hops_max in lastword.toml, or raise bound_ceiling_messages",
    ))
}

impl OfProfile {
    fn of(profile: Profile) -> Self {
        let limits = Limits::of(profile);
        let (messages, turns) = (limits.bound_messages(), limits.bound_turns());
        Self { profile, messages, turns, agents: limits.grant_agents_max }
    }
}

impl Bound {
    fn of(limits: &Limits) -> Self {
        let structural_messages = limits.potential(0);
        let structural_turns = limits.potential_turns();
        Self {
            tasks: limits.bound_tasks(),
            structural_messages,
            structural_turns,
            messages: limits.bound_messages(),
            turns: structural_turns.min(limits.grant_turns_max),
            agents: limits.grant_agents_max,
            age_ms: limits.grant_age_ms,
            life_ms: limits.grant_life_ms,
            unattended_messages_per_agent: limits.bound_unattended_agent(),
            unattended_messages_per_schedule: limits.bound_unattended_schedule(),
            typed_messages_per_session_day: limits.bound_typed_day(),
            rest_ms: limits.bound_rest_ms(),
            warning_messages: limits.bound_warning_messages,
            ceiling_messages: limits.bound_ceiling_messages,
            profile: limits.profile,
            profiles: Profile::ALL.iter().map(|profile| OfProfile::of(*profile)).collect(),
        }
    }

    /// Compares the profiles, each as it is, and marks the one that these limits start from (R6).
    fn profiles(&self, out: &Out) -> String {
        let rows = self.profiles.iter().map(|of| {
            let mark = if of.profile == self.profile { "in use" } else { "" };
            vec![
                of.profile.to_string(),
                of.messages.to_string(),
                of.turns.to_string(),
                of.agents.to_string(),
                mark.into(),
            ]
        });
        let head = ["profile", "waking messages", "turns", "agents", ""];
        table(&head, &rows.collect::<Vec<_>>(), out)
    }

    const fn warns(&self) -> bool {
        self.messages > self.warning_messages
    }

    /// Describes what the whole workspace can cause after a human's last act (D12).
    fn unattended(&self, out: &Out) -> String {
        let (Some(agent), Some(schedule), Some(rest)) =
            (self.unattended_messages_per_agent, self.unattended_messages_per_schedule, self.rest_ms)
        else {
            return "After the last human act: work that agents start has no end, because unattended_ms is 0.".into();
        };
        let row = |what: &str, most: u64, why: &str| vec![what.to_owned(), most.to_string(), why.to_owned()];
        let rows = [
            row(
                "waking messages of each agent's own roots",
                agent,
                "root_messages_per_day_max, unattended_ms (D7, D12)",
            ),
            row("waking messages of each schedule", schedule, "schedule_interval_ms, unattended_ms (D13, D12)"),
            row("milliseconds until all work has ended", rest, "unattended_ms + grant_life_ms (D12, D8)"),
        ];
        table(&["after the last human act", "at most", "why"], &rows, out)
    }

    fn rows(&self, limits: &Limits) -> Vec<Vec<String>> {
        let (requests, hops) = (limits.task_requests_max, limits.hops_max);
        let row = |what: &str, most: u64, why: String| vec![what.to_owned(), most.to_string(), why];
        vec![
            row("tasks by shape, K", self.tasks, format!("{requests} requests a task, {hops} hops (D3, D4)")),
            row("waking messages by shape", self.structural_messages, "2K − 1: each task's request and answer".into()),
            row(
                "turns by shape",
                self.structural_turns,
                format!("{} runs a request (Q5), {} questions a task (H1)", limits.runs_max, limits.task_questions_max),
            ),
            row("waking messages", self.messages, format!("grant_messages_max = {} (D8)", limits.grant_messages_max)),
            row("turns", self.turns, format!("grant_turns_max = {} (D8)", limits.grant_turns_max)),
            row("distinct agents", self.agents, "grant_agents_max (D8)".into()),
            row("milliseconds of its clock", self.age_ms, "grant_age_ms (D8)".into()),
            row("milliseconds in all", self.life_ms, "grant_life_ms (D8)".into()),
        ]
    }

    /// Describes what prompts typed into sessions add (H8).
    fn typed(&self, limits: &Limits, out: &Out) -> String {
        let a_day = limits.typed_grants_per_hour_max.saturating_mul(24);
        if a_day == 0 {
            return "Prompts typed into sessions open no grants.".into();
        }
        let row = |what: &str, most: u64, why: &str| vec![what.to_owned(), most.to_string(), why.to_owned()];
        let rows = [
            row("grants", a_day, "typed_grants_per_hour_max (H8)"),
            row("waking messages", self.typed_messages_per_session_day, "the bound of each grant, above"),
        ];
        let head = ["typed into one session in a day", "at most", "why"];
        format!(
            "{}\n\nA human types each of them. An agent that types in a human's name could cause as much, and would \
             count as one: [sessions] typed = \"off\" rules that out.",
            table(&head, &rows, out)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_bounded_by_their_totals() {
        let bound = Bound::of(&Limits::default());
        assert_eq!((bound.tasks, bound.structural_messages, bound.structural_turns), (4369, 8737, 314_564));
        assert_eq!((bound.messages, bound.turns), (64, 100));
        assert_eq!(bound.typed_messages_per_session_day, 30 * 24 * 64);
        let of = |of: &OfProfile| (of.profile, of.messages, of.turns);
        let profiles: Vec<_> = bound.profiles.iter().map(of).collect();
        assert_eq!(profiles, [(Profile::Strict, 64, 100), (Profile::Long, 512, 800)]);
        assert!(check(&Limits::default()).is_ok());
    }

    #[test]
    fn a_configuration_without_a_bound_is_refused() {
        let limits = Limits { grant_messages_max: u64::MAX, hops_max: 60, ..Limits::default() };
        assert_eq!(check(&limits).unwrap_err().exit, crate::failure::Exit::Refused);
    }

    #[test]
    fn the_warning_and_the_ceiling_begin_one_above_their_limits() {
        let of = |grant_messages_max| Limits { grant_messages_max, hops_max: 60, ..Limits::default() };
        let (warning, ceiling) = (Limits::default().bound_warning_messages, Limits::default().bound_ceiling_messages);
        assert!(!Bound::of(&of(warning)).warns() && Bound::of(&of(warning + 1)).warns());
        assert!(check(&of(ceiling)).is_ok() && check(&of(ceiling + 1)).is_err());
    }
}
