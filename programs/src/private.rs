//! Folders for secrets that a program which is started reads from a file.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file that is locked while the folder is in use, and its name until then.
const LOCK: &str = "lock";
const LOCK_DRAFT: &str = "lock.new";
/// Most folders of one process.
const FOLDERS_MAX: u32 = 1_000;

/// A folder that only its user can read, removed when it is dropped. That of a process that was killed is removed when
/// the next one is made beside it.
#[derive(Debug)]
pub struct PrivateFolder {
    path: PathBuf,
    /// Held while the folder is in use.
    _lock: File,
}

impl PrivateFolder {
    /// Makes a folder in `parent` whose name begins with `prefix`, and removes those of processes that are gone.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn make(parent: &Path, prefix: &str) -> io::Result<Self> {
        remove_abandoned(parent, prefix);
        for n in 0..FOLDERS_MAX {
            let path = parent.join(format!("{prefix}{}-{n}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    let lock = write_new(&path.join(LOCK_DRAFT), "")?;
                    lock.try_lock()?;
                    // The lock comes into sight as one that is held, so that no other process takes the folder for
                    // an abandoned one.
                    fs::rename(path.join(LOCK_DRAFT), path.join(LOCK))?;
                    return Ok(Self { path, _lock: lock });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other(format!("{FOLDERS_MAX} folders {prefix}* are there")))
    }

    /// Returns its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a new file that only the user can read, and returns its path.
    ///
    /// # Errors
    /// The file can't be written, or is there.
    pub fn write(&self, name: &str, text: &str) -> io::Result<PathBuf> {
        let file = self.path.join(name);
        write_new(&file, text)?;
        Ok(file)
    }
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        // What is left is removed with the abandoned ones.
        let _removed = fs::remove_dir_all(&self.path);
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<File> {
    use std::io::Write as _;
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// Removes this user's folders whose lock nobody holds. One that can't be removed does no harm to the new one.
fn remove_abandoned(parent: &Path, prefix: &str) {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        // Of the entry itself, so that a link to elsewhere is none of ours.
        let ours = |found: &fs::Metadata| found.is_dir() && found.uid() == user;
        if !name.as_encoded_bytes().starts_with(prefix.as_bytes())
            || !fs::symlink_metadata(&path).is_ok_and(|found| ours(&found))
        {
            continue;
        }
        if let Ok(lock) = File::open(path.join(LOCK))
            && lock.try_lock().is_ok()
        {
            let _removed = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_folder_is_the_users_alone_and_an_abandoned_one_goes_when_the_next_is_made() {
        let parent = std::env::temp_dir().join(format!("lastword-test-{}", std::process::id()));
        fs::create_dir_all(&parent).unwrap();
        let used = PrivateFolder::make(&parent, "x-").unwrap();
        let secret = used.write("token", "s3cret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(used.path()), mode(&secret)), (0o700, 0o600));
        let abandoned = parent.join("x-1-7");
        fs::create_dir(&abandoned).unwrap();
        fs::write(abandoned.join(LOCK), "").unwrap();
        let other = parent.join("y-1-7");
        fs::create_dir(&other).unwrap();
        fs::write(other.join(LOCK), "").unwrap();
        let next = PrivateFolder::make(&parent, "x-").unwrap();
        assert!(!abandoned.exists() && other.exists() && secret.exists() && next.path().exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
        drop(next);
        fs::remove_dir_all(&parent).unwrap();
    }
}
