//! What opening a mirror compares with the stream, and where a mirror begins that is behind what the stream has.

use std::path::Path;

use lastword_facts::Seq;

use super::archive::{Bucket, FetchError};
use super::file::{Applied, MirrorEnd, MirrorFile};
use super::mirror::MirrorError;
use super::nats::{Extent, Nats, StreamNames};
use super::record::Head;
use super::tail::Subject;
use crate::log::sqlite_archive::Sealed;

pub(super) fn unwritten(file: &MirrorFile, error: &dyn std::error::Error) -> MirrorError {
    MirrorError::File { place: file.dir().display().to_string(), reason: error.to_string() }
}

pub(super) async fn fetch(bucket: &Bucket, file: &MirrorFile, segments: &[Sealed]) -> Result<(), MirrorError> {
    bucket.fetch(file.dir(), segments).await.map_err(|error| match error {
        FetchError::Nats(error) => error.into(),
        FetchError::File(error) => unwritten(file, &error),
    })
}

/// Begins the mirror anew from the archive if the stream no longer has what follows its end.
pub(super) async fn catch_up(
    bucket: &Bucket,
    mut file: MirrorFile,
    mut applied: Applied,
    mut end: MirrorEnd,
    extent: &Extent,
) -> Result<(MirrorFile, Applied, MirrorEnd), MirrorError> {
    let starts = bucket.starts().await?;
    // Only up to the mark of the older start was anything purged.
    let purged = starts.get(1).map_or(0, |older| older.mark);
    let compared = if applied.row_at == 0 { applied.at } else { applied.row_at };
    if compared > purged || applied.at == purged {
        return Ok((file, applied, end));
    }
    let Some(start) = bucket.newest(&starts, &extent.created).await? else { return Ok((file, applied, end)) };
    if applied != Applied::default() {
        (file, ..) = file.replace()?;
    }
    fetch(bucket, &file, &start.segments).await?;
    (file, applied, end) = file.begin(&start)?;
    Ok((file, applied, end))
}

pub(super) fn lost(names: &StreamNames, dir: &Path, problem: String) -> MirrorError {
    MirrorError::Lost { workspace: names.workspace.clone(), place: dir.display().to_string(), problem }
}

/// Checks that a stream which replaced the one of a mirror has at least the entries up to `last`.
pub(super) async fn supersedes(
    nats: &Nats,
    names: &StreamNames,
    extent: &Extent,
    last: Seq,
    dir: &Path,
) -> Result<(), MirrorError> {
    let mut found = Seq(0);
    for at in (extent.first.max(1)..=extent.last).rev() {
        let Some(message) = nats.message(names, at).await? else { break };
        if names.subject(&message.subject) == Some(Subject::Log)
            && let Ok((head, _)) = Head::parse(&message.payload)
        {
            found = head.last;
            break;
        }
    }
    if found >= last {
        return Ok(());
    }
    let problem = format!("was made anew and ends at position {}, and the mirror has position {}", found.0, last.0);
    Err(lost(names, dir, problem))
}

/// Compares the mirror's end with the messages that brought it.
pub(super) async fn compare(
    nats: &Nats,
    names: &StreamNames,
    applied: &Applied,
    end: &MirrorEnd,
    dir: &Path,
) -> Result<(), MirrorError> {
    let fails =
        |at: u64, problem: String| Err(MirrorError::Damaged { workspace: names.workspace.clone(), at, problem });
    // Without a row there is nothing to compare: it began where a start said, or has only starts of epochs.
    if applied.row_at == 0 {
        return Ok(());
    }
    if applied.at != applied.row_at && nats.message(names, applied.at).await?.is_none() {
        return fails(applied.at, "it isn't in the stream any more".to_owned());
    }
    let Some(message) = nats.message(names, applied.row_at).await? else {
        return fails(applied.row_at, "it isn't in the stream any more".to_owned());
    };
    let (head, _) = match Head::parse(&message.payload) {
        Ok(found) => found,
        Err(problem) => return fails(applied.row_at, problem),
    };
    if (head.last, head.hash) == (end.last, end.hash) {
        return Ok(());
    }
    let problem = format!(
        "the history up to {} is another one than the mirror {} has: one of them was altered. Delete the mirror only if \
         the stream is right",
        end.last.0,
        dir.display()
    );
    fails(applied.row_at, problem)
}
