//! `lastword reindex`: rebuilds the read model from the log. No server may be running.

use lastword_store::{DataDir, Index, LogReader};
use serde_json::json;

use super::{Context, verify};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, cx: &Context) -> Result<(), Failure> {
    let store = DataDir::at(&cx.settings.data);
    // The reader first: opening it doesn't create a log in a directory that has none.
    let log = store.open_reader()?;
    let _lock = store.lock()?;
    let last = build(log.as_ref(), cx)?.last().0;
    cx.out.show(&json!({ "entries": last }), |_, _| format!("indexed {last} entries"))
}

/// Builds the read model from the log, with a progress bar.
pub(super) fn build(log: &dyn LogReader, cx: &Context) -> Result<Index, Failure> {
    let bar = verify::bar(&cx.out);
    let index = Index::reindex(&cx.settings.data, log, &mut |at, of| {
        bar.set_length(of.0);
        bar.set_position(at.0);
    })?;
    bar.finish_and_clear();
    Ok(index)
}
