//! The ways in. An edge turns bytes into inputs and replies into bytes; none holds a rule of the protocol.

mod console;
pub mod http;
pub mod mcp;

mod tail;

/// The names of all edges.
pub const EDGES: &[&str] = &["http", "mcp", "console"];
