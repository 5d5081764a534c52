//! The archive of a workspace's log: what left the stream, where every node finds it.
//!
//! ```text
//!   bucket  LASTWORD_<ws>   1-800.segment   801-1500.segment   start-…1500-…97
//!   stream  LASTWORD_<ws>   (purged)                     mark 97 ── … ──► last
//! ```
//!
//! - A leader seals segments of its mirror, as any log does. [`Archive::publish`] then stores their files in the bucket
//!   with a **start**: the segments, the base, and a mark of the stream from behind which a node reads on. Each object is
//!   read back.
//! - Two starts are kept. The stream is purged up to the mark of the older one, so the newer one may be lost. Starts of
//!   epochs stay: an append states the sequence of its own.
//! - A start holds only what was acknowledged. So one of a leader that was replaced is as good as any other, and of
//!   several the one that ends last counts.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::object_store::{GetErrorKind, ObjectStore};
use async_nats::jetstream::stream::{Config, DiscardPolicy, StorageType};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use futures_util::TryStreamExt as _;
use lastword_facts::{Entry, Seq};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;

use super::file::{Mark, newest_mark, remove_marks};
use super::nats::{Nats, NatsError, StreamNames};
use crate::data_dir::{FILE_BASE, FILE_DATABASE};
use crate::log::sqlite_archive::{self, Sealed, SqliteArchive};
use crate::log::{Archive, ArchiveError, Base, Segment, SnapshotError, snapshot, sqlite};
use crate::pool::Pool;

/// What the name of a start begins with.
const START: &str = "start-";
const MAGIC: &[u8; 8] = b"LWstart1";
/// The starts that are kept.
const STARTS_KEPT: usize = 2;
/// Attempts to publish, and the pause between two: NATS may be electing, or a server behind.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(500);
/// The time in which an object is stored or read.
const OBJECT_MAX: Duration = Duration::from_secs(120);

/// Where a node begins that lacks what left the stream.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Start {
    /// The stream, by the time when it was made.
    pub(crate) stream_id: String,
    /// The place in the stream from behind which to read on; not behind the last segment.
    pub(crate) mark: Mark,
    /// What left the log, oldest first.
    pub(crate) segments: Vec<Sealed>,
    /// The file of the base.
    pub(crate) base: Vec<u8>,
}

/// A start in the bucket, as its name tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kept {
    /// The last position in its segments.
    pub(crate) end: Seq,
    /// The sequence of its mark.
    pub(crate) mark: u64,
}

impl Kept {
    fn name(&self) -> String {
        format!("{START}{:020}-{:020}", self.end.0, self.mark)
    }

    fn parse(name: &str) -> Option<Self> {
        let (end, mark) = name.strip_prefix(START)?.split_once('-')?;
        Some(Self { end: Seq(end.parse().ok()?), mark: mark.parse().ok()? })
    }
}

impl Start {
    fn kept(&self) -> Kept {
        Kept { end: self.end(), mark: self.mark.at }
    }

    /// The last position in its segments.
    pub(crate) fn end(&self) -> Seq {
        self.segments.last().map_or(Seq(0), |last| Seq(last.last))
    }

    /// The position of its base; `None` if another version wrote it.
    pub(crate) fn base_at(&self) -> Option<Seq> {
        snapshot::position_of(&self.base)
    }

    fn bytes(&self) -> Result<Vec<u8>, String> {
        let plain = postcard::to_allocvec(self).map_err(|error| error.to_string())?;
        let mut packed = GzEncoder::new(MAGIC.to_vec(), Compression::fast());
        packed.write_all(&plain).and_then(|()| packed.finish()).map_err(|error| error.to_string())
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut plain = Vec::new();
        GzDecoder::new(bytes.strip_prefix(MAGIC)?).read_to_end(&mut plain).ok()?;
        postcard::from_bytes(&plain).ok()
    }
}

/// The objects of a workspace.
pub(crate) struct Bucket(ObjectStore);

