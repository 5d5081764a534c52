//! A node's mirror of a workspace's stream: opened, followed, and the way to lead.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lastword_facts::{Entry, Seq};
use tokio::time::Instant;

use super::archive::{Bucket, SharedArchive};
use super::claim::{RETRY, claim, retry};
use super::file::{Applied, Mark, MirrorEnd, MirrorFile};
use super::leader::{JetStreamLog, Lease};
use super::nats::{Nats, NatsError, Stored, StreamNames};
use super::news::News;
use super::opening::{catch_up, compare, fetch, lost, supersedes, unwritten};
use super::record::{EpochStart, SetAside, StoredRow};
use super::tail::{Damaged, Step, Tail};
use crate::log::{AppendError, Archive, Log, LogReader, OpenError, Snapshots};

/// The wait for the next message of a gap.
const NEWS_MAX: Duration = Duration::from_secs(2);
/// The time without a consumer after which a mirror says that it can't follow.
const DEAF_MAX: Duration = Duration::from_secs(5);
/// Messages that are applied in one transaction, and returned at once.
const MESSAGES_PER_TURN: usize = 256;
/// Bytes of messages after which a transaction ends early.
const BYTES_PER_TURN: usize = 4 << 20;
/// The longest gap that a new leader reads message by message, from the stream's leader.
const GAP_OF_SINGLE_READS: u64 = 64;
/// The times that a stream which seems to be shorter than its mirror is asked again, with a pause of [`LOST_PAUSE`]: a
/// leader that was just elected may not know its end yet.
const LOST_CHECKS: usize = 10;
const LOST_PAUSE: Duration = Duration::from_millis(500);

/// Why a mirror can't be opened or followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// The directory can't be used.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// NATS can't be used, or not now.
    #[error(transparent)]
    Nats(#[from] NatsError),
    /// The stream lacks what was acknowledged.
    #[error(
        "the stream of {workspace} lost what was acknowledged: it {problem}. Keep the mirror {place}, which has it, and \
         restore the stream"
    )]
    Lost {
        /// The workspace.
        workspace: String,
        /// The mirror's directory.
        place: String,
        /// How the stream differs from the mirror.
        problem: String,
    },
    /// A message of the stream isn't what a leader wrote.
    #[error("the stream of {workspace} is damaged at message {at}: {problem}")]
    Damaged {
        /// The workspace.
        workspace: String,
        /// The sequence of the message in the stream.
        at: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// What follows left the stream for the archive. Open the mirror again: it begins anew from there.
    #[error("message {at} of the stream of {workspace} is in its archive: the mirror begins anew from there")]
    Archived {
        /// The workspace.
        workspace: String,
        /// The sequence of the message.
        at: u64,
    },
    /// The mirror can't be written. Open it again once its disk is fine.
    #[error("the mirror {place} can't be written: {reason}")]
    File {
        /// The mirror's directory.
        place: String,
        /// The failure.
        reason: String,
    },
}

/// The mirror of a workspace's stream in a directory, which it has the lock of. It is a log that [`LogReader`]s,
/// backups and `verify` read like any other, and that may be deleted.
pub struct Mirror(pub(super) Box<Inner>);

pub(super) struct Inner {
    pub(super) nats: Nats,
    pub(super) names: StreamNames,
    pub(super) file: MirrorFile,
    pub(super) tail: Tail,
    stream_id: String,
    /// The sequence of the last message that brought a row.
    row_at: u64,
    /// The messages of the stream that aren't in the file. Each message and each new consumer brings the number.
    lag: u64,
    news: Option<News>,
    /// When it began to try to create the consumer that it lacks.
    deaf_since: Option<Instant>,
    /// Entries that an attempt to lead applied, and then failed: the next call returns them.
    unreturned: Vec<(Seq, Entry)>,
    /// The failure after which the file and what was read of the stream differ.
    failed: Option<MirrorError>,
    /// What a human set aside of the stream.
    aside: Vec<SetAside>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("workspace", &self.0.names.workspace).field("tail", &self.0.tail).finish()
    }
}

