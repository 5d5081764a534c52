//! Plays recorded conversations through the real core, in virtual time: what the guards refuse, and where.

mod play;
mod report;
mod trace;

pub use play::{Played, play};
pub use report::{COLUMNS, Cut, Report};
pub use trace::{ReadError, Said, Trace, read};
