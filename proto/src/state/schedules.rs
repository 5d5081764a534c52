//! Schedules as they stand (D13).

use serde::{Deserialize, Serialize};

use super::{Opt, State};
use crate::fact::Schedule;
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
    pub(super) fn schedule_set(&mut self, by: AgentId, schedule: &Schedule, next_at: Time) {
        let before = self.schedules.remove(&schedule.name);
        let scheduled = Scheduled {
            schedule: schedule.clone(),
            by,
            next_at,
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
            grant.scheduled = next_at.is_some();
        }
    }
}
