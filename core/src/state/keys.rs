//! Idempotency keys and request ids (Q1): those that clients chose, by text, and those that the core minted, by number.

use alloc::collections::BTreeMap;
use core::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use smol_str::format_smolstr;

use lastword_facts::ids::{AgentId, EscalationId, Seq, TaskId};
use lastword_facts::names::RequestId;

use super::Few;
use super::table::{Number, Table};

/// The prefix of minted ids.
const MINTED: &str = "req-";

/// A key that was used (Q1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// The agent or human that used it.
    pub sender: AgentId,
    /// The hash of the content that it was used with; `None` for a minted request id.
    pub fingerprint: Option<u64>,
    /// The positions of the messages sent with it.
    pub messages: Few<Seq, 2>,
    /// The task of the request with this id.
    pub task: Option<TaskId>,
    /// The question to a human that was sent with it.
    pub escalation: Option<EscalationId>,
}

/// The keys in use. A minted id needs only the number of its task, which is never 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keys {
    chosen: BTreeMap<RequestId, Known>,
    minted: Table<RequestNumber, NonZeroU64>,
}

/// The number in a minted id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestNumber(u64);

impl Number for RequestNumber {
    fn from_value(value: u64) -> Self {
        Self(value)
    }

    fn value(self) -> u64 {
        self.0
    }
}

impl RequestNumber {
    /// Returns the id with this number: `req-0001`, `req-0002`, …
    pub(crate) fn id(number: u64) -> Option<RequestId> {
        RequestId::new(&format_smolstr!("{MINTED}{number:04}")).ok()
    }

    /// Returns the number of an id in exactly the form that the core mints; `None` for any other.
    #[must_use]
    pub fn of(id: &str) -> Option<Self> {
        let digits = id.strip_prefix(MINTED)?;
        // `req-7` and `req-00007` are keys of a client and must not be taken for `req-0007`.
        let canonical = digits.len() >= 4 && digits.bytes().all(|b| b.is_ascii_digit());
        let padded = digits.len() == 4 || !digits.starts_with('0');
        digits.parse().ok().filter(|_| canonical && padded).map(Self)
    }
}

impl Keys {
    /// Whether a key is in use.
    #[must_use]
    pub fn contains(&self, id: &str) -> bool {
        self.minted(id).is_some() || self.chosen.contains_key(id)
    }

    /// Returns the record of a key that a client chose.
    #[must_use]
    pub fn chosen(&self, id: &str) -> Option<&Known> {
        self.chosen.get(id)
    }

    /// Returns the task of the request with this id.
    #[must_use]
    pub fn task(&self, id: &str) -> Option<TaskId> {
        // The two never overlap: `serve` puts an id into only one of them.
        self.minted(id).or_else(|| self.chosen.get(id)?.task)
    }

    /// Returns the keys that were chosen and not minted.
    pub(crate) fn all_chosen(&self) -> impl Iterator<Item = &Known> {
        self.chosen.values()
    }

    /// Returns the number of keys in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chosen.len() + self.minted.len()
    }

    /// Whether no key is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all keys in use.
    pub fn ids(&self) -> impl Iterator<Item = RequestId> {
        let minted = self.minted.keys().filter_map(|number| RequestNumber::id(number.value()));
        self.chosen.keys().cloned().chain(minted)
    }

    fn minted(&self, id: &str) -> Option<TaskId> {
        self.minted.get(&RequestNumber::of(id)?).map(|task| TaskId(task.get()))
    }

    pub(super) fn chosen_mut(&mut self, id: &str) -> Option<&mut Known> {
        self.chosen.get_mut(id)
    }

    pub(super) fn choose(&mut self, id: RequestId, known: Known) {
        self.chosen.insert(id, known);
    }

    /// Remembers the task of the request with this id.
    pub(super) fn serve(&mut self, id: &RequestId, sender: AgentId, message: Seq, task: TaskId) {
        // A key that the client chose has a record already, even if it looks like a minted id.
        if let Some(known) = self.chosen.get_mut(id.as_str()) {
            known.task = Some(task);
        } else if let Some((number, task)) = RequestNumber::of(id.as_str()).zip(NonZeroU64::new(task.0)) {
            self.minted.insert(number, task);
        } else {
            let messages = Few::from_slice(&[message]);
            let known = Known { sender, fingerprint: None, messages, task: Some(task), escalation: None };
            self.chosen.insert(id.clone(), known);
        }
    }

    /// Forgets a key that a client chose.
    pub(super) fn remove_chosen(&mut self, id: &str) {
        self.chosen.remove(id);
    }

    /// Forgets the id of a task's request, if the core minted it.
    pub(super) fn remove_minted(&mut self, id: &str, task: TaskId) {
        if self.minted(id) == Some(task)
            && let Some(number) = RequestNumber::of(id)
        {
            self.minted.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_as_the_core_writes_it_has_a_number() {
        for number in [1, 42, 9_999, 10_000, 123_456] {
            let id = RequestNumber::id(number).unwrap();
            assert_eq!(RequestNumber::of(id.as_str()), Some(RequestNumber(number)), "{id}");
        }
        for other in ["req-1", "req-00001", "req-001", "req-0001.2", "req-+001", "req-", "k-0001"] {
            assert_eq!(RequestNumber::of(other), None, "{other}");
        }
    }
}