impl Mirror {
    /// Opens the mirror of a workspace in `dir`, and creates it where it is missing. Compares its end with the stream. A
    /// damaged mirror, or one of another stream of the same name, is moved aside and fetched anew.
    ///
    /// # Errors
    /// See [`MirrorError`].
    pub async fn open(nats: &Nats, workspace: &str, dir: &Path) -> Result<Self, MirrorError> {
        Self::open_known(nats, workspace, dir, None, &[]).await
    }

    /// Does the same for the stream that [`Nats::stream_id`] named when the workspace was made. If it is that one, a mirror of
    /// an earlier stream is of a workspace that was removed, whose log is not missed. What is set aside of the stream doesn't
    /// count where it can't be read.
    ///
    /// # Errors
    /// See [`MirrorError`].
    pub async fn open_known(
        nats: &Nats,
        workspace: &str,
        dir: &Path,
        known: Option<&str>,
        aside: &[SetAside],
    ) -> Result<Self, MirrorError> {
        let names = StreamNames::of(workspace)?;
        let mut extent = nats.extent(&names).await?;
        let (mut file, mut applied, mut end) = MirrorFile::open(dir)?;
        let removed = known == Some(extent.created.as_str());
        if applied.stream_id != extent.created && end.last > Seq(0) && !removed {
            supersedes(nats, &names, &extent, end.last, dir).await?;
        }
        if applied.stream_id != extent.created && applied != Applied::default() {
            (file, applied, end) = file.replace()?;
        }
        for _ in 0..LOST_CHECKS {
            if extent.last >= applied.at {
                break;
            }
            tokio::time::sleep(LOST_PAUSE).await;
            extent = nats.extent(&names).await?;
        }
        if extent.last < applied.at {
            let problem = format!("ends at message {}, and the mirror has message {}", extent.last, applied.at);
            return Err(lost(&names, dir, problem));
        }
        let bucket = if extent.purged { Bucket::open(nats, &names).await? } else { None };
        if let Some(bucket) = bucket {
            (file, applied, end) = catch_up(&bucket, file, applied, end, &extent).await?;
        }
        compare(nats, &names, &applied, &end, dir).await?;
        let MirrorEnd { last, hash, epoch: row_epoch } = end;
        let Applied { at, epoch, batch, row_at, .. } = applied;
        let tail = Tail { at, epoch, batch, last, hash, row_epoch, ..Tail::default() };
        let (stream_id, lag) = (extent.created, extent.last - at);
        let nats = nats.clone();
        let mut inner = Inner {
            nats,
            names,
            file,
            tail,
            stream_id,
            row_at,
            lag,
            news: None,
            deaf_since: None,
            unreturned: Vec::new(),
            failed: None,
            aside: aside.to_vec(),
        };
        // The base that it began with is of a later position: a replay needs what is before that, too.
        let base_at = inner.file.base_at();
        inner.read_to(base_at, &mut Vec::new()).await?;
        Ok(Self(Box::new(inner)))
    }

    /// Lets go of what left the stream, if the mirror has it still. Returns the first position in the mirror then.
    ///
    /// # Errors
    /// [`MirrorError::Nats`] and [`MirrorError::File`]; repeat it later.
    pub async fn let_go(&mut self) -> Result<Seq, MirrorError> {
        let inner = &mut *self.0;
        if let Some(bucket) = Bucket::open(&inner.nats, &inner.names).await? {
            let starts = bucket.starts().await?;
            let is_news = starts.first().is_some_and(|newest| newest.end > inner.file.behind());
            if is_news
                && let Some(start) = bucket.newest(&starts, &inner.stream_id).await?
                && let Some(base_at) = start.base_at()
            {
                fetch(&bucket, &inner.file, &start.segments).await?;
                let mut read = std::mem::take(&mut inner.unreturned);
                let reached = inner.read_to(base_at, &mut read).await;
                inner.unreturned = read;
                reached?;
                inner.file.let_go(&start).map_err(|error| unwritten(&inner.file, &error))?;
            }
        }
        Ok(Seq(inner.file.behind().0 + 1))
    }

