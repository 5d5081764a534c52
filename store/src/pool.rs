//! Read-only connections to one SQLite file, shared by threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// Idle connections that stay open.
const IDLE_CONNECTIONS_MAX: usize = 8;
/// Page cache of a connection, in KiB. Small, because the system caches the file.
const CACHE_KIB: i64 = 512;
/// Wait for another program that has locked the file.
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// A set of read-only connections that grows with the number of concurrent readers.
#[derive(Clone)]
pub(crate) struct Pool {
    path: Arc<Path>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Pool {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: path.into(), idle: Arc::default() }
    }

    /// Runs `read` on a connection that no other thread uses meanwhile.
    pub(crate) fn with<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let connection = match idle {
            Some(connection) => connection,
            None => open_read_only(&self.path)?,
        };
        let result = read(&connection);
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_CONNECTIONS_MAX {
            idle.push(connection);
        }
        result
    }
}

fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}
