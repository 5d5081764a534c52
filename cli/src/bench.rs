//! `lastword bench`: what a message costs, with the bare file beside it in the same run.

mod aged;
mod bare;
mod load;
mod standing;

use lastword_proto::Limits;

pub(crate) use aged::start;
pub(crate) use bare::bare_file;
pub(crate) use load::{Load, Measured, exchange_http, in_process, send_http};
pub(crate) use standing::{Figure, command, idle, lag, long, memory};

/// Queues long enough for a load that nobody takes.
pub(crate) fn limits() -> Limits {
    Limits { inbox_max: 1_000_000, ..Limits::default() }
}
