//! Forgets closed records that are older than `retention_ms`, between two inputs and never within one (L7).

use alloc::boxed::Box;

use lastword_facts::ids::{AgentId, ConvId, Time};
use lastword_facts::names::RequestId;
use lastword_facts::status::Running;

use super::{Closed, Grant, State};

/// The records that one fact forgets together. Fewer wait until they are overdue, to save facts in the log.
const TOGETHER: usize = 64;
/// The most records that one fact forgets, to bound the work between two inputs.
const AT_ONCE_MAX: usize = 256;
/// The part of `retention_ms` by which a few records may be overdue.
const OVERDUE_PART: u64 = 8;

impl State {
    /// Returns the number of the oldest closed records to examine now.
    pub(crate) fn due_to_forget(&self, now: Time) -> u32 {
        let retention = self.limits.retention_ms;
        let is_due = |place: usize| self.closed.get(place).is_some_and(|(at, _)| now.since(*at) >= retention);
        let Some((oldest, _)) = self.closed.front().filter(|_| is_due(0)) else { return 0 };
        let overdue = now.since(*oldest) >= retention.saturating_add(retention / OVERDUE_PART);
        // The list is in order of time, so the last of the group is due only if all before it are.
        if !overdue && !is_due(TOGETHER - 1) {
            return 0;
        }
        let due = (0..AT_ONCE_MAX).take_while(|place| is_due(*place)).count();
        u32::try_from(due).unwrap_or(u32::MAX)
    }

    /// Examines the `items` oldest closed records: forgets each, or appends it again.
    pub(super) fn forget(&mut self, at: Time, items: u32) {
        for _ in 0..items {
            let Some((_, closed)) = self.closed.pop_front() else { return };
            self.forget_one(at, closed);
        }
    }

    fn forget_one(&mut self, at: Time, closed: Closed) {
        match &closed {
            Closed::Task(id) => {
                let Some(task) = self.tasks.get(id) else { return };
                // Other tasks of the open grant may need this one to find their ancestors (D5).
                if self.grants.get(&task.grant).is_some_and(|g: &Grant| g.end.is_none()) {
                    self.closed.push_back((at, closed));
                    return;
                }
                // Turns have no records of their own in the list; they go with their task.
                for turn in &task.turns {
                    self.turns.remove(turn);
                }
                self.failed.remove(id);
                if let Some(request) = self.tasks.remove(id).and_then(|task| task.request) {
                    self.keys.remove_minted(request.id.as_str(), *id);
                }
            }
            Closed::Grant(id) => drop(self.grants.remove(id)),
            Closed::Key(id) => self.forget_key(at, id),
            Closed::Made(key) => drop(self.made.remove(key)),
            Closed::Escalation(id) => drop(self.escalations.remove(id)),
            Closed::Approval(id) => drop(self.approvals.remove(id)),
            Closed::Incident(id) => drop(self.incidents.remove(id)),
            Closed::Conversation(id) => self.forget_conversation(at, *id),
        }
    }

    fn forget_key(&mut self, at: Time, id: &RequestId) {
        // A retry has to be recognised for as long as the task of the request is known (Q1).
        if self.keys.task(id.as_str()).is_some_and(|t| self.tasks.contains_key(&t)) {
            self.closed.push_back((at, Closed::Key(Box::new(id.clone()))));
        } else {
            self.keys.remove_chosen(id.as_str());
        }
    }

    fn forget_conversation(&mut self, at: Time, id: ConvId) {
        let Some(conv) = self.conversations.get(&id) else { return };
        let idle = at.since(conv.last_at) >= self.limits.retention_ms;
        // A held conversation must stay, or forgetting it would lift the hold.
        let held = conv.latched || conv.running != Running::Active;
        if !idle || conv.users > 0 || !conv.open_tasks.is_empty() || held {
            self.closed.push_back((at, Closed::Conversation(id)));
            return;
        }
        let reference = conv.reference.clone();
        self.unname(&reference, id);
        self.conversations.remove(&id);
        self.links.remove(&id);
    }

    /// Removes the REF of a conversation, so that another one can use it.
    pub(super) fn unname(&mut self, reference: &lastword_facts::names::Ref, id: ConvId) {
        // A newer conversation may have taken the REF; it keeps it.
        if self.conv_of(reference.as_str()) == Some(id) {
            self.refs.remove(reference.as_str(), id.0);
            self.count_prefixes(reference.as_str(), false);
        }
    }

    /// Schedules the result under a sender's key to be forgotten with the other closed records.
    pub(super) fn remember_made(&mut self, at: Time, agent: AgentId, key: &RequestId) {
        self.closed.push_back((at, Closed::Made(Box::new((agent, key.clone())))));
    }
}
