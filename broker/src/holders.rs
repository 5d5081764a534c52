//! Which client works on which turn: no two get the same delivery (F1).
//!
//! This is known to the running broker alone. After its restart a turn has no holder until a client shows a sign of it.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use lastword_core::State;
use lastword_facts::Time;
use lastword_facts::ids::{AgentId, TurnId};

use crate::identity::credential;
use crate::sync::{Mutex, MutexGuard};

/// A client of an agent, by the hash of the id that it gives itself (`Lastword-Client`) or that its session has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClientId([u8; 8]);

impl ClientId {
    /// Returns the client with this id.
    #[must_use]
    pub fn of(id: &str) -> Self {
        let mut short = [0; 8];
        short.iter_mut().zip(credential(id)).for_each(|(to, from)| *to = from);
        Self(short)
    }
}

/// What a caller may do with the open turns of its agent that it doesn't name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Claimable {
    /// The turns that it may continue: their deliveries are given again.
    pub own: Vec<TurnId>,
    /// The turns of a client without an id that wait for answers. Those join them, and nothing is given again.
    pub shared: Vec<TurnId>,
    /// Whether the agent has no room for another turn.
    pub full: bool,
    /// Whether another live client holds one.
    pub held: bool,
    /// When the first of the others can be continued, if nothing is heard of its holder.
    pub free_at: Option<Time>,
}

/// The holders of open turns, and the clients whose sessions are open.
pub struct Holders {
    table: Mutex<Table>,
    holder_ms: AtomicU64,
}

#[derive(Default)]
struct Table {
    turns: BTreeMap<TurnId, Holder>,
    /// The open sessions of each client.
    sessions: BTreeMap<(AgentId, ClientId), usize>,
}

struct Holder {
    agent: AgentId,
    /// `None` if it has no id.
    client: Option<ClientId>,
    /// The last sign of it.
    seen: Time,
    /// Whether its session has ended.
    closed: bool,
}

/// What one client may do with a turn of another.
enum Access {
    Own,
    /// It may be continued from this time on, and answers may join it before, where the flag says so.
    Later(Time, bool),
    Never,
}

impl Holders {
    /// Frees a turn of a client without an id after this time without a sign.
    pub(crate) fn new(holder_ms: u64) -> Self {
        Self { table: Mutex::default(), holder_ms: AtomicU64::new(holder_ms) }
    }

    pub(crate) fn set_holder_ms(&self, holder_ms: u64) {
        self.holder_ms.store(holder_ms, Ordering::Relaxed);
    }

    fn holder_ms(&self) -> u64 {
        self.holder_ms.load(Ordering::Relaxed)
    }

    /// Makes `client` the holder of a turn of `agent`. Returns `false` if another client holds it.
    pub(crate) fn hold(
        &self,
        state: &State,
        agent: AgentId,
        turn: TurnId,
        client: Option<ClientId>,
        now: Time,
    ) -> bool {
        let mut table = self.lock();
        // Few turns of an agent are open, so what has ended is dropped here.
        table.turns.retain(|id, held| held.agent != agent || state.turns.get(id).is_some_and(|turn| turn.open));
        if !matches!(table.access(agent, turn, client, now, self.holder_ms()), Access::Own) {
            return false;
        }
        table.turns.insert(turn, Holder { agent, client, seen: now, closed: false });
        true
    }

    /// Lets go of a turn whose delivery didn't reach its client.
    pub(crate) fn release(&self, turn: TurnId) {
        self.lock().turns.remove(&turn);
    }

    /// Records a sign of the holder of a turn: a call in the turn.
    pub fn seen(&self, turn: TurnId, now: Time) {
        if let Some(held) = self.lock().turns.get_mut(&turn) {
            held.seen = now;
        }
    }

    /// Returns what a client that names no turn may do with the open turns of its agent.
    pub(crate) fn claimable(&self, state: &State, agent: AgentId, client: Option<ClientId>, now: Time) -> Claimable {
        let mut found = Claimable::default();
        let mut table = self.lock();
        let Some(own) = state.agent(agent) else { return found };
        found.full = own.turns.len() as u64 >= own.turns_max(&state.limits);
        for turn in own.turns.iter().copied() {
            match table.access(agent, turn, client, now, self.holder_ms()) {
                Access::Own => found.own.push(turn),
                Access::Later(at, joins) => {
                    found.shared.extend((joins && waits(state, turn)).then_some(turn));
                    found.held |= !joins;
                    found.free_at = Some(found.free_at.map_or(at, |first: Time| first.min(at)));
                }
                Access::Never => found.held = true,
            }
        }
        if let Some(client) = client {
            let own = table.turns.values_mut().filter(|held| held.agent == agent && held.client == Some(client));
            own.for_each(|held| held.seen = now);
        }
        found
    }

    /// Returns whether a client may continue this turn.
    #[must_use]
    pub fn may_continue(&self, agent: AgentId, turn: TurnId, client: Option<ClientId>, now: Time) -> bool {
        matches!(self.lock().access(agent, turn, client, now, self.holder_ms()), Access::Own)
    }

