//! `lastword bench`: what a message costs, with the bare file beside it in the same run.

mod bare;
mod load;

pub(crate) use bare::bare_file;
pub(crate) use load::{Load, Measured, exchange_http, in_process, send_http};
