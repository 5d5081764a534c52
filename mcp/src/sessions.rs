//! The sessions of clients that shake hands: the owner of each, and whether it has a stream open.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lastword_broker::{ClientId, Handle};
use lastword_facts::ids::AgentId;
use rmcp::model::RequestId;
use tokio::sync::{Notify, watch};

/// The most open sessions per agent. A further one ends the session that was used least recently.
const SESSIONS_MAX: usize = 16;
/// The most ended sessions that are remembered, so that clients that still use one get the right error.
const ENDED_MAX: usize = 4_096;

/// The agent that a session belongs to; `None` for an anonymous caller, who reaches the anonymous surface only.
pub(super) type Owner = Option<AgentId>;

/// The state of a session as a caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    /// It is open and belongs to the caller.
    Open,
    /// It has ended, or it belongs to another agent; the caller must not be able to tell these apart.
    Ended,
    /// It isn't known; it probably comes from an earlier run of the server.
    Unknown,
}

/// The sessions of one surface.
#[derive(Default)]
pub(super) struct Sessions(Mutex<OpenSessions>);

#[derive(Default)]
struct OpenSessions {
    /// The broker, which forgets the client when its session ends.
    handle: Option<Handle>,
    open: BTreeMap<String, McpSession>,
    ended: VecDeque<String>,
    uses: u64,
}

#[derive(Debug)]
struct McpSession {
    owner: Owner,
    used: u64,
    streams: watch::Sender<usize>,
    calls: BTreeMap<String, Arc<Notify>>,
}

impl Sessions {
    /// Returns the sessions of this broker's agents.
    pub(super) fn of(handle: &Handle) -> Self {
        Self(Mutex::new(OpenSessions { handle: Some(handle.clone()), ..OpenSessions::default() }))
    }

    /// Adds a session; returns the one that has to be closed for it, if any.
    pub(super) fn open(&self, id: &str, owner: Owner) -> Option<String> {
        let mut table = self.lock();
        let own = table.open.iter().filter(|(_, session)| session.owner == owner);
        let idle = own.min_by_key(|(_, session)| session.used).map(|(id, _)| id.clone());
        let full = table.open.values().filter(|session| session.owner == owner).count() >= SESSIONS_MAX;
        // A counter instead of a clock, because only the order of uses matters.
        table.uses += 1;
        let session = McpSession { owner, used: table.uses, streams: watch::Sender::new(0), calls: BTreeMap::new() };
        table.open.insert(id.to_owned(), session);
        idle.filter(|_| full).inspect(|idle| table.end(idle))
    }

    /// Returns the state of session `id` for `caller`, and counts as a use of it.
    pub(super) fn standing(&self, id: &str, caller: Owner) -> SessionState {
        let mut table = self.lock();
        let OpenSessions { open, ended, uses, .. } = &mut *table;
        *uses += 1;
        match open.get_mut(id) {
            Some(session) if session.owner == caller => {
                session.used = *uses;
                SessionState::Open
            }
            // Another agent's session: the caller must not learn that the id exists.
            Some(_) => SessionState::Ended,
            None if ended.iter().any(|ended| ended == id) => SessionState::Ended,
            None => SessionState::Unknown,
        }
    }

    /// Ends a session.
    pub(super) fn end(&self, id: &str) {
        self.lock().end(id);
    }

    /// Watches the number of open streams that report to a session; `None` if it has ended.
    pub(super) fn streams(&self, id: &str) -> Option<watch::Receiver<usize>> {
        self.lock().open.get(id).map(|session| session.streams.subscribe())
    }

    /// Counts a stream until the returned value is dropped.
    pub(super) fn stream(self: &Arc<Self>, id: &str) -> Stream {
        if let Some(session) = self.lock().open.get(id) {
            session.streams.send_modify(|open| *open += 1);
        }
        Stream { sessions: Arc::clone(self), id: id.to_owned() }
    }

    /// Registers a call in progress until the returned value is dropped.
    pub(super) fn call(self: &Arc<Self>, id: &str, call: &RequestId) -> Option<CallInProgress> {
        let (name, taken_back) = (call.to_string(), Arc::new(Notify::new()));
        self.lock().open.get_mut(id)?.calls.insert(name.clone(), Arc::clone(&taken_back));
        Some(CallInProgress { sessions: Arc::clone(self), id: id.to_owned(), name, taken_back })
    }

    /// Cancels a call.
    pub(super) fn take_back(&self, id: &str, call: &RequestId) {
        if let Some(taken_back) = self.lock().open.get(id).and_then(|session| session.calls.get(&call.to_string())) {
            // Stores a permit: the call may not be waiting for its cancellation yet.
            taken_back.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, OpenSessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenSessions {
    fn end(&mut self, id: &str) {
        if let Some(session) = self.open.remove(id) {
            if let (Some(handle), Some(agent)) = (&self.handle, session.owner) {
                handle.gone(agent, ClientId::of(id));
            }
            self.ended.push_back(id.to_owned());
        }
        while self.ended.len() > ENDED_MAX {
            self.ended.pop_front();
        }
    }
}

/// An open stream of a session.
pub(super) struct Stream {
    sessions: Arc<Sessions>,
    id: String,
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The session may have ended before its stream.
        if let Some(session) = self.sessions.lock().open.get(&self.id) {
            session.streams.send_modify(|open| *open -= 1);
        }
    }
}

/// A call in progress.
pub(super) struct CallInProgress {
    sessions: Arc<Sessions>,
    id: String,
    name: String,
    taken_back: Arc<Notify>,
}

impl CallInProgress {
    /// Waits until the client cancels the call.
    pub(super) async fn taken_back(&self) {
        self.taken_back.notified().await;
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if let Some(session) = self.sessions.lock().open.get_mut(&self.id) {
            session.calls.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_its_owners_until_it_ends() {
        let sessions = Sessions::default();
        let (kilo, hive) = (Some(AgentId(1)), Some(AgentId(2)));
        assert_eq!(sessions.open("a", kilo), None);
        assert_eq!(sessions.standing("a", kilo), SessionState::Open);
        for stranger in [hive, None] {
            assert_eq!(sessions.standing("a", stranger), SessionState::Ended);
        }
        assert_eq!(sessions.standing("b", kilo), SessionState::Unknown);
        sessions.end("a");
        assert_eq!(sessions.standing("a", kilo), SessionState::Ended);
    }

    #[test]
    fn the_session_that_was_used_least_recently_makes_room() {
        let sessions = Sessions::default();
        let kilo = Some(AgentId(1));
        let full: Vec<_> = (0..SESSIONS_MAX).map(|n| sessions.open(&format!("s{n}"), kilo)).collect();
        assert_eq!(full, vec![None; SESSIONS_MAX]);
        assert_eq!(sessions.open("other", Some(AgentId(2))), None, "each agent has room of its own");
        assert_eq!(sessions.standing("s0", kilo), SessionState::Open);
        assert_eq!(sessions.open("new", kilo).as_deref(), Some("s1"));
        assert_eq!(sessions.standing("s1", kilo), SessionState::Ended);
    }

    #[test]
    fn open_streams_are_counted_until_they_are_dropped() {
        let sessions = Arc::new(Sessions::default());
        sessions.open("a", None);
        let watching = sessions.streams("a").unwrap();
        let (one, two) = (sessions.stream("a"), sessions.stream("a"));
        assert_eq!(*watching.borrow(), 2);
        drop((one, two));
        assert_eq!(*watching.borrow(), 0);
        assert!(sessions.streams("b").is_none());
    }
}
