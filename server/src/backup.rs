//! Backups of a data directory, and the way back (L8).

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use lastword_broker::checkpoint::{self, CheckpointError, FILE_CHECKPOINT_KEY, FILE_CHECKPOINTS};
use lastword_broker::identity::{FILE_OPERATOR_TOKEN, FILE_SECRET_KEY, FILE_SIGNED_OUT};
use lastword_broker::{BootError, begin_epoch};
use lastword_facts::{Seq, Time};
use lastword_store::{BackedUp, BackupError, DataDir, VerifyError, format};

use crate::oidc::{FILE_SUBJECTS, FILE_USED};

/// The small files that a backup carries beside the log.
pub const FILES: [&str; 10] = [
    FILE_SECRET_KEY,
    FILE_OPERATOR_TOKEN,
    FILE_SIGNED_OUT,
    FILE_PUSH,
    FILE_CHANNELS,
    FILE_PASSKEYS,
    FILE_SUBJECTS,
    FILE_USED,
    FILE_CHECKPOINT_KEY,
    FILE_CHECKPOINTS,
];
/// The file with the passkeys of humans.
pub const FILE_PASSKEYS: &str = "passkeys.json";
/// The file with the browsers that notifications are sent to, and the key by which their services know the server.
pub const FILE_PUSH: &str = "push.json";
/// The file with the webhooks that humans added, and their secrets.
pub const FILE_CHANNELS: &str = "channels.json";
/// The file that says which notifications were sent.
pub const FILE_NOTIFY: &str = "notify.json";
/// The file that says where the changes of tasks are posted, and which were.
pub const FILE_A2A_PUSH: &str = "a2a-push.json";
/// How far the spans of the log are exported.
pub const FILE_TELEMETRY: &str = "telemetry.state";
/// The folder in the data directory in which a restore prepares the new log.
const FOLDER_STAGING: &str = "restoring";

/// Writes a backup of the data directory `dir`, on which a server may be running. `progress` receives the position
/// reached and the last one.
///
/// # Errors
/// The log can't be read, or `to` can't be written.
pub fn back_up(dir: &Path, to: &mut dyn Write, progress: &mut dyn FnMut(Seq, Seq)) -> Result<BackedUp, BackupError> {
    DataDir::at(dir).back_up(&FILES, to, progress)
}

