//! The read model: lookups and sums over the log, in a file of its own that may be deleted.

pub(crate) mod agent_index;
pub(crate) mod aggregates;
pub(crate) mod conversation_index;
pub(crate) mod history_page;
pub(crate) mod index;
pub(crate) mod packed;
pub(crate) mod query;
pub(crate) mod spend_index;