    /// Waits for messages of the stream, applies them, and returns the entries that they brought, in order. Returns none if
    /// they only began an epoch or don't count, and after a new consumer, when [`Mirror::lag`] is current. Dropping the future
    /// loses nothing.
    ///
    /// # Errors
    /// [`MirrorError::Nats`], after which a later call goes on, and [`MirrorError::Damaged`], [`MirrorError::File`].
    pub async fn follow(&mut self) -> Result<Vec<(Seq, Entry)>, MirrorError> {
        self.0.follow().await
    }

    /// Returns the position of the last entry in the mirror.
    #[must_use]
    pub fn last(&self) -> Seq {
        self.0.tail.last
    }

    /// Returns the epoch in force at the mirror's end; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.0.tail.epoch
    }

    /// Returns the number of messages of the stream that aren't in the mirror. The stream's leader counts them for
    /// [`Mirror::open`]; later the server that delivers them does, whose copy may lack the newest ones for a while.
    #[must_use]
    pub fn lag(&self) -> u64 {
        self.0.lag
    }

    /// Returns the number of messages that this process read and that don't count, as leaders that were replaced wrote
    /// them, or half a commit.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.0.tail.dropped
    }

    /// Returns a reader of the mirror for other threads.
    #[must_use]
    pub fn reader(&self) -> Arc<dyn LogReader> {
        self.0.file.reader()
    }

    /// Returns the archive of the mirror for other threads.
    #[must_use]
    pub fn archive(&self) -> Arc<dyn Archive> {
        self.0.archive()
    }

    /// Returns the snapshots beside the mirror for other threads.
    #[must_use]
    pub fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.0.file.snapshots()
    }

    /// Begins `epoch` in the stream and reads up to its start. Returns the log, whose appends are of that epoch, and the
    /// entries that were read. Repeats what fails for lack of an answer as long as `lease` is held.
    ///
    /// `epoch` must be greater than every earlier one, so at least [`Mirror::epoch`] + 1: a log that was copied into the
    /// stream brings its epochs along.
    ///
    /// # Errors
    /// The mirror comes back. [`AppendError::Fenced`] names the epoch that is in force instead;
    /// [`AppendError::Ambiguous`]: the lease ended first; [`AppendError::Full`]; [`AppendError::Fatal`].
    pub async fn lead(
        mut self,
        epoch: u64,
        node: &str,
        lease: Lease,
    ) -> Result<(Box<dyn Log>, Vec<(Seq, Entry)>), (Self, AppendError)> {
        match self.0.begin(epoch, node, &lease).await {
            Ok(at) => {
                let entries = std::mem::take(&mut self.0.unreturned);
                Ok((Box::new(JetStreamLog::new(*self.0, at, lease)), entries))
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl Inner {
    async fn follow(&mut self) -> Result<Vec<(Seq, Entry)>, MirrorError> {
        if !self.unreturned.is_empty() {
            return Ok(std::mem::take(&mut self.unreturned));
        }
        self.advance().await
    }

    /// Waits for messages and applies them; returns their entries.
    async fn advance(&mut self) -> Result<Vec<(Seq, Entry)>, MirrorError> {
        loop {
            self.usable()?;
            let Some(news) = &mut self.news else {
                self.listen().await?;
                return Ok(Vec::new());
            };
            let Some(first) = news.next().await else {
                self.news = None;
                tokio::time::sleep(RETRY).await;
                continue;
            };
            // No await from here to the return, so that a dropped future takes nothing along.
            let mut bytes = first.0.payload.len();
            let mut read = vec![first];
            while read.len() < MESSAGES_PER_TURN && bytes < BYTES_PER_TURN {
                let Some(next) = news.ready() else { break };
                bytes += next.0.payload.len();
                read.push(next);
            }
            match self.apply(read)? {
                Took::Some(entries) => return Ok(entries),
                Took::Nothing => {}
                Took::Gap { next } => self.fill(next).await?,
            }
        }
    }

    /// Creates a consumer. Repeats it while the servers elect, which takes them a few seconds.
    async fn listen(&mut self) -> Result<(), MirrorError> {
        let since = *self.deaf_since.get_or_insert_with(Instant::now);
        loop {
            match self.nats.messages(&self.names, self.tail.at).await {
                Ok((news, pending)) => {
                    (self.news, self.lag, self.deaf_since) = (Some(news), pending, None);
                    return Ok(());
                }
                Err(error) => {
                    tokio::time::sleep(RETRY).await;
                    if since.elapsed() >= DEAF_MAX {
                        return Err(error.into());
                    }
                }
            }
        }
    }

    /// Reads and applies messages until the mirror has the entry at `at`; adds their entries to `read`.
    async fn read_to(&mut self, at: Seq, read: &mut Vec<(Seq, Entry)>) -> Result<(), MirrorError> {
        while self.tail.last < at {
            let advanced = tokio::time::timeout(NEWS_MAX, self.advance()).await;
            let late = |_| NatsError::Unavailable { reason: "no message came".to_owned() };
            read.extend(advanced.map_err(late)??);
        }
        Ok(())
    }

    /// Finds out whether the stream lacks a message, or only the consumer did.
    async fn fill(&mut self, next: u64) -> Result<(), MirrorError> {
        self.news = None;
        let wanted = self.tail.at + 1;
        match self.nats.message(&self.names, wanted).await? {
            Some(_) => Ok(()),
            None if self.is_archived(wanted).await? => {
                let failed = MirrorError::Archived { workspace: self.names.workspace.clone(), at: wanted };
                self.failed = Some(failed.clone());
                Err(failed)
            }
            None => {
                let problem = format!("it isn't in the stream, and message {next} is");
                Err(self.damaged(Damaged { at: wanted, problem }))
            }
        }
    }

    async fn is_archived(&self, at: u64) -> Result<bool, NatsError> {
        let Some(bucket) = Bucket::open(&self.nats, &self.names).await? else { return Ok(false) };
        Ok(bucket.starts().await?.iter().any(|start| start.mark >= at))
    }

    pub(super) fn archive(&self) -> Arc<dyn Archive> {
        Arc::new(SharedArchive {
            local: self.file.archive(),
            nats: self.nats.clone(),
            names: self.names.clone(),
            stream_id: self.stream_id.clone(),
            dir: self.file.dir().to_owned(),
            readers: self.file.readers(),
            one: std::sync::Mutex::default(),
        })
    }

    pub(super) fn usable(&self) -> Result<(), MirrorError> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    pub(super) fn damaged(&self, Damaged { at, problem }: Damaged) -> MirrorError {
        MirrorError::Damaged { workspace: self.names.workspace.clone(), at, problem }
    }

    /// Applies messages, each with the number that follow it, up to a gap.
    fn apply(&mut self, messages: Vec<(Stored, u64)>) -> Result<Took, MirrorError> {
        let (mut rows, mut entries, mut gap, mut any) = (Vec::new(), Vec::new(), None, false);
        for (message, pending) in messages {
            if message.at <= self.tail.at {
                continue;
            }
            if message.at > self.tail.at + 1 {
                gap = Some(message.at);
                break;
            }
            match self.feed(&message) {
                Ok(Step::Commit(commit)) => {
                    any = true;
                    rows.extend(commit.rows);
                    entries.extend(commit.entries);
                    self.row_at = message.at;
                }
                Ok(Step::Began(_)) => any = true,
                Ok(Step::Part | Step::Dropped) => {}
                Err(damaged) => {
                    let failed = self.damaged(damaged);
                    self.failed = Some(failed.clone());
                    // What precedes it is good, and comes first.
                    if !any {
                        return Err(failed);
                    }
                    break;
                }
            }
            self.lag = pending;
        }
        if any {
            self.store(&rows)?;
            if gap.is_some() {
                self.news = None;
            }
            return Ok(Took::Some(entries));
        }
        Ok(gap.map_or(Took::Nothing, |next| Took::Gap { next }))
    }

    fn feed(&mut self, message: &Stored) -> Result<Step, Damaged> {
        let Some(subject) = self.names.subject(&message.subject) else {
            return Err(Damaged { at: message.at, problem: format!("its subject is {}", message.subject) });
        };
        let is_aside = |aside: &SetAside| aside.names(&self.stream_id, message.at, &message.payload);
        let is_aside = self.aside.iter().any(is_aside);
        self.tail.feed_or_skip(message.at, subject, &message.payload, is_aside)
    }

    /// Writes rows and how far of the stream was read.
    pub(super) fn store(&mut self, rows: &[StoredRow]) -> Result<(), MirrorError> {
        let Tail { epoch, batch, last, hash, row_epoch, .. } = self.tail;
        let (stream_id, at) = (self.stream_id.clone(), self.tail.settled());
        let applied = Applied { stream_id, at, epoch, batch, row_at: self.row_at };
        self.file.apply(rows, &applied, &Mark { at, epoch, batch, last, hash, row_epoch }).map_err(|error| {
            let failed = unwritten(&self.file, &error);
            self.failed = Some(failed.clone());
            failed
        })
    }

    /// Records that this process published `rows` as `batch`, the last part of them at `at`.
    pub(super) fn published(&mut self, at: u64, batch: u64, rows: &[StoredRow]) -> Result<(), MirrorError> {
        self.tail.published(at, batch, rows);
        (self.row_at, self.lag) = (at, 0);
        self.store(rows)
    }

    /// See [`Mirror::lead`]. Returns the sequence of the epoch's start; the entries that were read are unreturned.
    async fn begin(&mut self, epoch: u64, node: &str, lease: &Lease) -> Result<u64, AppendError> {
        let fatal = |error: MirrorError| AppendError::Fatal { reason: error.to_string() };
        self.usable().map_err(fatal)?;
        self.news = None;
        let start =
            EpochStart { epoch, node: node.to_owned(), attempt: self.nats.client().new_inbox(), importing: false };
        let at = claim(&self.nats, &self.names, &start, self.tail.epoch, lease).await?;
        if at <= self.tail.at {
            let problem = format!("put epoch {epoch} at message {at}, and the mirror has message {}", self.tail.at);
            return Err(fatal(lost(&self.names, self.file.dir(), problem)));
        }
        self.read_through(at, lease).await?;
        if self.tail.epoch == epoch { Ok(at) } else { Err(AppendError::Fenced { epoch: self.tail.epoch }) }
    }

    /// Reads and applies the messages up to `end`, and perhaps some behind it.
    async fn read_through(&mut self, end: u64, lease: &Lease) -> Result<(), AppendError> {
        while self.tail.at < end {
            let few = end - self.tail.at <= GAP_OF_SINGLE_READS;
            let read = if few {
                self.read_one().await
            } else {
                // A consumer waits for as long as NATS is away, and the lease doesn't.
                match tokio::time::timeout(NEWS_MAX, self.advance()).await {
                    Ok(read) => read,
                    Err(_) => {
                        self.news = None;
                        let reason = "no message came".to_owned();
                        Err(MirrorError::Nats(NatsError::Unavailable { reason }))
                    }
                }
            };
            match read {
                Ok(read) => self.unreturned.extend(read),
                Err(MirrorError::Nats(error)) => retry(lease, &error.to_string()).await?,
                Err(error) => return Err(AppendError::Fatal { reason: error.to_string() }),
            }
        }
        (self.news, self.lag) = (None, 0);
        Ok(())
    }

    /// Reads and applies the next message, as the stream's leader has it.
    async fn read_one(&mut self) -> Result<Vec<(Seq, Entry)>, MirrorError> {
        let at = self.tail.at + 1;
        let message = self.nats.message(&self.names, at).await?;
        let reason = || format!("message {at} isn't there yet");
        let message = message.ok_or_else(|| MirrorError::Nats(NatsError::Unavailable { reason: reason() }))?;
        match self.apply(vec![(message, 0)])? {
            Took::Some(entries) => Ok(entries),
            Took::Nothing | Took::Gap { .. } => Ok(Vec::new()),
        }
    }
}

/// What came of messages.
enum Took {
    /// They were applied, and brought these entries.
    Some(Vec<(Seq, Entry)>),
    /// None of them brought anything.
    Nothing,
    /// The first that is new isn't the next one.
    Gap { next: u64 },
}
