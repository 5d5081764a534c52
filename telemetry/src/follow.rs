//! The follower: reads the committed log, posts the spans that have ended, and records how far it is.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastword_broker::Live;
use lastword_broker::clock::Stopwatch;
use lastword_broker::files::Files;
use lastword_facts::fact::Recipient;
use lastword_facts::ids::{AgentId, ConvId};
use lastword_facts::{Entry, Fact, Seq};
use lastword_server::backup::FILE_TELEMETRY;
use lastword_server::{Context, ended, http_client};
use prost::Message as _;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, StatusCode};
use tokio::sync::watch;

use crate::Settings;
use crate::otlp::{Resource, ResourceSpans, Scope, ScopeSpans, Span, TracesData, attribute};
use crate::projection::{Lookup, Names, Projection};

/// The most facts that are read, and whose spans are posted, at once.
const BATCH_MAX: usize = 1_024;
/// The pause once all is exported: facts in quick succession are exported together.
const PACE: Duration = Duration::from_millis(200);
/// The time between two savings of the position while there is more to export.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// How long one post may take.
const POST_MAX: Duration = Duration::from_secs(10);
/// The pauses between two attempts of a post.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_mins(1);
/// The longest pause that a receiver may ask for.
const ASKED_PAUSE_MAX: Duration = Duration::from_mins(10);
const VERSION: u32 = 1;
/// The version of the conventions that the attributes are of.
const SCHEMA_URL: &str = "https://opentelemetry.io/schemas/1.45.0";

/// How far the log is exported.
#[derive(Clone, PartialEq, prost::Message)]
struct Position {
    #[prost(uint32, tag = "1")]
    version: u32,
    /// The last fact that was folded.
    #[prost(uint64, tag = "2")]
    folded: u64,
    /// What has begun and not ended there.
    #[prost(message, required, tag = "3")]
    open: Projection,
    /// The spans that ended with the last facts, and that the receiver hasn't taken yet.
    #[prost(message, repeated, tag = "4")]
    unsent: Vec<Span>,
}

/// Why a post was not taken.
enum Failed {
    /// It may be taken later; at the earliest after this pause, if the receiver names one.
    Later(String, Option<Duration>),
    /// It never will be.
    Never(String),
}

struct Exporter {
    ctx: Context,
    settings: Settings,
    http: Client,
    headers: HeaderMap,
    url: String,
    names: Names,
    position: Position,
    /// Whether the file has another position.
    unsaved: bool,
    /// Since the position was saved, and how long that may be while there is more to export.
    saved: Stopwatch,
    save_every: Duration,
}

