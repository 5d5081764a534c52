//! Decides what of the stream's messages counts: a state machine without I/O.

use lastword_facts::{Entry, Seq};

use super::file::Mark;
use super::record::{self, EpochStart, Head, StoredRow};
use crate::log::chain::{GENESIS, Hash};
use crate::log::frame;
use crate::log::verify::begins_epoch;

/// The subject of a message, within its workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// Parts of commits.
    Log,
    /// Starts of epochs.
    Epoch,
}

/// What a message amounts to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A commit is whole.
    Commit(Commit),
    /// A part of a commit that isn't whole yet.
    Part,
    /// A newer epoch began.
    Began(EpochStart),
    /// It doesn't count: a leader that was replaced wrote it, or it is a second copy.
    Dropped,
}

/// The rows of one append, and the entries in them.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    pub(crate) rows: Vec<StoredRow>,
    pub(crate) entries: Vec<(Seq, Entry)>,
}

/// A message that can't be what a leader wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damaged {
    /// Its sequence in the stream.
    pub(crate) at: u64,
    /// What is wrong with it.
    pub(crate) problem: String,
}

/// Where the reading of a stream has got to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// The sequence of the last message that was read.
    pub(crate) at: u64,
    /// The epoch in force; 0 before the first.
    pub(crate) epoch: u64,
    /// The number of the epoch's last commit that counts; 0 before the first.
    pub(crate) batch: u64,
    /// The position of the last entry.
    pub(crate) last: Seq,
    /// The hash of the last row.
    pub(crate) hash: Hash,
    /// The epoch of the last row.
    pub(crate) row_epoch: u64,
    /// The number of messages that didn't count.
    pub(crate) dropped: u64,
    pub(super) partial: Option<Partial>,
}

/// A commit of which parts are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partial {
    /// The sequence of its first part.
    from: u64,
    /// The head of its last part so far.
    head: Head,
    bytes: Vec<u8>,
}

impl Default for Tail {
    /// The start of an empty stream.
    fn default() -> Self {
        let (last, hash) = (Seq(0), GENESIS);
        Self { at: 0, epoch: 0, batch: 0, last, hash, row_epoch: 0, dropped: 0, partial: None }
    }
}

impl Tail {
    /// The place of a mark.
    pub(crate) fn from_mark(mark: &Mark) -> Self {
        let Mark { at, epoch, batch, last, hash, row_epoch } = *mark;
        Self { at, epoch, batch, last, hash, row_epoch, ..Self::default() }
    }

    /// Reads the next message.
    ///
    /// # Errors
    /// The message can't be what a leader wrote, or messages before it are missing. Nothing more can be read then.
    pub(crate) fn feed(&mut self, at: u64, subject: Subject, message: &[u8]) -> Result<Step, Damaged> {
        if at != self.at + 1 {
            let problem = format!("message {} is not in the stream", self.at + 1);
            return Err(Damaged { at, problem });
        }
        let step = match subject {
            Subject::Epoch => EpochStart::parse(message).map(|start| self.begin(start)),
            Subject::Log => Head::parse(message).and_then(|(head, bytes)| self.part(at, head, bytes)),
        };
        let step = step.map_err(|problem| Damaged { at, problem })?;
        self.at = at;
        Ok(step)
    }

    /// Returns the sequence from behind which a later reading must go on: parts of a commit that isn't whole are read again.
    pub(crate) fn settled(&self) -> u64 {
        self.partial.as_ref().map_or(self.at, |partial| partial.from - 1)
    }

    /// Goes on from behind the rows that this process itself published as `batch`, the last part of them at `at`.
    pub(crate) fn published(&mut self, at: u64, batch: u64, rows: &[StoredRow]) {
        (self.at, self.batch) = (at, batch);
        self.advance(rows);
    }

    /// Reads the next message. One that a human set aside doesn't count where it can't be read.
    ///
    /// # Errors
    /// See [`Tail::feed`].
    pub(crate) fn feed_or_skip(
        &mut self,
        at: u64,
        subject: Subject,
        message: &[u8],
        is_aside: bool,
    ) -> Result<Step, Damaged> {
        let before = is_aside.then(|| self.clone());
        let fed = self.feed(at, subject, message);
        let (Err(_), Some(before)) = (&fed, before) else { return fed };
        *self = before;
        self.at = at;
        self.dropped += 1;
        Ok(Step::Dropped)
    }

