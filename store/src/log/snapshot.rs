//! The snapshot file: a magic number, the position, a SHA-256 of the rest, the state.
//!
//! It is a file beside the database, so that saving a large state never delays an append.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use lastword_facts::Seq;
use sha2::{Digest as _, Sha256};

use crate::data_dir::{self, FILE_SNAPSHOT};
use crate::log::sqlite_reader::SqliteReader;
use crate::log::{LogReader as _, SnapshotError, Snapshots};

const MAGIC: &[u8; 8] = b"LWsnap15";

/// The snapshot file of a data directory.
pub(crate) struct SnapshotFile {
    path: PathBuf,
    log: SqliteReader,
}

impl SnapshotFile {
    pub(crate) fn new(dir: &Path, log: SqliteReader) -> Self {
        Self::named(dir, FILE_SNAPSHOT, log)
    }

    /// The file `name` of a data directory, in the form of a snapshot.
    pub(crate) fn named(dir: &Path, name: &str, log: SqliteReader) -> Self {
        Self { path: dir.join(name), log }
    }

    fn failed(&self, error: &dyn std::error::Error) -> SnapshotError {
        SnapshotError { reason: format!("{}: {error}", self.path.display()) }
    }
}

impl Snapshots for SnapshotFile {
    fn save(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError> {
        let position = at.0.to_le_bytes();
        let sum = checksum(position, state);
        data_dir::replace(&self.path, &[MAGIC, &position, &sum, state]).map_err(|error| self.failed(&error))
    }

    fn load(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError> {
        match fs::read(&self.path) {
            Ok(bytes) => {
                let last = self.log.last().map_err(|error| self.failed(&error))?;
                Ok(parse(&bytes).filter(|(at, _)| *at <= last))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    fn delete(&self) -> Result<(), SnapshotError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.failed(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Returns the position of the file `name` in `dir`, if there is one of this format.
pub(crate) fn position(dir: &Path, name: &str) -> Option<Seq> {
    let mut head = [0; MAGIC.len() + 8];
    fs::File::open(dir.join(name)).ok()?.read_exact(&mut head).ok()?;
    let position = head.strip_prefix(MAGIC)?.first_chunk::<8>()?;
    Some(Seq(u64::from_le_bytes(*position)))
}

/// Returns the position of a file of this format, given its bytes; `None` if it is damaged or of another format.
#[cfg(feature = "cluster")]
pub(crate) fn position_of(bytes: &[u8]) -> Option<Seq> {
    parse(bytes).map(|(at, _)| at)
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
