//! The log of a leader: appends to the stream, one at a time, and to its own mirror.

use std::sync::Arc;

use lastword_facts::{Entry, Seq};

use super::claim::retry;
use super::mirror::Inner;
use super::nats::{Expect, Nats, NatsError, PublishError, StreamNames};
use super::record::{self, EpochStart, Head, PART_BYTES_MAX, PARTS_MAX, StoredRow};
use super::tail::Subject;
use crate::log::chain::Row;
use crate::log::sqlite::ROW_BYTES_TARGET;
use crate::log::{AppendError, Archive, Log, LogReader, Snapshots, first_of, frame};

/// Returns whether the holder of the lease still holds it. It decides how long an append is repeated, never whether it is
/// right.
pub type Lease = Arc<dyn Fn() -> bool + Send + Sync>;

/// The log of the leader of an epoch. Its calls block: they are for a thread outside the runtime.
pub(super) struct JetStreamLog {
    mirror: Inner,
    publisher: Publisher,
    begun: bool,
    /// The reason why every later append is refused.
    stopped: Option<AppendError>,
}

/// Publishes the commits of an epoch, one message at a time.
pub(super) struct Publisher {
    pub(super) nats: Nats,
    pub(super) names: StreamNames,
    pub(super) lease: Lease,
    pub(super) epoch: u64,
    /// The sequence of the `EpochStart`.
    pub(super) epoch_at: u64,
    /// The sequence of the stream's last message.
    pub(super) at: u64,
    /// The number of the last commit that was tried.
    pub(super) batch: u64,
    /// The messages of leaders that were replaced, found behind the `EpochStart`.
    pub(super) dropped: u64,
}

/// What the stream has behind the last message that the leader knows.
enum Found {
    /// The message that was published.
    Ours,
    /// Nothing that counts.
    Nothing,
}

impl JetStreamLog {
    /// Goes on from a mirror that was read through the `EpochStart` at `epoch_at`.
    pub(super) fn new(mirror: Inner, epoch_at: u64, lease: Lease) -> Self {
        let (nats, names) = (mirror.nats.clone(), mirror.names.clone());
        let (epoch, at) = (mirror.tail.epoch, mirror.tail.at);
        let publisher = Publisher { nats, names, lease, epoch, epoch_at, at, batch: 0, dropped: 0 };
        Self { mirror, publisher, begun: false, stopped: None }
    }

    /// Encodes entries as the rows that follow the log's end.
    fn rows(&self, entries: &[Arc<Entry>]) -> Result<Vec<StoredRow>, AppendError> {
        let (mut first, mut hash) = (first_of(self.mirror.tail.last, entries), self.mirror.tail.hash);
        let (mut rows, mut rest, epoch) = (Vec::new(), entries, self.publisher.epoch);
        while !rest.is_empty() {
            let (mut blob, mut count) = (Vec::new(), 0);
            while let Some((entry, later)) = rest.split_first().filter(|_| blob.len() < ROW_BYTES_TARGET) {
                frame::encode(&mut blob, entry)
                    .map_err(|error| AppendError::Fatal { reason: format!("an entry can't be encoded: {error}") })?;
                (count, rest) = (count + 1, later);
            }
            hash = Row { first, count, epoch, blob: &blob }.hash(&hash);
            rows.push(StoredRow { first, count, epoch, hash, blob });
            first.0 += count;
        }
        Ok(rows)
    }

    /// Refuses every later append, unless the store is full.
    fn fail(&mut self, error: AppendError) -> AppendError {
        self.stopped = match &error {
            AppendError::Full { .. } | AppendError::Conflict { .. } => None,
            AppendError::Fenced { .. } | AppendError::Fatal { .. } => Some(error.clone()),
            AppendError::Ambiguous { reason } => {
                Some(AppendError::Fatal { reason: format!("an earlier append is unresolved ({reason}): lead again") })
            }
        };
        error
    }
}

