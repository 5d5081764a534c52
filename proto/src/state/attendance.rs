//! When a human acted last, and what happens once none has for a long time (D12).

use serde::{Deserialize, Serialize};

use super::{Opt, State, Timer};
use crate::fact::{Decision, Fact, Role};
use crate::ids::{AgentId, HOUR_MS, Time};

/// The parts of `unattended_ms`, in percent, after which the humans are told.
const TOLD_AT_PERCENT: [u64; 2] = [50, 80];

/// The timer of the workspace's attendance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attendance {
    /// From when the timer is counted; at most an hour before the last act.
    counted_from: Time,
    /// The part that the humans were told of last, in percent.
    told: u64,
    timer: Opt<Time>,
}

impl State {
    /// Whether no human has acted for `unattended_ms`: for how long, and the limit.
    #[must_use]
    pub fn unattended(&self, now: Time) -> Option<(u64, u64)> {
        let (since, max) = (now.since(self.last_human_act), self.limits.unattended_ms);
        (max > 0 && since >= max).then_some((since, max))
    }

    /// The part of `unattended_ms` that is over, in percent.
    pub(crate) fn unattended_percent(&self, now: Time) -> u64 {
        let since = now.since(self.last_human_act);
        since.saturating_mul(100).checked_div(self.limits.unattended_ms).unwrap_or(0)
    }

    /// Notes that a human acted, where the fact says so.
    pub(super) fn attend(&mut self, at: Time, fact: &Fact) {
        if let Some(by) = self.acts(fact)
            && self.agent(by).is_some_and(|agent| agent.is_human() && agent.role != Role::Viewer)
        {
            self.last_human_act = at;
            let unarmed = self.attendance.timer.get().is_none();
            if at.since(self.attendance.counted_from) >= HOUR_MS || self.attendance.told > 0 || unarmed {
                self.attendance.counted_from = at;
                self.attendance.told = 0;
                self.arm_attendance();
            }
        }
    }

    /// Sets the timer for the next part of `unattended_ms` of which the humans are told, once there is one.
    pub(super) fn arm_attendance(&mut self) {
        let (max, from, told) = (self.limits.unattended_ms, self.attendance.counted_from, self.attendance.told);
        let next = TOLD_AT_PERCENT.into_iter().find(|percent| *percent > told && max > 0);
        let next = next.filter(|_| self.agents.iter().any(super::Agent::is_human));
        let due = next.map(|percent| from.plus(max / 100 * percent));
        let before = core::mem::replace(&mut self.attendance.timer, due.into());
        if let Some(before) = before.get() {
            self.timers.remove(before, Timer::Unattended);
        }
        if let Some(due) = due {
            self.timers.insert(due, Timer::Unattended);
        }
    }

    pub(super) fn told_unattended(&mut self, at: Time, percent: u64) {
        let told = self.attendance.told;
        let next = TOLD_AT_PERCENT.into_iter().find(|part| *part > told).unwrap_or(100);
        let passed = TOLD_AT_PERCENT.into_iter().filter(|part| *part <= percent).max().unwrap_or(next);
        self.attendance.told = passed.max(next);
        self.arm_attendance();
        self.notice_humans(at);
    }

    /// Shows the fact that is being folded to every human.
    pub(super) fn notice_humans(&mut self, at: Time) {
        for id in (1..u32::try_from(self.agents.len()).unwrap_or(u32::MAX)).map(AgentId) {
            if self.agents[id.0 as usize].is_human() {
                self.notice(at, id);
            }
        }
    }

    /// Who acts with a fact, where that may be a human.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other fact is an act of a human")]
    fn acts(&self, fact: &Fact) -> Option<AgentId> {
        match fact {
            Fact::Accepted { message } => {
                let grant = message.grant.and_then(|grant| self.grants.get(&grant));
                let ticks = grant.is_some_and(|grant| grant.scheduled) && message.part.is_request();
                (message.is_said() && !ticks).then_some(message.from)
            }
            Fact::Posted { from, .. } => Some(*from),
            Fact::ApprovalDecided { by, decision, .. } => by.filter(|_| *decision != Decision::Expire),
            Fact::Registered { agent, .. } => Some(*agent),
            Fact::GrantExtended { by, .. }
            | Fact::RoundsGranted { by, .. }
            | Fact::RequestsGranted { by, .. }
            | Fact::LatchLifted { by, .. }
            | Fact::Controlled { by, .. }
            | Fact::EscalationNoted { by, .. }
            | Fact::LiftChosen { by, .. }
            | Fact::AgentGranted { by, .. }
            | Fact::ScheduleSet { by, .. }
            | Fact::HumanActed { by } => Some(*by),
            Fact::Idled { by, .. } => *by,
            _ => None,
        }
    }
}
