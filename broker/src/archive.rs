//! Moves the oldest part of the log to its archive (see [`Archive`]), on a thread of its own: once an hour if the
//! configuration says so, and when an owner asks for it.
//!
//! Only what the state refers to no more leaves the log: no message that waits, no question, and no outcome that a
//! repeated call gets.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastword_core::State;
use lastword_facts::fact::hex;
use lastword_facts::{Seq, Time};
use lastword_store::{Archive, ArchiveError, Base, LogReader, ReadError, Segment, SnapshotError, Snapshots};
use lastword_wire::{ArchivesView, DiskSpace, SegmentView, rfc3339};
use tokio::sync::{mpsc, oneshot, watch};

use crate::boot::replay;
use crate::handle::Handle;
use crate::keeper::Stored;
use crate::sync::thread::{self, JoinHandle};

/// A day, in ms.
const DAY_MS: u64 = 86_400_000;
/// Pause between two looks at the log.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);
/// The bytes of a segment before it is compressed. A segment leaves the log in one transaction, during which no append is
/// made; this bounds it to a fraction of a second.
const SEGMENT_BYTES: u64 = 16 << 20;
/// Owners' requests that may wait.
const REQUESTS_MAX: usize = 4;

/// When the oldest part of the log moves to the archive. By default never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchivePolicy {
    /// Entries older than this, in ms.
    pub after_ms: Option<u64>,
    /// The oldest entries of a log with more bytes than this.
    pub above_bytes: Option<u64>,
}

/// Returns the log's extent and growth, and the segments that left it. `now` is the wall clock.
///
/// # Errors
/// The log can't be read.
pub fn archives_of(
    archive: &dyn Archive,
    log: &dyn LogReader,
    policy: ArchivePolicy,
    now: Time,
) -> Result<ArchivesView, ReadError> {
    let unread = |error: ArchiveError| ReadError::Unavailable { reason: error.to_string() };
    let first = log.first()?;
    let since = log.read(first, 1)?.first().map(|(_, entry)| entry.at);
    let bytes = archive.bytes().map_err(unread)?;
    let age = since.map_or(0, |since| now.since(since));
    Ok(ArchivesView {
        first: first.0,
        last: log.last()?.0,
        since: since.map(rfc3339),
        bytes,
        bytes_per_day: (age >= DAY_MS).then(|| bytes / (age / DAY_MS)),
        after_ms: policy.after_ms,
        above_bytes: policy.above_bytes,
        segments: archive.segments().map_err(unread)?.iter().map(segment).collect(),
    })
}

/// Returns a segment in the form of the calls.
#[must_use]
pub fn segment(segment: &Segment) -> SegmentView {
    SegmentView {
        first: segment.first.0,
        last: segment.end.at.0,
        until: rfc3339(segment.until),
        hash: hex(&segment.end.hash),
        file: segment.file.clone(),
        bytes: segment.bytes,
    }
}

/// What came of moving.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The segments that left the log.
    pub segments: Vec<Segment>,
    /// The oldest entry that the state still refers to, if it kept entries in the log that the policy would move.
    pub held_back: Option<Seq>,
}

/// Why nothing, or not everything, was moved.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The archive can't be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The snapshot can't be read or saved.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The state can't be encoded.
    #[error("the state can't be written: {0}")]
    State(#[from] postcard::Error),
    /// The disk has no room for a segment.
    #[error("the disk is low: a segment needs room before it gives any back; free some first")]
    NoRoom,
    /// The broker has ended.
    #[error("the server is ending")]
    Ended,
}

/// An owner's request to move now.
type Request = (ArchivePolicy, oneshot::Sender<Result<Moved, MoveError>>);

/// The archive as the calls see it.
#[derive(Clone)]
pub struct Archives {
    /// The archive of the log.
    pub archive: Arc<dyn Archive>,
    /// The log.
    pub log: Arc<dyn LogReader>,
    /// What the configuration says.
    pub policy: ArchivePolicy,
    /// The first position that is still in the log.
    pub first: watch::Receiver<Seq>,
    requests: mpsc::Sender<Request>,
}

impl Archives {
    /// Moves what is older or more than `policy` says.
    ///
    /// # Errors
    /// Nothing more can be moved ([`MoveError`]); what left before has left.
    pub async fn move_now(&self, policy: ArchivePolicy) -> Result<Moved, MoveError> {
        let (reply, replied) = oneshot::channel();
        self.requests.send((policy, reply)).await.map_err(|_| MoveError::Ended)?;
        replied.await.unwrap_or(Err(MoveError::Ended))
    }
}

/// What the thread works with.
struct Mover {
    archive: Arc<dyn Archive>,
    log: Arc<dyn LogReader>,
    snapshots: Arc<dyn Snapshots>,
    handle: Handle,
    /// The first position that is still in the log.
    first: watch::Sender<Seq>,
}

