//! Replays recorded conversations through the real core, in virtual time: what would have been refused, and where.

mod play;
mod report;
mod trace;

pub(crate) use play::{Depth, play};
pub(crate) use report::Report;
pub(crate) use trace::read;