impl Publisher {
    /// Publishes rows as one commit. If a part is refused for good, the parts before it don't count.
    pub(super) async fn publish(&mut self, rows: &[StoredRow]) -> Result<(), AppendError> {
        let fatal = |reason: String| AppendError::Fatal { reason };
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(()) };
        let bytes = record::commit(rows).map_err(fatal)?;
        let parts = bytes.len().div_ceil(PART_BYTES_MAX);
        let parts = u16::try_from(parts).ok().filter(|parts| *parts <= PARTS_MAX);
        let parts = parts.ok_or_else(|| fatal(format!("an append of {} bytes is too long", bytes.len())))?;
        self.batch += 1;
        let (epoch, batch, hash) = (self.epoch, self.batch, last.hash);
        for (part, bytes) in (0..parts).zip(bytes.chunks(PART_BYTES_MAX)) {
            let head = Head { epoch, batch, part, parts, first: first.first, last: last.last(), hash };
            self.publish_part(&head.message(bytes)).await?;
        }
        Ok(())
    }

    async fn publish_part(&mut self, message: &[u8]) -> Result<(), AppendError> {
        // Why an attempt may be in the stream although it wasn't acknowledged, or may still arrive there.
        let mut unknown: Option<String> = None;
        loop {
            let (nats, names) = (&self.nats, &self.names);
            let expect = Expect { last: Some(self.at), of: (&names.epoch, self.epoch_at) };
            match nats.publish(&names.log, expect, message.to_vec()).await {
                Ok(at) if at == self.at + 1 => {
                    self.at = at;
                    return Ok(());
                }
                Ok(at) => {
                    let reason = format!("the message behind {} was acknowledged as {at}", self.at);
                    return Err(AppendError::Fatal { reason });
                }
                Err(PublishError::Full(reason)) if unknown.is_none() => return Err(AppendError::Full { reason }),
                Err(PublishError::Never(reason)) if unknown.is_none() => return Err(AppendError::Fatal { reason }),
                Err(
                    PublishError::Full(reason)
                    | PublishError::Never(reason)
                    | PublishError::Expected(reason)
                    | PublishError::Unknown(reason),
                ) => unknown = Some(reason),
            }
            match self.look_for(message).await {
                Ok(Found::Ours) => return Ok(()),
                Ok(Found::Nothing) => {}
                Err(Stop::Append(error)) => return Err(error),
                Err(Stop::Nats(error)) => unknown = Some(error.to_string()),
            }
            retry(&self.lease, unknown.as_deref().unwrap_or_default()).await?;
        }
    }

    /// Reads what the stream has behind the last message that is known, as its leader has it, up to `message`.
    async fn look_for(&mut self, message: &[u8]) -> Result<Found, Stop> {
        let fatal = |at: u64, problem: &str| {
            Stop::Append(AppendError::Fatal { reason: format!("message {at} of the stream: {problem}") })
        };
        loop {
            let at = self.at + 1;
            let Some(found) = self.nats.message(&self.names, at).await? else {
                return Ok(Found::Nothing);
            };
            match self.names.subject(&found.subject) {
                Some(Subject::Epoch) => {
                    let start = EpochStart::parse(&found.payload).map_err(|problem| fatal(at, &problem))?;
                    if start.epoch > self.epoch {
                        return Err(Stop::Append(AppendError::Fenced { epoch: start.epoch }));
                    }
                    // An earlier one that somebody published again begins nothing. A newer one would come behind it.
                    self.epoch_at = at;
                }
                Some(Subject::Log) if found.payload == message => {
                    self.at = at;
                    return Ok(Found::Ours);
                }
                Some(Subject::Log) => {
                    let (head, _) = Head::parse(&found.payload).map_err(|problem| fatal(at, &problem))?;
                    if head.epoch >= self.epoch {
                        return Err(fatal(at, "another leader writes in this epoch"));
                    }
                }
                None => return Err(fatal(at, &format!("its subject is {}", found.subject))),
            }
            // A leader that was replaced wrote it: it doesn't count, but it has a place in the stream.
            self.dropped += 1;
            self.at = at;
        }
    }
}

impl Log for JetStreamLog {
    /// Returns the epoch with which the leader began. A further one is begun by leading again.
    fn begin_epoch(&mut self) -> Result<u64, AppendError> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        if std::mem::replace(&mut self.begun, true) {
            let reason = format!("epoch {} was taken already: another one takes another lease", self.publisher.epoch);
            return Err(AppendError::Fatal { reason });
        }
        Ok(self.publisher.epoch)
    }

    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError> {
        if let Some(stopped) = &self.stopped {
            return Err(stopped.clone());
        }
        if epoch != self.publisher.epoch {
            return Err(AppendError::Fenced { epoch: self.publisher.epoch });
        }
        let last = self.mirror.tail.last;
        if expect != last {
            return Err(AppendError::Conflict { actual: last });
        }
        if entries.is_empty() {
            return Ok(last);
        }
        let rows = self.rows(entries).map_err(|error| self.fail(error))?;
        let runtime = self.publisher.nats.runtime.clone();
        runtime.block_on(self.publisher.publish(&rows)).map_err(|error| self.fail(error))?;
        if let Err(error) = self.mirror.published(self.publisher.at, self.publisher.batch, &rows) {
            // The commit is in the stream, so it is acknowledged; the next one is refused.
            self.stopped = Some(AppendError::Fatal { reason: error.to_string() });
        }
        Ok(self.mirror.tail.last)
    }

    fn make_room(&mut self, entries: &[Arc<Entry>]) -> bool {
        let bytes = self.rows(entries).ok().and_then(|rows| record::commit(&rows).ok()).map(|bytes| bytes.len());
        let Publisher { nats, names, .. } = &self.publisher;
        // Without an answer, or the right to, the stream stays full.
        bytes.is_some_and(|bytes| nats.runtime.block_on(nats.raise_limits(names, bytes)).unwrap_or(false))
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        self.mirror.file.reader()
    }

    fn archive(&self) -> Arc<dyn Archive> {
        self.mirror.archive()
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.mirror.file.snapshots()
    }
}

/// Why the stream's end isn't known.
enum Stop {
    Append(AppendError),
    Nats(NatsError),
}

impl From<NatsError> for Stop {
    fn from(error: NatsError) -> Self {
        Self::Nats(error)
    }
}
