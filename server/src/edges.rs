//! The edges: the ways into the broker. An edge turns bytes into inputs and replies into bytes; the rules of the
//! protocol are elsewhere.

mod console;
pub mod http;
pub mod mcp;
pub(crate) mod session;

mod tail;

/// The names of all edges, as `edges_agree` and the documentation list them.
pub const EDGES: &[&str] = &["http", "session", "mcp", "console"];
