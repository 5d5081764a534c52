//! What the log of Lastword holds, and what its words mean: identifiers, names, envelopes, limits, refusals, policies and
//! facts. No state, no I/O, no clock.
//!
//! A log is a sequence of [`Entry`]s. Whoever reads one needs nothing but this crate: the core that folds them, and the
//! witness that recounts them.
//!
//! ```
//! use lastword_facts::fact::{Area, EventKind};
//! use lastword_facts::{Entry, Fact, Limits, Time};
//!
//! let limits = Box::new(Limits::default());
//! let entry = Entry { at: Time(0), grant: None, fact: Fact::Configured { limits } };
//! let about = entry.fact.about();
//! assert_eq!((about.kind, about.area), (EventKind::Configured, Area::Settings));
//! ```
// The macro that derives the OpenAPI schemas expands to paths and macros of `std`.
#![cfg_attr(not(feature = "schema"), no_std)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod digest;
pub mod envelope;
pub mod fact;
pub mod fsm;
pub mod guards;
pub mod header;
pub mod ids;
pub mod limits;
mod name_error;
pub mod named;
pub mod names;
pub mod policy;
pub mod refusal;
pub mod resource;
pub mod stall;
pub mod status;
pub mod trace;
pub mod visible;

pub use crate::envelope::{Address, AnswerStatus, Draft, FinishStatus, MessageType, Priority};
pub use crate::fact::{Entry, Fact, Message};
pub use crate::ids::{Seq, Time};
pub use crate::limits::Limits;
pub use crate::refusal::{Code, Refusal};
pub use crate::trace::TraceContext;
