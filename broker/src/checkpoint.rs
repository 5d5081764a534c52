//! Checkpoints: signed statements of the log's hash at a position, to be kept where the data directory can't be written.
//!
//! A checkpoint is a signed note whose text is that of C2SP's `tlog-checkpoint`: the origin, a position, a hash. The log is
//! a hash chain and not a Merkle tree, which the origin says: the hash is the chain's at that position (L5), and it covers
//! every fact up to there. Whoever can write the data directory can rewrite the chain and sign again; a checkpoint that is
//! kept elsewhere still names the old hash.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lastword_facts::Seq;
use lastword_store::{Anchor, ChainReader, DataDir, OpenError, ReadError};

mod keeper;
mod note;

pub use self::keeper::keep;
pub use self::note::{Note, NoteError, PrivateKey, PublicKey, Signs};
use crate::files::{Files, write_private};

/// The file in the data directory with the key that signs checkpoints.
pub const FILE_CHECKPOINT_KEY: &str = "checkpoint.key";
/// The file in the data directory with the newest checkpoints, oldest first.
pub const FILE_CHECKPOINTS: &str = "lastword.checkpoints";
/// The checkpoints in that file. Each covers all facts before it; more of them only narrow down where a log was altered.
const CHECKPOINTS_KEPT_MAX: usize = 64;

/// Begins the origin of every workspace's log, and says what its hashes are.
const ORIGIN: &str = "lastword-hash-chain/";
/// Begins the name of a cosigner's key.
const COSIGNER: &str = "lastword-cosigner/";

/// What a checkpoint states: this log has this hash at this position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The name of the log: that of the key that signs for it.
    pub origin: String,
    /// The position, and the chain's hash there.
    pub anchor: Anchor,
}

impl Checkpoint {
    /// Reads what a note states, without verifying it. Further lines of its text have no meaning here.
    ///
    /// # Errors
    /// The text isn't that of a checkpoint.
    pub fn of(note: &Note) -> Result<Self, CheckpointError> {
        let mut lines = note.text().lines();
        let (Some(origin), Some(size), Some(hash)) = (lines.next(), lines.next(), lines.next()) else {
            return Err(CheckpointError::Text("it has fewer than three lines"));
        };
        let at: u64 = size.parse().map_err(|_| CheckpointError::Text("its second line isn't a position"))?;
        if at.to_string() != size {
            return Err(CheckpointError::Text("its second line isn't a position"));
        }
        let wrong = CheckpointError::Text("its third line isn't a SHA-256 hash in base64");
        let hash = STANDARD.decode(hash).ok().and_then(|hash| hash.try_into().ok()).ok_or(wrong)?;
        Ok(Self { origin: origin.to_owned(), anchor: Anchor { at: Seq(at), hash } })
    }

    fn text(&self) -> String {
        format!("{}\n{}\n{}\n", self.origin, self.anchor.at.0, STANDARD.encode(self.anchor.hash))
    }
}

/// Reads checkpoints, one after the other, and verifies that the key of their origin signed each.
///
/// # Errors
/// The text has something else in it, or one of them isn't signed by `key`.
pub fn read_signed(text: &str, key: &PublicKey) -> Result<Vec<(Checkpoint, Note)>, CheckpointError> {
    let notes = Note::read_all(text)?;
    let signed = notes.into_iter().map(|note| {
        note.verify(key)?;
        let checkpoint = Checkpoint::of(&note)?;
        if checkpoint.origin == key.name() {
            Ok((checkpoint, note))
        } else {
            Err(CheckpointError::Origin { origin: checkpoint.origin, key: key.name().to_owned() })
        }
    });
    signed.collect()
}

