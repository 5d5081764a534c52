//! The ways in. An edge turns bytes into inputs and replies into bytes; none holds a rule of the protocol.

mod console;
pub mod http;
pub mod mcp;

mod api_error;

pub use self::api_error::ApiError;
pub(crate) use self::api_error::{record_id, record_of};

/// The names of all edges.
pub const EDGES: &[&str] = &["http", "mcp", "console"];
