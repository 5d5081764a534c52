//! The demo: seven scripted agents in their own processes, and the ways in which such teams run away.

mod acts;
mod cast;
mod scenes;
mod stage;

pub(crate) use acts::{ACTS, Act, Ended, play};
pub(crate) use cast::perform;
pub(crate) use scenes::set;
pub(crate) use stage::{Mode, OBSERVED_MESSAGES, Stage};
