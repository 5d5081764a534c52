//! Read-only connections to one SQLite file, shared by threads.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

/// The most connections. They stay open: SQLite keeps the descriptor of a closed connection while another one reads.
const CONNECTIONS_MAX: usize = 16;
/// Page cache of a connection, in KiB. Small, because the system caches the file.
const CACHE_KIB: i64 = 512;
/// Wait for another program that has locked the file.
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// A set of read-only connections that grows with the number of concurrent readers, up to [`CONNECTIONS_MAX`]; a further
/// reader waits.
#[derive(Clone)]
pub(crate) struct Pool {
    path: Arc<Path>,
    shared: Arc<(Mutex<Connections>, Condvar)>,
}

#[derive(Default)]
struct Connections {
    idle: Vec<Connection>,
    open: usize,
}

/// A connection's place in the pool; dropping it gives the connection back, or its place if there is none.
struct Taken<'a> {
    pool: &'a Pool,
    connection: Option<Connection>,
}

impl Pool {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path: path.into(), shared: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Connections> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> rusqlite::Result<Taken<'_>> {
        let full = |connections: &mut Connections| connections.idle.is_empty() && connections.open >= CONNECTIONS_MAX;
        let mut connections = self.shared.1.wait_while(self.lock(), full).unwrap_or_else(PoisonError::into_inner);
        if let Some(connection) = connections.idle.pop() {
            return Ok(Taken { pool: self, connection: Some(connection) });
        }
        connections.open += 1;
        drop(connections);
        let mut taken = Taken { pool: self, connection: None };
        taken.connection = Some(open_read_only(&self.path)?);
        Ok(taken)
    }

    /// Runs `read` on a connection that no other thread uses meanwhile.
    pub(crate) fn with<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let taken = self.take()?;
        match &taken.connection {
            Some(connection) => read(connection),
            None => Err(rusqlite::Error::InvalidQuery.into()),
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut connections = self.pool.lock();
        match self.connection.take() {
            Some(connection) => connections.idle.push(connection),
            None => connections.open -= 1,
        }
        drop(connections);
        self.pool.shared.1.notify_one();
    }
}

fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    let connection =
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    Ok(connection)
}
