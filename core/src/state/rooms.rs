//! Rooms and the posts in them (§1, R1).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use lastword_facts::fact::Key;
use lastword_facts::ids::{AgentId, RoomId, Seq, Time};
use lastword_facts::names::Ref;

use super::{Closed, Few, Known, State};

/// A room (§1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// The name of the room.
    pub name: Ref,
    /// The members, as a human set them last.
    pub members: Vec<AgentId>,
    /// Agent posts since a human last spoke (R1).
    pub agent_messages: u64,
    /// Whether a latch of the hard limit holds it.
    pub latched: bool,
    /// The number of posts in it.
    pub messages: u64,
}

impl State {
    pub(super) fn room_opened(&mut self, id: RoomId, name: &Ref, members: &[AgentId]) {
        self.minted.room = self.minted.room.max(id.0);
        self.room_names.insert(name.clone(), id);
        // Changing the members keeps the counters, or it would be a way around the limits (R1).
        let old = self.rooms.remove(&id);
        let (agent_messages, latched, messages) =
            old.map_or((0, false, 0), |r| (r.agent_messages, r.latched, r.messages));
        let (name, members) = (name.clone(), members.to_vec());
        self.rooms.insert(id, Room { name, members, agent_messages, latched, messages });
    }

    pub(super) fn posted(&mut self, at: Time, room: RoomId, from: AgentId) {
        let human = self.agents[from.0 as usize].is_heard();
        self.charge_sender(at, from, from);
        if let Some(room) = self.rooms.get_mut(&room) {
            room.messages += 1;
            room.agent_messages = if human { 0 } else { room.agent_messages };
        }
    }

    pub(super) fn post_keyed(&mut self, at: Time, sender: AgentId, key: &Key, admitted: bool) {
        // An admitted post is the fact after this one.
        let post = admitted.then(|| Seq(self.seq.0 + 1));
        let (fingerprint, messages) = (Some(key.fingerprint), Few::from_slice(post.as_slice()));
        let known = Known { sender, fingerprint, messages, task: None, escalation: None };
        if !self.keys.contains(key.id.as_str()) {
            self.closed.push_back((at, Closed::Key(Box::new(key.id.clone()))));
        }
        self.keys.choose(key.id.clone(), known);
    }
}
