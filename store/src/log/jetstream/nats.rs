//! The connection to NATS, and the few requests that a log needs.

use std::sync::Arc;
use std::time::Duration;

use async_nats::connection::State;
use async_nats::jetstream::consumer::DeliverPolicy;
use async_nats::jetstream::consumer::push::OrderedConfig;
use async_nats::jetstream::context::{DeleteStreamErrorKind, GetStreamErrorKind};
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, Info, LastRawMessageErrorKind, RawMessageError, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{self, ErrorCode};
use async_nats::{Client, Event, HeaderMap, Request, RequestErrorKind, header};
use futures_util::stream::FuturesUnordered;
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::watch;

use super::address::Servers;
use super::news::News;
use super::options::{NatsOptions, first, is_refusal};
use super::record::{MESSAGE_BYTES_MAX, PART_BYTES_MAX, SetAside};
use super::tail::Subject;
use crate::registry::{self, Sealing};

/// The wait for an answer of the server. Longer than a slow disk's sync, shorter than an election.
const REQUEST: Duration = Duration::from_secs(2);
/// The pause before a server that doesn't answer yet is asked once more: what it was asked before an election, it forgets.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The wait for a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// The interval of pings. Two that are unanswered end the connection, so that another server is tried.
const PING: Duration = Duration::from_secs(1);
/// The longest pause between two attempts to connect.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// Room for the headers and the subject beside a message's bytes.
const HEADERS_BYTES_MAX: usize = 4 << 10;
/// What a message takes in the stream besides the bytes of its part, at most: its head, its headers and its record.
const MESSAGE_ROOM: usize = 1 << 10;
/// What the name of each stream begins with.
const STREAM: &str = "LASTWORD_";
/// The header with the subject to which the expected last subject sequence refers.
const EXPECTED_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence-Subject";
/// The longest name of a workspace, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// Why NATS can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsError {
    /// No server can be reached.
    #[error("can't connect to NATS at {servers}: {reason}")]
    Connect {
        /// The servers, without passwords.
        servers: String,
        /// The failure.
        reason: String,
    },
    /// A server doesn't accept this client, or this client doesn't accept it. Trying again is of no use.
    #[error("NATS at {servers} and this client don't accept each other: {reason}")]
    Refused {
        /// The servers, without passwords.
        servers: String,
        /// The failure.
        reason: String,
    },
    /// A file of the options can't be read.
    #[error("{place}: {reason}")]
    File {
        /// The file.
        place: String,
        /// The failure.
        reason: String,
    },
    /// The server accepts messages up to a length that is too short.
    #[error("the NATS server accepts messages up to {found} bytes: set its max_payload to {needed} at least")]
    Payload {
        /// The server's `max_payload`.
        found: usize,
        /// The least that is needed.
        needed: usize,
    },
    /// A workspace can't have this name.
    #[error("{name:?} can't be a workspace's name: 1 to 32 of a-z, 0-9 and -")]
    Name {
        /// The name.
        name: String,
    },
    /// There is no stream of the workspace.
    #[error("the workspace {workspace} has no stream in NATS: create it first")]
    Missing {
        /// The workspace.
        workspace: String,
    },
    /// A stream of this name is there, and can't hold a log.
    #[error("the stream {stream} has {found}: a log needs {needed}")]
    Config {
        /// The stream.
        stream: String,
        /// The setting that doesn't fit.
        found: String,
        /// The setting that is needed.
        needed: String,
    },
    /// The server doesn't answer, or refuses. Try again later.
    #[error("NATS: {reason}")]
    Unavailable {
        /// The failure.
        reason: String,
    },
}

/// A connection to NATS, which reconnects. Clones share it.
#[derive(Clone, Debug)]
pub struct Nats {
    client: Client,
    jetstream: jetstream::Context,
    /// Grows with each connection to a server.
    connects: watch::Receiver<u64>,
    /// Where the connection's tasks run, for callers on other threads.
    pub(crate) runtime: Handle,
    pub(crate) sealing: Option<Sealing>,
}

