//! `lastword restore`: replaces the log of a data directory by a backup. No server may be running.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use lastword_facts::Time;
use lastword_server::backup::restore;
use serde_json::json;

use super::{Context, verify};
use crate::failure::Failure;
use crate::session::confirmed;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File that `lastword backup` wrote; `-` reads standard input.
    file: PathBuf,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let dir = &cx.settings.data;
    let question = format!("Go back to this backup in {}? What came after it is set aside", dir.display());
    if dir.join(lastword_store::format::FILE_DATABASE).exists() && !confirmed(&question, args.yes)? {
        return Err(Failure::refused("not restored"));
    }
    let mut from: Box<dyn Read> = if args.file == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        let failed = |error: io::Error| Failure::usage(format!("{}: {error}", args.file.display()));
        Box::new(BufReader::new(File::open(&args.file).map_err(failed)?))
    };
    let bar = verify::bar(&cx.out);
    let restored = restore(dir, &mut from, now(), &mut |at| bar.set_position(at.0));
    bar.finish_and_clear();
    let restored = restored?;
    let replaced = restored.replaced.map(|folder| folder.display().to_string());
    let (end, first) = (restored.backed_up.end.at.0, restored.first.0);
    let report = json!({ "seq": end, "epoch_first": first, "replaced": replaced });
    cx.out.show(&report, |_, _| {
        let aside = replaced.map(|folder| format!("; what was there is in {folder}")).unwrap_or_default();
        format!("restored the log up to {end}; a new epoch begins at {first}{aside}")
    })
}

/// Returns the wall clock's time.
#[expect(clippy::disallowed_methods, reason = "a restore reads the wall clock once, while no server runs")]
pub(super) fn now() -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time(u64::try_from(now.as_millis()).unwrap_or(u64::MAX))
}
