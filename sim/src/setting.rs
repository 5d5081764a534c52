//! The setting of a campaign: limits, agents, clock and their behaviour.

use lastword_core::Core;
use lastword_facts::limits::Limits;

/// The retention where a clock advances by months: seconds, so that everything that may be forgotten is.
const SHORT_RETENTION_MS: u64 = 5_000;

/// The pace of a campaign's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// In steps of milliseconds to hours, with the retention of the limits.
    Hours,
    /// In steps of up to weeks, with closed records forgotten after seconds.
    Months,
}

impl Pace {
    /// Returns the limits for this pace.
    #[must_use]
    pub fn limits(self, limits: &Limits) -> Limits {
        match self {
            Self::Hours => limits.clone(),
            Self::Months => Limits { retention_ms: SHORT_RETENTION_MS, ..limits.clone() },
        }
    }
}

/// The behaviour of the agents in a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Alternates between agents that know the rules and use every limit fully, and agents that do anything at random.
    Mixed,
    /// Agents that use up turns: they lose leases, complete work in part, and ask humans before they answer.
    Spenders,
}

/// The setting of a campaign.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The limits in force.
    pub limits: Limits,
    /// The number of agents.
    pub agents: u8,
    /// The number of steps in each history.
    pub steps: u64,
    /// The pace of the clock.
    pub pace: Pace,
    /// The behaviour of the agents.
    pub style: Style,
    /// A guard whose promise is checked even where the guard only observes.
    pub looks_at: Option<&'static str>,
    /// The core before its first input; one that lacks a rule, to prove that the campaign notices.
    pub core: Core,
}

impl Setting {
    /// Returns a campaign of histories of `steps` steps with `agents` agents.
    #[must_use]
    pub fn new(limits: Limits, agents: u8, steps: u64, pace: Pace) -> Self {
        Self { limits, agents, steps, pace, style: Style::Mixed, looks_at: None, core: Core::default() }
    }
}
