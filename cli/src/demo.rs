//! The demo: seven scripted agents in processes of their own, and the ways in which such teams run away.

mod acts;
mod cast;
mod stage;

pub(crate) use acts::{ACTS, Ended, play};
pub(crate) use cast::perform;
pub(crate) use stage::{Mode, OBSERVED_MESSAGES, Stage};
