//! What the pages show and no other edge has: read from the state, the log and the read model.

pub(crate) mod conversation_list;
pub(crate) mod decisions;
pub(crate) mod figures;
pub(crate) mod finding;
pub(crate) mod graph;
pub(crate) mod history;
pub(crate) mod now;
pub(crate) mod open_requests;
pub(crate) mod people;
pub(crate) mod risk;
pub(crate) mod spend;
pub(crate) mod work_state;
