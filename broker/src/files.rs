//! The small files of a workspace: keys, tokens, and lists of what no longer counts.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the nodes of a cluster find the files of a workspace that another node wrote.
pub trait Copies: Send + Sync {
    /// Stores the content of a file under its name. Blocks until it is durable.
    ///
    /// # Errors
    /// The store can't be reached, or another node has written the file since.
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
}

/// The data directory of a workspace, for its small files. Clones name the same directory.
#[derive(Clone)]
pub struct Files {
    dir: Arc<Path>,
    copies: Option<Arc<dyn Copies>>,
}

impl Files {
    /// Names the files of `dir`, which one server has.
    #[must_use]
    pub fn local(dir: &Path) -> Self {
        Self { dir: dir.into(), copies: None }
    }

    /// Names the files of `dir`, each of which is copied when it is written.
    #[must_use]
    pub fn copied(dir: &Path, copies: Arc<dyn Copies>) -> Self {
        Self { dir: dir.into(), copies: Some(copies) }
    }

    /// Returns the directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of a file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Writes a file as [`write_private`] does. The copy comes first: what this server acts on, its successor knows.
    ///
    /// # Errors
    /// The file can't be copied or written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if let Some(copies) = &self.copies {
            copies.put(name, bytes)?;
        }
        write_private(&self.path(name), bytes)
    }
}

/// Writes a file that only its owner can read (0600), completely or not at all.
///
/// # Errors
/// The file system refuses.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Without the sync, a power cut after the rename could leave an empty file.
    place(path, bytes, File::sync_all)
}

/// Does the same without waiting for the disk: for a copy that is fetched again if it is damaged.
///
/// # Errors
/// The file system refuses.
pub fn write_copy(path: &Path, bytes: &[u8]) -> io::Result<()> {
    place(path, bytes, |_| Ok(()))
}

fn place(path: &Path, bytes: &[u8], sync: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let draft = path.with_extension("new");
    // A file left there may have another mode, which opening it keeps.
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    sync(&file)?;
    fs::rename(&draft, path)
}