/// The names of a workspace's stream and subjects.
#[derive(Clone, Debug)]
pub(crate) struct StreamNames {
    pub(crate) workspace: String,
    pub(crate) stream: String,
    pub(crate) log: String,
    pub(crate) epoch: String,
}

impl StreamNames {
    /// # Errors
    /// The workspace can't have this name.
    pub(crate) fn of(workspace: &str) -> Result<Self, NatsError> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if workspace.is_empty() || workspace.len() > NAME_BYTES_MAX || !workspace.bytes().all(fits) {
            return Err(NatsError::Name { name: workspace.to_owned() });
        }
        Ok(Self {
            workspace: workspace.to_owned(),
            stream: format!("{STREAM}{workspace}"),
            log: format!("lastword.{workspace}.log"),
            epoch: format!("lastword.{workspace}.epoch"),
        })
    }

    /// Returns which of the workspace's subjects this is.
    pub(crate) fn subject(&self, subject: &str) -> Option<Subject> {
        if subject == self.log {
            Some(Subject::Log)
        } else if subject == self.epoch {
            Some(Subject::Epoch)
        } else {
            None
        }
    }
}

/// A message of the stream, as its leader has it.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) at: u64,
    pub(crate) subject: String,
    pub(crate) payload: Vec<u8>,
}

/// The extent of a stream, as its leader knows it.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// When it was made: another stream of the same name has another time.
    pub(crate) created: String,
    /// The sequence of its first message.
    pub(crate) first: u64,
    /// The sequence of its last message; 0 for an empty one.
    pub(crate) last: u64,
    /// Whether messages left it for the archive.
    pub(crate) purged: bool,
}

/// The servers that store a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copies {
    /// The number of servers that should store it.
    pub wanted: usize,
    /// The number of those that have all of it.
    pub current: usize,
    /// The bytes of the stream.
    pub bytes: u64,
    /// The most that it may have; `None` without a limit.
    pub bytes_max: Option<u64>,
}

/// What a publish expects of the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expect<'a> {
    /// The sequence of the stream's last message; `None` for any.
    pub(crate) last: Option<u64>,
    /// The sequence of the last message of a subject.
    pub(crate) of: (&'a str, u64),
}

/// Why a publish wasn't acknowledged.
#[derive(Clone, Debug)]
pub(crate) enum PublishError {
    /// The stream has other last messages than expected. This attempt wrote nothing.
    Expected(String),
    /// The stream, its account or its server is full. This attempt wrote nothing.
    Full(String),
    /// The message can never be stored. This attempt wrote nothing.
    Never(String),
    /// Unknown whether it was written.
    Unknown(String),
}

/// An answer to a publish: the sequence, or an error.
#[derive(Deserialize)]
struct PublishAnswer {
    seq: Option<u64>,
    error: Option<jetstream::Error>,
}

impl Nats {
    /// Connects to one of the servers. The connection's tasks run on the runtime from which this is called.
    ///
    /// # Errors
    /// [`NatsError::Connect`], [`NatsError::Refused`], [`NatsError::File`] and [`NatsError::Payload`].
    pub async fn connect(options: NatsOptions) -> Result<Self, NatsError> {
        let shown = options.shown();
        let refused = |reason: String| NatsError::Refused { servers: shown.clone(), reason };
        let servers = Arc::new(Servers::parse(&options.servers).map_err(refused)?);
        let (connected, connects) = watch::channel(0);
        let connecting = options
            .connecting(&servers)
            .await?
            .name("lastword")
            .event_callback(move |event| {
                if matches!(event, Event::Connected) {
                    connected.send_modify(|connects| *connects += 1);
                }
                std::future::ready(())
            })
            .connection_timeout(CONNECT)
            .ping_interval(PING)
            .request_timeout(Some(REQUEST))
            .reconnect_delay_callback(|attempts| {
                let attempts = u32::try_from(attempts.saturating_sub(1)).unwrap_or(u32::MAX);
                RECONNECT_MAX.min(Duration::from_millis(50).saturating_mul(attempts))
            });
        let client = first(&servers, connecting).await.map_err(|error| {
            let reason = error.to_string();
            if is_refusal(&error) { refused(reason) } else { NatsError::Connect { servers: shown.clone(), reason } }
        })?;
        let (found, needed) = (client.max_payload(), MESSAGE_BYTES_MAX + HEADERS_BYTES_MAX);
        if found < needed {
            return Err(NatsError::Payload { found, needed });
        }
        let mut jetstream = jetstream::new(client.clone());
        jetstream.set_timeout(REQUEST);
        Ok(Self { client, jetstream, connects, runtime: Handle::current(), sealing: options.sealing })
    }

