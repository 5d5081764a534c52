//! Sliding windows (G1), and the limits on work that an agent starts on its own (D7).

use std::collections::BTreeSet;

use lastword_facts::ids::{AgentId, DAY_MS, HOUR_MS, Time};
use serde::Serialize;

use super::Witness;

/// The target of something that an agent wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) enum Target {
    /// One agent or human.
    One(AgentId),
    /// All agents, as in a broadcast.
    All,
    /// No agent: a post, a question or a held call.
    Nobody,
    /// No agent: a claim.
    Claim,
}

/// Something that an agent wrote.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Sent {
    pub(super) at: Time,
    to: Target,
}

const fn or(own: u64, workspace: u64) -> u64 {
    if own == 0 { workspace } else { own }
}

impl Witness {
    /// Counts a write that isn't a message against the agent's window of all writes.
    pub(super) fn see_write(&mut self, from: AgentId) {
        self.see_window(from, Target::Nobody);
    }

    /// Checks every window position: none holds more messages than the limit.
    pub(super) fn see_window(&mut self, from: AgentId, to: Target) {
        if !self.is_agent(from) {
            return;
        }
        let (at, limits) = (self.at, &self.limits);
        let (window, fan_out_window) = (limits.window_ms, limits.fan_out_window_ms);
        let Some(party) = self.parties.get_mut(&from) else { return };
        while party.sent.front().is_some_and(|first| at.since(first.at) >= window.max(fan_out_window)) {
            party.sent.pop_front();
        }
        let before: BTreeSet<u32> = (party.sent.iter().filter(|sent| at.since(sent.at) < fan_out_window))
            .filter_map(|sent| if let Target::One(to) = sent.to { Some(to.0) } else { None })
            .collect();
        party.sent.push_back(Sent { at, to });
        let inside = || party.sent.iter().filter(|sent| at.since(sent.at) < window);
        let pair = inside().filter(|sent| sent.to == to).count() as u64;
        if to == Target::Claim {
            let max = limits.claims_max.saturating_mul(2);
            let within = pair <= max || !self.enforced("sender_rate");
            return self.expect(within, "windows: claims", || format!("{pair} of {max}"));
        }
        let all = inside().filter(|sent| sent.to != Target::Claim).count() as u64;
        let all_max = or(party.own.sender_messages_max, limits.sender_messages_max);
        let pair_max = or(party.own.pair_messages_max, limits.pair_messages_max);
        let targets_max = limits.fan_out_targets_max;
        let within = all <= all_max || !self.enforced("sender_rate");
        self.expect(within, "windows: per sender", || format!("{all} of {all_max}"));
        let within = to == Target::Nobody || pair <= pair_max || !self.enforced("pair_rate");
        self.expect(within, "windows: per pair", || format!("{pair} of {pair_max}"));
        if let Target::One(to) = to {
            let targets = before.len() as u64 + 1;
            let within = before.contains(&to.0) || targets <= targets_max || !self.enforced("fan_out");
            self.expect(within, "windows: fan-out", || format!("{targets} of {targets_max}"));
        }
    }

    /// Checks an agent's own root: at most so many per hour, and only in an attended workspace.
    pub(super) fn see_root(&mut self, agent: AgentId) {
        self.expect_attended();
        let (at, workspace) = (self.at, self.limits.roots_per_hour_max);
        let Some(party) = self.parties.get_mut(&agent) else { return };
        while party.roots.front().is_some_and(|root| at.since(*root) >= HOUR_MS) {
            party.roots.pop_front();
        }
        party.roots.push_back(at);
        let (roots, max) = (party.roots.len() as u64, or(party.own.roots_per_hour_max, workspace));
        self.expect(roots <= max, "roots an hour", || format!("{roots} of {max}"));
    }

    /// Checks a root that is due to a typed prompt: each prompt has one, at most so many an hour, and only in an attended
    /// workspace.
    pub(super) fn see_typed_root(&mut self, agent: AgentId) {
        self.expect_attended();
        let (at, max) = (self.at, self.limits.typed_grants_per_hour_max);
        let Some(party) = self.parties.get_mut(&agent) else { return };
        party.typed = None;
        party.typed_grants.retain(|opened| at.since(*opened) < HOUR_MS);
        party.typed_grants.push_back(at);
        let opened = party.typed_grants.len() as u64;
        self.expect(opened <= max, "grants of typed prompts an hour", || format!("{opened} of {max}"));
    }

    /// Counts a request in an agent's own work against its messages of the day.
    pub(super) fn see_root_messages(&mut self, giver: AgentId) {
        self.expect_attended();
        let (today, max) = (self.at.0 / DAY_MS, self.limits.root_messages_per_day_max);
        let Some(party) = self.parties.get_mut(&giver) else { return };
        let (day, sum) = party.day;
        party.day = (today, if day == today { sum + 2 } else { 2 });
        let (_, sum) = party.day;
        self.expect(sum <= max, "waking messages a day of an agent's own roots", || format!("{sum} of {max}"));
    }
}
