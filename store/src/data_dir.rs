//! The data directory: its files, its lock and their modes.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lastword_facts::Seq;

use crate::log::OpenError;
use crate::log::chain::Hash;

/// The log, within the data directory.
pub const FILE_DATABASE: &str = "lastword.db";
/// The read model, which may be deleted.
pub const FILE_INDEX: &str = "index.db";
/// The lock of the running server, with its process id inside.
pub const FILE_LOCK: &str = "lastword.lock";
/// The last acknowledged position and its hash, to notice a log that lost its end.
pub const FILE_HEAD: &str = "lastword.head";
/// The snapshot, which may be deleted.
pub const FILE_SNAPSHOT: &str = "snapshot";
/// The state that replaces the entries that left the log.
pub const FILE_BASE: &str = "base";
/// The newest version of the program that wrote the log, for an older one that can't read it.
pub const FILE_VERSION: &str = "version";
/// Says to Git that the whole directory is ignored.
const FILE_IGNORE: &str = ".gitignore";
/// The folder with the segments that left the log.
pub const FOLDER_ARCHIVE: &str = "archive";
/// The newest format of the log that this version reads and writes (`PRAGMA user_version`).
pub const LOG_VERSION: i64 = 3;
/// The format of the read model; another one is rebuilt.
pub const INDEX_VERSION: i64 = 11;
/// `PRAGMA application_id` of our files: "LWrd".
pub(crate) const APPLICATION_ID: i64 = 0x4c57_7264;

const MODE_DIR: u32 = 0o700;
const MODE_FILE: u32 = 0o600;

/// The exclusive right to write to a data directory, until dropped. The system releases it when the process dies.
#[derive(Debug)]
pub(crate) struct DirLock {
    dir: PathBuf,
    file: File,
}

impl DirLock {
    /// Takes the lock of `dir`, and creates `dir` (mode 0700) if it is missing.
    ///
    /// # Errors
    /// Another process holds it, or the file system refuses.
    pub(crate) fn take(dir: &Path) -> Result<Self, OpenError> {
        make_dir(dir).map_err(|source| OpenError::io(dir, &source))?;
        ignore(dir);
        let path = dir.join(FILE_LOCK);
        let failed = |source| OpenError::io(&path, &source);
        let mut file = open_private(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // The holder's id is informative: without it the refusal is the same.
                let pid = match file.read_to_string(&mut pid) {
                    Ok(read) if read > 0 => pid.trim().to_owned(),
                    Ok(_) | Err(_) => "unknown".to_owned(),
                };
                return Err(OpenError::Locked { place: dir.display().to_string(), holder: pid });
            }
            Err(TryLockError::Error(source)) => return Err(failed(source)),
        }
        file.set_len(0).and_then(|()| file.rewind()).map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { dir: dir.to_owned(), file })
    }

    /// The locked data directory.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for DirLock {
    /// Releases the lock. Closing the file is not enough: a process that another thread starts holds a copy of the
    /// descriptor until its `exec`, and the lock lasts as long as a copy.
    fn drop(&mut self) {
        // An error changes nothing: the file closes next.
        self.file.unlock().ok();
    }
}

/// Creates a directory (mode 0700) durably if it is missing.
pub(crate) fn make_dir(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(MODE_DIR).create(dir)?;
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => sync_dir(parent),
        Some(_) | None => sync_dir(Path::new(".")),
    }
}

/// Hides `dir` from Git: `git add -A` would commit tokens, keys and the log, and `git stash -u` would take them away.
fn ignore(dir: &Path) {
    if let Ok(mut file) = OpenOptions::new().write(true).create_new(true).mode(MODE_FILE).open(dir.join(FILE_IGNORE)) {
        // Opening a log doesn't fail for it: the disk may be full.
        file.write_all(b"*\n").ok();
    }
}

