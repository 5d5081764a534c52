//! The clock of a grant. It runs while a turn of the grant is open, stops while something in the grant waits, and its
//! end sets a latch (D8).

use alloc::vec::Vec;

use lastword_facts::fact::{Latched, Place};
use lastword_facts::ids::{GrantId, TaskId, Time, TurnId};
use lastword_facts::status::Running;

use super::{Grant, Opt, State, Timer};

/// A step of a grant's clock that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrantDue {
    /// Its giver is warned that its time nears the end, with the used share in percent.
    Warning(u64),
    /// Its time has ended: its latch is set.
    Latch,
    /// Its latch was not lifted in time, or it is as old as a grant may be: it closes.
    Close,
}

impl State {
    /// Returns the step that is due for a grant at `now`.
    pub(crate) fn grant_due(&self, grant: &Grant, now: Time) -> Option<GrantDue> {
        // Tested first: it closes even while its clock is stopped.
        if now >= self.grant_closes_at(grant) {
            return Some(GrantDue::Close);
        }
        // A latch has reported the end of time or of another total already.
        if grant.clock_stopped_at.is_some() || grant.latched.is_some() {
            return None;
        }
        if now >= grant.expires_at {
            return Some(GrantDue::Latch);
        }
        let warned_at = self.clock_warning_at(grant).filter(|at| now >= *at);
        warned_at.map(|_| GrantDue::Warning(self.limits.grant_clock_warning_percent))
    }

    /// Returns the time at which a grant closes whatever its clock says: it is held for too long, or too old (D8).
    #[must_use]
    pub fn grant_closes_at(&self, grant: &Grant) -> Time {
        let oldest = grant.opened_at.plus(self.limits.grant_life_ms);
        grant.held_since.get().map_or(oldest, |since| oldest.min(since.plus(self.limits.latch_ms)))
    }

    /// Returns the time at which the giver of a grant is warned that its time nears the end.
    fn clock_warning_at(&self, grant: &Grant) -> Option<Time> {
        // The remainder is a share of at most one unextended lifetime, so that a long extension isn't warned about days
        // ahead.
        let whole = grant.expires_at.since(grant.opened_at).min(self.limits.grant_age_ms);
        let left = whole / 100 * 100_u64.saturating_sub(self.limits.grant_clock_warning_percent);
        let expires = grant.expires_at.0;
        (!grant.clock_warned && expires < u64::MAX).then(|| Time(expires.saturating_sub(left)))
    }

    /// Returns the time at which the first grant with work that a latch holds closes, unless a human acts (D8); `None` if
    /// the latch holds work of no grant.
    #[must_use]
    pub fn held_work_ends_at(&self, on: Latched) -> Option<Time> {
        let grants: Vec<GrantId> = match on {
            Latched::Grant(grant) => alloc::vec![grant],
            Latched::Place(Place::Conversation(conv)) => self.at_work_in(self.conversations.get(&conv)?).collect(),
            Latched::Place(Place::Room(_)) => return None,
        };
        let open = grants.into_iter().filter_map(|grant| self.grants.get(&grant)).filter(|grant| grant.end.is_none());
        let closes = |grant: &Grant| match (grant.held_since.get(), grant.clock_stopped_at.get()) {
            // Its clock runs on, and its end is a latch of its own.
            (None, None) => self.grant_closes_at(grant).min(grant.expires_at.plus(self.limits.latch_ms)),
            (_, _) => self.grant_closes_at(grant),
        };
        open.map(closes).min()
    }

    /// Sets the one timer of a grant to whatever is due first.
    pub(super) fn arm_grant(&mut self, id: GrantId) {
        let Some(grant) = self.grants.get(&id) else { return };
        // Time doesn't end, nor is it warned about, while the clock is stopped or a latch holds the grant.
        let runs = grant.clock_stopped_at.is_none() && grant.latched.is_none();
        let ends = [
            Some(self.grant_closes_at(grant)),
            Some(grant.expires_at).filter(|_| runs),
            self.clock_warning_at(grant).filter(|_| runs),
        ];
        let due = ends.into_iter().flatten().min().filter(|_| grant.end.is_none());
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let before = core::mem::replace(&mut grant.timer, due.into());
        if before == grant.timer {
            return;
        }
        if let Some(before) = before.get() {
            self.timers.remove(before, Timer::Grant(id));
        }
        if let Some(due) = due {
            self.timers.insert(due, Timer::Grant(id));
        }
    }

    /// Stops or starts a grant's clock, after any of its conditions has changed.
    pub(super) fn refresh_grant(&mut self, at: Time, id: GrantId) {
        let Some(grant) = self.grants.get(&id).filter(|g| g.end.is_none()) else { return };
        let conv = grant.conv;
        let paused = self.running.max(self.running_in(conv)) != Running::Active;
        // A latch of the conversation in which the grant started holds the grant as well.
        let latched = self.conversations.get(&conv).is_some_and(|c| c.latched);
        let Some(grant) = self.grants.get_mut(&id) else { return };
        let held = latched || grant.latched.is_some();
        if held != grant.held_since.is_some() {
            grant.held_since = held.then_some(at).into();
        }
        let waits = paused || held || grant.human_waits > 0 || grant.queued_waits > 0;
        // An open turn is work, so the clock runs even while another part of the grant waits.
        let stands = waits && grant.open_turns == 0;
        match (grant.clock_stopped_at.get(), stands) {
            (None, true) => grant.clock_stopped_at = at.into(),
            (Some(since), false) => {
                grant.clock_stopped_at = Opt::none();
                // The end moves by the time for which the clock was stopped.
                grant.expires_at = grant.expires_at.plus(at.since(since));
            }
            (None, false) | (Some(_), true) => {}
        }
        self.arm_grant(id);
    }

    /// Counts an open turn of a grant that opened or ended.
    pub(super) fn grant_turn(&mut self, at: Time, task: TaskId, opened: bool) {
        let Some(id) = self.tasks.get(&task).map(|task| task.grant) else { return };
        let Some(grant) = self.grants.get_mut(&id) else { return };
        grant.open_turns = if opened { grant.open_turns + 1 } else { grant.open_turns.saturating_sub(1) };
        // A turn matters only where something else would stop the clock; skipping the rest keeps most turns cheap.
        let edge = grant.open_turns == u32::from(opened);
        if edge
            && (grant.human_waits > 0 || grant.queued_waits > 0 || grant.held_since.is_some() || self.held_convs > 0)
        {
            self.refresh_grant(at, id);
        }
    }

    /// Counts a turn whose program waits for its own user as a wait for a human, and not as work.
    pub(super) fn waits_for_user(&mut self, at: Time, id: TurnId, waits: bool) {
        let Some(turn) = self.turns.get_mut(&id).filter(|turn| turn.waits_for_user != waits) else { return };
        turn.waits_for_user = waits;
        let task = turn.task;
        let Some(grant) = self.tasks.get(&task).map(|task| task.grant) else { return };
        self.human_wait(at, grant, waits);
        self.grant_turn(at, task, !waits);
    }

    /// Counts a queued task that starts or stops waiting for a human, or for an agent with its own time to acknowledge.
    pub(super) fn queued_wait(&mut self, at: Time, id: GrantId, waits: bool) {
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.queued_waits = if waits { grant.queued_waits + 1 } else { grant.queued_waits.saturating_sub(1) };
        }
        self.refresh_grant(at, id);
    }
}
