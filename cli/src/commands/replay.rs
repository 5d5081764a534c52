//! `lastword replay`: replays recorded conversations through the core, in virtual time.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::out::Out;
use crate::replay::{Contender, Depth, NAMES, ReplayPage, Report, read, text};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files of recorded conversations, one JSON object per line (docs/replay.md)
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[arg(long, value_delimiter = ',', default_value = "config", value_name = "RULES", help = compare_help())]
    compare: Vec<String>,
    /// What counts as one conversation when depth is counted
    #[arg(long, value_enum, default_value = "delegate")]
    depth: Depth,
    /// Virtual time between two messages, in milliseconds
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..))]
    pace_ms: u64,
    /// List each conversation that was cut
    #[arg(long)]
    list: bool,
    /// Write a page that shows each conversation as a strip of messages
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

fn compare_help() -> String {
    format!("Rules to replay under, with commas: {NAMES}, or a configuration file")
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let named = |name: &String| match name.as_str() {
        "config" => Ok(Contender::config(&cx.settings.limits)),
        name => Contender::named(name),
    };
    let contenders = args.compare.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    let bytes = args.files.iter().filter_map(|f| std::fs::metadata(f).ok()).map(|m| m.len()).sum();
    let progress = ProgressBar::new(bytes);
    if cx.out.is_json() || !std::io::stderr().is_terminal() {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {bytes}/{total_bytes} {elapsed}") {
        progress.set_style(style);
    }
    let mut reports: Vec<Report> = contenders.iter().map(|contender| Report::of(&contender.name)).collect();
    let mut page = args.html.as_ref().map(|_| ReplayPage::default());
    let mut before = 0;
    for file in &args.files {
        let mut last = 0;
        read(file, |trace, read| {
            let mut outcomes = Vec::with_capacity(contenders.len());
            for (contender, report) in contenders.iter().zip(&mut reports) {
                let outcome = contender.play(&trace, args.depth, args.pace_ms);
                report.add(&trace, &outcome);
                outcomes.push((contender.name.as_str(), outcome));
            }
            if let Some(page) = &mut page {
                page.add(&trace, &outcomes);
            }
            last = read;
            progress.set_position(before + read);
            Ok(())
        })?;
        before += last;
    }
    progress.finish_and_clear();
    if let (Some(file), Some(page)) = (&args.html, page) {
        std::fs::write(file, page.html(&reports))
            .map_err(|error| Failure::unavailable(format!("{}: {error}", file.display())))?;
        Out::note(&format!("written to {}", file.display()))?;
    }
    if !args.list && cx.out.is_json() {
        reports.iter_mut().for_each(|report| report.cuts.clear());
    }
    cx.out.show(&json!({ "reports": reports }), |_, out| {
        let mut shown = text(&reports, out);
        for report in reports.iter().filter(|_| args.list) {
            for cut in &report.cuts {
                shown.push_str(&format!("\n{}: {}", report.rules(), cut.line()));
            }
        }
        shown
    })
}