/// A file, whatever its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// Returns the file that is at `path` now.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        fs::metadata(path).map(|found| Self { device: found.dev(), inode: found.ino() })
    }

    /// Returns whether this process has the file open although no path leads to it. Only Linux says so.
    pub(crate) fn is_deleted(self) -> bool {
        let open = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
        // Through the link to what is open: opening the file itself, and closing it, would end SQLite's locks.
        let mut found = open.filter_map(|entry| fs::metadata(entry.path()).ok());
        found.any(|file| file.dev() == self.device && file.ino() == self.inode && file.nlink() == 0)
    }
}

/// Syncs `dir`, so that file names in it are durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Opens or creates a file with mode 0600.
pub(crate) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(MODE_FILE).open(path)
}

/// Creates or empties a file with mode 0600.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(MODE_FILE).open(path)
}

/// Replaces a file atomically and durably: a crash leaves the old content or the new.
pub(crate) fn replace(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = create_private(&draft)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()?;
    fs::rename(&draft, path)?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Notes that this version writes here, unless a newer one has. The note only helps to word an error, so it may fail.
pub(crate) fn note_version(dir: &Path) {
    let own = env!("CARGO_PKG_VERSION");
    let newest = newest_version(dir);
    if newest.is_none_or(|newest| numbers(&newest) < numbers(own)) {
        let _unnoted = create_private(&dir.join(FILE_VERSION)).and_then(|mut file| writeln!(file, "{own}"));
    }
}

/// Returns the newest version of the program that wrote here.
pub(crate) fn newest_version(dir: &Path) -> Option<String> {
    let text = fs::read_to_string(dir.join(FILE_VERSION)).ok()?;
    numbers(text.trim()).map(|_| text.trim().to_owned())
}

/// Returns the numbers of a version, major first.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let numbers: Vec<u32> = version.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// The last acknowledged position and its hash. Written after each commit and synced only when the log is opened, so it is
/// never ahead of the durable log; if it is, the log lost its end.
#[derive(Debug)]
pub(crate) struct Head(File);

const HEAD_BYTES: usize = 40;

impl Head {
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        open_private(&dir.join(FILE_HEAD)).map(Self)
    }

    pub(crate) fn note(&self, last: Seq, hash: &Hash) -> io::Result<()> {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&last.0.to_le_bytes());
        bytes[8..].copy_from_slice(hash);
        self.0.write_all_at(&bytes, 0)
    }

    /// Syncs the file: from then on it exists with some earlier position in it, whatever happens.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// What `lastword.head` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeadFound {
    /// The last acknowledged position and its hash.
    Noted(Seq, Hash),
    /// There is no such file, or it is empty.
    Missing,
    /// The file has another length than a head.
    Damaged,
}

/// Reads `lastword.head` in `dir`.
pub(crate) fn head_of(dir: &Path) -> io::Result<HeadFound> {
    let bytes = match fs::read(dir.join(FILE_HEAD)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(HeadFound::Missing),
        Err(error) => return Err(error),
    };
    if bytes.is_empty() {
        return Ok(HeadFound::Missing);
    }
    let parse = || {
        let (seq, hash) = bytes.split_first_chunk::<8>()?;
        Some(HeadFound::Noted(Seq(u64::from_le_bytes(*seq)), hash.try_into().ok()?))
    };
    Ok(parse().unwrap_or(HeadFound::Damaged))
}

/// Returns the name of a file in `dir` that only a log of some length has beside it.
pub(crate) fn derived(dir: &Path) -> Option<&'static str> {
    [FILE_HEAD, FILE_INDEX, FILE_SNAPSHOT].into_iter().find(|name| dir.join(name).exists())
}

#[cfg(test)]
mod tests {
    use super::DirLock;

    #[test]
    fn the_lock_ends_with_its_holder_while_a_copy_of_the_descriptor_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let lock = DirLock::take(dir.path()).unwrap();
        let copy = lock.file.try_clone().unwrap();
        drop(lock);
        assert!(DirLock::take(dir.path()).is_ok());
        drop(copy);
    }
}
