//! All timers of the state, in the order in which they are due.

use alloc::collections::BTreeSet;
use serde::{Deserialize, Serialize};

use lastword_facts::ids::{AgentId, ApprovalId, ClaimId, EscalationId, GrantId, TaskId, Time, TurnId};

/// A timer; [`Timer::why`] says what each is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Timer {
    /// The earliest unacknowledged request of an agent (Q2).
    Ack(AgentId),
    /// The end of a turn's lease (F1).
    Lease(TurnId),
    /// A request's deadline (Q2).
    Deadline(TaskId),
    /// The end of a grant's time, its warning, or the end of its latch (D8).
    Grant(GrantId),
    /// The end of the time to decide an approval (H2).
    Approval(ApprovalId),
    /// The end of a claim (C1).
    Claim(ClaimId),
    /// The end of the time to answer an escalation (H1).
    Escalation(EscalationId),
    /// The end of an agent's rest (B1).
    Rest(AgentId),
    /// The next warning that no human has acted (D12).
    Unattended,
}

impl Timer {
    /// Returns the reason why the core has to be called at that time.
    #[must_use]
    pub const fn why(self) -> &'static str {
        match self {
            Self::Ack(_) => "a request was not acknowledged",
            Self::Lease(_) => "a turn's lease ends",
            Self::Deadline(_) => "a request's deadline passes",
            Self::Grant(_) => "a grant's time is over, nearly over, or its latch was not lifted",
            Self::Approval(_) => "an approval is denied by itself",
            Self::Claim(_) => "a claim ends",
            Self::Escalation(_) => "an escalation was not answered",
            Self::Rest(_) => "an agent's rest ends",
            Self::Unattended => "no human has acted for long",
        }
    }
}

/// The timers, earliest first; at the same moment in the order of [`Timer`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers(BTreeSet<(Time, Packed)>);

/// A timer in 8 bytes, in the same order: its kind in the upper bits, its subject in the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Packed(u64);

impl Packed {
    const KIND_SHIFT: u32 = 61;
    /// Used in place of an agent's number, which has 32 bits.
    const UNATTENDED: u64 = 1 << 32;

    const fn new(timer: Timer) -> Self {
        let (kind, number) = match timer {
            Timer::Ack(agent) => (0, agent.0 as u64),
            Timer::Lease(turn) => (1, turn.0),
            Timer::Deadline(task) => (2, task.0),
            Timer::Grant(grant) => (3, grant.0),
            Timer::Approval(approval) => (4, approval.0),
            Timer::Claim(claim) => (5, claim.0),
            Timer::Escalation(escalation) => (6, escalation.0),
            Timer::Rest(agent) => (7, agent.0 as u64),
            // Three bits hold eight kinds, so this ninth one shares the last kind.
            Timer::Unattended => (7, Self::UNATTENDED),
        };
        debug_assert!(number >> Self::KIND_SHIFT == 0, "a number is minted one by one");
        Self(kind << Self::KIND_SHIFT | number)
    }

    const fn timer(self) -> Timer {
        let number = self.0 & ((1 << Self::KIND_SHIFT) - 1);
        match self.0 >> Self::KIND_SHIFT {
            0 => Timer::Ack(AgentId(number as u32)),
            1 => Timer::Lease(TurnId(number)),
            2 => Timer::Deadline(TaskId(number)),
            3 => Timer::Grant(GrantId(number)),
            4 => Timer::Approval(ApprovalId(number)),
            5 => Timer::Claim(ClaimId(number)),
            6 => Timer::Escalation(EscalationId(number)),
            _ if number == Self::UNATTENDED => Timer::Unattended,
            _ => Timer::Rest(AgentId(number as u32)),
        }
    }
}

impl Timers {
    pub(super) fn insert(&mut self, at: Time, timer: Timer) {
        self.0.insert((at, Packed::new(timer)));
    }

    pub(super) fn remove(&mut self, at: Time, timer: Timer) {
        self.0.remove(&(at, Packed::new(timer)));
    }

    /// Returns the timer that is due first.
    #[must_use]
    pub fn first(&self) -> Option<(Time, Timer)> {
        self.0.first().map(|(at, timer)| (*at, timer.timer()))
    }

    /// Returns the number of timers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no timer is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_in_order_and_come_out_as_they_were_put_in() {
        let all = [
            Timer::Ack(AgentId(7)),
            Timer::Lease(TurnId(3)),
            Timer::Deadline(TaskId(9)),
            Timer::Grant(GrantId(1 << 60)),
            Timer::Approval(ApprovalId(2)),
            Timer::Claim(ClaimId(0)),
            Timer::Escalation(EscalationId(4)),
            Timer::Rest(AgentId(u32::MAX)),
            Timer::Unattended,
        ];
        let mut timers = Timers::default();
        for timer in all.iter().rev() {
            timers.insert(Time(5), *timer);
        }
        timers.insert(Time(4), Timer::Claim(ClaimId(8)));
        assert_eq!(timers.len(), 10);
        assert_eq!(timers.first(), Some((Time(4), Timer::Claim(ClaimId(8)))));
        timers.remove(Time(4), Timer::Claim(ClaimId(8)));
        for timer in all {
            assert_eq!(timers.first(), Some((Time(5), timer)));
            timers.remove(Time(5), timer);
        }
        assert!(timers.is_empty());
    }
}
