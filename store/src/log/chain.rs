//! The hash chain over the rows of the log (L5).

use lastword_facts::Seq;
use sha2::{Digest as _, Sha256};

/// The hash of a row, which covers all rows before it.
pub(crate) type Hash = [u8; 32];

/// The hash before the first row.
pub(crate) const GENESIS: Hash = [0; 32];

/// One row of the log without its hash.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// The position of its first entry.
    pub(crate) first: Seq,
    /// The number of entries in it.
    pub(crate) count: u64,
    /// The epoch of the leader that wrote it.
    pub(crate) epoch: u64,
    /// The framed entries.
    pub(crate) blob: &'a [u8],
}

impl Row<'_> {
    /// Returns the row's hash. It covers `previous` and every field, so that a change to any of them shows.
    pub(crate) fn hash(&self, previous: &Hash) -> Hash {
        let mut hash = Sha256::new();
        hash.update(previous);
        hash.update(self.first.0.to_le_bytes());
        hash.update(self.count.to_le_bytes());
        hash.update(self.epoch.to_le_bytes());
        hash.update(self.blob);
        hash.finalize().into()
    }
}