    /// Returns the connection, for what isn't a log.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the JetStream of the connection, for what isn't a log.
    #[must_use]
    pub const fn jetstream(&self) -> &jetstream::Context {
        &self.jetstream
    }

    /// Waits until the servers have elected those that answer for the registry and for this workspace, or know of neither.
    ///
    /// # Errors
    /// [`NatsError::Unavailable`]: nobody answers for a while. The name is no workspace's.
    pub async fn ready(&self, workspace: &str) -> Result<(), NatsError> {
        for stream in [registry::STREAM, StreamNames::of(workspace)?.stream.as_str()] {
            let mut asked = FuturesUnordered::new();
            let answer = loop {
                asked.push(self.jetstream.get_stream(stream));
                tokio::select! {
                    Some(answer) = asked.next() => break answer,
                    () = tokio::time::sleep(ASK_AGAIN) => {}
                }
            };
            let missing = |error: GetStreamErrorKind| {
                matches!(error, GetStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
            };
            if let Some(error) = answer.err().filter(|error| !missing(error.kind())) {
                return Err(NatsError::Unavailable { reason: error.to_string() });
            }
        }
        Ok(())
    }

    /// Creates the stream of a workspace with that many replicas: 3 in a cluster, 1 on a single server. Leaves one that is
    /// there as it is.
    ///
    /// # Errors
    /// The name is no workspace's, a stream of this name can't hold a log, or NATS refuses.
    pub async fn create_stream(&self, workspace: &str, replicas: usize) -> Result<(), NatsError> {
        let names = StreamNames::of(workspace)?;
        match self.info(&names).await {
            Ok(info) => return check(&info.config, &names),
            Err(NatsError::Missing { .. }) => {}
            Err(error) => return Err(error),
        }
        match self.jetstream.create_stream(config(&names, replicas)).await {
            Ok(_) => Ok(()),
            // Another node may have created it meanwhile.
            Err(error) => match self.info(&names).await {
                Ok(info) => check(&info.config, &names),
                Err(_) => Err(NatsError::Unavailable { reason: format!("{} can't be created: {error}", names.stream) }),
            },
        }
    }

    /// Returns the workspaces that have a stream, in alphabetical order.
    ///
    /// # Errors
    /// [`NatsError::Unavailable`].
    pub async fn streams(&self) -> Result<Vec<String>, NatsError> {
        let names = self.jetstream.stream_names().try_collect::<Vec<_>>().await;
        let names = names.map_err(|error| NatsError::Unavailable { reason: error.to_string() })?;
        let workspace = |name: String| name.strip_prefix(STREAM).map(str::to_owned);
        let mut found: Vec<_> =
            names.into_iter().filter_map(workspace).filter(|ws| StreamNames::of(ws).is_ok()).collect();
        found.sort_unstable();
        Ok(found)
    }

    /// Returns what tells the stream of a workspace from another one of the same name: when it was made.
    ///
    /// # Errors
    /// The name is no workspace's, it has no stream, or NATS doesn't answer.
    pub async fn stream_id(&self, workspace: &str) -> Result<String, NatsError> {
        self.info(&StreamNames::of(workspace)?).await.map(|info| info.created.to_string())
    }

    /// Returns how many servers store the stream of a workspace, and how many of them are up to date.
    ///
    /// # Errors
    /// The name is no workspace's, it has no stream, or NATS doesn't answer.
    pub async fn copies(&self, workspace: &str) -> Result<Copies, NatsError> {
        let info = self.info(&StreamNames::of(workspace)?).await?;
        let followers = info
            .cluster
            .as_ref()
            .map_or(0, |cluster| cluster.replicas.iter().filter(|replica| replica.current && !replica.offline).count());
        let leads = info.cluster.as_ref().is_none_or(|cluster| cluster.leader.is_some());
        Ok(Copies {
            wanted: info.config.num_replicas,
            current: followers + usize::from(leads),
            bytes: info.state.bytes,
            bytes_max: u64::try_from(info.config.max_bytes).ok(),
        })
    }

    /// Removes the stream of a workspace, and what left it. One that isn't there is no error.
    ///
    /// # Errors
    /// The name is no workspace's, or NATS refuses.
    pub async fn remove_stream(&self, workspace: &str) -> Result<(), NatsError> {
        let names = StreamNames::of(workspace)?;
        for name in [format!("OBJ_{}", names.stream), names.stream] {
            let Err(error) = self.jetstream.delete_stream(&name).await else { continue };
            let missing = matches!(error.kind(), DeleteStreamErrorKind::JetStream(error)
                if error.error_code() == ErrorCode::STREAM_NOT_FOUND);
            if !missing {
                return Err(NatsError::Unavailable { reason: format!("{name} can't be removed: {error}") });
            }
        }
        Ok(())
    }

    async fn info(&self, names: &StreamNames) -> Result<Info, NatsError> {
        let stream = self.jetstream.get_stream(&names.stream).await.map_err(|error| match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                NatsError::Missing { workspace: names.workspace.clone() }
            }
            GetStreamErrorKind::EmptyName
            | GetStreamErrorKind::Request
            | GetStreamErrorKind::InvalidStreamName
            | GetStreamErrorKind::JetStream(_) => NatsError::Unavailable { reason: error.to_string() },
        })?;
        Ok(stream.cached_info().clone())
    }

    /// Returns the extent of the workspace's stream, as its leader knows it.
    pub(crate) async fn extent(&self, names: &StreamNames) -> Result<Extent, NatsError> {
        let info = self.info(names).await?;
        check(&info.config, names)?;
        let (first, last) = (info.state.first_sequence, info.state.last_sequence);
        Ok(Extent { created: info.created.to_string(), first, last, purged: info.state.messages < last })
    }

    /// Returns the number of servers on which the workspace's stream is stored.
    pub(crate) async fn replicas(&self, names: &StreamNames) -> Result<usize, NatsError> {
        Ok(self.info(names).await?.config.num_replicas)
    }

    /// Returns a message of a workspace's stream for a human to look at, with what sets it aside; `None` if there is none.
    ///
    /// # Errors
    /// The name is no workspace's, it has no stream, or NATS doesn't answer.
    pub async fn set_aside(&self, workspace: &str, at: u64) -> Result<Option<(SetAside, Vec<u8>)>, NatsError> {
        let names = StreamNames::of(workspace)?;
        let stream_id = self.info(&names).await?.created.to_string();
        let Some(message) = self.message(&names, at).await? else { return Ok(None) };
        let sha256 = Sha256::digest(&message.payload).into();
        Ok(Some((SetAside { stream_id, at, sha256 }, message.payload)))
    }

    /// Raises the limits of a stream that is full by what a commit of this length takes. Returns whether it has any.
    pub(crate) async fn raise_limits(&self, names: &StreamNames, bytes: usize) -> Result<bool, NatsError> {
        let Info { config, state, .. } = self.info(names).await?;
        let parts = bytes.div_ceil(PART_BYTES_MAX);
        let bytes = state.bytes + (bytes + parts * MESSAGE_ROOM) as u64;
        let raised = |limit: i64, needed: u64| if limit < 0 { limit } else { limit.max(needed.cast_signed()) };
        let max_bytes = raised(config.max_bytes, bytes);
        let max_messages = raised(config.max_messages, state.messages + parts as u64);
        if (max_bytes, max_messages) == (config.max_bytes, config.max_messages) {
            return Ok(false);
        }
        let updated = self.jetstream.update_stream(Config { max_bytes, max_messages, ..config }).await;
        updated.map(|_| true).map_err(|error| NatsError::Unavailable { reason: error.to_string() })
    }

    /// Removes the parts of commits up to the message `upto`. Starts of epochs stay.
    pub(crate) async fn purge(&self, names: &StreamNames, upto: u64) -> Result<(), NatsError> {
        let unavailable = |reason: String| NatsError::Unavailable { reason };
        let stream = self.jetstream.get_stream_no_info(&names.stream).await;
        let stream = stream.map_err(|error| unavailable(error.to_string()))?;
        let purged = stream.purge().filter(&names.log).sequence(upto + 1).await;
        purged.map(|_| ()).map_err(|error| unavailable(error.to_string()))
    }

    /// Returns a message, as the stream's leader has it; `None` if it has none there.
    pub(crate) async fn message(&self, names: &StreamNames, at: u64) -> Result<Option<Stored>, NatsError> {
        let stream = self.jetstream.get_stream_no_info(&names.stream).await;
        let stream = stream.map_err(|error| NatsError::Unavailable { reason: error.to_string() })?;
        found(stream.get_raw_message(at).await)
    }

    /// Returns the last message of the epoch subject, as the stream's leader has it.
    pub(crate) async fn last_epoch(&self, names: &StreamNames) -> Result<Option<Stored>, NatsError> {
        let stream = self.jetstream.get_stream_no_info(&names.stream).await;
        let stream = stream.map_err(|error| NatsError::Unavailable { reason: error.to_string() })?;
        found(stream.get_last_raw_message_by_subject(&names.epoch).await)
    }

    /// Returns the messages behind `at`, in order, and how many there are; the stream goes on with those that are yet to
    /// come.
    pub(super) async fn messages(&self, names: &StreamNames, at: u64) -> Result<(News, u64), NatsError> {
        let unavailable = |reason: String| NatsError::Unavailable { reason };
        // The client queues requests while it is disconnected; the servers would get them after their timeout.
        if self.client.connection_state() != State::Connected {
            return Err(unavailable("no connection to a server".to_owned()));
        }
        let created = tokio::time::timeout(REQUEST, self.consumer(names, at)).await;
        created.map_err(|_| unavailable("no server creates a consumer".to_owned()))?
    }

    async fn consumer(&self, names: &StreamNames, at: u64) -> Result<(News, u64), NatsError> {
        let unavailable = |reason: String| NatsError::Unavailable { reason };
        let mut connects = self.connects.clone();
        connects.mark_unchanged();
        let stream = self.jetstream.get_stream_no_info(&names.stream).await;
        let stream = stream.map_err(|error| unavailable(error.to_string()))?;
        let deliver_subject = self.client.new_inbox();
        let subscriber = self.client.subscribe(deliver_subject.clone()).await;
        let subscriber = subscriber.map_err(|error| unavailable(error.to_string()))?;
        // Without a name it gets one that no earlier consumer has.
        let config = OrderedConfig {
            deliver_subject,
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: at + 1 },
            ..OrderedConfig::default()
        };
        let consumer = stream.create_consumer(config).await.map_err(|error| unavailable(error.to_string()))?;
        let pending = consumer.cached_info().num_pending;
        Ok((News::new(subscriber, self.jetstream.clone(), connects), pending))
    }

    /// Publishes a message and waits for the acknowledgement; returns its sequence.
    pub(crate) async fn publish(
        &self,
        subject: &str,
        expect: Expect<'_>,
        payload: Vec<u8>,
    ) -> Result<u64, PublishError> {
        let mut headers = HeaderMap::new();
        if let Some(last) = expect.last {
            headers.insert(header::NATS_EXPECTED_LAST_SEQUENCE, last.to_string());
        }
        headers.insert(header::NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, expect.of.1.to_string());
        headers.insert(EXPECTED_SUBJECT, expect.of.0);
        let request = Request::new().headers(headers).payload(payload.into());
        let answer =
            self.client.send_request(subject.to_owned(), request).await.map_err(|error| match error.kind() {
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    PublishError::Never(error.to_string())
                }
                RequestErrorKind::TimedOut | RequestErrorKind::NoResponders | RequestErrorKind::Other => {
                    PublishError::Unknown(error.to_string())
                }
            })?;
        let answer: PublishAnswer = serde_json::from_slice(&answer.payload)
            .map_err(|error| PublishError::Unknown(format!("the acknowledgement can't be read: {error}")))?;
        match answer {
            PublishAnswer { error: Some(error), .. } => Err(refused(&error)),
            PublishAnswer { seq: Some(seq), .. } => Ok(seq),
            PublishAnswer { .. } => Err(PublishError::Unknown("the acknowledgement has no sequence".to_owned())),
        }
    }
}

