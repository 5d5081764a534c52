//! The Lastword protocol as pure functions over facts: no I/O, no clock, no randomness.
//!
//! [`Core::handle`] takes the time and an [`Input`], never fails and never blocks. It returns facts to append to the
//! log, and effects to release once the facts are durable. [`Core::replay`] folds a fact of the log. Both change the
//! state through the same function, so facts alone rebuild it.
//!
//! ```
//! use lastword_core::input::Registration;
//! use lastword_core::{Core, Effect, Input, Out, Reply};
//! use lastword_facts::envelope::{Address, Draft};
//! use lastword_facts::fact::{Kind, Profile};
//! use lastword_facts::names::{AgentName, Ref};
//! use lastword_facts::{Code, MessageType, Time};
//!
//! let registration = |name, kind, credential| Registration {
//!     name,
//!     kind,
//!     profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 1 },
//!     credential,
//!     role: None,
//!     display_name: None,
//!     key: None,
//! };
//! let (mut core, mut log) = (Core::default(), Vec::new());
//! let mut give = |input| {
//!     let mut out = Out::default();
//!     core.handle(Time(0), input, &mut out);
//!     log.append(&mut out.entries);
//!     let reply = out.effects.into_iter().find_map(|effect| match effect {
//!         Effect::Reply(reply) => Some(*reply),
//!         _ => None,
//!     });
//!     (reply, core.state().prove(&[1; 32]))
//! };
//!
//! // A human comes first.
//! let (_, uma) = give(Input::Bootstrap(registration(AgentName::new("uma")?, Kind::Human, [1; 32])));
//! let uma = uma.expect("her token proves who she is");
//!
//! // Judged: no agent is called so. The refusal is a fact, too.
//! let kilo = AgentName::new("kilo")?;
//! let mut draft = Draft::new(MessageType::Request, Address::Name(kilo.clone()), "Look at the parser.");
//! draft.reference = Ref::new("T-1").ok();
//! let (reply, _) = give(Input::Send(uma, Box::new(draft.clone())));
//! assert!(matches!(reply, Some(Reply::Refused { refusal, .. }) if refusal.code == Code::UnknownRecipient));
//!
//! give(Input::Register(uma, registration(kilo, Kind::Agent, [2; 32])));
//! let (reply, _) = give(Input::Send(uma, Box::new(draft)));
//! assert!(matches!(reply, Some(Reply::Sent(sent)) if sent.len() == 1));
//!
//! // Folded, the facts make the same state.
//! let mut again = Core::default();
//! for entry in &log {
//!     again.replay(entry)?;
//! }
//! assert_eq!(again.state(), core.state());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
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