    /// Returns the holders of the agent's turns: the clients with an id, and the number of turns without.
    pub(crate) fn of(&self, state: &State, agent: AgentId) -> (Vec<ClientId>, usize) {
        let table = self.lock();
        let open = |turn: &TurnId| state.turns.get(turn).is_some_and(|turn| turn.open);
        let held = table.turns.iter().filter(|(turn, held)| held.agent == agent && open(turn)).map(|(_, held)| held);
        let (named, nameless): (Vec<_>, Vec<_>) =
            held.filter(|held| !held.closed).map(|held| held.client).partition(Option::is_some);
        (named.into_iter().flatten().collect(), nameless.len())
    }

    /// Counts a session of a client.
    pub fn begin(&self, agent: AgentId, client: ClientId) {
        let mut table = self.lock();
        *table.sessions.entry((agent, client)).or_default() += 1;
        table.of(agent, client).for_each(|held| held.closed = false);
    }

    /// Ends a session of a client. Its turns are free: at once if the id was the session's own, and after `holder_ms` if
    /// the client may come back under it.
    pub(crate) fn end(&self, agent: AgentId, client: ClientId, named: bool, now: Time) {
        let mut table = self.lock();
        let Some(open) = table.sessions.get_mut(&(agent, client)) else { return };
        *open -= 1;
        if *open > 0 {
            return;
        }
        table.sessions.remove(&(agent, client));
        if named {
            table.of(agent, client).for_each(|held| (held.seen, held.closed) = (now, true));
        } else {
            table.turns.retain(|_, held| held.agent != agent || held.client != Some(client));
        }
    }

    /// Lets go of every turn of a client that has ended.
    pub(crate) fn gone(&self, agent: AgentId, client: ClientId) {
        self.lock().turns.retain(|_, held| held.agent != agent || held.client != Some(client));
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether a turn waits for answers.
fn waits(state: &State, turn: TurnId) -> bool {
    let task = state.turns.get(&turn).and_then(|turn| state.tasks.get(&turn.task));
    task.is_some_and(|task| task.in_flight() > 0)
}

impl Table {
    fn of(&mut self, agent: AgentId, client: ClientId) -> impl Iterator<Item = &mut Holder> {
        self.turns.values_mut().filter(move |held| held.agent == agent && held.client == Some(client))
    }

    fn access(&mut self, agent: AgentId, turn: TurnId, client: Option<ClientId>, now: Time, holder_ms: u64) -> Access {
        let Some(held) = self.turns.get(&turn) else { return Access::Own };
        let free_at = held.seen.plus(holder_ms);
        let live = held.client.is_some_and(|client| self.sessions.contains_key(&(agent, client)));
        match (held.client, client) {
            (Some(holder), Some(client)) if holder == client => Access::Own,
            _ if live => Access::Never,
            // It has a name under which it gets the delivery again, so only the end of its lease frees the turn.
            (Some(_), Some(_)) if !held.closed => Access::Never,
            _ if now >= free_at => Access::Own,
            (holder, _) => Access::Later(free_at, holder.is_none()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KILO: AgentId = AgentId(1);
    const TURN: TurnId = TurnId(7);

    /// Returns whether the turn is the client's at this time, and whether answers join it before.
    fn access(table: &mut Table, client: Option<&str>, now: u64) -> (bool, bool) {
        match table.access(KILO, TURN, client.map(ClientId::of), Time(now), 100) {
            Access::Own => (true, true),
            Access::Later(at, joins) => {
                assert_eq!(at, Time(150));
                (false, joins)
            }
            Access::Never => (false, false),
        }
    }

    fn held_by(client: Option<&str>, closed: bool) -> Table {
        let client = client.map(ClientId::of);
        let turns = [(TURN, Holder { agent: KILO, client, seen: Time(50), closed })].into();
        Table { turns, sessions: BTreeMap::new() }
    }

    #[test]
    fn a_turn_of_a_silent_client_is_free_at_just_the_limit() {
        for client in [None, Some("b")] {
            let mut table = held_by(None, false);
            assert_eq!(
                (access(&mut table, client, 149), access(&mut table, client, 150)),
                ((false, true), (true, true))
            );
            let mut closed = held_by(Some("a"), true);
            assert_eq!(
                (access(&mut closed, client, 149), access(&mut closed, client, 150)),
                ((false, false), (true, true))
            );
        }
        let mut table = held_by(Some("a"), false);
        assert_eq!((access(&mut table, None, 149), access(&mut table, None, 150)), ((false, false), (true, true)));
        assert_eq!(access(&mut table, Some("b"), 150), (false, false), "it has a name under which it comes back");
        assert_eq!(access(&mut table, Some("a"), 51), (true, true));
        table.sessions.insert((KILO, ClientId::of("a")), 1);
        assert_eq!(access(&mut table, None, 1_000), (false, false), "its session is open");
    }
}
