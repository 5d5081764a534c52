//! The snapshot file: a magic number, the position, a SHA-256 of the rest, the state.
//!
//! It stands beside the database, so that saving a large state never holds up an append.

use std::fs;
use std::io;
use std::path::Path;

use lastword_proto::Seq;
use sha2::{Digest as _, Sha256};

use crate::dir::{self, FILE_SNAPSHOT};
use crate::log::SnapshotError;

const MAGIC: &[u8; 8] = b"LWsnap06";

/// Keeps `state`, the fold of everything up to `at`, as the snapshot of `dir`; from any thread, one at a time.
///
/// # Errors
/// The file system refuses; the earlier snapshot is still there.
pub fn save(dir: &Path, at: Seq, state: &[u8]) -> Result<(), SnapshotError> {
    let path = dir.join(FILE_SNAPSHOT);
    let position = at.0.to_le_bytes();
    let sum = checksum(position, state);
    dir::replace(&path, &[MAGIC, &position, &sum, state]).map_err(|source| SnapshotError { path, source })
}

/// The snapshot of `dir`, where there is one that is whole; it may be ahead of a log that lost its end.
///
/// # Errors
/// The file can't be read.
pub fn load(dir: &Path) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError> {
    let path = dir.join(FILE_SNAPSHOT);
    match fs::read(&path) {
        Ok(bytes) => Ok(parse(&bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(SnapshotError { path, source }),
    }
}

fn parse(bytes: &[u8]) -> Option<(Seq, Vec<u8>)> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (position, rest) = rest.split_first_chunk::<8>()?;
    let (sum, state) = rest.split_first_chunk::<32>()?;
    (checksum(*position, state) == *sum).then(|| (Seq(u64::from_le_bytes(*position)), state.to_vec()))
}

fn checksum(position: [u8; 8], state: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(position);
    hash.update(state);
    hash.finalize().into()
}
