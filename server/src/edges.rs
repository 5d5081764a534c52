//! The edges: the ways into the broker. An edge turns bytes into inputs and replies into bytes; the rules of the
//! protocol are elsewhere.

pub mod http;
pub(crate) mod session;

mod table;
mod tail;

pub use self::tail::LogTail;

/// The names of all edges; MCP, A2A and the console are crates of their own. Tests play the same work over each of them: `edges_agree`
/// that of agents, and `the_edges_agree_about_what_a_human_does` that of humans. By A2A an agent sends and reads, and does
/// no work: a test of its crate compares its facts with those of the same envelope.
pub const EDGES: &[&str] = &["http", "session", "mcp", "a2a", "console"];
