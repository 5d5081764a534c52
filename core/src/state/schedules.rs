//! Schedules and the results of their ticks (D13).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::Schedule;
use lastword_facts::ids::{AgentId, GrantId, Time};
use lastword_facts::names::Label;
use lastword_facts::refusal::Code;

use super::{Opt, State};

/// A schedule and the result of its last ticks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// The schedule as a human set it.
    pub schedule: Schedule,
    /// The human who set it, in whose name its ticks send.
    pub by: AgentId,
    /// The time of the next tick.
    pub next_at: Time,
    /// The number of ticks that opened a grant.
    pub ticks: u64,
    /// The time of the last tick that opened a grant.
    pub last_at: Opt<Time>,
    /// The grant of the last tick.
    pub grant: Opt<GrantId>,
    /// The time of the last tick if that opened no grant, with the code of the refusal; no code if the grant before was
    /// still open.
    pub skipped: Option<(Time, Option<Code>)>,
}

impl State {
    pub(super) fn schedule_set(&mut self, by: AgentId, schedule: &Schedule, next_at: Time) {
        let before = self.schedules.remove(&schedule.name);
        let scheduled = Scheduled {
            schedule: schedule.clone(),
            by,
            next_at,
            // A changed schedule keeps its history: its number fills `{n}`, and its open grant blocks the next tick.
            ticks: before.as_ref().map_or(0, |known| known.ticks),
            last_at: before.as_ref().map_or_else(Opt::none, |known| known.last_at),
            grant: before.as_ref().map_or_else(Opt::none, |known| known.grant),
            skipped: None,
        };
        self.schedules.insert(schedule.name.clone(), scheduled);
    }

    pub(super) fn schedule_skipped(&mut self, at: Time, name: &Label, code: Option<Code>, next_at: Time) {
        if let Some(known) = self.schedules.get_mut(name) {
            known.next_at = next_at;
            known.skipped = Some((at, code));
        }
    }

    pub(super) fn schedule_ticked(&mut self, at: Time, name: &Label, grant: GrantId, next_at: Option<Time>) {
        if let Some(known) = self.schedules.get_mut(name) {
            known.next_at = next_at.unwrap_or(known.next_at);
            known.ticks += 1;
            known.last_at = at.into();
            known.grant = grant.into();
            known.skipped = None;
        }
        if let Some(grant) = self.grants.get_mut(&grant) {
            // A run by hand has no next tick; it is the human's own request.
            grant.scheduled = next_at.is_some();
        }
    }
}
