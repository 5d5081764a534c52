//! The Lastword protocol as pure functions: no I/O, no clock, no randomness.
//!
//! [`Core::handle`] takes the time and an [`Input`], never fails and never blocks. It returns facts to append to the
//! log, and effects to release once the facts are durable. [`Core::replay`] folds a fact of the log. Both change the
//! state through the same function, so facts alone rebuild it.
// The macro that derives the OpenAPI schemas expands to paths and macros of `std`.
#![cfg_attr(not(feature = "schema"), no_std)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod envelope;
pub mod fact;
pub mod fsm;
pub mod guards;
pub mod header;
pub mod ids;
pub mod input;
pub mod limits;
pub mod named;
pub mod names;
pub mod policy;
pub mod progress;
pub mod refusal;
pub mod rules;
pub mod state;
pub mod visible;

mod core;

pub use crate::core::Core;
pub use crate::envelope::{Address, AnswerStatus, Draft, FinishStatus, MessageType, Priority};
pub use crate::fact::{Entry, Fact, Message};
pub use crate::ids::{Seq, Time};
pub use crate::input::{Effect, Input, Out, Reply};
pub use crate::limits::Limits;
pub use crate::refusal::{Code, Refusal};
pub use crate::state::{Principal, State};
