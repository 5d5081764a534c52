//! `lastword demo`: seven scripted agents replay real incidents, without guards and with them.

use std::fs::Permissions;
use std::io::IsTerminal as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use serde_json::json;

use super::Context;
use super::serve::{EndSignals, Note};
use crate::demo::{ACTS, Act, Ended, Mode, OBSERVED_MESSAGES, Stage, play, set};
use crate::failure::Failure;
use crate::out::{Out, Tone, table};
use crate::session::FILE_OPERATOR;

/// The folder of the second run in the temporary directory.
const KEPT: &str = "enforce";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Keep the broker and agents of the second run until Ctrl-C
    #[arg(long)]
    keep: bool,
}

/// One row of the report.
#[derive(Debug, Serialize)]
struct IncidentRow {
    incident: &'static str,
    title: &'static str,
    without: Ended,
    with: Ended,
    expected: &'static str,
    as_expected: bool,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::unavailable)?;
    runtime.block_on(async {
        let mut end = EndSignals::listen()?;
        // Dropped last, however the command ends, so that nothing of the demo is left behind.
        let data = tempfile::Builder::new()
            .prefix("lastword-demo-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .map_err(Failure::unavailable)?;
        let played = tokio::select! {
            played = demo(args, data.path(), cx) => played?,
            () = end.asked() => return Err(Failure::unavailable("the demo was ended before its end")),
        };
        if let Some(stage) = played.kept {
            keep(stage, &data.path().join(KEPT), &mut end, cx).await?;
        }
        if played.failed.is_empty() {
            return Ok(());
        }
        Err(Failure::refused(format!("not as expected: {}", played.failed.join(", ")))
            .hint("run it again with --json for the details"))
    })
}

/// The result of the demo.
struct Played {
    /// The stage of the second run, if it is kept.
    kept: Option<Stage>,
    /// The incidents that did not end as expected.
    failed: Vec<&'static str>,
}

async fn demo(args: &Args, data: &Path, cx: &Context) -> Result<Played, Failure> {
    let progress = ProgressBar::new(2 * ACTS.len() as u64);
    if cx.out.is_json() || !std::io::stderr().is_terminal() {
        progress.set_draw_target(ProgressDrawTarget::hidden());
    }
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        progress.set_style(style);
    }
    if !cx.out.is_json() {
        cx.out.text(
            "Seven scripted agents (no model is called), each a separate process, talk through a temporary broker.",
        )?;
    }
    let without = Stage::open(Mode::Observe, &data.join("observe"), false).await?;
    let with = Stage::open(Mode::Enforce, &data.join(KEPT), args.keep).await?;
    without.assembled().await?;
    with.assembled().await?;
    let mut rows = Vec::new();
    for act in ACTS {
        progress.set_message(act.title);
        let (first, second) = tokio::join!(play(act, &without), play(act, &with));
        rows.push(IncidentRow::new(act, first?, second?));
        progress.inc(2);
    }
    progress.finish_and_clear();
    report(&rows, &with, args.keep, &cx.out).await?;
    without.close().await;
    let failed = rows.iter().filter(|row| !row.as_expected).map(|row| row.incident).collect();
    if args.keep {
        set(&with).await?;
        return Ok(Played { kept: Some(with), failed });
    }
    with.close().await;
    Ok(Played { kept: None, failed })
}

/// Keeps the stage until the user ends the program.
async fn keep(stage: Stage, data: &Path, end: &mut EndSignals, cx: &Context) -> Result<(), Failure> {
    let note = Note::write(&stage.server, data, stage.endpoint.url())?;
    let token = data.join(FILE_OPERATOR);
    let kept = json!({ "listening": stage.endpoint.url(), "operator_token_file": token, "data": data });
    let console = stage.console()?;
    cx.out.show(&kept, |_, out| further(&console, data, out))?;
    end.asked().await;
    drop(note);
    stage.close().await;
    Ok(())
}

/// Returns the addresses of the running demo, and what to look at there.
fn further(console: &str, data: &Path, out: &Out) -> String {
    let head = out.tone(Tone::Strong, "Still running, with its agents, until Ctrl-C.");
    let data = data.display();
    format!(
        "\n{head} A question, a held call and a held grant wait for you.\n\n\
         In a browser (it signs in once, within 15 minutes):\n\n  {console}\n\nIn another terminal:\n\n  \
         export LASTWORD_DATA={data}\n  \
         lastword top                  pending decisions and open work, live\n  \
         lastword tree I08-1           the triangle; I01-1, I11-1, … are the others\n  \
         lastword tail -n 20 -f        the last events, then new ones\n  \
         lastword approvals            the held call; then lastword approve or reject\n  \
         lastword escalations          the question; then lastword answer\n  \
         lastword incidents            the held grant; then lastword resume BUDGET-1\n"
    )
}

async fn report(rows: &[IncidentRow], with: &Stage, keep: bool, out: &Out) -> Result<(), Failure> {
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
    if keep {
        return Ok(());
    }
    out.text("\nLook further: `lastword demo --keep` leaves it running, for `lastword top`, `tree`, `tail` and the others; or start your own with `lastword init`.")
}

impl IncidentRow {
    fn new(act: &Act, without: Ended, with: Ended) -> Self {
        let as_expected = with.by == act.expected;
        Self { incident: act.id, title: act.title, without, with, expected: act.expected, as_expected }
    }

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