impl Bucket {
    /// Returns the bucket of a workspace; `None` if nothing ever left its log.
    pub(crate) async fn open(nats: &Nats, names: &StreamNames) -> Result<Option<Self>, NatsError> {
        match nats.jetstream().get_stream(format!("OBJ_{}", names.stream)).await {
            Ok(_) => {}
            Err(error) => match error.kind() {
                GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                    return Ok(None);
                }
                GetStreamErrorKind::EmptyName
                | GetStreamErrorKind::Request
                | GetStreamErrorKind::InvalidStreamName
                | GetStreamErrorKind::JetStream(_) => return Err(unavailable(&error)),
            },
        }
        nats.jetstream()
            .get_object_store(&names.stream)
            .await
            .map(|found| Some(Self(found)))
            .map_err(|e| unavailable(&e))
    }

    async fn open_or_create(nats: &Nats, names: &StreamNames) -> Result<Self, NatsError> {
        if let Some(found) = Self::open(nats, names).await? {
            return Ok(found);
        }
        // As a client's library makes it, but for direct reads: a follower answers them, which may lag.
        let bucket = &names.stream;
        let config = Config {
            name: format!("OBJ_{bucket}"),
            description: Some("What left the log of a Lastword workspace".to_owned()),
            subjects: vec![format!("$O.{bucket}.C.>"), format!("$O.{bucket}.M.>")],
            storage: StorageType::File,
            discard: DiscardPolicy::New,
            num_replicas: nats.replicas(names).await?,
            allow_rollup: true,
            allow_direct: false,
            ..Config::default()
        };
        nats.jetstream().get_or_create_stream(config).await.map_err(|error| unavailable(&error))?;
        Self::open(nats, names).await?.ok_or_else(|| NatsError::Unavailable { reason: "no bucket".to_owned() })
    }

    async fn names(&self) -> Result<Vec<String>, NatsError> {
        let listed = async {
            let objects = self.0.list().await.map_err(|error| unavailable(&error))?;
            let objects: Vec<_> = objects.try_collect().await.map_err(|error| unavailable(&error))?;
            Ok(objects.into_iter().map(|object| object.name).collect())
        };
        timed(listed).await
    }

    /// Returns an object; `None` if it isn't there. A damaged one is an error: its digest is compared.
    async fn get(&self, name: &str) -> Result<Option<Vec<u8>>, NatsError> {
        let got = async {
            let mut object = match self.0.get(name).await {
                Ok(object) => object,
                Err(error) if matches!(error.kind(), GetErrorKind::NotFound) => return Ok(None),
                Err(error) => return Err(unavailable(&error)),
            };
            let mut bytes = Vec::new();
            object.read_to_end(&mut bytes).await.map_err(|error| unavailable(&error))?;
            Ok(Some(bytes))
        };
        timed(got).await
    }

    /// Stores an object and reads it back.
    async fn put(&self, name: &str, bytes: &[u8]) -> Result<(), NatsError> {
        let put = async { self.0.put(name, &mut &*bytes).await.map_err(|error| unavailable(&error)) };
        timed(put).await?;
        if self.get(name).await?.is_some_and(|found| found == bytes) {
            return Ok(());
        }
        Err(NatsError::Unavailable { reason: format!("the object {name} isn't what was stored") })
    }

    async fn delete(&self, name: &str) -> Result<(), NatsError> {
        timed(async { self.0.delete(name).await.map_err(|error| unavailable(&error)) }).await
    }

    /// Returns the starts, the one that counts first.
    pub(crate) async fn starts(&self) -> Result<Vec<Kept>, NatsError> {
        let mut found: Vec<Kept> = self.names().await?.iter().filter_map(|name| Kept::parse(name)).collect();
        found.sort_unstable_by(|one, other| other.cmp(one));
        Ok(found)
    }

    /// Returns the newest of `starts` that can be read and is of this stream.
    pub(crate) async fn newest(&self, starts: &[Kept], stream_id: &str) -> Result<Option<Start>, NatsError> {
        for kept in starts {
            if let Some(start) = self.get(&kept.name()).await?.as_deref().and_then(Start::parse)
                && start.stream_id == stream_id
            {
                return Ok(Some(start));
            }
        }
        Ok(None)
    }

    /// Fetches the files of segments that aren't in the directory's archive. One that isn't in the bucket either, or is
    /// damaged there, stays away: a walk names it, and a node can work without it.
    pub(crate) async fn fetch(&self, dir: &Path, segments: &[Sealed]) -> Result<(), FetchError> {
        for (sealed, behind) in sqlite_archive::chained(segments) {
            if sqlite_archive::is_there(dir, sealed) {
                continue;
            }
            let Some(bytes) = self.get(&sealed.file).await? else { continue };
            match sqlite_archive::receive(dir, sealed, behind, &bytes) {
                Ok(()) | Err(ArchiveError::File { .. } | ArchiveError::Other { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Why the files of segments weren't fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error(transparent)]
    Nats(#[from] NatsError),
    #[error(transparent)]
    File(#[from] ArchiveError),
}

fn unavailable(error: &dyn std::error::Error) -> NatsError {
    NatsError::Unavailable { reason: error.to_string() }
}

async fn timed<T>(answer: impl Future<Output = Result<T, NatsError>>) -> Result<T, NatsError> {
    let late = |_| NatsError::Unavailable { reason: "an object was not stored or read in time".to_owned() };
    tokio::time::timeout(OBJECT_MAX, answer).await.map_err(late)?
}

/// The archive of a leader: that of its mirror, which it also publishes.
pub(super) struct SharedArchive {
    pub(super) local: SqliteArchive,
    pub(super) nats: Nats,
    pub(super) names: StreamNames,
    pub(super) stream_id: String,
    pub(super) dir: PathBuf,
    pub(super) readers: Pool,
    /// One thread publishes at a time.
    pub(super) one: Mutex<()>,
}

impl SharedArchive {
    /// Stores what left this log, if no start has it yet, then purges the stream up to the mark of the older start.
    async fn store(&self) -> Result<(), ArchiveError> {
        let segments = self.readers.with(sqlite_archive::sealed)?;
        let Some(end) = segments.last().map(|last| Seq(last.last)) else { return Ok(()) };
        let bucket = Bucket::open_or_create(&self.nats, &self.names).await?;
        let starts = bucket.starts().await?;
        // Without a mark there is nothing to purge yet.
        let mark = self.readers.with(|db| newest_mark(db, end))?;
        if let Some(mark) = mark
            && starts.first().is_none_or(|newest| newest.end < end)
        {
            self.upload(&bucket, &segments).await?;
            let base = fs::read(self.dir.join(FILE_BASE))?;
            let start = Start { stream_id: self.stream_id.clone(), mark, segments, base };
            if start.base_at().is_none_or(|at| at < end) {
                return Err(ArchiveError::Log("its base doesn't reach the end of its segments".to_owned()));
            }
            bucket.put(&start.kept().name(), &start.bytes().map_err(ArchiveError::Log)?).await?;
        }
        self.let_go(&bucket).await
    }

    async fn upload(&self, bucket: &Bucket, segments: &[Sealed]) -> Result<(), ArchiveError> {
        let there = bucket.names().await?;
        for sealed in segments.iter().filter(|sealed| !there.contains(&sealed.file)) {
            let bytes = sqlite_archive::file_of(&self.dir, sealed)?;
            bucket.put(&sealed.file, &bytes).await?;
        }
        Ok(())
    }

    async fn let_go(&self, bucket: &Bucket) -> Result<(), ArchiveError> {
        let starts = bucket.starts().await?;
        let Some(older) = starts.get(STARTS_KEPT - 1) else { return Ok(()) };
        // Both can be read, or nothing goes.
        for kept in &starts[..STARTS_KEPT] {
            if bucket.newest(std::slice::from_ref(kept), &self.stream_id).await?.is_none() {
                return Err(ArchiveError::Log(format!("the object {} can't be read", kept.name())));
            }
        }
        self.nats.purge(&self.names, older.mark).await?;
        for kept in &starts[STARTS_KEPT..] {
            bucket.delete(&kept.name()).await?;
        }
        let db = sqlite::open_database(&self.dir.join(FILE_DATABASE))?;
        Ok(remove_marks(&db, older.mark)?)
    }
}

impl From<NatsError> for ArchiveError {
    fn from(error: NatsError) -> Self {
        Self::Shared(error.to_string())
    }
}

impl Archive for SharedArchive {
    fn segments(&self) -> Result<Vec<Segment>, ArchiveError> {
        self.local.segments()
    }

    fn bytes(&self) -> Result<u64, ArchiveError> {
        self.local.bytes()
    }

    fn seal(&self, upto: Seq, bytes_max: u64, base: Base<'_>) -> Result<Option<(Segment, u64)>, ArchiveError> {
        self.local.seal(upto, bytes_max, base)
    }

    fn publish(&self) -> Result<(), ArchiveError> {
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        self.nats.runtime.block_on(async {
            for _ in 1..ATTEMPTS {
                match self.store().await {
                    Err(ArchiveError::Shared(_)) => tokio::time::sleep(PAUSE).await,
                    done => return done,
                }
            }
            self.store().await
        })
    }

    fn base(&self) -> Result<Option<(Seq, Vec<u8>)>, SnapshotError> {
        self.local.base()
    }

    fn save_base(&self, at: Seq, state: &[u8]) -> Result<(), SnapshotError> {
        self.local.save_base(at, state)
    }

    fn walk(&self, each: &mut dyn FnMut(Seq, &Entry)) -> Result<(), ArchiveError> {
        self.local.walk(each)
    }

    fn put_back(&self) -> Result<Option<Segment>, ArchiveError> {
        self.local.put_back()
    }
}
