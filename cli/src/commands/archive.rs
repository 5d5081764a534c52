//! `lastword archive`: the oldest part of the log, in compressed files beside it.

use std::time::Duration;

use lastword_broker::archive::archives_of;
use lastword_client::wire::{ArchivesView, MoveToArchive, MovedToArchive, SegmentView};
use lastword_store::{DataDir, Index};
use serde_json::json;

use super::{Context, reindex, restore};
use crate::failure::Failure;
use crate::out::{Out, table};
use crate::quantity::{bytes, duration, milliseconds};
use crate::session::{Authority, confirmed};
use crate::top::span;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Option<ArchiveCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ArchiveCommand {
    /// Move the oldest part of the log to the archive; without flags as configured
    Now {
        /// Move entries older than this, such as 90d.
        #[arg(long, value_name = "AGE", value_parser = duration)]
        after: Option<Duration>,
        /// Move the oldest entries until the log has at most these bytes.
        #[arg(long, value_name = "BYTES")]
        above: Option<u64>,
        /// Confirm without a terminal, in a script.
        #[arg(long)]
        yes: bool,
    },
    /// Put segments back into the log, the last first, with the server stopped
    Restore {
        /// Number of segments; all without it.
        #[arg(long, value_name = "N")]
        last: Option<usize>,
    },
    /// Give the room of what left the log back to the disk, with the server stopped
    Compact,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        None if cx.settings.url.is_some() => cx.out.show(&cx.client(Authority::Read)?.archives().await?, words),
        None => {
            let store = DataDir::at(&cx.settings.data);
            let (archive, log) = (store.archive()?, store.open_reader()?);
            let view = archives_of(archive.as_ref(), log.as_ref(), cx.settings.archive, restore::now())?;
            cx.out.show(&view, words)
        }
        Some(ArchiveCommand::Now { after, above, yes }) => move_now(after, above, yes, cx).await,
        Some(ArchiveCommand::Restore { last }) => put_back(last.unwrap_or(usize::MAX), cx),
        Some(ArchiveCommand::Compact) => compact(cx),
    }
}

async fn move_now(after: Option<Duration>, above: Option<u64>, yes: bool, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(yes).await?;
    let question = "Move the oldest part of the log to the archive? Conversations in it are no longer listed";
    if !confirmed(question, yes)? {
        return Err(Failure::refused("not moved"));
    }
    let wanted = MoveToArchive { after_ms: after.map(milliseconds), above_bytes: above };
    let moved = client.move_to_archive(&wanted).await?;
    cx.out.show(&moved, |moved: &MovedToArchive, out| {
        let list = if moved.segments.is_empty() { "nothing to move".to_owned() } else { rows(&moved.segments, out) };
        let held =
            moved.held_back_at.map(|at| format!("\nwhat begins at {at} stays: open or remembered work needs it"));
        list + &held.unwrap_or_default()
    })
}

fn words(view: &ArchivesView, out: &Out) -> String {
    let since = view.since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
    let growth = view.bytes_per_day.map(|day| format!(", {} a day", bytes(day))).unwrap_or_default();
    let log = format!("log: positions {} to {}{since}, {}{growth}", view.first, view.last, bytes(view.bytes));
    let policy = match (view.after_ms, view.above_bytes) {
        (None, None) => "nothing moves to the archive: set `after` or `above_bytes` in [archive]".to_owned(),
        (after, above) => {
            let after = after.map(|ms| format!("entries older than {}", span(ms)));
            let above = above.map(|max| format!("the oldest above {}", bytes(max)));
            format!("moves to the archive: {}", after.into_iter().chain(above).collect::<Vec<_>>().join(", and "))
        }
    };
    let list = if view.segments.is_empty() { String::new() } else { format!("\n\n{}", rows(&view.segments, out)) };
    format!("{log}\n{policy}{list}")
}

fn rows(segments: &[SegmentView], out: &Out) -> String {
    let row = |segment: &SegmentView| {
        let there = segment.bytes.map_or_else(|| "not in the folder".to_owned(), bytes);
        vec![segment.first.to_string(), segment.last.to_string(), segment.until.clone(), there, segment.file.clone()]
    };
    let rows: Vec<_> = segments.iter().map(row).collect();
    table(&["FROM", "TO", "UNTIL", "SIZE", "FILE"], &rows, out)
}

fn put_back(most: usize, cx: &Context) -> Result<(), Failure> {
    let (dir, store) = (&cx.settings.data, DataDir::at(&cx.settings.data));
    let archive = store.archive()?;
    let lock = store.lock()?;
    // It would never index what comes back before its end.
    Index::discard(dir)?;
    let mut restored = Vec::new();
    while restored.len() < most
        && let Some(segment) = archive.put_back()?
    {
        restored.push(segment.file);
    }
    let log = store.open_reader()?;
    let first = log.first()?.0;
    reindex::build(log.as_ref(), cx)?;
    drop(lock);
    let report = json!({ "restored": restored, "first": first });
    cx.out.show(&report, |_, _| format!("{} segments are back in the log, which begins at {first}", restored.len()))
}

fn compact(cx: &Context) -> Result<(), Failure> {
    let (dir, store) = (&cx.settings.data, DataDir::at(&cx.settings.data));
    let _lock = store.lock()?;
    let before = size(cx);
    store.compact()?;
    let log = store.open_reader()?;
    // The read model is made anew: its full-text index keeps the words of what left the log.
    Index::discard(dir)?;
    reindex::build(log.as_ref(), cx)?;
    let after = size(cx);
    let report = json!({ "bytes_before": before, "bytes_after": after });
    cx.out.show(&report, |_, _| format!("{} before, {} now", bytes(before), bytes(after)))
}

/// Returns the bytes of the log and of the read model on the disk.
fn size(cx: &Context) -> u64 {
    use lastword_store::format::{FILE_DATABASE, FILE_INDEX};
    let files = [FILE_DATABASE, FILE_INDEX].map(|name| cx.settings.data.join(name).metadata());
    files.into_iter().flatten().map(|file| file.len()).sum()
}