/// Exports until the server shuts down.
pub(crate) async fn run(ctx: Context, settings: Settings) -> io::Result<()> {
    let mut stopping = ctx.stopping.clone();
    let secure = settings.endpoint.starts_with("https:");
    let http = tokio::task::spawn_blocking(move || http_client(secure, POST_MAX)).await.map_err(io::Error::other)?;
    let http = match http {
        Ok(http) => http,
        Err(error) => {
            tracing::error!(error, "no spans are exported");
            return Ok(());
        }
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
    for (name, value) in &settings.headers {
        let name = HeaderName::try_from(name).map_err(io::Error::other)?;
        let mut value = HeaderValue::try_from(value).map_err(io::Error::other)?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    let url = format!("{}/v1/traces", settings.endpoint.trim_end_matches('/'));
    let committed = *ctx.handle.committed().borrow();
    let position = load(&ctx.files).unwrap_or_else(|| {
        // Without a position the export starts at the end of the log.
        Position { version: VERSION, folded: committed.0, ..Position::default() }
    });
    let mut exporter = Exporter {
        ctx,
        settings,
        http,
        headers,
        url,
        names: Names::default(),
        position,
        unsaved: true,
        saved: Stopwatch::start(),
        save_every: SAVE_EVERY,
    };
    tokio::select! {
        () = ended(&mut stopping) => {}
        () = exporter.follow() => {}
    }
    // A post that was cut off is made again after the next start, with the same ids.
    exporter.save().await;
    Ok(())
}

/// Waits for facts after a position; `false` once the broker has ended.
async fn grown(committed: &mut watch::Receiver<Seq>, after: Seq) -> bool {
    committed.wait_for(|seq| *seq > after).await.is_ok()
}

impl Exporter {
    async fn follow(&mut self) {
        let mut committed = self.ctx.handle.committed();
        loop {
            self.post().await;
            let folded = Seq(self.position.folded);
            if *committed.borrow() <= folded {
                self.save().await;
            }
            if !grown(&mut committed, folded).await {
                return;
            }
            match self.ctx.handle.read(Seq(folded.0 + 1), BATCH_MAX).await {
                Ok(entries) => {
                    self.fold(&entries).await;
                    self.post().await;
                    if entries.len() < BATCH_MAX {
                        tokio::time::sleep(PACE).await;
                    } else if self.saved.elapsed() >= self.save_every {
                        self.save().await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the log can't be read for telemetry");
                    tokio::time::sleep(PAUSE_MIN).await;
                }
            }
        }
    }

    async fn fold(&mut self, entries: &[(Seq, Arc<Entry>)]) {
        let (Some((first, entry)), Some((last, _))) = (entries.first(), entries.last()) else { return };
        let skipped = first.0.saturating_sub(self.position.folded + 1);
        if skipped > 0 && !matches!(entry.fact, Fact::EpochBegan { .. }) {
            tracing::warn!(skipped, "facts have moved to the archive before their spans were exported");
        }
        self.learn(entries).await;
        let lookup = Lookup {
            signer: self.ctx.handle.signer(),
            traces: self.ctx.traces,
            include_text: self.settings.include_text,
            names: &self.names,
        };
        let Position { open, unsent, folded, .. } = &mut self.position;
        for (seq, entry) in entries {
            open.fold(&lookup, *seq, entry, unsent);
        }
        *folded = last.0;
        self.unsaved = true;
    }

    /// Learns the names of what entries name by number.
    #[expect(clippy::wildcard_enum_match_arm, reason = "without a name a number is shown")]
    async fn learn(&mut self, entries: &[(Seq, Arc<Entry>)]) {
        let (mut agents, mut convs) = (BTreeSet::<AgentId>::new(), BTreeSet::<ConvId>::new());
        self.names.references.clear();
        for (_, entry) in entries {
            let about = entry.fact.about();
            agents.extend(about.agent);
            match &entry.fact {
                Fact::ConversationOpened { conv, reference, .. } => {
                    self.names.references.insert(*conv, reference.to_string());
                }
                Fact::RootStarted { conv, .. } => _ = convs.insert(*conv),
                Fact::Accepted { message } => {
                    convs.insert(message.conv);
                    agents.insert(message.from);
                    if let Recipient::One(agent) = message.to {
                        agents.insert(agent);
                    }
                }
                Fact::Requeued { agent, .. } => _ = agents.insert(*agent),
                Fact::ApprovalDecided { by, .. } => agents.extend(*by),
                Fact::EscalationNoted { by, .. }
                | Fact::EscalationAnswered { by, .. }
                | Fact::LatchLifted { by, .. } => {
                    agents.insert(*by);
                }
                _ => {}
            }
        }
        agents.retain(|agent| !self.names.agents.contains_key(agent));
        convs.retain(|conv| !self.names.references.contains_key(conv));
        if agents.is_empty() && convs.is_empty() {
            return;
        }
        let named = move |live: &Live<'_>| -> (Vec<_>, Vec<_>) {
            let agents = agents.into_iter().map(|agent| (agent, live.state.name_of(agent).to_owned())).collect();
            let named = |conv| Some((conv, live.state.ref_of(conv)?.to_string()));
            (agents, convs.into_iter().filter_map(named).collect())
        };
        // Without an answer they stay numbers.
        if let Ok((agents, convs)) = self.ctx.handle.query(named).await {
            self.names.agents.extend(agents);
            self.names.references.extend(convs);
        }
    }

    /// Posts the spans that have ended, until the receiver takes them or refuses them for good.
    async fn post(&mut self) {
        let count = self.position.unsent.len();
        if count == 0 {
            return;
        }
        let body = traces(self.position.unsent.clone()).encode_to_vec();
        let mut pause = PAUSE_MIN;
        loop {
            match self.try_post(body.clone()).await {
                Ok(()) => break,
                Err(Failed::Never(reason)) => {
                    tracing::error!(count, reason, "spans are lost: the receiver refuses them");
                    break;
                }
                Err(Failed::Later(reason, asked)) => {
                    tracing::warn!(reason, "spans are not exported; it is tried again");
                    tokio::time::sleep(asked.unwrap_or(pause).clamp(PAUSE_MIN, ASKED_PAUSE_MAX)).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                }
            }
        }
        self.position.unsent.clear();
        self.unsaved = true;
    }

    async fn try_post(&self, body: Vec<u8>) -> Result<(), Failed> {
        let request = self.http.post(&self.url).headers(self.headers.clone()).body(body);
        // The address may have a secret in it.
        let sent = request.send().await.map_err(|error| Failed::Later(error.without_url().to_string(), None))?;
        let status = sent.status();
        if status.is_success() {
            return Ok(());
        }
        let asked = sent.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let retried = [
            StatusCode::TOO_MANY_REQUESTS,
            StatusCode::BAD_GATEWAY,
            StatusCode::SERVICE_UNAVAILABLE,
            StatusCode::GATEWAY_TIMEOUT,
        ];
        if retried.contains(&status) {
            return Err(Failed::Later(status.to_string(), asked.map(Duration::from_secs)));
        }
        Err(Failed::Never(status.to_string()))
    }

    /// Saves the position. A large one is saved less often.
    async fn save(&mut self) {
        if !std::mem::take(&mut self.unsaved) {
            return;
        }
        let (files, bytes) = (self.ctx.files.clone(), self.position.encode_to_vec());
        self.saved = Stopwatch::start();
        match tokio::task::spawn_blocking(move || files.write(FILE_TELEMETRY, &bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "{FILE_TELEMETRY} can't be written: a restart may export again"),
            Err(error) => tracing::error!(%error, "{FILE_TELEMETRY} was not written"),
        }
        self.save_every = SAVE_EVERY.max(self.saved.elapsed() * 20);
    }
}

/// Loads the saved position; `None` if there is none that can be used.
fn load(files: &Files) -> Option<Position> {
    let read = fs::read(files.path(FILE_TELEMETRY))
        .and_then(|bytes| Position::decode(bytes.as_slice()).map_err(io::Error::other));
    match read {
        Ok(position) if position.version == VERSION => return Some(position),
        Ok(position) => tracing::warn!(position.version, "{FILE_TELEMETRY} is of another version"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => tracing::warn!(%error, "{FILE_TELEMETRY} can't be read"),
    }
    tracing::warn!("spans begin with what is new");
    None
}

fn traces(spans: Vec<Span>) -> TracesData {
    let version = env!("CARGO_PKG_VERSION");
    let resource =
        Resource { attributes: vec![attribute("service.name", "lastword"), attribute("service.version", version)] };
    let scope = Scope { name: "lastword".to_owned(), version: version.to_owned() };
    let scope_spans = vec![ScopeSpans { scope: Some(scope), spans }];
    let resource_spans = ResourceSpans { resource: Some(resource), scope_spans, schema_url: SCHEMA_URL.to_owned() };
    TracesData { resource_spans: vec![resource_spans] }
}
