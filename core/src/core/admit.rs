//! The admission of every write: keys, too many refusals, pauses, windows (G2, G4, Q1).

use lastword_facts::envelope::fnv_of;
use lastword_facts::fact::{Fact, IncidentNoted, Key, Made, Role, WriteKind, WriteRefused};
use lastword_facts::ids::{AgentId, HOUR_MS, IncidentId, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::Running;

use super::{Outcome, Step, Unrecorded};
use crate::guards;
use crate::input::Reply;
use crate::state::{Agent, Principal, is_about_authority};

impl Step<'_> {
    /// Admits a write that isn't a message and makes it. Records a refusal; a retry under the same key gets the first
    /// result.
    pub(super) fn write(
        &mut self,
        by: Principal,
        write: WriteKind,
        turn: Option<TurnId>,
        key: Option<Key>,
        make: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        self.may(by, Role::Operator)?;
        // Before everything that can refuse: a retry gets its result even if the agent is paused by now.
        if let Some(again) = self.made_before(by.agent(), key.as_ref())? {
            return Ok(again);
        }
        self.not_too_often(by.agent())?;
        let made = self.admit_write(by, write).and_then(|()| make(self));
        match made {
            Ok(reply) => {
                self.keep_key(by.agent(), key, &reply);
                Ok(reply)
            }
            Err(refusal) => Err(self.refuse_write(by, write, turn, refusal)),
        }
    }

    /// Returns the result of an earlier write under this key (Q1).
    pub(super) fn made_before(&self, agent: AgentId, key: Option<&Key>) -> Result<Option<Reply>, Refusal> {
        let Some(key) = key else { return Ok(None) };
        let Some(known) = self.state().made.get(&(agent, key.id.clone())) else { return Ok(None) };
        if known.fingerprint != key.fingerprint {
            return Err(Refusal::new(Code::IdempotencyConflict).about(&key.id));
        }
        Ok(Some(match known.made {
            Made::Escalation(id) => Reply::Escalated(id),
            Made::Approval(id) => Reply::Held(id),
            Made::Claim(id) => Reply::Claimed(id),
            Made::Room(id) => Reply::Opened(id),
            Made::Agent(id) => Reply::Registered(id),
        }))
    }

    pub(super) fn keep_key(&mut self, agent: AgentId, key: Option<Key>, reply: &Reply) {
        let made = match reply {
            Reply::Escalated(id) => Made::Escalation(*id),
            Reply::Held(id) => Made::Approval(*id),
            Reply::Claimed(id) => Made::Claim(*id),
            Reply::Opened(id) => Made::Room(*id),
            Reply::Registered(id) => Made::Agent(*id),
            Reply::Refused { .. }
            | Reply::Done
            | Reply::Sent(_)
            | Reply::Again(_)
            | Reply::Delivery(_)
            | Reply::Finished { .. }
            | Reply::Renewed { .. }
            | Reply::Lifted(_)
            | Reply::Usable(_) => return,
        };
        if let Some(key) = key {
            self.record(Fact::Keyed { agent, key, made });
        }
    }

    /// Refuses an agent whose writes were refused too often, without judging, until enough of those refusals are old
    /// (G2).
    pub(super) fn not_too_often(&mut self, agent: AgentId) -> Result<(), Refusal> {
        let limits = &self.state().limits;
        let known = self.state().agent(agent).filter(|known| !known.is_human());
        let Some((refused, until)) = known.and_then(|known| known.refused_too_often(limits, self.now)) else {
            return Ok(());
        };
        let (max, wait) = (limits.refused_writes_max, until.since(self.now).max(1));
        let fresh = known.and_then(|known| known.noted_at(Code::RefusedTooOften));
        // One incident an hour is enough for the humans; an agent that keeps hammering must not fill the log.
        if fresh.is_none_or(|at| self.now.since(at) >= HOUR_MS) {
            self.note_incident(agent, Code::RefusedTooOften, max, refused + 1);
        }
        self.leave_unrecorded(agent, Code::RefusedTooOften);
        Err(Refusal::new(Code::RefusedTooOften).numbers(max, refused + 1).retry_after(wait))
    }

    /// Records an incident about an agent; it holds no work.
    pub(super) fn note_incident(&mut self, agent: AgentId, code: Code, limit: u64, current: u64) {
        let incident = IncidentId(self.state().last_incident() + 1);
        self.record(Fact::IncidentNoted(IncidentNoted { incident, agent, code, limit, current }));
    }

    pub(super) fn admit_write(&self, by: Principal, write: WriteKind) -> Result<(), Refusal> {
        if by.is_human() {
            return Ok(());
        }
        self.require_active(by.agent())?;
        self.has_room(by.agent())?;
        let agent = self.state().agent(by.agent()).filter(|_| self.enforces("sender_rate"));
        let rate = if write == WriteKind::Claim { guards::claim_rate } else { guards::write_rate };
        agent.and_then(|agent| rate(agent, &self.state().limits, self.now)).map_or(Ok(()), Err)
    }

    /// Refuses an agent that has had its day's bytes stored (G2).
    pub(super) fn has_room(&self, agent: AgentId) -> Result<(), Refusal> {
        let full =
            self.state().agent(agent).and_then(|agent| guards::bytes_of_day(agent, &self.state().limits, self.now));
        full.filter(|_| self.has_guard("quota_bytes")).map_or(Ok(()), Err)
    }

    /// Records the refusal of an agent's write.
    pub(super) fn refuse_write(
        &mut self,
        by: Principal,
        write: WriteKind,
        turn: Option<TurnId>,
        refusal: Refusal,
    ) -> Refusal {
        if !by.is_human() && self.goes_on_record(by.agent(), refusal.code) {
            let turn = self.turn_of(by.agent(), turn).ok();
            let refusal = refusal.clone();
            self.record(Fact::WriteRefused(WriteRefused { agent: by.agent(), turn, write, refusal }));
        }
        refusal
    }

    /// Whether another refusal with this code is recorded on its own: always, except that those about authority have a
    /// limit, after which they are summed (G2).
    pub(super) fn goes_on_record(&mut self, agent: AgentId, code: Code) -> bool {
        let limits = &self.state().limits;
        let exempt = self.state().agent(agent).filter(|_| is_about_authority(code));
        let many = exempt.is_some_and(|a| a.exempt_refusals(code, limits, self.now) >= limits.recorded_refusals_max);
        if many {
            self.leave_unrecorded(agent, code);
        }
        !many
    }

    fn leave_unrecorded(&mut self, agent: AgentId, code: Code) {
        let sum = self.core.unrecorded.entry((agent, code)).or_insert(Unrecorded { since: self.now, count: 0 });
        sum.count += 1;
    }

    /// Records the sums of refusals that were not recorded one by one, a window after the first of them.
    pub(super) fn record_sums(&mut self) {
        if self.core.unrecorded.is_empty() {
            return;
        }
        let window = self.state().limits.window_ms;
        let due = self.core.unrecorded.iter().filter(|(_, sum)| self.now.since(sum.since) >= window);
        let due: alloc::vec::Vec<_> = due.map(|(of, sum)| (*of, sum.count)).collect();
        for ((agent, code), count) in due {
            self.core.unrecorded.remove(&(agent, code));
            self.record(Fact::RefusalsSummed { agent, code, count });
        }
    }

    /// Refuses a write of an agent while it or the workspace is paused or stopped (H4).
    pub(super) fn require_active(&self, agent: AgentId) -> Result<(), Refusal> {
        let state = self.state();
        // The stricter of the two holds: the states are ordered from active to stopped.
        let known: &Agent = &state.agents[agent.0 as usize];
        let on = if state.running >= known.running { "workspace" } else { known.name() };
        match state.running.max(known.running) {
            Running::Active => Ok(()),
            Running::Paused => Err(Refusal::new(Code::Paused).about(on)),
            Running::Stopped => Err(Refusal::new(Code::Stopped).about(on)),
        }
    }
}

/// Returns the key of a write with a hash of its content.
pub(super) fn key(id: Option<&RequestId>, content: core::fmt::Arguments<'_>) -> Option<Key> {
    id.map(|id| Key { id: id.clone(), fingerprint: fnv_of(content) })
}
