//! `lastword reindex`: rebuilds the read model from the log. No server may be running.

use lastword_store::{Index, Store};
use serde_json::json;

use super::{Context, verify};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, cx: &Context) -> Result<(), Failure> {
    let dir = &cx.settings.data;
    let store = Store::sqlite(dir);
    // The reader first: opening it doesn't create a log in a directory that has none.
    let log = store.open_reader()?;
    let _lock = store.lock()?;
    let bar = verify::bar(&cx.out);
    let index = Index::reindex(dir, log.as_ref(), &mut |at, of| {
        bar.set_length(of.0);
        bar.set_position(at.0);
    })?;
    bar.finish_and_clear();
    let last = index.last().0;
    cx.out.show(&json!({ "entries": last }), |_, _| format!("indexed {last} entries"))
}
