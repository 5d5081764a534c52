//! The follower: reads the committed log, posts the spans that have ended, and records how far it is.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastword_broker::Live;
use lastword_broker::clock::Stopwatch;
use lastword_broker::files::Files;
use lastword_facts::fact::{ApprovalDecided, ConversationOpened, Recipient, Requeued, RootStarted};
use lastword_facts::ids::{AgentId, ConvId};
use lastword_facts::{Entry, Fact, Seq};
use lastword_server::Context;
use lastword_server::backup::FILE_TELEMETRY;
use prost::Message as _;
use tokio::sync::watch;

use crate::Signal;
use crate::otlp::{Resource, ResourceSpans, SCHEMA_URL, Scope, ScopeSpans, Span, TracesData};
use crate::post::Poster;
use crate::projection::{Lookup, Names, Projection};

/// The most facts that are read, and whose spans are posted, at once.
const BATCH_MAX: usize = 4_096;
/// The facts for which the pause ends early.
const BATCH_ENOUGH: u64 = 1_024;
/// The longest pause once all is exported: facts in quick succession are exported together.
const PACE: Duration = Duration::from_millis(200);
/// How often that pause looks whether enough facts wait: at full load the last ones are in the broker's memory for no longer.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The time between two savings of the position while there is more to export.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// The pause after the log couldn't be read.
const UNREAD_PAUSE: Duration = Duration::from_millis(500);
const VERSION: u32 = 1;

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

/// The exporter of spans.
pub(crate) struct Exporter {
    ctx: Context,
    poster: Arc<Poster>,
    include_text: bool,
    names: Names,
    position: Position,
    /// Whether the file has another position.
    unsaved: bool,
    /// Since the position was saved, and how long that may be while there is more to export.
    saved: Stopwatch,
    save_every: Duration,
}

/// Waits for facts after a position; `false` once the broker has ended.
async fn grown(committed: &mut watch::Receiver<Seq>, after: Seq) -> bool {
    committed.wait_for(|seq| *seq > after).await.is_ok()
}

impl Exporter {
    /// Creates the exporter. Without a saved position it starts at `begin`, the end of the log as the server started.
    pub(crate) fn new(ctx: Context, poster: Arc<Poster>, include_text: bool, begin: Seq) -> Self {
        let position =
            load(&ctx.files).unwrap_or_else(|| Position { version: VERSION, folded: begin.0, ..Position::default() });
        poster.counts.folded(Seq(position.folded));
        Self {
            ctx,
            poster,
            include_text,
            names: Names::default(),
            position,
            unsaved: true,
            saved: Stopwatch::start(),
            save_every: SAVE_EVERY,
        }
    }

    /// Exports until the broker has ended.
    pub(crate) async fn follow(&mut self) {
        let mut committed = self.ctx.handle.committed();
        loop {
            let errand = self.ctx.errands.begin();
            self.post().await;
            let folded = Seq(self.position.folded);
            if *committed.borrow() <= folded {
                self.save().await;
                drop(errand);
            }
            if !grown(&mut committed, folded).await {
                return;
            }
            match self.ctx.handle.read(Seq(folded.0 + 1), BATCH_MAX).await {
                Ok(entries) => {
                    self.fold(&entries).await;
                    self.post().await;
                    // A read is also bounded in bytes, so a short one isn't the end of the log.
                    if self.saved.elapsed() >= self.save_every {
                        self.save().await;
                    }
                    self.pause(&committed).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the log can't be read for telemetry");
                    tokio::time::sleep(UNREAD_PAUSE).await;
                }
            }
        }
    }

    /// Pauses until [`BATCH_ENOUGH`] facts wait, or for [`PACE`].
    async fn pause(&self, committed: &watch::Receiver<Seq>) {
        let enough = self.position.folded + BATCH_ENOUGH;
        let begin = Stopwatch::start();
        while begin.elapsed() < PACE && committed.borrow().0 < enough {
            tokio::time::sleep(LOOK_EVERY).await;
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
            traces: &self.ctx.traces,
            include_text: self.include_text,
            names: &self.names,
        };
        let Position { open, unsent, folded, .. } = &mut self.position;
        let mut ended = Vec::new();
        for (seq, entry) in entries {
            open.fold(&lookup, *seq, entry, &mut ended);
        }
        *folded = last.0;
        self.poster.counts.took(&ended);
        unsent.extend(ended.into_iter().map(|ended| ended.span));
        self.poster.counts.folded(*last);
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
                Fact::ConversationOpened(ConversationOpened { conv, reference, .. }) => {
                    self.names.references.insert(*conv, reference.to_string());
                }
                Fact::RootStarted(RootStarted { conv, .. }) => _ = convs.insert(*conv),
                Fact::Accepted { message } => {
                    convs.insert(message.conv);
                    agents.insert(message.from);
                    if let Recipient::One(agent) = message.to {
                        agents.insert(agent);
                    }
                }
                Fact::Requeued(Requeued { agent, .. }) => _ = agents.insert(*agent),
                Fact::ApprovalDecided(ApprovalDecided { by, .. }) => agents.extend(*by),
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
        let data = traces(std::mem::take(&mut self.position.unsent));
        let body = data.encode_to_vec();
        // A post that a shutdown cuts off is saved as not sent.
        let scopes = data.resource_spans.into_iter().flat_map(|of| of.scope_spans);
        self.position.unsent = scopes.flat_map(|scope| scope.spans).collect();
        self.poster.post(Signal::Traces, count, body).await;
        self.position.unsent.clear();
        self.unsaved = true;
    }

    /// Saves the position. A large one is saved less often.
    pub(crate) async fn save(&mut self) {
        if !std::mem::take(&mut self.unsaved) {
            return;
        }
        let (files, bytes) = (self.ctx.files.clone(), self.position.encode_to_vec());
        self.saved = Stopwatch::start();
        match tokio::task::spawn_blocking(move || files.write(FILE_TELEMETRY, &bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                self.unsaved = true;
                tracing::warn!(%error, "{FILE_TELEMETRY} can't be written: a restart may export again");
            }
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

pub(crate) fn traces(spans: Vec<Span>) -> TracesData {
    let scope_spans = vec![ScopeSpans { scope: Some(Scope::own()), spans }];
    let resource = Some(Resource::own());
    let of = ResourceSpans { resource, scope_spans, schema_url: SCHEMA_URL.to_owned() };
    TracesData { resource_spans: vec![of] }
}
