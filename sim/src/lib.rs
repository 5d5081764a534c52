//! Never shipped: simulated worlds, adversaries and invariants over the real core.
//!
//! A [`World`] is a core in virtual time whose every fact passes the [`Witness`] that `lastword verify` has, which knows
//! nothing of the core's state: it recounts from the facts alone, and says which promise was broken. A [`rogue`] is an
//! agent that misbehaves over a surface of the running server.

mod adversary;
mod alphabet;
pub mod edges;
mod explorer;
pub mod rogue;
mod witness;
mod world;

pub use adversary::{Campaign, Pace, Setting, Style, run};
pub use explorer::{Explored, explore};
pub use lastword_store::witness::{BrokenPromise, Witness};
pub use world::World;
