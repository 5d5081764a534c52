//! The small files of a workspace in the registry: keys, tokens, and lists of what no longer counts. The leader writes
//! them, and its successor finds them. They are secret: the registry seals them if it has a key.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use futures_util::future::join_all;
use lastword_broker::checkpoint::FILE_CHECKPOINTS;
use lastword_broker::files::{Copies, Files, write_copy, write_private};
use lastword_broker::identity::{FILE_OPERATOR_TOKEN, FILE_SECRET_KEY};
use lastword_server::backup::{FILE_A2A_PUSH, FILE_NOTIFY, FILE_TELEMETRY, FILES};
use lastword_store::{KEY_FILES, Record, Registry, RegistryError};
use tokio::runtime::Handle;

/// The attempts of a write whose record another leader wrote meanwhile, or whose answer was lost.
const ATTEMPTS: usize = 3;

/// The files of one workspace, as the registry has them.
pub(crate) struct RegistryFiles {
    registry: Registry,
    runtime: Handle,
    workspace: String,
    /// The epoch of the leader that writes them.
    epoch: u64,
    /// The revision of each file that this node read or wrote last; missing where an answer was lost.
    revisions: Mutex<BTreeMap<String, u64>>,
}

pub(super) fn key(workspace: &str, name: &str) -> String {
    format!("{KEY_FILES}{workspace}.{name}")
}

/// Returns the epoch of the leader that wrote a file, and the file.
fn parts(record: &Record) -> Option<(u64, &[u8])> {
    let (epoch, bytes) = record.value.as_deref()?.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*epoch), bytes))
}

fn stored(epoch: u64, bytes: &[u8]) -> Vec<u8> {
    [&epoch.to_le_bytes(), bytes].concat()
}

fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of the files. The key comes last: a directory that has it has the others.
fn names() -> impl Iterator<Item = &'static str> {
    [FILE_NOTIFY, FILE_A2A_PUSH, FILE_TELEMETRY].into_iter().chain(FILES.into_iter().rev())
}

impl RegistryFiles {
    /// Brings the files of `local` in line with the registry's, for the leader of `epoch`.
    ///
    /// # Errors
    /// The registry or the directory can't be read or written.
    pub(crate) async fn open(registry: &Registry, workspace: &str, epoch: u64, local: &Files) -> io::Result<Self> {
        let mut revisions = BTreeMap::new();
        // A human may have moved the token out of the agents' reach.
        let known = local.path(FILE_SECRET_KEY).exists();
        // All at once: callers wait for them where a workspace moves.
        let read_all = names().map(async |name| (name, registry.get(&key(workspace, name)).await));
        for (name, found) in join_all(read_all).await {
            let found = found.map_err(io::Error::other)?;
            let (path, own) = (local.path(name), read(&local.path(name))?);
            let Some(record) = found else {
                // A registry that lost it: the leader's own is the best there is.
                if let Some(own) = own.filter(|_| epoch > 0) {
                    let created = registry.create(&key(workspace, name), &stored(epoch, &own)).await;
                    revisions.insert(name.to_owned(), created.map_err(io::Error::other)?);
                }
                continue;
            };
            let Some((_, value)) = parts(&record) else { continue };
            let moved = known && own.is_none() && name == FILE_OPERATOR_TOKEN;
            if own.as_deref() != Some(value) && !moved {
                // Each leader keeps a checkpoint, so this one is new in nearly every handover, and callers wait.
                let write = if name == FILE_CHECKPOINTS { write_copy } else { write_private };
                write(&path, value)?;
            }
            revisions.insert(name.to_owned(), record.revision);
        }
        let (registry, workspace, runtime) = (registry.clone(), workspace.to_owned(), Handle::current());
        Ok(Self { registry, runtime, workspace, epoch, revisions: Mutex::new(revisions) })
    }

    /// Returns the revision of a file, as this node read or wrote it last; 0 if there is none.
    pub(crate) fn revision(&self, name: &str) -> u64 {
        self.revisions.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied().unwrap_or_default()
    }

    /// Writes a file unless a later leader has written it.
    async fn write(&self, name: &str, bytes: &[u8], mut known: Option<u64>) -> Result<u64, RegistryError> {
        let (key, value) = (key(&self.workspace, name), stored(self.epoch, bytes));
        let mut attempt = 0;
        loop {
            attempt += 1;
            let written = match known {
                Some(revision) => self.registry.replace(&key, &value, revision).await,
                None => self.registry.create(&key, &value).await,
            };
            let Err(error) = written else { return written };
            let found = self.registry.get(&key).await?;
            match found.as_ref().and_then(parts) {
                Some((epoch, _)) if epoch > self.epoch => return Err(error),
                // Its own, whose answer was lost.
                Some((epoch, found)) if epoch == self.epoch && found == bytes => {}
                _ if attempt < ATTEMPTS => {
                    known = found.map(|record| record.revision);
                    continue;
                }
                _ => return Err(error),
            }
            return found.map(|record| record.revision).ok_or(error);
        }
    }
}

/// Returns whether a workspace has its small files: its first leader writes them, the operator's token last. A directory with
/// the keys and without the token would be one from which a human moved it.
///
/// # Errors
/// The registry can't be read.
pub(crate) async fn has_files(registry: &Registry, workspace: &str) -> Result<bool, RegistryError> {
    registry.has_known(&key(workspace, FILE_OPERATOR_TOKEN)).await
}

/// Fetches the small files of a workspace into a data directory.
///
/// # Errors
/// The registry can't be read, or the directory written.
pub async fn fetch_files(registry: &Registry, workspace: &str, dir: &Path) -> io::Result<()> {
    RegistryFiles::open(registry, workspace, 0, &Files::local(dir)).await.map(|_| ())
}

/// Adds the small files of a data directory to the registry, for a workspace that moves in.
///
/// # Errors
/// The registry has other files of a workspace of this name, or the registry or the directory can't be read or written.
pub async fn add_files(registry: &Registry, workspace: &str, dir: &Path) -> io::Result<()> {
    let local = Files::local(dir);
    for name in names() {
        let key = key(workspace, name);
        let Some(own) = read(&local.path(name))? else {
            // Known to be nowhere: a human moved it.
            if name == FILE_OPERATOR_TOKEN && !registry.has_known(&key).await.map_err(io::Error::other)? {
                let revision = registry.create(&key, &[]).await.map_err(io::Error::other)?;
                registry.delete(&key, revision).await.map_err(io::Error::other)?;
            }
            continue;
        };
        match registry.get(&key).await.map_err(io::Error::other)? {
            None => drop(registry.create(&key, &stored(0, &own)).await.map_err(io::Error::other)?),
            Some(record) if parts(&record).is_some_and(|(_, value)| value == own) => {}
            Some(_) => {
                return Err(io::Error::other(format!(
                    "the cluster has another {name} of a workspace {workspace}: choose another name"
                )));
            }
        }
    }
    Ok(())
}

impl Copies for RegistryFiles {
    fn put(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        // The wait for another write, too: it takes as long as NATS does.
        tokio::task::block_in_place(|| {
            // Held over the write: two writes of a file have an order.
            let mut revisions = self.revisions.lock().unwrap_or_else(PoisonError::into_inner);
            let known = revisions.remove(name);
            let revision = self.runtime.block_on(self.write(name, bytes, known)).map_err(io::Error::other)?;
            revisions.insert(name.to_owned(), revision);
            Ok(())
        })
    }
}
