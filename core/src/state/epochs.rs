//! The epochs of a log (L8). A restore goes back to an earlier position and begins a new epoch, whose numbers begin
//! behind every number that the abandoned facts can have had. So a number tells which history it belongs to.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use lastword_facts::ids::Seq;

use super::{Minted, State};

/// The kinds of numbers that clients keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// A position in the log: of a message, a refusal, a delivery or an event.
    Position,
    /// A turn.
    Turn,
    /// A request whose id the core minted.
    Request,
    /// An escalation.
    Escalation,
    /// A held call.
    Approval,
    /// A claim.
    Claim,
    /// A grant.
    Grant,
    /// An incident.
    Incident,
}

/// The epochs that ended with a restore, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Epochs(Vec<Ended>);

/// The end of an epoch, as far as this log knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ended {
    /// Its last position.
    last: Seq,
    /// The numbers that it had minted there.
    minted: Minted,
    /// The number before the first position and the first minted numbers of the next epoch.
    base: u64,
}

impl Ended {
    const fn last(&self, kind: Numbered) -> u64 {
        match kind {
            Numbered::Position => self.last.0,
            Numbered::Turn => self.minted.turn,
            Numbered::Request => self.minted.request,
            Numbered::Escalation => self.minted.escalation,
            Numbered::Approval => self.minted.approval,
            Numbered::Claim => self.minted.claim,
            Numbered::Grant => self.minted.grant,
            Numbered::Incident => self.minted.incident,
        }
    }
}

impl Epochs {
    /// Returns the number of the current epoch, from 1.
    #[must_use]
    pub const fn current(&self) -> usize {
        self.0.len() + 1
    }

    /// Returns whether the number was issued after the position to which a restore went back: what it names is not in
    /// this log, and never will be.
    #[must_use]
    pub fn is_over(&self, kind: Numbered, number: u64) -> bool {
        let ended = self.0.iter().find(|ended| number <= ended.base);
        ended.is_some_and(|ended| number > ended.last(kind))
    }
}

impl Epochs {
    /// Returns the last position that this log shares with the history of a position before the current epoch; `None`
    /// for a position of the current one.
    #[must_use]
    pub fn shared(&self, position: Seq) -> Option<Seq> {
        self.0.iter().find(|ended| position.0 <= ended.base).map(|ended| ended.last)
    }
}

impl State {
    /// Begins a new epoch at the position `first`.
    pub(super) fn epoch_began(&mut self, first: Seq) {
        // `apply` has counted this fact already.
        let last = Seq(self.seq.0 - 1);
        let base = first.0.saturating_sub(1).max(last.0);
        self.epochs.0.push(Ended { last, minted: self.minted.clone(), base });
        self.seq = Seq(base + 1);
        // Conversations and rooms are named by their REF and have numbers only within the state.
        let Minted { conv: _, room: _, grant, task, turn, request, escalation, approval, claim, incident } =
            &mut self.minted;
        for number in [grant, task, turn, request, escalation, approval, claim, incident] {
            *number = base.max(*number);
        }
    }

    /// Returns the greatest position or minted number, behind which a new epoch must begin.
    #[must_use]
    pub fn last_number(&self) -> u64 {
        let Minted { conv: _, room: _, grant, task, turn, request, escalation, approval, claim, incident } =
            &self.minted;
        let minted = [grant, task, turn, request, escalation, approval, claim, incident];
        minted.into_iter().copied().max().unwrap_or(0).max(self.seq.0)
    }
}
