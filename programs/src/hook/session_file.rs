//! The state files of sessions.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::{HookError, HookSession};

/// Longest session id accepted; it becomes a file name.
const SESSION_BYTES_MAX: usize = 128;

/// The state file of a session.
pub(super) struct SessionFile(PathBuf);

impl SessionFile {
    pub(super) fn of(folder: &Path, session: &str) -> Result<Self, HookError> {
        // The id comes from outside and becomes a file name: no `/` and no `.` can leave the folder.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        if session.is_empty() || session.len() > SESSION_BYTES_MAX || !session.chars().all(plain) {
            return Err(HookError::NoSession);
        }
        Ok(Self(folder.join(format!("{session}.json"))))
    }

    /// Locks the state against other hooks of the session until the file is dropped.
    pub(super) fn lock(&self) -> Result<File, HookError> {
        let file = self.beside("lock")?;
        file.lock().map_err(|error| self.failed(error))?;
        Ok(file)
    }

    /// Locks out other waiters of the session; `None` if there is one.
    pub(super) fn lock_waiter(&self) -> Result<Option<File>, HookError> {
        let file = self.beside("wait")?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(self.failed(error)),
        }
    }

    fn beside(&self, extension: &str) -> Result<File, HookError> {
        let open = || {
            private_folder(self.0.parent().unwrap_or(Path::new(".")))?;
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(self.0.with_extension(extension))
        };
        open().map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> HookError {
        HookError::File { path: self.0.clone(), source }
    }

    pub(super) fn read(&self) -> Result<HookSession, HookError> {
        match fs::read(&self.0) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| self.failed(error.into())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(HookSession::default()),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Replaces the file atomically, through a rename.
    pub(super) fn write(&self, session: &HookSession) -> Result<(), HookError> {
        let bytes = serde_json::to_vec(session).map_err(|error| self.failed(error.into()))?;
        let draft = self.0.with_extension("new");
        let write = || {
            private_folder(self.0.parent().unwrap_or(Path::new(".")))?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&bytes)?;
            fs::rename(&draft, &self.0)
        };
        write().map_err(|error| self.failed(error))
    }
}

/// Makes the folder for the state of sessions, for its user alone.
fn private_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_no_path() {
        for bad in ["", "..", "a/b", "../../etc/passwd", &"x".repeat(200)] {
            assert!(matches!(SessionFile::of(Path::new("/tmp"), bad), Err(HookError::NoSession)), "{bad}");
        }
    }
}
