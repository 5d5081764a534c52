//! What the nodes of a cluster know of each other: small records in a bucket of NATS, each replaced only by who has seen
//! the last one.

use std::fmt;
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::kv::{self, CreateErrorKind, Entry, Operation, UpdateErrorKind};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use futures_util::StreamExt as _;
use serde::Serialize;

pub use self::sealing::{KEY_CHARS_MIN, KEY_FILES, KEY_NODES_SECRET, Sealing};
use self::sealing::{is_sealed, is_secret};
use crate::log::jetstream::Nats;

mod sealing;

/// The bucket's name, and that of its stream.
const BUCKET: &str = "LASTWORD";
pub(crate) const STREAM: &str = "KV_LASTWORD";
/// The header of a record that was deleted.
const OPERATION: &str = "KV-Operation";
/// The servers on which what nobody chose otherwise is stored.
const REPLICAS: usize = 3;
/// The wait for an answer of NATS.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Why the registry was not read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// Somebody else wrote the record since it was read; nothing was written.
    #[error("another node wrote {key} meanwhile")]
    Conflict {
        /// The record's key.
        key: String,
    },
    /// A secret can't be opened.
    #[error("{key} in the cluster's registry {reason}")]
    Sealed {
        /// The record's key.
        key: String,
        /// Why not, and what to do.
        reason: &'static str,
    },
    /// NATS doesn't answer, or refuses. A write may have taken place.
    #[error("the cluster's registry: {reason}")]
    Unavailable {
        /// The failure.
        reason: String,
    },
}

/// A record as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its key: letters, digits, `-`, `_` and `.`.
    pub key: String,
    /// Its bytes; `None` if it was deleted.
    pub value: Option<Vec<u8>>,
    /// The number of the write. It grows over all records.
    pub revision: u64,
}

/// A NATS server that should store what the registry has, and doesn't.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lagging {
    /// Its name.
    pub server: String,
    /// Whether the others don't hear it.
    pub offline: bool,
}

impl fmt::Display for Lagging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, offline } = self;
        if *offline {
            return write!(f, "the NATS server {server} is away: start it");
        }
        write!(
            f,
            "the NATS server {server} is up and doesn't store what the others do: NATS turns JetStream off where its disk is \
             full. Make room there, then restart it"
        )
    }
}

/// The registry of a cluster. Clones share the connection.
#[derive(Clone)]
pub struct Registry {
    client: Client,
    bucket: kv::Store,
    sealing: Option<Sealing>,
}

/// The changes to some records of the registry, after those as they are. Secrets stay sealed.
pub struct Watch(kv::Watch);

