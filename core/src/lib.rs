//! The Lastword protocol as pure functions over facts: no I/O, no clock, no randomness.
//!
//! [`Core::handle`] takes the time and an [`Input`], never fails and never blocks. It returns facts to append to the
//! log, and effects to release once the facts are durable. [`Core::replay`] folds a fact of the log. Both change the
//! state through the same function, so facts alone rebuild it.
// The macro that derives the OpenAPI schemas expands to paths and macros of `std`.
#![cfg_attr(not(feature = "schema"), no_std)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod guards;
pub mod input;
pub mod rules;
pub mod state;

mod core;

pub use crate::core::Core;
pub use crate::input::{Effect, Input, Out, Reply};
pub use crate::state::{Principal, State};
