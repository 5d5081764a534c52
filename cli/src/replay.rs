//! Replays recorded conversations through the real core, in virtual time: what would have been refused, and where.

mod baseline;
mod contender;
mod page;
mod play;
mod report;
mod trace;

pub(crate) use contender::{Contender, NAMES};
pub(crate) use page::ReplayPage;
pub(crate) use play::Depth;
pub(crate) use report::{Report, text};
pub(crate) use trace::read;