/// Starts the thread; it ends when the broker does.
///
/// # Errors
/// The system can't start the thread.
pub fn start(stored: Stored, handle: Handle, policy: ArchivePolicy) -> io::Result<(Archives, JoinHandle<()>)> {
    let Stored { log, snapshots, archive } = stored;
    let (requests, mut asked) = mpsc::channel::<Request>(REQUESTS_MAX);
    let (first, watched) = watch::channel(log.first().unwrap_or(Seq(1)));
    let archives = Archives { archive: Arc::clone(&archive), log: Arc::clone(&log), policy, first: watched, requests };
    let mover = Mover { archive, log, snapshots, handle, first };
    let wait = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let run = move || {
        // At normal priority: while a segment leaves the log, no append is made.
        let mut committed = mover.handle.committed();
        loop {
            let next = wait.block_on(async {
                tokio::select! {
                    // The broker has dropped the sender: it has ended.
                    _ = committed.wait_for(|_| false) => None,
                    Some(request) = asked.recv() => Some(Some(request)),
                    () = tokio::time::sleep(LOOK_EVERY) => Some(None),
                }
            });
            match next {
                None => return,
                Some(Some((policy, reply))) => {
                    // The caller may have gone.
                    let _gone = reply.send(mover.run(policy));
                }
                Some(None) => {
                    if let Err(error) = mover.run(policy) {
                        tracing::warn!(%error, "nothing moved to the archive");
                    }
                }
            }
        }
    };
    let thread = thread::Builder::new().name("archive".into()).spawn(run)?;
    Ok((archives, thread))
}

impl Mover {
    fn run(&self, policy: ArchivePolicy) -> Result<Moved, MoveError> {
        let done = self.move_by(policy);
        // What left before an error has left, too.
        let published = self.archive.publish();
        self.first.send_replace(self.log.first()?);
        let moved = done?;
        published?;
        Ok(moved)
    }

    /// Fails if the broker has ended: the data directory may be another server's soon.
    fn goes_on(&self) -> Result<(), MoveError> {
        self.handle.committed().has_changed().map(|_| ()).map_err(|_| MoveError::Ended)
    }

    fn move_by(&self, policy: ArchivePolicy) -> Result<Moved, MoveError> {
        let mut moved = Moved { segments: Vec::new(), held_back: None };
        let first = self.log.first()?;
        let oldest = policy.after_ms.map(|ms| Time(self.handle.now().0.saturating_sub(ms)));
        let by_age = oldest.map_or(Ok(None), |oldest| last_until(self.log.as_ref(), first, oldest))?;
        let mut surplus = match policy.above_bytes {
            Some(max) => self.archive.bytes()?.saturating_sub(max),
            None => 0,
        };
        if by_age.is_none() && surplus == 0 {
            return Ok(moved);
        }
        if self.handle.disk().space() != DiskSpace::Enough {
            return Err(MoveError::NoRoom);
        }
        let core = replay(self.snapshots.load()?, self.log.as_ref(), self.archive.as_ref())?;
        let state = core.state();
        let bytes = postcard::to_allocvec(state)?;
        let base = Base { at: state.seq, state: &bytes };
        {
            let _one = self.handle.saving();
            self.snapshots.save(base.at, base.state)?;
        }
        let needed = self.oldest_read(state)?.unwrap_or(state.seq);
        let free = Seq(needed.0 - 1);
        if let Some(wanted) = by_age {
            while let Some(bytes) = self.seal(&mut moved, wanted.min(free), base)? {
                surplus = surplus.saturating_sub(bytes);
            }
            moved.held_back = (wanted > free).then_some(needed);
        }
        while surplus > 0 {
            let Some(bytes) = self.seal(&mut moved, free, base)? else {
                moved.held_back = Some(needed);
                break;
            };
            surplus = surplus.saturating_sub(bytes);
        }
        for segment in &moved.segments {
            tracing::info!(
                first = segment.first.0,
                last = segment.end.at.0,
                file = segment.file,
                "moved to the archive"
            );
        }
        Ok(moved)
    }

    /// Moves one segment of the entries up to `upto`; returns its bytes in the log.
    fn seal(&self, moved: &mut Moved, upto: Seq, base: Base<'_>) -> Result<Option<u64>, MoveError> {
        self.goes_on()?;
        let Some((segment, bytes)) = self.archive.seal(upto, SEGMENT_BYTES, base)? else { return Ok(None) };
        moved.segments.push(segment);
        Ok(Some(bytes))
    }

    /// Returns the oldest position that may still be read: what the state refers to, and the partial results that such an
    /// answer goes on from.
    fn oldest_read(&self, state: &State) -> Result<Option<Seq>, ReadError> {
        let mut oldest = None;
        for at in state.needed() {
            let earlier = self.log.entry(at)?.and_then(|entry| entry.fact.earlier());
            oldest = [oldest, Some(at), earlier].into_iter().flatten().min();
        }
        Ok(oldest)
    }
}

/// Returns the last position whose entry was recorded until `time`; `None` if the first one was recorded later.
fn last_until(log: &dyn LogReader, first: Seq, time: Time) -> Result<Option<Seq>, ReadError> {
    let (mut found, mut from, mut to) = (None, first.0, log.last()?.0);
    while from <= to {
        let middle = from + (to - from) / 2;
        // Positions jump where an epoch begins (L8).
        match log.read(Seq(middle), 1)?.first() {
            Some((at, entry)) if entry.at <= time => (found, from) = (Some(*at), at.0 + 1),
            Some(_) | None => to = middle - 1,
        }
    }
    Ok(found)
}
