//! A typed async client of Lastword's HTTP and session edges (`/v1`).
//!
//! A [`Client`] has the server's [`Endpoint`] and one principal's token; each method is one call. A refusal by the broker is
//! returned as [`ClientError::Refused`] with the server's problem.

mod agents;
mod asking;
mod backup;
mod calls;
mod checkpoints;
mod endpoint;
mod error;
mod event_sink;
mod events;
mod held;
mod http;
mod mcp;
mod query;
mod retry;
mod session;

pub use lastword_wire as wire;

pub use crate::calls::{Registered, SendTerms, Sent, Target};
pub use crate::endpoint::{Endpoint, Fingerprint, Pin, Trust, plain_http};
pub use crate::error::ClientError;
pub use crate::event_sink::EventSink;
pub use crate::events::Events;
pub use crate::held::Lifted;
pub use crate::http::{Client, Token};
pub use crate::mcp::{McpMessages, McpTerms};
pub use crate::query::MessageQuery;
pub use crate::retry::{Backoff, Connection, FinishOutcome, RetryingClient, RunnerLimits, is_late, is_transient};
pub use crate::session::{Pushed, Pushes, Replied, Session};