/// Why checkpoints can't be signed, kept or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A key or a note isn't one, or a signature is missing or wrong.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The text of a note isn't that of a checkpoint.
    #[error("not a checkpoint: {0}")]
    Text(&'static str),
    /// The key signed a checkpoint of another log.
    #[error("a checkpoint of {origin} is signed by the key of {key}")]
    Origin {
        /// The log that the checkpoint names.
        origin: String,
        /// The name of the key.
        key: String,
    },
    /// There is no key yet.
    #[error("{0} is missing: a server on the data directory makes it when it starts")]
    NoKey(String),
    /// The log can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// Signs checkpoints of one log.
pub struct LogSigner {
    key: PrivateKey,
    chain: ChainReader,
    files: Files,
    /// Whether another server goes on with the log, and keeps the next checkpoint.
    passed_on: AtomicBool,
}

impl LogSigner {
    /// Opens the signer of the log in `dir`, on which a server may be running.
    ///
    /// # Errors
    /// There is no log, or no key ([`CheckpointError::NoKey`]), or one of them can't be read.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        let chain = DataDir::at(dir).open_chain()?;
        match read_key(dir)? {
            Some(key) => Ok(Self { key, chain, files: Files::local(dir), passed_on: AtomicBool::default() }),
            None => Err(CheckpointError::NoKey(dir.join(FILE_CHECKPOINT_KEY).display().to_string())),
        }
    }

    /// Does the same for the server of `files`, and makes the key if it is missing. `write` writes a file.
    ///
    /// # Errors
    /// A file of the signer can't be read or written, or is damaged.
    pub fn prepare(files: &Files, write: impl FnOnce(&str, &[u8]) -> io::Result<()>) -> Result<Self, CheckpointError> {
        let dir = files.dir();
        if read_key(dir)?.is_none() {
            let path = dir.join(FILE_CHECKPOINT_KEY);
            let made = PrivateKey::generate(ORIGIN, Signs::Text)
                .and_then(|key| write(FILE_CHECKPOINT_KEY, format!("{}\n", key.reveal()).as_bytes()));
            made.map_err(failed(&path))?;
        }
        Ok(Self { files: files.clone(), ..Self::open(dir)? })
    }

    /// Returns the public key, which others need to verify checkpoints of this log.
    #[must_use]
    pub const fn public(&self) -> &PublicKey {
        self.key.public()
    }

    /// Signs bytes that are no note, such as those of a JSON Web Signature, which has no line breaks and a note has.
    #[must_use]
    pub fn sign_bytes(&self, bytes: &[u8]) -> Vec<u8> {
        self.key.sign_bytes(bytes)
    }

    /// Signs the chain's hash at a position, or at the log's present end; `None` if the chain has no hash there.
    ///
    /// # Errors
    /// The log can't be read.
    pub fn sign(&self, at: Option<Seq>) -> Result<Option<Note>, ReadError> {
        let anchor = at.map_or_else(|| self.chain.end(), |at| self.chain.at(at))?;
        Ok(anchor.map(|anchor| self.note(anchor)))
    }

    /// Leaves the checkpoint of the log's end to the server that goes on with it, which waits for this one to end.
    pub fn pass_on(&self) {
        self.passed_on.store(true, Ordering::Release);
    }

    fn note(&self, anchor: Anchor) -> Note {
        let checkpoint = Checkpoint { origin: self.public().name().to_owned(), anchor };
        let mut note = Note::new(checkpoint.text());
        self.key.sign(&mut note, 0);
        note
    }

    /// Signs the log's end and keeps the checkpoint in the data directory, unless it was kept before. Returns its
    /// position.
    fn keep(&self) -> Result<Seq, CheckpointError> {
        let Some(end) = self.chain.end()? else { return Ok(Seq(0)) };
        let mut kept = self.kept();
        if kept.last().is_some_and(|(newest, _)| newest.anchor == end) {
            return Ok(end.at);
        }
        let note = self.note(end);
        kept.push((Checkpoint::of(&note)?, note));
        let from = kept.len().saturating_sub(CHECKPOINTS_KEPT_MAX);
        write_kept(&self.files, &kept[from..])?;
        Ok(end.at)
    }

    /// Returns the kept checkpoints. The file is only a convenience for `lastword verify`: if it is damaged, or the key
    /// was replaced, it begins anew.
    fn kept(&self) -> Vec<(Checkpoint, Note)> {
        kept(self.files.dir(), self.public()).unwrap_or_else(|error| {
            tracing::warn!(%error, "the kept checkpoints are dropped");
            Vec::new()
        })
    }
}

/// Returns the checkpoints that are kept in the data directory `dir`, oldest first, once each is verified.
///
/// # Errors
/// The file can't be read, or holds something that isn't a checkpoint signed by `key`.
pub fn kept(dir: &Path, key: &PublicKey) -> Result<Vec<(Checkpoint, Note)>, CheckpointError> {
    let path = dir.join(FILE_CHECKPOINTS);
    match fs::read_to_string(&path) {
        Ok(text) => read_signed(&text, key),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(failed(&path)(error)),
    }
}

/// Drops the kept checkpoints behind `end`, once a human has accepted that the log lost its end.
///
/// # Errors
/// The file of checkpoints can't be read or written.
pub fn drop_behind(dir: &Path, end: Seq) -> Result<(), CheckpointError> {
    let Some(key) = read_key(dir)? else { return Ok(()) };
    let before = kept(dir, key.public())?;
    let rest: Vec<_> = before.iter().filter(|(checkpoint, _)| checkpoint.anchor.at <= end).cloned().collect();
    if rest.len() == before.len() { Ok(()) } else { write_kept(&Files::local(dir), &rest) }
}

