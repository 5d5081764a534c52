//! Schedules as they stand (D13).
#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "the dispatch in `State::change` matches every fact; each part gets its own"
)]

use serde::{Deserialize, Serialize};

use super::fold::misdirected;
use super::{Opt, State};
use crate::fact::{Fact, Schedule};
use crate::ids::{AgentId, GrantId, Time};
use crate::names::Label;
use crate::refusal::Code;

/// A schedule, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduled {
    /// What, when and for whom.
    pub schedule: Schedule,
    /// Who set it.
    pub by: AgentId,
    /// When it ticks next.
    pub next_at: Time,
    /// Ticks that made a grant.
    pub ticks: u64,
    /// When it made a grant last.
    pub last_at: Opt<Time>,
    /// The grant of the last tick.
    pub grant: Opt<GrantId>,
    /// When its last tick made none, and what refused it; none where the grant before was still open.
    pub skipped: Option<(Time, Option<Code>)>,
}

impl State {
    pub(super) fn fold_schedule(&mut self, at: Time, fact: &Fact) {
        match fact {
            Fact::ScheduleSet { by, schedule, next_at } => {
                let before = self.schedules.remove(&schedule.name);
                let scheduled = Scheduled {
                    schedule: (**schedule).clone(),
                    by: *by,
                    next_at: *next_at,
                    ticks: before.as_ref().map_or(0, |known| known.ticks),
                    last_at: before.as_ref().map_or_else(Opt::none, |known| known.last_at),
                    grant: before.as_ref().map_or_else(Opt::none, |known| known.grant),
                    skipped: None,
                };
                self.schedules.insert(schedule.name.clone(), scheduled);
            }
            Fact::ScheduleRemoved { name } => drop(self.schedules.remove(name)),
            Fact::ScheduleTicked { name, grant, next_at } => self.ticked(at, name, *grant, *next_at),
            Fact::ScheduleSkipped { name, code, next_at } => {
                if let Some(known) = self.schedules.get_mut(name) {
                    known.next_at = *next_at;
                    known.skipped = Some((at, *code));
                }
            }
            _ => misdirected(fact),
        }
    }

    fn ticked(&mut self, at: Time, name: &Label, grant: GrantId, next_at: Option<Time>) {
        if let Some(known) = self.schedules.get_mut(name) {
            known.next_at = next_at.unwrap_or(known.next_at);
            known.ticks += 1;
            known.last_at = at.into();
            known.grant = grant.into();
            known.skipped = None;
        }
        if let Some(grant) = self.grants.get_mut(&grant) {
            grant.scheduled = next_at.is_some();
        }
    }
}