/// Classifies an error of the server by its code.
fn refused(error: &jetstream::Error) -> PublishError {
    let reason = error.to_string();
    match error.error_code().0 {
        // Wrong last sequence, of the stream or of the subject; with or without the sequence found.
        10071 | 10164 => PublishError::Expected(reason),
        // Resources of the account, the server, or the storage.
        10002 | 10023 | 10028 | 10047 => PublishError::Full(reason),
        // The store failed. Its limits are checked before anything is written; a disk may fail on one replica alone.
        10077 if reason.contains("maximum") => PublishError::Full(reason),
        // The message is longer than the stream or the server accepts.
        10054 | 10097 => PublishError::Never(reason),
        _ => PublishError::Unknown(reason),
    }
}

fn found(got: Result<jetstream::message::StreamMessage, RawMessageError>) -> Result<Option<Stored>, NatsError> {
    match got {
        Ok(message) => Ok(Some(Stored {
            at: message.sequence,
            subject: message.subject.to_string(),
            payload: message.payload.to_vec(),
        })),
        Err(error) => match error.kind() {
            LastRawMessageErrorKind::NoMessageFound => Ok(None),
            LastRawMessageErrorKind::InvalidSubject
            | LastRawMessageErrorKind::JetStream(_)
            | LastRawMessageErrorKind::Other => Err(NatsError::Unavailable { reason: error.to_string() }),
        },
    }
}

