//! The hash chain over the rows of the log (L5).

use lastword_proto::Seq;
use sha2::{Digest as _, Sha256};

/// A link of the chain.
pub(crate) type Hash = [u8; 32];

/// What comes before the first row.
pub(crate) const GENESIS: Hash = [0; 32];

/// One row of the log without its hash.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    /// The position of its first entry.
    pub(crate) first: Seq,
    /// How many entries it has.
    pub(crate) count: u64,
    /// The epoch of the leader that wrote it.
    pub(crate) epoch: u64,
    /// The entries, framed.
    pub(crate) blob: &'a [u8],
}

impl Row<'_> {
    /// The link behind `previous`: every field of the row goes into it, so that none can be changed.
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
