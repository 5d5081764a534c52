//! The bytes of the stream's messages: parts of commits, and starts of epochs.
//!
//! ```text
//! <ws>.log     format 1, epoch u64, batch u64, part u16, parts u16, first u64, last u64, hash [32], bytes of the part
//! <ws>.epoch   format 1, postcard of EpochStart
//! a commit     per row: first u64, count u64, epoch u64, hash [32], length u32, framed entries
//! ```
//!
//! Numbers are little-endian.

use lastword_facts::Seq;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::log::chain::{Hash, Row};

/// The format of the messages; the first byte of each.
const FORMAT: u8 = 1;
/// The length of what precedes a part's bytes.
const HEAD_BYTES: usize = 1 + 8 + 8 + 2 + 2 + 8 + 8 + 32;
/// The length of what precedes a row's entries.
const ROW_HEAD_BYTES: usize = 8 + 8 + 8 + 32 + 4;
/// The longest message, in bytes. Longer ones were measured slower, and the server's default limit is 1 MiB.
pub(crate) const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// The most bytes of a commit in one message.
pub(crate) const PART_BYTES_MAX: usize = MESSAGE_BYTES_MAX - HEAD_BYTES;
/// The most parts of a commit: it is in memory while it is put together, so this bounds it to 1 GiB.
pub(crate) const PARTS_MAX: u16 = 4096;

/// What precedes the bytes of each part of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The epoch of the leader that wrote it.
    pub(crate) epoch: u64,
    /// The number of the commit within the epoch, from 1 on. Numbers of commits that failed are left out.
    pub(crate) batch: u64,
    /// The number of this part, from 0 on.
    pub(crate) part: u16,
    /// The number of parts.
    pub(crate) parts: u16,
    /// The position of the commit's first entry.
    pub(crate) first: Seq,
    /// The position of the commit's last entry.
    pub(crate) last: Seq,
    /// The hash of the commit's last row.
    pub(crate) hash: Hash,
}

impl Head {
    /// Returns the message: this head and the part's bytes.
    pub(crate) fn message(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES + bytes.len());
        out.push(FORMAT);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.batch.to_le_bytes());
        out.extend_from_slice(&self.part.to_le_bytes());
        out.extend_from_slice(&self.parts.to_le_bytes());
        out.extend_from_slice(&self.first.0.to_le_bytes());
        out.extend_from_slice(&self.last.0.to_le_bytes());
        out.extend_from_slice(&self.hash);
        out.extend_from_slice(bytes);
        out
    }

    /// Splits a message into its head and the part's bytes.
    ///
    /// # Errors
    /// The message has another format, or ends early.
    pub(crate) fn parse(message: &[u8]) -> Result<(Self, &[u8]), String> {
        let mut rest = versioned(message)?;
        let head = || {
            let epoch = u64::from_le_bytes(cut(&mut rest)?);
            let batch = u64::from_le_bytes(cut(&mut rest)?);
            let part = u16::from_le_bytes(cut(&mut rest)?);
            let parts = u16::from_le_bytes(cut(&mut rest)?);
            let first = Seq(u64::from_le_bytes(cut(&mut rest)?));
            let last = Seq(u64::from_le_bytes(cut(&mut rest)?));
            Some(Self { epoch, batch, part, parts, first, last, hash: cut(&mut rest)? })
        };
        let head = { head }().ok_or_else(|| "it ends within its head".to_owned())?;
        if head.part >= head.parts || head.parts > PARTS_MAX {
            return Err(format!("it is part {} of {}", head.part, head.parts));
        }
        Ok((head, rest))
    }
}

/// A leader's claim to an epoch. Records of older epochs behind it don't count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EpochStart {
    /// The epoch that begins.
    pub(crate) epoch: u64,
    /// The name of the node that leads, for humans.
    pub(crate) node: String,
    /// A unique text, by which the writer knows its own claim after a lost acknowledgement.
    pub(crate) attempt: String,
    /// A log is being copied into the stream: nobody may lead until a later `EpochStart` says that it is whole.
    pub(crate) importing: bool,
}

