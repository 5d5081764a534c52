//! Rooms and their members.

use lastword_core::State;
use lastword_facts::ids::RoomId;
use lastword_wire::RoomView;

/// Returns a room; `None` if the number is unknown.
pub(crate) fn room(state: &State, id: RoomId) -> Option<RoomView> {
    let room = state.rooms.get(&id)?;
    Some(RoomView {
        id: id.to_string(),
        name: room.name.to_string(),
        members: room.members.iter().map(|m| state.name_of(*m).to_owned()).collect(),
        agent_messages: room.agent_messages,
        messages: room.messages,
        latched: room.latched,
    })
}
