//! The numbers of one agent: its limits, its budget of the day, and its recent refusals (§1, B1, G2).

use thin_vec::ThinVec;

use lastword_facts::fact::{AgentLimits, Credential, Spend};
use lastword_facts::ids::{AgentId, HOUR_MS, RoomId, Time, TurnId};
use lastword_facts::limits::Limits;
use lastword_facts::names::DisplayName;
use lastword_facts::refusal::Code;

use super::agents::AgentRare;
use super::{Agent, State, Timer};

/// Whether refusals with this code are recorded even while an agent's writes are not judged, because they concern
/// authority (G2).
pub(crate) const fn is_about_authority(code: Code) -> bool {
    matches!(code, Code::FromMismatch | Code::ApproverNotAllowed | Code::DigestMismatch)
}

const NO_LIMITS: &AgentLimits = &AgentLimits::NONE;

impl Agent {
    /// Returns its own limits; 0 where the workspace's limit applies.
    #[must_use]
    pub fn own_limits(&self) -> &AgentLimits {
        self.rare.as_deref().map_or(NO_LIMITS, |rare| &rare.limits)
    }

    /// Returns the number of turns that it may have open at once.
    #[must_use]
    pub fn turns_max(&self, limits: &Limits) -> u64 {
        let own = self.own_limits().agent_turns_max;
        // A human's limit goes before the profile, and the profile before the workspace's limit.
        let own = if own == 0 { self.profile.turns_max } else { own };
        if own == 0 { limits.agent_turns_max } else { own }
    }

    /// Returns the messages that it may send to one recipient in any window.
    #[must_use]
    pub fn pair_messages_max(&self, limits: &Limits) -> u64 {
        or(self.own_limits().pair_messages_max, limits.pair_messages_max)
    }

    /// Returns the messages that it may send in any window.
    #[must_use]
    pub fn sender_messages_max(&self, limits: &Limits) -> u64 {
        or(self.own_limits().sender_messages_max, limits.sender_messages_max)
    }

    /// Returns the roots that it may start in any hour.
    #[must_use]
    pub fn roots_per_hour_max(&self, limits: &Limits) -> u64 {
        or(self.own_limits().roots_per_hour_max, limits.roots_per_hour_max)
    }

    /// Returns the tokens that it may spend on the day of `now`; 0 means no limit.
    #[must_use]
    pub fn day_tokens_max(&self, limits: &Limits, now: Time) -> u64 {
        let max = or(self.own_limits().agent_day_tokens_max, limits.agent_day_tokens_max);
        // An extension of no limit is still no limit.
        if max == 0 { 0 } else { max.saturating_add(self.granted(now).tokens) }
    }

    /// Returns the cost that it may cause on the day of `now`, in millionths of a dollar; 0 means no limit.
    #[must_use]
    pub fn day_cost_microusd_max(&self, limits: &Limits, now: Time) -> u64 {
        let max = or(self.own_limits().agent_day_cost_microusd_max, limits.agent_day_cost_microusd_max);
        if max == 0 { 0 } else { max.saturating_add(self.granted(now).cost_microusd) }
    }

    /// Returns what humans granted for the day of `now`.
    fn granted(&self, now: Time) -> Spend {
        let more = self.rare.as_ref().and_then(|rare| rare.more);
        more.filter(|(day, _)| *day == now.day()).map_or_else(Spend::default, |(_, spend)| spend)
    }

    /// Whether a human granted more for the day of `now`.
    pub(crate) fn was_granted(&self, now: Time) -> bool {
        self.granted(now) != Spend::default()
    }

    /// Returns the end of its rest, if it used up its budget of the day.
    #[must_use]
    pub fn rests_until(&self) -> Option<Time> {
        self.rare.as_ref().and_then(|rare| rare.rests_until.get())
    }

    /// Returns the room that refused its last post, with the newest turn of that time, unless another limit has refused
    /// something since (H6).
    #[must_use]
    pub fn refused_in(&self) -> Option<(RoomId, TurnId)> {
        self.rare.as_ref()?.refused_in
    }

    /// Returns the time from which its token is refused; `None` if that doesn't expire.
    #[must_use]
    pub fn token_expires_at(&self) -> Option<Time> {
        self.rare.as_ref().and_then(|rare| rare.token_expires_at.get())
    }

    /// Returns the hashes of its tokens, the current one first, each with the time from which it is refused.
    pub fn tokens(&self) -> impl Iterator<Item = (Credential, Option<Time>)> {
        let former = self.rare.as_ref().and_then(|rare| rare.former_token);
        let former = former.map(|(credential, until)| (credential, Some(until)));
        core::iter::once((*self.credential, self.token_expires_at())).chain(former)
    }

    /// Returns its refused writes in the window that ends at `now`, and the moment at which one more fits; `None` if
    /// one fits now.
    #[must_use]
    pub(crate) fn refused_too_often(&self, limits: &Limits, now: Time) -> Option<(u64, Time)> {
        let refused = &self.rare.as_ref()?.refused;
        let inside = refused.iter().filter(|at| now.since(**at) < limits.window_ms).count() as u64;
        let first = refused.iter().find(|at| now.since(**at) < limits.window_ms)?;
        (inside >= limits.refused_writes_max).then(|| (inside, first.plus(limits.window_ms)))
    }