impl EpochStart {
    /// Returns the message.
    ///
    /// # Errors
    /// It can't be encoded.
    pub(crate) fn message(&self) -> Result<Vec<u8>, postcard::Error> {
        postcard::to_extend(self, vec![FORMAT])
    }

    /// Reads a message.
    ///
    /// # Errors
    /// The message isn't one, or of another format.
    pub(crate) fn parse(message: &[u8]) -> Result<Self, String> {
        match postcard::take_from_bytes(versioned(message)?) {
            Ok((start, [])) => Ok(start),
            Ok((_, rest)) => Err(format!("{} bytes follow it", rest.len())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// A message of a stream that a human set aside, because no leader wrote it: where it can't be read, it doesn't count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAside {
    /// When the stream was made: it tells it from another one of its name.
    pub stream_id: String,
    /// The sequence of the message.
    pub at: u64,
    /// The SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

impl SetAside {
    /// Whether it names this message of a stream.
    pub(crate) fn names(&self, stream_id: &str, at: u64, message: &[u8]) -> bool {
        (self.at, self.stream_id.as_str()) == (at, stream_id) && self.sha256 == *Sha256::digest(message)
    }
}

/// A row of the log with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredRow {
    pub(crate) first: Seq,
    pub(crate) count: u64,
    pub(crate) epoch: u64,
    pub(crate) hash: Hash,
    pub(crate) blob: Vec<u8>,
}

impl StoredRow {
    /// The row without its hash.
    pub(crate) fn row(&self) -> Row<'_> {
        Row { first: self.first, count: self.count, epoch: self.epoch, blob: &self.blob }
    }

    /// Its length in a commit, in bytes.
    pub(crate) const fn stored_bytes(&self) -> usize {
        ROW_HEAD_BYTES + self.blob.len()
    }

    /// The position of its last entry.
    pub(crate) const fn last(&self) -> Seq {
        Seq(self.first.0.saturating_add(self.count).saturating_sub(1))
    }
}

/// Returns the bytes of a commit.
///
/// # Errors
/// A row is longer than 4 GiB.
pub(crate) fn commit(rows: &[StoredRow]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(rows.iter().map(StoredRow::stored_bytes).sum());
    for row in rows {
        let length = u32::try_from(row.blob.len()).map_err(|_| "a row is longer than 4 GiB".to_owned())?;
        out.extend_from_slice(&row.first.0.to_le_bytes());
        out.extend_from_slice(&row.count.to_le_bytes());
        out.extend_from_slice(&row.epoch.to_le_bytes());
        out.extend_from_slice(&row.hash);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&row.blob);
    }
    Ok(out)
}

/// Reads the rows of a commit.
///
/// # Errors
/// The bytes end within a row, or there are none.
pub(crate) fn rows(mut bytes: &[u8]) -> Result<Vec<StoredRow>, String> {
    let mut rows = Vec::new();
    while !bytes.is_empty() {
        let row = || {
            let first = Seq(u64::from_le_bytes(cut(&mut bytes)?));
            let count = u64::from_le_bytes(cut(&mut bytes)?);
            let epoch = u64::from_le_bytes(cut(&mut bytes)?);
            let hash = cut(&mut bytes)?;
            let length = usize::try_from(u32::from_le_bytes(cut(&mut bytes)?)).ok()?;
            let (blob, rest) = bytes.split_at_checked(length)?;
            bytes = rest;
            Some(StoredRow { first, count, epoch, hash, blob: blob.to_vec() })
        };
        rows.push({ row }().ok_or_else(|| "it ends within a row".to_owned())?);
    }
    if rows.is_empty() { Err("it has no rows".to_owned()) } else { Ok(rows) }
}

/// Returns what follows the format byte.
fn versioned(message: &[u8]) -> Result<&[u8], String> {
    match message.split_first() {
        Some((&FORMAT, rest)) => Ok(rest),
        Some((found, _)) => {
            Err(format!("it has format {found} and this version knows format {FORMAT}: run the newer lastword"))
        }
        None => Err("it is empty".to_owned()),
    }
}

/// Takes the next bytes off `rest`.
fn cut<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk::<N>()?;
    *rest = after;
    Some(*bytes)
}