    fn advance(&mut self, rows: &[StoredRow]) {
        if let Some(row) = rows.last() {
            (self.last, self.hash, self.row_epoch) = (row.last(), row.hash, row.epoch);
        }
    }

    fn begin(&mut self, start: EpochStart) -> Step {
        if start.epoch <= self.epoch {
            self.dropped += 1;
            return Step::Dropped;
        }
        self.forget_partial();
        (self.epoch, self.batch) = (start.epoch, 0);
        Step::Began(start)
    }

    /// Counts the parts of a commit that never became whole.
    fn forget_partial(&mut self) {
        self.dropped += self.partial.take().map_or(0, |partial| u64::from(partial.head.part) + 1);
    }

    fn part(&mut self, at: u64, head: Head, bytes: &[u8]) -> Result<Step, String> {
        if head.epoch > self.epoch {
            return Err(format!("it is of epoch {}, which has not begun", head.epoch));
        }
        if head.epoch < self.epoch || head.batch <= self.batch {
            self.dropped += 1;
            return Ok(Step::Dropped);
        }
        let partial = if head.part == 0 {
            // What precedes it failed half-way, and its leader went on.
            Partial { from: at, head, bytes: Vec::new() }
        } else {
            let before = Head { part: head.part - 1, ..head };
            match self.partial.take_if(|partial| partial.head == before) {
                Some(partial) => Partial { head, ..partial },
                None => return Err(format!("part {} of batch {} isn't in the stream", before.part, head.batch)),
            }
        };
        self.extend(partial, head, bytes)
    }

    fn extend(&mut self, mut partial: Partial, head: Head, bytes: &[u8]) -> Result<Step, String> {
        partial.bytes.extend_from_slice(bytes);
        if head.part + 1 < head.parts {
            if head.part == 0 {
                self.forget_partial();
            }
            self.partial = Some(partial);
            return Ok(Step::Part);
        }
        let rows = record::rows(&partial.bytes)?;
        let entries = self.check(&head, &rows)?;
        if head.part == 0 {
            self.forget_partial();
        }
        self.partial = None;
        self.batch = head.batch;
        self.advance(&rows);
        Ok(Step::Commit(Commit { rows, entries }))
    }

    /// Checks that the rows follow what was read so far, and returns their entries.
    fn check(&self, head: &Head, rows: &[StoredRow]) -> Result<Vec<(Seq, Entry)>, String> {
        let (mut last, mut hash, mut epoch) = (self.last, self.hash, self.row_epoch);
        let mut entries = Vec::new();
        for stored in rows {
            let next = Seq(last.0 + 1);
            if stored.first != next && !begins_epoch(stored.row(), next) {
                return Err(format!("a row begins at {}, and the log ends at {}", stored.first.0, last.0));
            }
            if stored.row().hash(&hash) != stored.hash {
                return Err(format!("the hash of the row at {} does not match", stored.first.0));
            }
            if stored.epoch < epoch || stored.epoch > head.epoch {
                return Err(format!("the row at {} is of epoch {}", stored.first.0, stored.epoch));
            }
            decode(stored, &mut entries)?;
            (last, hash, epoch) = (stored.last(), stored.hash, stored.epoch);
        }
        let first = rows.first().map(|row| row.first);
        if (first, last, hash) != (Some(head.first), head.last, head.hash) {
            return Err("its rows are others than its head says".to_owned());
        }
        Ok(entries)
    }
}

/// Decodes the entries of a row.
fn decode(stored: &StoredRow, entries: &mut Vec<(Seq, Entry)>) -> Result<(), String> {
    let (mut batch, mut at, before) = (stored.blob.as_slice(), stored.first, entries.len());
    while let Some(bytes) = frame::split(&mut batch) {
        let entry = bytes.and_then(frame::decode).map_err(|error| format!("position {}: {error}", at.0))?;
        entries.push((at, entry));
        at.0 += 1;
    }
    let found = (entries.len() - before) as u64;
    if found == stored.count && found > 0 {
        return Ok(());
    }
    Err(format!("the row at {} holds {found} entries and says {}", stored.first.0, stored.count))
}

#[cfg(test)]
mod tests;
