//! Push notifications: the changes of a task, posted to an address of its caller that was checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use lastword_broker::identity::{hex, random};
use lastword_facts::{Code, Refusal, Seq};
use lastword_server::backup::FILE_A2A_PUSH;
use lastword_server::calls::Caller;
use lastword_server::notify::Target;
use lastword_server::{ApiError, Context, ended};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use crate::fault::{Fault, Kind};
use crate::model::{NamedPush, PushConfig, StreamResponse};
use crate::stream::TaskStream;
use crate::tasks;

const VERSION: u32 = 1;
/// The most configurations of a task, of a caller, and of a workspace.
const OF_TASK_MAX: usize = 8;
const OF_CALLER_MAX: usize = 64;
const ALL_MAX: usize = 512;
/// The most bytes of each text of a configuration.
const TEXT_BYTES_MAX: usize = 4_096;
/// How often a notification is tried: with the pauses, for a quarter of an hour.
const TRIES_MAX: u32 = 20;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The header with the token that the caller gave.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// A configuration with what was sent for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct PushSubscription {
    /// The agent of the address at which the task was sent.
    agent: String,
    /// The caller's name.
    caller: String,
    config: PushConfig,
    /// Tells it from another one of the same id, which replaced it.
    #[serde(skip)]
    serial: u64,
    /// The position of the last change that was posted; `None` if none was.
    told: Option<Seq>,
    /// Whether the last change was posted, or given up.
    over: bool,
}

/// Whether one of the two replaces the other.
fn named_alike(one: &PushSubscription, other: &PushSubscription) -> bool {
    one.config.task_id == other.config.task_id && one.config.id == other.config.id
}

#[derive(Default, Serialize, Deserialize)]
struct Book {
    version: u32,
    kept: Vec<PushSubscription>,
}

/// What is known of the task of a configuration.
enum TaskLookup {
    Task(Box<(Caller, tasks::TaskSnapshot)>),
    /// The broker can't tell now.
    Busy,
    /// The task is forgotten, or its caller removed.
    Gone,
}

/// The configurations of a workspace.
pub(crate) struct Pushes {
    ctx: Context,
    allow_private: bool,
    book: Arc<Mutex<Book>>,
    /// Held while the book is written.
    saving: Arc<Mutex<()>>,
    workers: Mutex<Workers>,
    serials: AtomicU64,
}