    /// Returns its recent refusals with this code, of those that are recorded whatever their number.
    pub(crate) fn exempt_refusals(&self, code: Code, limits: &Limits, now: Time) -> u64 {
        let exempt = self.rare.iter().flat_map(|rare| &rare.exempt);
        exempt.filter(|(at, known)| *known == code && now.since(*at) < limits.window_ms).count() as u64
    }

    /// Charges its day. A new day starts at zero.
    pub(super) fn charge(&mut self, at: Time, spend: Spend, estimated: bool) {
        self.day = self.day.on(at);
        self.day.spend.add(spend);
        self.day.estimated |= estimated;
    }

    /// Returns the day on which its root allowance last ran out (D7).
    pub(crate) fn allowance_out(&self) -> Option<u64> {
        self.rare.as_ref()?.allowance_out
    }

    /// Returns its ALERTs of the last hour that were shown to humans.
    pub(crate) fn alerts_of_late(&self, now: Time) -> u64 {
        let alerts = self.rare.iter().flat_map(|rare| &rare.alerts);
        alerts.filter(|at| now.since(**at) < HOUR_MS).count() as u64
    }

    /// Returns the time at which an incident with this code was last noted.
    pub(crate) fn noted_at(&self, code: Code) -> Option<Time> {
        let noted = self.rare.iter().flat_map(|rare| &rare.noted);
        noted.filter(|(known, _)| *known == code).map(|(_, at)| *at).next()
    }
}

const fn or(own: u64, workspace: u64) -> u64 {
    if own == 0 { workspace } else { own }
}

impl Agent {
    /// Returns the name that humans and models read beside its own (§1).
    #[must_use]
    pub fn display_name(&self) -> Option<&DisplayName> {
        self.rare.as_ref()?.display_name.as_ref()
    }
}

impl State {
    pub(super) fn display_name_set(&mut self, agent: AgentId, name: Option<&DisplayName>) {
        self.rare(agent).display_name = name.cloned();
    }

    pub(super) fn rare(&mut self, agent: AgentId) -> &mut AgentRare {
        self.agents[agent.0 as usize].rare.get_or_insert_default()
    }

    pub(super) fn agent_limited(&mut self, at: Time, agent: AgentId, limits: &AgentLimits) {
        self.rare(agent).limits = limits.clone();
        self.refresh_clock(at, agent);
    }

    pub(super) fn agent_granted(&mut self, agent: AgentId, day: u64, spend: Spend) {
        let more = &mut self.rare(agent).more;
        // Extensions of one day add up; one for another day replaces them.
        let mut sum = more.filter(|(known, _)| *known == day).map_or_else(Spend::default, |(_, sum)| sum);
        sum.add(spend);
        *more = Some((day, sum));
    }

    pub(super) fn agent_rested(&mut self, at: Time, agent: AgentId, until: Option<Time>) {
        let old = core::mem::replace(&mut self.rare(agent).rests_until, until.into());
        if let Some(old) = old.get() {
            self.timers.remove(old, Timer::Rest(agent));
        }
        if let Some(until) = until {
            self.timers.insert(until, Timer::Rest(agent));
        }
        self.refresh_clock(at, agent);
    }

    /// Counts a refused write of an agent (G2).
    pub(super) fn write_refused(&mut self, at: Time, agent: AgentId, code: Code) {
        let (window, max) = (self.limits.window_ms, self.limits.refused_writes_max);
        let Some(known) = self.agents.get(agent.0 as usize) else { return };
        if known.is_human() || agent == lastword_facts::fact::SYSTEM {
            return;
        }
        let rare = self.rare(agent);
        if is_about_authority(code) {
            while rare.exempt.front().is_some_and(|(first, _)| at.since(*first) >= window) {
                rare.exempt.pop_front();
            }
            rare.exempt.push_back((at, code));
            return;
        }
        // Keeps at most one more than the limit, so that an agent can't grow the list by being refused.
        while rare.refused.front().is_some_and(|first| at.since(*first) >= window) || rare.refused.len() as u64 > max {
            rare.refused.pop_front();
        }
        rare.refused.push_back(at);
    }

    /// Counts an ALERT that was shown to the humans.
    pub(super) fn alert_pushed(&mut self, at: Time, agent: AgentId) {
        let alerts = &mut self.rare(agent).alerts;
        alerts.retain(|alert| at.since(*alert) < HOUR_MS);
        alerts.push(at);
    }

    /// Notes an incident about an agent; it holds no work.
    pub(super) fn agent_noted(&mut self, at: Time, agent: AgentId, code: Code) {
        let rare = self.rare(agent);
        let kept: ThinVec<(Code, Time)> = rare.noted.iter().copied().filter(|(known, _)| *known != code).collect();
        rare.noted = kept;
        rare.noted.push((code, at));
    }

    /// Remembers the day on which the agent's root allowance last ran out (D7).
    pub(super) fn allowance_out(&mut self, at: Time, agent: AgentId) {
        self.rare(agent).allowance_out = Some(at.day());
    }

    /// Charges an agent's day with a message that it sends outside every turn (B1).
    pub(super) fn charge_day(&mut self, at: Time, agent: AgentId, tokens: u64) {
        self.agents[agent.0 as usize].charge(at, Spend { tokens, cost_microusd: 0 }, true);
    }
}
