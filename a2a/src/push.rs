//! Push notifications: the changes of a task, posted to an address of its caller that was checked.

use std::fs;
use std::io;
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
use tokio::task::JoinSet;

use crate::fault::{Fault, Kind};
use crate::model::{NamedPush, PushConfig, StreamResponse};
use crate::stream::TaskStream;
use crate::tasks::{self, Known};

const VERSION: u32 = 1;
/// The most configurations of a task, and of a workspace.
const OF_TASK_MAX: usize = 8;
const ALL_MAX: usize = 512;
/// How often a notification is tried: with the pauses, for a quarter of an hour.
const TRIES_MAX: u32 = 20;
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The header with the token that the caller gave.
const TOKEN_HEADER: HeaderName = HeaderName::from_static("x-a2a-notification-token");

/// A configuration with what was sent for it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    /// The agent of the address at which the task was sent.
    agent: String,
    /// The caller's name.
    caller: String,
    config: PushConfig,
    /// The position of the last change that was posted; `None` if none was.
    told: Option<Seq>,
    /// Whether the last change was posted, or given up.
    over: bool,
}

#[derive(Default, Serialize, Deserialize)]
struct Book {
    version: u32,
    kept: Vec<Kept>,
}

/// The configurations of a workspace.
pub(crate) struct Pushes {
    ctx: Context,
    allow_private: bool,
    book: Mutex<Book>,
    workers: Mutex<JoinSet<()>>,
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
                tracing::warn!(version = book.version, "{FILE_A2A_PUSH} is of another version and not read");
                Book::default()
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Book::default(),
            Err(error) => {
                tracing::warn!(%error, "{FILE_A2A_PUSH} can't be read");
                Book::default()
            }
        };
        let open: Vec<Kept> = book.kept.iter().filter(|kept| !kept.over).cloned().collect();
        let pushes = Arc::new(Self { ctx, allow_private, book: Mutex::new(book), workers: Mutex::default() });
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
        if config.id.is_empty() {
            let id = random().map_err(|error| ApiError::internal(&error.to_string()))?;
            config.id = format!("push-{}", hex(&id[..8]));
        }
        let kept = Kept { agent: agent.to_owned(), caller: name, config: config.clone(), told: None, over: false };
        {
            let mut book = locked(&self.book);
            book.kept.retain(|known| !same(known, &kept.config.task_id, &kept.config.id));
            let of_task = book.kept.iter().filter(|known| known.config.task_id == kept.config.task_id).count();
            if book.kept.len() >= ALL_MAX
                && let Some(ended) = book.kept.iter().position(|known| known.over)
            {
                book.kept.remove(ended);
            }
            for (max, current) in [(OF_TASK_MAX, of_task), (ALL_MAX, book.kept.len())] {
                if current >= max {
                    let refusal = Refusal::new(Code::Saturated).about("push configurations");
                    return Err(ApiError::from(refusal.numbers(max as u64, current as u64 + 1)).into());
                }
            }
            book.kept.push(kept.clone());
        }
        self.save().await?;
        self.begin(kept);
        Ok(json!(config))
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
        locked(&self.book).kept.retain(|known| !same(known, &named.task_id, &named.id));
        self.save().await
    }

    async fn of_task(&self, caller: Caller, agent: &str, task: &str) -> Result<Vec<PushConfig>, Fault> {
        tasks::find(&self.ctx, caller, agent, task).await?;
        let book = locked(&self.book);
        let own = book.kept.iter().filter(|known| known.config.task_id == task);
        Ok(own.map(|known| known.config.clone()).collect())
    }

    async fn save(&self) -> Result<(), Fault> {
        let bytes = {
            let mut book = locked(&self.book);
            book.version = VERSION;
            serde_json::to_vec(&*book).map_err(|error| ApiError::internal(&error.to_string()))?
        };
        let files = self.ctx.files.clone();
        let saved = tokio::task::spawn_blocking(move || files.write(FILE_A2A_PUSH, &bytes)).await;
        let saved = saved.map_err(|error| ApiError::internal(&error.to_string()))?;
        saved.map_err(|error| ApiError::internal(&format!("{FILE_A2A_PUSH} can't be written: {error}")).into())
    }

    /// Starts to post the changes of a task.
    fn begin(self: &Arc<Self>, kept: Kept) {
        let (pushes, mut stopping) = (Arc::clone(self), self.ctx.stopping.clone());
        let mut workers = locked(&self.workers);
        while workers.try_join_next().is_some() {}
        workers.spawn(async move {
            tokio::select! {
                () = ended(&mut stopping) => {}
                () = pushes.post_all(kept) => {}
            }
        });
    }

    /// Posts the changes in order, each until the receiver has it.
    async fn post_all(&self, kept: Kept) {
        let Some((caller, known)) = self.known(&kept).await else { return self.end(&kept).await };
        let stream = match kept.told {
            None => TaskStream::open(&self.ctx, caller, &known, None).await,
            Some(told) => Ok(TaskStream::resume(&self.ctx, caller, &known, told)),
        };
        let Ok(mut stream) = stream else { return };
        let Ok(target) = Target::new(&kept.config.url, self.allow_private) else { return self.end(&kept).await };
        let Ok(headers) = headers(&kept.config) else { return self.end(&kept).await };
        while let Some((seq, event)) = stream.next().await {
            if !self.post(&kept, &target, &headers, &event).await {
                return self.end(&kept).await;
            }
            // The artifact and the end of a task have one position: both are told, or both again.
            if !matches!(event, StreamResponse::ArtifactUpdate { .. }) {
                self.note(&kept, |kept| kept.told = Some(seq)).await;
            }
        }
        if self.ctx.stopping.has_changed().is_ok() && !*self.ctx.stopping.borrow() {
            self.end(&kept).await;
        }
    }

    async fn known(&self, kept: &Kept) -> Option<(Caller, Known)> {
        let name = kept.caller.clone();
        let agent = self.ctx.handle.query(move |live| live.state.live(&name)).await.ok()??;
        let caller = Caller::standing(&self.ctx.handle, agent)?;
        let known = tasks::find(&self.ctx, caller, &kept.agent, &kept.config.task_id).await.ok()?;
        Some((caller, known))
    }

    /// Posts one change; `false` if the receiver never took it, or the configuration was deleted.
    async fn post(&self, kept: &Kept, target: &Target, headers: &HeaderMap, event: &StreamResponse) -> bool {
        let body = serde_json::to_vec(event).unwrap_or_default();
        let mut pause = PAUSE_MIN;
        for _ in 0..TRIES_MAX {
            if !locked(&self.book).kept.iter().any(|known| same(known, &kept.config.task_id, &kept.config.id)) {
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

    async fn end(&self, kept: &Kept) {
        self.note(kept, |kept| kept.over = true).await;
    }

    async fn note(&self, kept: &Kept, change: impl FnOnce(&mut Kept) + Send) {
        {
            let mut book = locked(&self.book);
            let known = book.kept.iter_mut().find(|known| same(known, &kept.config.task_id, &kept.config.id));
            let Some(known) = known else { return };
            change(known);
        }
        if let Err(error) = self.save().await {
            tracing::warn!(?error, "a restart may post a change again");
        }
    }
}

fn same(known: &Kept, task: &str, id: &str) -> bool {
    known.config.task_id == task && known.config.id == id
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
