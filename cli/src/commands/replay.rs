//! `lastword replay`: replays recorded conversations through the core, in virtual time.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use lastword_replay::{COLUMNS, Report, play, read};

use super::Context;
use crate::failure::Failure;
use crate::out::{escape_line, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of recorded conversations, one JSON object per line (docs/replay.md)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Virtual time between two messages, in milliseconds
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pace_ms: u64,
    /// List each conversation that was cut
    #[arg(long)]
    list: bool,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let bytes = args.files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let progress = ProgressBar::new(bytes);
    if cx.out.is_json() || !std::io::stderr().is_terminal() {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {elapsed}") {
        progress.set_style(style);
    }
    let mut report = Report::default();
    let mut before = 0;
    for file in &args.files {
        let mut last = 0;
        read(file, |trace, bytes| {
            report.add(trace, &play(trace, &cx.settings.limits, args.pace_ms));
            last = bytes;
            progress.set_position(before + bytes);
        })
        .map_err(|error| {
            let failure = Failure::usage(error.to_string());
            if let Some(hint) = error.hint { failure.hint(hint) } else { failure }
        })?;
        before += last;
    }
    progress.finish_and_clear();
    if !args.list && cx.out.is_json() {
        report.cuts.clear();
    }
    cx.out.show(&report, |report, out| {
        let mut shown = table(&COLUMNS, &report.rows(), out);
        for cut in report.cuts.iter().filter(|_| args.list) {
            shown.push('\n');
            shown.push_str(&escape_line(&cut.to_string()));
        }
        shown
    })
}