/// What posts, by the configurations' serials. One without a configuration is ended.
#[derive(Default)]
struct Workers {
    running: JoinSet<()>,
    by_serial: BTreeMap<u64, AbortHandle>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pushes {
    /// Reads the configurations and goes on with what was not posted.
    pub(crate) fn open(ctx: Context, allow_private: bool) -> Arc<Self> {
        let read = fs::read(ctx.files.path(FILE_A2A_PUSH))
            .and_then(|bytes| serde_json::from_slice::<Book>(&bytes).map_err(io::Error::other));
        let book = match read {
            Ok(book) if book.version == VERSION => book,
            Ok(book) => {
                tracing::warn!(version = book.version, "{FILE_A2A_PUSH} is of another version and set aside");
                set_aside(&ctx);
                Book::default()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Book::default(),
            Err(error) => {
                tracing::warn!(%error, "{FILE_A2A_PUSH} can't be read and is set aside");
                set_aside(&ctx);
                Book::default()
            }
        };
        let serials = AtomicU64::new(1);
        let numbered =
            |kept: PushSubscription| PushSubscription { serial: serials.fetch_add(1, Ordering::Relaxed), ..kept };
        let kept: Vec<PushSubscription> = book.kept.into_iter().map(numbered).collect();
        let open: Vec<PushSubscription> = kept.iter().filter(|kept| !kept.over).cloned().collect();
        let book = Arc::new(Mutex::new(Book { version: VERSION, kept }));
        let pushes =
            Arc::new(Self { ctx, allow_private, book, saving: Arc::default(), workers: Mutex::default(), serials });
        for kept in open {
            pushes.begin(kept);
        }
        pushes
    }

    /// Adds a configuration, or replaces the one of its id.
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: Caller,
        agent: &str,
        name: String,
        mut config: PushConfig,
    ) -> Result<Value, Fault> {
        tasks::find(&self.ctx, caller, agent, &config.task_id).await?;
        Target::new(&config.url, self.allow_private)
            .map_err(|why| Fault::field("url", format!("can't be used: {why}")))?;
        headers(&config)?;
        let authentication = config.authentication.clone().unwrap_or_default();
        for (field, text) in [
            ("id", &config.id),
            ("url", &config.url),
            ("token", &config.token),
            ("authentication.scheme", &authentication.scheme),
            ("authentication.credentials", &authentication.credentials),
        ] {
            if text.len() > TEXT_BYTES_MAX {
                return Err(Fault::field(field, format!("is longer than {TEXT_BYTES_MAX} bytes")));
            }
        }
        if config.id.is_empty() {
            let id = random().map_err(|error| ApiError::internal(&error.to_string()))?;
            config.id = format!("push-{}", hex(&id[..8]));
        }
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let kept = PushSubscription {
            agent: agent.to_owned(),
            caller: name,
            config: config.clone(),
            serial,
            told: None,
            over: false,
        };
        let replaced = self.add(&kept)?;
        if let Err(unsaved) = self.save().await {
            // A restart would lose it, so the call fails. The file still has the one that it replaced.
            let mut book = locked(&self.book);
            book.kept.retain(|known| known.serial != serial);
            let replaced = replaced.filter(|old| !book.kept.iter().any(|known| named_alike(known, old)));
            book.kept.extend(replaced);
            return Err(unsaved);
        }
        self.begin(kept);
        Ok(json!(config))
    }

    /// Adds a configuration, and returns the one of its id that it replaces.
    fn add(&self, kept: &PushSubscription) -> Result<Option<PushSubscription>, Fault> {
        let mut book = locked(&self.book);
        let replaced = book.kept.iter().position(|known| named_alike(known, kept)).map(|at| book.kept.remove(at));
        let of = |book: &Book, counts: &dyn Fn(&PushSubscription) -> bool| {
            book.kept.iter().filter(|known| counts(known)).count()
        };
        // What has ended makes room.
        for (full, counts) in [
            (
                OF_CALLER_MAX,
                &(|known: &PushSubscription| known.caller == kept.caller) as &dyn Fn(&PushSubscription) -> bool,
            ),
            (ALL_MAX, &|_: &PushSubscription| true),
        ] {
            if of(&book, counts) >= full
                && let Some(ended) = book.kept.iter().position(|known| known.over && counts(known))
            {
                book.kept.remove(ended);
            }
        }
        let of_task = of(&book, &|known| known.config.task_id == kept.config.task_id);
        let of_caller = of(&book, &|known| known.caller == kept.caller);
        for (max, current) in [(OF_TASK_MAX, of_task), (OF_CALLER_MAX, of_caller), (ALL_MAX, book.kept.len())] {
            if current >= max {
                let refusal = Refusal::new(Code::Saturated).about("push configurations");
                return Err(ApiError::from(refusal.numbers(max as u64, current as u64 + 1)).into());
            }
        }
        book.kept.push(kept.clone());
        Ok(replaced)
    }

    pub(crate) async fn get(&self, caller: Caller, agent: &str, named: &NamedPush) -> Result<Value, Fault> {
        let found = self.of_task(caller, agent, &named.task_id).await?;
        let config = found.into_iter().find(|config| config.id == named.id);
        let missing = || Fault::new(Kind::TaskNotFound, format!("The task has no push configuration {:?}", named.id));
        config.map(|config| json!(config)).ok_or_else(missing)
    }

    pub(crate) async fn list(&self, caller: Caller, agent: &str, task: &str) -> Result<Value, Fault> {
        let configs = self.of_task(caller, agent, task).await?;
        Ok(json!({ "configs": configs, "nextPageToken": "" }))
    }

    pub(crate) async fn delete(&self, caller: Caller, agent: &str, named: &NamedPush) -> Result<(), Fault> {
        tasks::find(&self.ctx, caller, agent, &named.task_id).await?;
        let is_named = |known: &PushSubscription| known.config.task_id == named.task_id && known.config.id == named.id;
        locked(&self.book).kept.retain(|known| !is_named(known));
        self.end_removed();
        self.save().await
    }

    async fn of_task(&self, caller: Caller, agent: &str, task: &str) -> Result<Vec<PushConfig>, Fault> {
        tasks::find(&self.ctx, caller, agent, task).await?;
        let book = locked(&self.book);
        let own = book.kept.iter().filter(|known| known.config.task_id == task);
        Ok(own.map(|known| known.config.clone()).collect())
    }

    async fn save(&self) -> Result<(), Fault> {
        let (files, book, saving) = (self.ctx.files.clone(), Arc::clone(&self.book), Arc::clone(&self.saving));
        // One at a time, and what is written last is the newest: all writes of a file have one draft.
        let write = move || -> io::Result<()> {
            let _saving = locked(&saving);
            let bytes = {
                let mut book = locked(&book);
                book.version = VERSION;
                serde_json::to_vec(&*book)?
            };
            files.write(FILE_A2A_PUSH, &bytes)
        };
        let saved = tokio::task::spawn_blocking(write).await;
        let saved = saved.map_err(|error| ApiError::internal(&error.to_string()))?;
        saved.map_err(|error| ApiError::internal(&format!("{FILE_A2A_PUSH} can't be written: {error}")).into())
    }

    /// Starts to post the changes of a task.
    fn begin(self: &Arc<Self>, kept: PushSubscription) {
        let (pushes, mut stopping) = (Arc::clone(self), self.ctx.stopping.clone());
        let serial = kept.serial;
        let mut workers = locked(&self.workers);
        while workers.running.try_join_next().is_some() {}
        let handle = workers.running.spawn(async move {
            tokio::select! {
                () = ended(&mut stopping) => {}
                () = pushes.post_all(kept) => {}
            }
        });
        workers.by_serial.insert(serial, handle);
        drop(workers);
        self.end_removed();
    }

    /// Ends what posts for configurations that are gone.
    fn end_removed(&self) {
        let kept: BTreeSet<u64> = locked(&self.book).kept.iter().map(|known| known.serial).collect();
        locked(&self.workers).by_serial.retain(|serial, handle| {
            let stays = kept.contains(serial) && !handle.is_finished();
            if !stays {
                handle.abort();
            }
            stays
        });
    }

    /// Posts the changes in order, each until the receiver has it.
    async fn post_all(&self, kept: PushSubscription) {
        let (Ok(target), Ok(headers)) = (Target::new(&kept.config.url, self.allow_private), headers(&kept.config))
        else {
            return self.end(&kept).await;
        };
        let (mut told, mut pause) = (kept.told, PAUSE_MIN);
        loop {
            let known = match self.known(&kept).await {
                TaskLookup::Task(known) => Some(*known),
                TaskLookup::Busy => None,
                TaskLookup::Gone => return self.end(&kept).await,
            };
            if let Some((caller, known)) = known {
                let stream = match told {
                    None => TaskStream::open(&self.ctx, caller, &known, None).await.ok(),
                    Some(told) => Some(TaskStream::resume(&self.ctx, caller, &known, told)),
                };
                let mut any = false;
                if let Some(mut stream) = stream {
                    while let Some((seq, event)) = stream.next().await {
                        if !self.post(&kept, &target, &headers, &event).await {
                            return self.end(&kept).await;
                        }
                        (any, pause) = (true, PAUSE_MIN);
                        // The artifact and the end of a task have one position: both are told, or both again.
                        if !matches!(event, StreamResponse::ArtifactUpdate { .. }) {
                            told = Some(seq);
                            self.note(&kept, |kept| kept.told = told).await;
                        }
                        if event.ends() {
                            return self.end(&kept).await;
                        }
                    }
                }
                // What the log no longer has can't be told change by change: the task as it is takes its place.
                told = told.filter(|_| any);
            }
            // The caller's token was replaced, or the broker is busy.
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn known(&self, kept: &PushSubscription) -> TaskLookup {
        let name = kept.caller.clone();
        let agent = match self.ctx.handle.query(move |live| live.state.live(&name)).await {
            Ok(Some(agent)) => agent,
            Ok(None) => return TaskLookup::Gone,
            Err(_) => return TaskLookup::Busy,
        };
        let Some(caller) = Caller::standing(&self.ctx.handle, agent) else { return TaskLookup::Gone };
        match tasks::find(&self.ctx, caller, &kept.agent, &kept.config.task_id).await {
            Ok(known) => TaskLookup::Task(Box::new((caller, known))),
            Err(Fault::Standard { .. }) => TaskLookup::Gone,
            Err(Fault::Refused(_)) => TaskLookup::Busy,
        }
    }

    /// Posts one change; `false` if the receiver never took it, or the configuration was deleted.
    async fn post(
        &self,
        kept: &PushSubscription,
        target: &Target,
        headers: &HeaderMap,
        event: &StreamResponse,
    ) -> bool {
        let _errand = self.ctx.errands.begin();
        let body = serde_json::to_vec(event).unwrap_or_default();
        let mut pause = PAUSE_MIN;
        for _ in 0..TRIES_MAX {
            if !locked(&self.book).kept.iter().any(|known| known.serial == kept.serial) {
                return false;
            }
            match target.post(headers.clone(), body.clone()).await {
                Ok(()) => return true,
                Err(error) => tracing::warn!(task = kept.config.task_id, error, "a push notification failed"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        tracing::error!(task = kept.config.task_id, "a push notification is given up");
        false
    }

    async fn end(&self, kept: &PushSubscription) {
        self.note(kept, |kept| kept.over = true).await;
    }

    async fn note(&self, kept: &PushSubscription, change: impl FnOnce(&mut PushSubscription) + Send) {
        {
            let mut book = locked(&self.book);
            let known = book.kept.iter_mut().find(|known| known.serial == kept.serial);
            let Some(known) = known else { return };
            change(known);
        }
        if let Err(error) = self.save().await {
            tracing::warn!(?error, "a restart may post a change again");
        }
    }
}

/// Keeps a file that this version can't read.
fn set_aside(ctx: &Context) {
    let path = ctx.files.path(FILE_A2A_PUSH);
    if let Err(error) = fs::rename(&path, path.with_extension("unread")) {
        tracing::warn!(%error, "{FILE_A2A_PUSH} can't be set aside");
    }
}

/// Returns the headers of a notification.
fn headers(config: &PushConfig) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/a2a+json"));
    let wrong = |field: &str| Fault::field(field, "has characters that no header may have");
    if !config.token.is_empty() {
        headers.insert(TOKEN_HEADER, HeaderValue::from_str(&config.token).map_err(|_| wrong("token"))?);
    }
    if let Some(authentication) = &config.authentication {
        let text = format!("{} {}", authentication.scheme, authentication.credentials);
        let mut value = HeaderValue::from_str(text.trim()).map_err(|_| wrong("authentication"))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    Ok(headers)
}
