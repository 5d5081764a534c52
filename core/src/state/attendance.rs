//! The last act of a human, and the warnings when none has acted for a long time (D12).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{
    AgentGranted, ApprovalDecided, Decision, Fact, LimitChanged, Registered, Role, RoundsGranted,
};
use lastword_facts::ids::{AgentId, HOUR_MS, Time};

use super::{Opt, State, Timer};

/// The shares of `unattended_ms`, in percent, after which the humans are notified.
const TOLD_AT_PERCENT: [u64; 2] = [50, 80];

/// The timer of the workspace's attendance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attendance {
    /// The start of the timer; at most an hour before the last act.
    counted_from: Time,
    /// The share that the humans were last notified of, in percent.
    told: u64,
    timer: Opt<Time>,
}

impl State {
    /// If no human has acted for `unattended_ms`, returns the time since and the limit.
    #[must_use]
    pub fn unattended(&self, now: Time) -> Option<(u64, u64)> {
        let (since, max) = (now.since(self.last_human_act), self.limits.unattended_ms);
        (max > 0 && since >= max).then_some((since, max))
    }

    /// Returns the used share of `unattended_ms`, in percent.
    pub(crate) fn unattended_percent(&self, now: Time) -> u64 {
        let since = now.since(self.last_human_act);
        since.saturating_mul(100).checked_div(self.limits.unattended_ms).unwrap_or(0)
    }

    /// Remembers the time of a fact that is an act of a human.
    pub(super) fn attend(&mut self, at: Time, fact: &Fact) {
        if let Some(by) = self.acts(fact)
            && self.agent(by).is_some_and(|agent| agent.is_human() && agent.role != Role::Viewer)
        {
            self.last_human_act = at;
            // Moving the timer at every act would cost more than being up to an hour early.
            let unarmed = self.attendance.timer.get().is_none();
            if at.since(self.attendance.counted_from) >= HOUR_MS || self.attendance.told > 0 || unarmed {
                self.attendance.counted_from = at;
                self.attendance.told = 0;
                self.arm_attendance();
            }
        }
    }

    /// Sets the timer for the next share of `unattended_ms` at which the humans are notified, if there is one.
    pub(super) fn arm_attendance(&mut self) {
        let (max, from, told) = (self.limits.unattended_ms, self.attendance.counted_from, self.attendance.told);
        let next = TOLD_AT_PERCENT.into_iter().find(|percent| *percent > told && max > 0);
        // Without a human in the workspace, no one could be notified.
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
        // The timer may be early (see `counted_from`), so the share that it was set for counts even if `percent` is
        // less.
        let told = self.attendance.told;
        let next = TOLD_AT_PERCENT.into_iter().find(|part| *part > told).unwrap_or(100);
        let passed = TOLD_AT_PERCENT.into_iter().filter(|part| *part <= percent).max().unwrap_or(next);
        self.attendance.told = passed.max(next);
        self.arm_attendance();
        self.notice_humans(at);
    }

    /// Shows the fact that is being folded to every human.
    pub(super) fn notice_humans(&mut self, at: Time) {
        // Number 0 is the broker itself.
        for id in (1..u32::try_from(self.agents.len()).unwrap_or(u32::MAX)).map(AgentId) {
            if self.agents[id.0 as usize].is_human() {
                self.notice(at, id);
            }
        }
    }

    /// Returns the author of a fact that is an act if its author is a human.
    #[expect(clippy::wildcard_enum_match_arm, reason = "no other fact is an act of a human")]
    fn acts(&self, fact: &Fact) -> Option<AgentId> {
        match fact {
            Fact::Accepted { message } => {
                // A tick is sent in a human's name, but isn't that human's act.
                let grant = message.grant.and_then(|grant| self.grants.get(&grant));
                let ticks = grant.is_some_and(|grant| grant.scheduled) && message.part.is_request();
                (message.is_said() && !ticks).then_some(message.from)
            }
            Fact::Posted { from, .. } => Some(*from),
            Fact::ApprovalDecided(ApprovalDecided { by, decision, .. }) => by.filter(|_| *decision != Decision::Expire),
            Fact::Registered(Registered { agent, .. }) => Some(*agent),
            Fact::GrantExtended { by, .. }
            | Fact::RoundsGranted(RoundsGranted { by, .. })
            | Fact::RequestsGranted { by, .. }
            | Fact::LatchLifted { by, .. }
            | Fact::Controlled { by, .. }
            | Fact::EscalationNoted { by, .. }
            | Fact::EscalationAnswered { by, .. }
            | Fact::LiftChosen { by, .. }
            | Fact::AgentGranted(AgentGranted { by, .. })
            | Fact::ScheduleSet { by, .. }
            | Fact::PolicyChanged { by, .. }
            | Fact::LimitChanged(LimitChanged { by, .. })
            | Fact::PromptTyped { by, .. }
            | Fact::ClaimBroken { by, .. }
            | Fact::Dismissed { by, .. }
            | Fact::LinkSet { by, .. }
            | Fact::HumanActed { by } => Some(*by),
            Fact::Idled { by, .. } => *by,
            _ => None,
        }
    }
}
