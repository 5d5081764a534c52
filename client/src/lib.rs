//! A typed async client of Lastword's HTTP and session edges (`/v1`).
//!
//! A [`Client`] has the server's [`Endpoint`] and one principal's token; each method is one call. A refusal by the broker is
//! returned as [`ClientError::Refused`] with the server's problem.
//!
//! ```no_run
//! # async fn ask() -> Result<(), lastword_client::ClientError> {
//! use std::time::Duration;
//!
//! use lastword_client::wire::Envelope;
//! use lastword_client::{Client, Endpoint, SendTerms, Sent, Token};
//! use lastword_facts::MessageType;
//!
//! let client = Client::new(&Endpoint::new("http://127.0.0.1:7171"), Some(Token::new("lw_…")?))?;
//! let request = Envelope::new(MessageType::Request, "kilo", "Review the change of today");
//! let terms = SendTerms { wait: Some(Duration::from_secs(60)), ..SendTerms::default() };
//! if let Sent::One { response: Some(answer), .. } = client.send(&request, &terms).await? {
//!     println!("{}", answer.body);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! What is wrong with an address or a token is said before a call is made:
//!
//! ```
//! use lastword_client::{Client, ClientError, Endpoint, Token};
//!
//! let without_scheme = Client::new(&Endpoint::new("127.0.0.1:7171"), None);
//! assert!(matches!(without_scheme, Err(ClientError::Unusable(_))));
//! assert!(Token::new("two words").is_err());
//!
//! // A token doesn't get into a log by its `Debug` form.
//! assert_eq!(format!("{:?}", Token::new("lw_secret")?), "Token(…)");
//! # Ok::<(), ClientError>(())
//! ```

mod a2a;
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
mod token;

pub use lastword_wire as wire;

pub use crate::a2a::{Leaving, RemoteAgent, RemoteError, RemoteEvents};
pub use crate::calls::{Registered, SendTerms, Sent, Target};
pub use crate::endpoint::{Endpoint, Fingerprint, Pin, Trust, plain_http};
pub use crate::error::ClientError;
pub use crate::event_sink::EventSink;
pub use crate::events::Events;
pub use crate::held::Lifted;
pub use crate::http::Client;
pub use crate::mcp::{McpMessages, McpTerms};
pub use crate::query::MessageQuery;
pub use crate::retry::{Backoff, Connection, FinishOutcome, RetryingClient, RunnerLimits, is_late, is_transient};
pub use crate::session::{Pushed, Pushes, Replied, Session};
pub use crate::token::Token;