impl Registry {
    /// Opens the registry, and makes it if it is missing: on this many servers, or on three. Reads and writes are answered by the
    /// leader of its stream alone: a follower's answer may be old.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn open(nats: &Nats, replicas: impl Into<Option<usize>>) -> Result<Self, RegistryError> {
        let context = nats.jetstream();
        let config = Config {
            name: STREAM.to_owned(),
            subjects: vec![format!("$KV.{BUCKET}.>")],
            max_messages_per_subject: 1,
            discard: DiscardPolicy::New,
            storage: StorageType::File,
            num_replicas: replicas.into().unwrap_or(REPLICAS),
            allow_rollup: true,
            deny_delete: true,
            allow_direct: false,
            ..Config::default()
        };
        within(context.get_or_create_stream(config)).await?;
        let bucket = within(context.get_key_value(BUCKET)).await?;
        Ok(Self { client: nats.client().clone(), bucket, sealing: nats.sealing.clone() })
    }

    /// Returns a record; `None` if it is missing or was deleted. A secret that was written before there was a key is sealed.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`] and [`RegistryError::Sealed`].
    pub async fn get(&self, key: &str) -> Result<Option<Record>, RegistryError> {
        loop {
            let found = within(self.bucket.entry(key)).await?.map(record);
            let Some(Record { value: Some(value), revision, .. }) = found else { return Ok(None) };
            let own = |value, revision| Ok(Some(Record { key: key.to_owned(), value: Some(value), revision }));
            if let Some(opened) = self.opened(key, &value)? {
                return own(opened, revision);
            }
            match self.replace(key, &value, revision).await {
                Ok(revision) => return own(value, revision),
                Err(RegistryError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns what a record says; `None` for a secret that has to be sealed first.
    fn opened(&self, key: &str, value: &[u8]) -> Result<Option<Vec<u8>>, RegistryError> {
        let sealed = |reason| Err(RegistryError::Sealed { key: key.to_owned(), reason });
        match &self.sealing {
            _ if !is_secret(key) => Ok(Some(value.to_vec())),
            None if is_sealed(value) => sealed("is sealed: name the file with the cluster's key by --cluster-key"),
            None => Ok(Some(value.to_vec())),
            Some(with) if is_sealed(value) => match with.open(key, value) {
                Some(value) => Ok(Some(value)),
                None => sealed("is sealed with another key than that of --cluster-key"),
            },
            Some(_) => Ok(None),
        }
    }

    /// Returns a value as it is written.
    fn written(&self, key: &str, value: &[u8]) -> Result<Vec<u8>, RegistryError> {
        match self.sealing.as_ref().filter(|_| is_secret(key)) {
            Some(sealing) => sealing.seal(key, value),
            None => Ok(value.to_vec()),
        }
    }

    /// Returns whether there is a record, or was one that was deleted.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn has_known(&self, key: &str) -> Result<bool, RegistryError> {
        within(self.bucket.entry(key)).await.map(|found| found.is_some())
    }

    /// Returns whether the nodes' secret is sealed; `None` before there is one.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn is_sealed(&self) -> Result<Option<bool>, RegistryError> {
        let found = within(self.bucket.entry(KEY_NODES_SECRET)).await?.map(record);
        Ok(found.and_then(|record| record.value).map(|value| is_sealed(&value)))
    }

    /// Returns the number of servers on which the registry is stored.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn replicas(&self) -> Result<usize, RegistryError> {
        within(self.bucket.status()).await.map(|status| status.info.config.num_replicas)
    }

    /// Returns the NATS servers that don't have all of the registry now. Nodes write to it each second, so one that stays among
    /// them stores nothing.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn lagging(&self) -> Result<Vec<Lagging>, RegistryError> {
        // The bucket's own status is that of when it was opened.
        let mut stream = self.bucket.stream.clone();
        let replicas = within(stream.info()).await?.cluster.as_ref().map(|cluster| cluster.replicas.clone());
        let behind = replicas.into_iter().flatten().filter(|replica| replica.offline || !replica.current);
        Ok(behind.map(|replica| Lagging { server: replica.name, offline: replica.offline }).collect())
    }

    /// Writes a record that is missing; returns its revision.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn create(&self, key: &str, value: &[u8]) -> Result<u64, RegistryError> {
        let created = timed(self.bucket.create(key, self.written(key, value)?.into())).await?;
        created.map_err(|error| match error.kind() {
            CreateErrorKind::AlreadyExists => conflict(key),
            CreateErrorKind::InvalidKey | CreateErrorKind::Publish | CreateErrorKind::Ack | CreateErrorKind::Other => {
                unavailable(&error)
            }
        })
    }

    /// Replaces the record of this revision; returns the new one.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn replace(&self, key: &str, value: &[u8], revision: u64) -> Result<u64, RegistryError> {
        let replaced = timed(self.bucket.update(key, self.written(key, value)?.into(), revision)).await?;
        replaced.map_err(|error| match error.kind() {
            UpdateErrorKind::WrongLastRevision => conflict(key),
            UpdateErrorKind::InvalidKey | UpdateErrorKind::TimedOut | UpdateErrorKind::Other => unavailable(&error),
        })
    }

    /// Deletes the record of this revision.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`], also if another node wrote it meanwhile.
    pub async fn delete(&self, key: &str, revision: u64) -> Result<(), RegistryError> {
        within(self.bucket.delete_expect_revision(key, Some(revision))).await
    }

    /// Returns the records whose keys begin with `prefix`, which is empty or ends with a dot: all in one answer, so that
    /// ten thousand take about as long as ten.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn list(&self, prefix: &str) -> Result<Vec<Record>, RegistryError> {
        self.list_all(&[prefix]).await
    }

    /// Returns the records whose keys begin with one of some prefixes, none of which is within another.
    ///
    /// # Errors
    /// See [`RegistryError`].
    pub async fn list_all(&self, prefixes: &[&str]) -> Result<Vec<Record>, RegistryError> {
        let stream = &self.bucket.stream;
        let config = OrderedConfig {
            deliver_subject: self.client.new_inbox(),
            filter_subjects: prefixes.iter().map(|prefix| format!("{}{prefix}>", self.bucket.prefix)).collect(),
            deliver_policy: DeliverPolicy::LastPerSubject,
            ..OrderedConfig::default()
        };
        let consumer = within(stream.create_consumer(config)).await?;
        let mut left = consumer.cached_info().num_pending;
        let mut messages = within(consumer.messages()).await?;
        let mut found = Vec::new();
        while left > 0 {
            let message = timed(messages.next()).await?.transpose().map_err(|error| unavailable(&error))?;
            let ended = || RegistryError::Unavailable { reason: "the records ended early".to_owned() };
            let message = message.ok_or_else(ended)?;
            let info = message.info().map_err(|error| RegistryError::Unavailable { reason: error.to_string() })?;
            left = info.pending;
            let deleted = message.headers.as_ref().and_then(|headers| headers.get(OPERATION)).is_some();
            let Some(key) = message.subject.strip_prefix(&self.bucket.prefix).filter(|_| !deleted) else { continue };
            match self.opened(key, &message.payload)? {
                Some(value) => {
                    found.push(Record { key: key.to_owned(), value: Some(value), revision: info.stream_sequence })
                }
                None => found.extend(self.get(key).await?),
            }
        }
        Ok(found)
    }

    /// Returns the revision of the newest change.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn last_revision(&self) -> Result<u64, RegistryError> {
        let mut stream = self.bucket.stream.clone();
        within(stream.info()).await.map(|info| info.state.last_sequence)
    }

    /// Watches the records whose keys begin with one of some prefixes: all of them as they are, then each change.
    ///
    /// # Errors
    /// [`RegistryError::Unavailable`].
    pub async fn watch(&self, prefixes: &[&str]) -> Result<Watch, RegistryError> {
        let keys = prefixes.iter().map(|prefix| format!("{prefix}>"));
        within(self.bucket.watch_many_with_history(keys)).await.map(Watch)
    }
}

impl Watch {
    /// Waits for the next record or change. `None`: watch anew.
    pub async fn next(&mut self) -> Option<Record> {
        self.0.next().await.and_then(Result::ok).map(record)
    }
}

fn record(entry: Entry) -> Record {
    let value = (entry.operation == Operation::Put).then(|| entry.value.to_vec());
    Record { key: entry.key, value, revision: entry.revision }
}

async fn timed<T>(answer: impl Future<Output = T>) -> Result<T, RegistryError> {
    let late = |_| RegistryError::Unavailable { reason: "NATS doesn't answer".to_owned() };
    tokio::time::timeout(ANSWER_MAX, answer).await.map_err(late)
}

async fn within<T, E: std::error::Error>(answer: impl Future<Output = Result<T, E>>) -> Result<T, RegistryError> {
    timed(answer).await?.map_err(|error| unavailable(&error))
}

fn conflict(key: &str) -> RegistryError {
    RegistryError::Conflict { key: key.to_owned() }
}

fn unavailable(error: &dyn std::error::Error) -> RegistryError {
    RegistryError::Unavailable { reason: error.to_string() }
}