/// The stream of a workspace.
fn config(names: &StreamNames, replicas: usize) -> Config {
    Config {
        name: names.stream.clone(),
        description: Some("The log of a Lastword workspace".to_owned()),
        subjects: vec![names.log.clone(), names.epoch.clone()],
        retention: RetentionPolicy::Limits,
        max_bytes: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        storage: StorageType::File,
        discard: DiscardPolicy::New,
        num_replicas: replicas,
        // A direct get is answered by followers too, which may lag.
        allow_direct: false,
        ..Config::default()
    }
}

/// Refuses a stream from which messages may disappear, or whose subjects are others.
fn check(found: &Config, names: &StreamNames) -> Result<(), NatsError> {
    let mut subjects = found.subjects.clone();
    subjects.sort_unstable();
    let refuse = |found: String, needed: String| Err(NatsError::Config { stream: names.stream.clone(), found, needed });
    if subjects != [names.epoch.clone(), names.log.clone()] {
        return refuse(format!("the subjects {}", subjects.join(", ")), format!("{}, {}", names.epoch, names.log));
    }
    if found.retention != RetentionPolicy::Limits || found.max_age > Duration::ZERO {
        return refuse(
            "messages that expire or are taken".to_owned(),
            "retention by limits, and no max_age".to_owned(),
        );
    }
    if found.discard != DiscardPolicy::New || found.max_messages_per_subject > 0 {
        return refuse("old messages discarded for new ones".to_owned(), "discard new".to_owned());
    }
    if found.storage != StorageType::File {
        return refuse("memory storage".to_owned(), "file storage".to_owned());
    }
    Ok(())
}
