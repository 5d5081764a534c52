//! The counters of conversations and rooms (R1, R2, R4), and their depth caps (D2).

#![expect(clippy::wildcard_enum_match_arm, reason = "the dispatch names every fact; this part looks at its own")]

use std::collections::{BTreeMap, BTreeSet};

use lastword_facts::fact::{ConversationOpened, Crossing, Fact, Place};
use lastword_facts::ids::{ConvId, Time};
use serde::Serialize;

use super::{Running, Witness};

/// A conversation or room.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Spot {
    /// Agent messages since a human spoke; `None` after the witness dropped the place.
    agent_messages: Option<u64>,
    warned: [bool; 2],
    /// Depth beyond the cap that humans granted.
    pub(super) deeper: u64,
    pub(super) latched: bool,
    pub(super) running: Running,
    last_at: Time,
}

impl Spot {
    /// Restarts counters and warnings after a human spoke.
    pub(super) const fn rearm(&mut self) {
        self.agent_messages = Some(0);
        self.warned = [false; 2];
    }
}

/// All places with counters.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Places(BTreeMap<Place, Spot>);

impl Places {
    /// Returns the place, and marks it as used now.
    pub(super) fn spot(&mut self, place: Place, at: Time) -> &mut Spot {
        let spot = self.0.entry(place).or_default();
        spot.last_at = at;
        spot
    }

    pub(super) fn known(&self, place: Place) -> Option<&Spot> {
        self.0.get(&place)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Rearms all warnings after a change of thresholds.
    pub(super) fn rearm_all(&mut self) {
        for spot in self.0.values_mut() {
            spot.warned = [false; 2];
        }
    }

    /// Drops conversations that were idle for `keep` ms, that no open grant uses and that aren't held.
    pub(super) fn sweep(&mut self, at: Time, keep: u64, used: &BTreeSet<ConvId>) {
        self.0.retain(|place, spot| {
            let conv = place.conversation();
            let held = spot.latched || spot.running != Running::Active || spot.deeper > 0;
            held || conv.is_none_or(|conv| used.contains(&conv)) || at.since(spot.last_at) < keep
        });
    }
}

impl Witness {
    pub(super) fn see_place(&mut self, fact: &Fact) {
        match fact {
            Fact::ConversationOpened(ConversationOpened { conv, .. }) => {
                self.expect(conv.0 > self.last.conv, "a REF is one conversation, opened once", || conv.to_string());
                self.last.conv = self.last.conv.max(conv.0);
                self.conv(*conv).rearm();
            }
            Fact::Heard { place, agent_messages, .. } => self.heard(*place, *agent_messages),
            Fact::Warned { place, crossing, agent_messages } => self.warned(*place, *crossing, *agent_messages),
            Fact::Rearmed { conv, by } => {
                self.human_may(*by, fact);
                self.conv(*conv).rearm();
            }
            Fact::Posted { room, from, .. } => {
                self.see_write(*from);
                if self.is_heard(*from) {
                    let at = self.at;
                    self.places.spot(Place::Room(*room), at).rearm();
                }
            }
            other => super::misdirected(other),
        }
    }

    fn heard(&mut self, place: Place, agent_messages: u64) {
        let at = self.at;
        let spot = self.places.spot(place, at);
        let before = spot.agent_messages.replace(agent_messages);
        let next = before.map(|before| before + 1);
        if next != Some(agent_messages) {
            spot.warned = [false; 2];
        }
        let counts = next.is_none_or(|next| next == agent_messages);
        self.expect(counts, "each agent message is counted once", || {
            format!("{place:?}: {agent_messages} after {before:?}")
        });
    }

    fn warned(&mut self, place: Place, crossing: Crossing, agent_messages: u64) {
        let at = self.at;
        let spot = self.places.spot(place, at);
        let fresh = !std::mem::replace(&mut spot.warned[usize::from(crossing == Crossing::Hard)], true);
        self.expect(fresh, "at most one warning per crossing", || format!("{place:?} {crossing}"));
        let threshold = match crossing {
            Crossing::Soft => self.limits.turns_soft_max,
            Crossing::Hard => self.limits.turns_hard_max,
        };
        let crosses = agent_messages == threshold
            && self.places.known(place).is_some_and(|spot| spot.agent_messages == Some(agent_messages));
        self.expect(crosses, "a warning is of a crossing", || format!("{agent_messages} of {threshold}"));
    }

    /// Checks that an agent's message enters a conversation below its thresholds that isn't held.
    pub(super) fn admits(&mut self, conv: ConvId) {
        let Some(spot) = self.places.known(Place::Conversation(conv)) else { return };
        let (agent_messages, held) =
            (spot.agent_messages.unwrap_or(0), spot.latched || spot.running != Running::Active);
        self.expect(!held, "nothing is admitted where a human or a latch holds", || conv.to_string());
        let limits = &self.limits;
        // An agent without a part in the conversation isn't counted there; it gets in only if `ref_in_use` observes.
        let judged = self.enforced("ref_in_use") && agent_messages > 1;
        for (guard, max) in [("turns_soft", limits.turns_soft_max), ("turns_hard", limits.turns_hard_max)] {
            let over = judged && agent_messages >= self.threshold(max) && self.enforced(guard);
            self.expect(!over, "nothing is admitted past a threshold of agent messages", || {
                format!("{agent_messages} of {max}")
            });
        }
    }

    const fn threshold(&self, max: u64) -> u64 {
        if max == 0 { u64::MAX } else { max }
    }
}