/// Why a backup was not restored. Before [`RestoreError::File`] nothing in the data directory was changed; after it, what
/// was there is in the directory itself, in `replaced-TIME` or in `restoring`.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The backup can't be used, or the data directory is in use.
    #[error(transparent)]
    Backup(#[from] BackupError),
    /// The new log can't begin its epoch.
    #[error("the restored log: {0}")]
    Boot(#[from] BootError),
    /// The kept checkpoints can't be read or written.
    #[error(transparent)]
    Checkpoints(#[from] CheckpointError),
    /// The data directory can't be changed.
    #[error("{path}: {source}")]
    File {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// A restored backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The end of the log in the backup.
    pub backed_up: BackedUp,
    /// The first position of the epoch that begins behind it.
    pub first: Seq,
    /// The folder with the files that the backup replaced, if there were any.
    pub replaced: Option<PathBuf>,
}

/// Replaces the log of the data directory `dir` by a backup, and begins a new epoch. No server may be running. The files
/// that it replaces move to a folder `replaced-TIME` in `dir`. `now` is the wall clock; `progress` receives the position
/// reached.
///
/// # Errors
/// See [`RestoreError`].
pub fn restore(
    dir: &Path,
    from: &mut dyn Read,
    now: Time,
    progress: &mut dyn FnMut(Seq),
) -> Result<Restored, RestoreError> {
    let _lock = DataDir::at(dir).lock().map_err(BackupError::from)?;
    let staging = dir.join(FOLDER_STAGING);
    remove(&staging)?;
    let staged = DataDir::at(&staging);
    let (backed_up, _files) = staged.restore(from, progress)?;
    // The segments that are here are the backup's, too.
    let archive = staging.join(format::FOLDER_ARCHIVE);
    symlink(Path::new("..").join(format::FOLDER_ARCHIVE), &archive).map_err(failed(&archive))?;
    let verified = staged.verify(Some(backed_up.end), &mut |_, _| Ok(()), &mut |_, _| {});
    verified.map_err(|error: VerifyError| BackupError::Unproven(error))?;
    let first = {
        let mut log = staged.open().map_err(BackupError::from)?;
        begin_epoch(log.as_mut(), now)?
    };
    // The folder has its own lock, which is of no use outside it.
    remove(&staging.join(format::FILE_LOCK))?;
    remove(&archive)?;
    let replaced = set_aside(dir, now)?;
    // The log last: until it is there, nothing starts from what a crash has mixed.
    let mut staged = list(&staging)?;
    staged.sort_by_key(|name| name.starts_with(format::FILE_DATABASE));
    for entry in staged {
        rename(&staging.join(&entry), &dir.join(&entry))?;
    }
    remove(&staging)?;
    sync(dir)?;
    Ok(Restored { backed_up, first, replaced })
}

/// Goes on with a log that lost its end: checks what is left, drops what was derived from the lost part, and begins a new
/// epoch (L8). No server may be running. Returns the log's last position and the first one of the epoch.
///
/// # Errors
/// What is left of the log is damaged, or the data directory can't be changed.
pub fn accept_loss(dir: &Path, now: Time) -> Result<(Seq, Seq), RestoreError> {
    let store = DataDir::at(dir);
    // Opening first: it makes no log where there is none.
    store.open_reader().map_err(BackupError::from)?;
    let lock = store.lock().map_err(BackupError::from)?;
    for name in list(dir)? {
        let base = name.strip_suffix("-wal").or_else(|| name.strip_suffix("-shm")).unwrap_or(&name);
        if [format::FILE_INDEX, format::FILE_SNAPSHOT, format::FILE_HEAD].contains(&base) {
            remove(&dir.join(&name))?;
        }
    }
    let verified = store.verify(None, &mut |_, _| Ok(()), &mut |_, _| {}).map_err(BackupError::Unproven)?;
    checkpoint::drop_behind(dir, verified.end.at)?;
    drop(lock);
    let mut log = store.open_as_it_is().map_err(BackupError::from)?;
    Ok((verified.end.at, begin_epoch(log.as_mut(), now)?))
}

/// Moves the files of the log, and all that was derived from them, to a folder of their own.
fn set_aside(dir: &Path, now: Time) -> Result<Option<PathBuf>, RestoreError> {
    let of_log = [
        format::FILE_BASE,
        format::FILE_DATABASE,
        format::FILE_INDEX,
        format::FILE_HEAD,
        format::FILE_SNAPSHOT,
        FILE_NOTIFY,
        FILE_A2A_PUSH,
        FILE_TELEMETRY,
    ];
    let found = list(dir)?.into_iter().filter(|name| {
        let base = name.strip_suffix("-wal").or_else(|| name.strip_suffix("-shm")).unwrap_or(name);
        of_log.contains(&base) || FILES.contains(&base)
    });
    let found: Vec<String> = found.collect();
    if found.is_empty() {
        return Ok(None);
    }
    let folder = dir.join(format!("replaced-{}", now.0 / 1_000));
    fs::create_dir_all(&folder).map_err(failed(&folder))?;
    // The log last: while it is there, the directory is one that a server starts from.
    for name in found.iter().filter(|name| !name.starts_with(format::FILE_DATABASE)) {
        rename(&dir.join(name), &folder.join(name))?;
    }
    for name in found.iter().filter(|name| name.starts_with(format::FILE_DATABASE)) {
        rename(&dir.join(name), &folder.join(name))?;
    }
    sync(&folder)?;
    Ok(Some(folder))
}

fn list(dir: &Path) -> Result<Vec<String>, RestoreError> {
    let entries = fs::read_dir(dir).map_err(failed(dir))?;
    let names = entries.filter_map(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.collect())
}

fn rename(from: &Path, to: &Path) -> Result<(), RestoreError> {
    fs::rename(from, to).map_err(failed(from))
}

fn sync(dir: &Path) -> Result<(), RestoreError> {
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(failed(dir))
}

/// Removes a file, or a folder with its content, if there is one.
fn remove(path: &Path) -> Result<(), RestoreError> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RestoreError + use<> {
    let path = path.to_owned();
    move |source| RestoreError::File { path, source }
}
