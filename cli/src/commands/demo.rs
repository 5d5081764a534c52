//! `lastword demo`: seven scripted agents play what really went wrong, without guards and with them.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::Context;
use crate::demo::{ACTS, Ended, Mode, OBSERVED_MESSAGES, Stage, play};
use crate::failure::Failure;
use crate::out::{Out, Tone, table};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the broker of the second run and its agents until Ctrl-C, to look around
    #[arg(long)]
    keep: bool,
}

/// One line of the report.
#[derive(Debug, Serialize)]
struct Row {
    incident: &'static str,
    title: &'static str,
    without: Ended,
    with: Ended,
    expected: &'static str,
    as_expected: bool,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::unavailable)?;
    runtime.block_on(demo(args, cx))
}

async fn demo(args: &Args, cx: &Context) -> Result<(), Failure> {
    let data = tempfile::tempdir().map_err(Failure::unavailable)?;
    let steps = 2 * ACTS.len() as u64;
    let progress = ProgressBar::new(steps);
    if cx.out.is_json() || !std::io::stderr().is_terminal() {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        progress.set_style(style);
    }
    if !cx.out.is_json() {
        cx.out.text("Seven scripted agents (no model is asked) talk through a broker of their own, each a process.")?;
    }
    let without = Stage::open(Mode::Observe, &data.path().join("observe")).await?;
    let with = Stage::open(Mode::Enforce, &data.path().join("enforce")).await?;
    without.assembled().await?;
    with.assembled().await?;
    let mut rows = Vec::new();
    for act in ACTS {
        progress.set_message(act.title);
        let (first, second) = tokio::join!(play(act, &without), play(act, &with));
        let (first, second) = (first?, second?);
        progress.inc(2);
        let as_expected = second.by == act.expected;
        rows.push(Row {
            incident: act.id,
            title: act.title,
            without: first,
            with: second,
            expected: act.expected,
            as_expected,
        });
    }
    progress.finish_and_clear();
    report(&rows, &with, &cx.out).await?;
    without.close().await;
    let failed: Vec<&str> = rows.iter().filter(|row| !row.as_expected).map(|row| row.incident).collect();
    if args.keep {
        let token = data.path().join("enforce").join("operator.token");
        cx.out.text(&format!("still running at {}; the human's token is in {}", with.url, token.display()))?;
        with.stay().await?;
    } else {
        with.close().await;
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::refused(format!("not as expected: {}", failed.join(", ")))
        .hint("run it again with --json for the details"))
}

async fn report(rows: &[Row], with: &Stage, out: &Out) -> Result<(), Failure> {
    if out.is_json() {
        return out.json(&rows);
    }
    let head = ["", "what happens", "messages", "tokens", "with guards", "tokens", "ended by", ""];
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells()).collect();
    out.text(&table(&head, &cells, out))?;
    let (before, after) = rows.iter().fold((0, 0), |(a, b), row| (a + row.without.tokens, b + row.with.tokens));
    out.text(&format!(
        "\nWithout guards each was cut at {} messages, so the difference would have grown: {before} tokens against {after}.",
        OBSERVED_MESSAGES
    ))?;
    out.text(&format!("\n{}", out.tone(Tone::Strong, "The triangle, as the broker saw it:")))?;
    let tree = with.human.conversation("I08-1").await?;
    out.text(&out.lines(crate::tree::lines(&tree)))?;
    out.text("\nLook further: `lastword demo --keep`, then `lastword tree I01-1`, `lastword audit`, `lastword tail`; or start your own with `lastword init`.")
}

impl Row {
    fn cells(&self) -> Vec<String> {
        vec![
            self.incident.to_owned(),
            self.title.to_owned(),
            self.without.messages.to_string(),
            self.without.tokens.to_string(),
            self.with.messages.to_string(),
            self.with.tokens.to_string(),
            self.with.by.clone(),
            if self.as_expected { "ok".into() } else { format!("expected {}", self.expected) },
        ]
    }
}
