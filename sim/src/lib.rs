//! Never shipped: simulated worlds, adversaries and invariants over the real core.
//!
//! A [`World`] is a core in virtual time. Each of its facts passes the [`Witness`] that `lastword verify` uses, which
//! knows nothing of the core's state: it recounts from the facts alone and reports each broken promise. A [`rogue`] is
//! an agent that misbehaves over a surface of the running server.

mod adversary;
mod alphabet;
pub mod cluster;
pub mod edges;
pub mod explorer;
pub mod fallible_log;
pub mod rogue;
mod setting;
mod witness;
mod world;

pub use adversary::{Campaign, run};
pub use explorer::{Explored, explore};
pub use lastword_witness::{BrokenPromise, Witness};
pub use setting::{Pace, Setting, Style};
pub use world::World;