fn write_kept(files: &Files, kept: &[(Checkpoint, Note)]) -> Result<(), CheckpointError> {
    let texts: Vec<String> = kept.iter().map(|(_, note)| note.to_string()).collect();
    let written = files.write(FILE_CHECKPOINTS, texts.join("\n").as_bytes());
    written.map_err(failed(&files.path(FILE_CHECKPOINTS)))
}

fn read_key(dir: &Path) -> Result<Option<PrivateKey>, CheckpointError> {
    read_private(&dir.join(FILE_CHECKPOINT_KEY))
}

/// Returns the key in a file; `None` if there is no such file.
fn read_private(path: &Path) -> Result<Option<PrivateKey>, CheckpointError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.parse().map_err(|error: NoteError| failed(path)(io::Error::other(error)))?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path)(error)),
    }
}

/// Returns a cosigner's key from its file, which is made (mode 0600) if it is missing.
///
/// # Errors
/// The file can't be read or written, or its key isn't one of a cosigner.
pub fn cosigner_key(path: &Path) -> Result<PrivateKey, CheckpointError> {
    if let Some(key) = read_private(path)? {
        return match key.public().signs() {
            Signs::TextAndTime => Ok(key),
            Signs::Text => Err(NoteError::PrivateKey("it signs logs, and a cosigner has a key of its own").into()),
        };
    }
    let key = PrivateKey::generate(COSIGNER, Signs::TextAndTime).map_err(failed(path))?;
    write_private(path, format!("{}\n", key.reveal()).as_bytes()).map_err(failed(path))?;
    Ok(key)
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> CheckpointError + use<> {
    let path = path.to_owned();
    move |source| CheckpointError::File { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PrivateKey {
        PrivateKey::generate(ORIGIN, Signs::Text).unwrap()
    }

    fn signed(text: &str, key: &PrivateKey) -> String {
        let mut note = Note::new(text.to_owned());
        key.sign(&mut note, 0);
        note.to_string()
    }

    #[test]
    fn a_checkpoint_is_read_as_it_was_written() {
        let key = key();
        let anchor = Anchor { at: Seq(59_760_451_000_001), hash: [0xa5; 32] };
        let checkpoint = Checkpoint { origin: key.public().name().to_owned(), anchor };
        let text = checkpoint.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1..], ["59760451000001", "paWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaU="]);
        assert!(lines[0].starts_with("lastword-hash-chain/") && lines.len() == 3, "{text}");
        let read = read_signed(&signed(&text, &key), key.public()).unwrap();
        assert_eq!(read[0].0, checkpoint);
        let extended = signed(&format!("{text}more\n"), &key);
        assert_eq!(read_signed(&extended, key.public()).unwrap()[0].0, checkpoint);
    }

    #[test]
    fn a_signed_text_that_is_no_checkpoint_of_this_log_is_refused() {
        let key = key();
        let (name, hash) = (key.public().name().to_owned(), STANDARD.encode([1; 32]));
        let refused = |text: &str| read_signed(&signed(text, &key), key.public()).unwrap_err().to_string();
        for (text, wanted) in [
            (format!("{name}\n7\n"), "fewer than three lines"),
            (format!("{name}\n07\n{hash}\n"), "isn't a position"),
            (format!("{name}\n-7\n{hash}\n"), "isn't a position"),
            (format!("{name}\n18446744073709551616\n{hash}\n"), "isn't a position"),
            (format!("{name}\n7\n{}\n", &hash[4..]), "isn't a SHA-256 hash"),
            (format!("other\n7\n{hash}\n"), "a checkpoint of other is signed by the key of"),
        ] {
            assert!(refused(&text).contains(wanted), "{text}: {}", refused(&text));
        }
        let others = PrivateKey::generate(ORIGIN, Signs::Text).unwrap();
        let text = format!("{name}\n7\n{hash}\n");
        let foreign = read_signed(&signed(&text, &others), key.public());
        assert!(matches!(foreign, Err(CheckpointError::Note(NoteError::Unsigned(_)))));
    }

    #[test]
    fn a_cosigner_has_a_key_of_its_own_that_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w.key");
        let made = cosigner_key(&path).unwrap();
        assert_eq!(cosigner_key(&path).unwrap().public(), made.public());
        fs::write(&path, key().reveal()).unwrap();
        assert!(cosigner_key(&path).is_err(), "a log's key");
        fs::write(&path, "nonsense").unwrap();
        assert!(cosigner_key(&path).err().unwrap().to_string().contains("w.key"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "nonsense", "no key is overwritten");
    }
}
