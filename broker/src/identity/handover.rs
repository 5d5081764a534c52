//! The code by which a session of the console is handed over to another device of its human.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lastword_facts::Time;
use lastword_facts::fact::Credential;
use lastword_facts::ids::AgentId;

use super::{Secret, credential, hex};

/// The time in which a code has to be used, in ms.
pub const HANDOVER_MS: u64 = 2 * 60 * 1000;
/// How long it is told what came of a code, in ms.
const TOLD_MS: u64 = 15 * 60 * 1000;

/// The session from which a code was made. What it hands over ends with it at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedSession {
    /// Its human.
    pub human: AgentId,
    /// The hash of that human's token.
    pub token: Credential,
    /// The hash of the session's cookie.
    pub cookie: Credential,
    /// When the session expires.
    pub until: Time,
}

/// A code that was made.
pub struct HandoverCode {
    /// The code.
    pub code: Secret,
    /// The name by which is asked what came of it. It says nothing of the code.
    pub id: String,
    /// When it expires.
    pub until: Time,
}

/// What came of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handover {
    /// It can be used until this time.
    Waits(Time),
    /// It was used at this time.
    Used(Time),
    /// It expired, or another one took its place.
    Over,
}

struct Held {
    hash: Credential,
    from: HandedSession,
    until: Time,
    used: Option<Time>,
}

/// The newest code of each human, in memory alone.
#[derive(Default)]
pub struct Handovers(Mutex<BTreeMap<AgentId, Held>>);

impl Handovers {
    /// Makes a code; an earlier one of the same human becomes invalid.
    ///
    /// # Errors
    /// The system's random number generator fails.
    pub fn mint(&self, now: Time, from: HandedSession) -> io::Result<HandoverCode> {
        let (code, until) = (Secret::code()?, now.plus(HANDOVER_MS).min(from.until));
        let hash = code.credential();
        let mut held = self.lock();
        held.retain(|_, held| now < held.until.plus(TOLD_MS));
        held.insert(from.human, Held { hash, from, until, used: None });
        Ok(HandoverCode { code, id: name(&hash), until })
    }

    /// Uses a code up and returns the session that it hands over; `None` if it is wrong, used or expired.
    pub fn spend(&self, code: &str, now: Time) -> Option<HandedSession> {
        let hash = credential(code);
        let mut held = self.lock();
        // Comparing hashes keeps the timing from revealing the code.
        let found = held.values_mut().find(|held| held.hash == hash && held.used.is_none() && now < held.until)?;
        found.used = Some(now);
        Some(found.from)
    }

    /// Returns what came of the code of this human with this name.
    pub fn of(&self, human: AgentId, id: &str, now: Time) -> Handover {
        match self.lock().get(&human).filter(|held| name(&held.hash) == id) {
            Some(Held { used: Some(at), .. }) => Handover::Used(*at),
            Some(Held { until, .. }) if now < *until => Handover::Waits(*until),
            Some(_) | None => Handover::Over,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<AgentId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(hash: &Credential) -> String {
    hex(&hash[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_hands_over_once_within_two_minutes_until_another_one_is_made() {
        let codes = Handovers::default();
        let of =
            |human, until| HandedSession { human: AgentId(human), token: [1; 32], cookie: [2; 32], until: Time(until) };
        let mint = |human, now| codes.mint(Time(now), of(human, u64::MAX)).unwrap();
        let made = mint(1, 0);
        let standing = |made: &HandoverCode, now| codes.of(AgentId(1), &made.id, Time(now));
        assert_eq!(standing(&made, 0), Handover::Waits(Time(HANDOVER_MS)));
        assert_eq!(codes.spend("another", Time(0)), None);
        assert_eq!(codes.spend(&made.id, Time(0)), None, "its name is no code");
        assert_eq!(codes.spend(made.code.reveal(), Time(9)), Some(of(1, u64::MAX)));
        assert_eq!(codes.spend(made.code.reveal(), Time(9)), None, "it was used");
        assert_eq!(standing(&made, 9), Handover::Used(Time(9)));
        assert_eq!(codes.of(AgentId(2), &made.id, Time(9)), Handover::Over, "of another human");
        let late = mint(1, 0);
        assert_eq!(codes.spend(late.code.reveal(), Time(HANDOVER_MS)), None);
        assert_eq!(standing(&late, HANDOVER_MS), Handover::Over);
        let (first, others, second) = (mint(1, 0), mint(2, 0), mint(1, 0));
        assert_eq!(codes.spend(first.code.reveal(), Time(0)), None, "a newer one took its place");
        assert_eq!(standing(&first, 0), Handover::Over);
        assert!(codes.spend(others.code.reveal(), Time(0)).is_some());
        assert!(codes.spend(second.code.reveal(), Time(0)).is_some());
        assert_eq!(codes.mint(Time(0), of(1, 5)).unwrap().until, Time(5), "the session ends sooner");
    }
}
