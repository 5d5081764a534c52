//! One workspace on one node, on a thread of its own: follows its log, takes it over when it should, serves it, and gives
//! it back.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lastword_broker::clock::{Gap, Stopwatch, wall};
use lastword_broker::files::Files;
use lastword_broker::identity::FILE_OPERATOR_TOKEN;
use lastword_broker::{BootError, Unserved, fold, replay, save_snapshot};
use lastword_core::Core;
use lastword_facts::{Entry, Seq, Time};
use lastword_server::edges::http::app;
use lastword_server::{
    Context, NodeView, Nodes, NodesView, Opening, StartError, Workspace, WorkspaceSettings, ended, open_index,
};
use lastword_store::{AppendError, Index, IndexError, Mirror, MirrorError};
use tokio::sync::watch;

use crate::archives::{tell_first, tell_of_archive};
use crate::copies::{RegistryFiles, has_files};
use crate::members::{ClusterView, LeaseRecord, NodeInfo, lease_key};
use crate::open::Open;
use crate::rest::{Rest, Rested};
use crate::workspaces::{NodeSettings, all_set_aside};
use crate::{Shared, WORKSPACE_MAIN};

/// How often a follower looks whether it should lead, and a leader whether it still does, if nothing tells them to.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a follower's read model catches up.
const INDEX_EVERY: Duration = Duration::from_millis(500);
/// How long calls in progress may take when a workspace is handed over.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// A workspace that nobody has used since it woke rests again after this time.
const UNUSED_MAX: Duration = Duration::from_secs(5);
/// It doesn't rest for a shorter time than this.
const REST_MIN: Duration = Duration::from_mins(1);
/// The facts of this time may still be those of the end before a rest, in ms.
const CLOSE_MS: u64 = 1_000;
/// The file in the node's directory that keeps room on the disk; no workspace has such a name.
const FILE_RESERVE: &str = "node.reserve";
/// The pause after a failure to follow or to open.
const AGAIN: Duration = Duration::from_secs(1);

/// Why a node stopped following or leading a workspace for a moment.
#[derive(Debug, thiserror::Error)]
enum Setback {
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    #[error(transparent)]
    Start(#[from] StartError),
    #[error(transparent)]
    Boot(#[from] BootError),
    #[error(transparent)]
    Lead(#[from] AppendError),
    #[error(transparent)]
    Index(#[from] IndexError),
    #[error("its configuration: {0}")]
    Config(String),
    #[error("its files: {0}")]
    Files(#[from] io::Error),
    #[error(transparent)]
    Unserved(#[from] Unserved),
}

/// What comes after a node led a workspace.
#[derive(Clone, Debug, Default)]
struct After {
    /// The node that should go on.
    next: Option<String>,
    /// Nobody goes on: it rests.
    rest: Option<Rest>,
}

/// Why a node stops leading.
enum Stop {
    /// Another one should lead, perhaps this node.
    Next(Option<String>),
    /// Nobody uses the workspace.
    Unused,
}

/// A workspace that this node follows.
struct Followed {
    mirror: Mirror,
    core: Core,
    index: Index,
    /// When it last read something new of the log, if that was new to everybody.
    heard: Option<Stopwatch>,
    /// The newest hint that it followed by letting go of what left the stream.
    let_go: u64,
    /// The position of the snapshot in its directory.
    saved: Seq,
}

impl Followed {
    /// Saves a snapshot, so that it begins there when it is opened again.
    fn save(&self) {
        if self.saved < self.core.state().seq
            && let Err(error) = save_snapshot(&self.core, self.mirror.snapshots().as_ref())
        {
            tracing::warn!(%error, "no snapshot was saved");
        }
    }
}

/// How far a follower's read model is.
struct CatchingUp {
    at: Seq,
    since: Stopwatch,
}

impl CatchingUp {
    fn new() -> Self {
        Self { at: Seq(0), since: Stopwatch::start() }
    }

    fn is_due(&self, last: Seq) -> bool {
        self.at < last && self.since.elapsed() >= INDEX_EVERY
    }

    fn done(&mut self, at: Seq) {
        (self.at, self.since) = (at, Stopwatch::start());
    }
}

pub(crate) struct Holder {
    pub(crate) shared: Arc<Shared>,
    pub(crate) workspace: String,
    pub(crate) dir: PathBuf,
    pub(crate) settings: Arc<NodeSettings>,
    /// The stream of the workspace whose mirror was opened last.
    pub(crate) stream_id: Option<String>,
    /// When the workspace last rested: its lease keeps that.
    pub(crate) rested: Option<Rested>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl Holder {
    /// Runs until the node stops, or the workspace rests or is removed. A fault of the workspace is logged, and tried again.
    pub(crate) async fn run(mut self) {
        let mut ending = self.stopping.clone();
        loop {
            match self.once().await {
                Ok(()) if *ending.borrow() => return,
                _ if self.shared.leave(&self.workspace) => {
                    let there = self.shared.has(&self.workspace);
                    let reason = if there { "it rests" } else { "it was removed" };
                    tracing::info!(workspace = self.workspace, reason, "this node leaves the workspace");
                    return;
                }
                // It was added again meanwhile, or woken.
                Ok(()) => continue,
                Err(error) => {
                    let workspace = self.workspace.as_str();
                    tracing::error!(workspace, %error, "this node doesn't follow the workspace; it tries again");
                    self.shared.note(&self.workspace, |standing| {
                        (standing.follows, standing.fault) = (false, Some(error.to_string()));
                    });
                }
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = ended(&mut ending) => return,
            }
        }
    }

    /// Follows, and leads when it should; `Ok` when it should do neither.
    async fn once(&mut self) -> Result<(), Setback> {
        loop {
            let mut followed = self.follow_from_here().await?;
            let Some(revision) = self.follow(&mut followed).await? else {
                followed.save();
                return Ok(());
            };
            let (settings, config) = self.configured()?;
            let Some(lease) = self.take(revision).await else { continue };
            let led = self.lead(lease, followed, settings, config).await;
            if led.is_err() {
                self.release(lease, After::default()).await;
            }
            led?;
            if *self.stopping.borrow() || !self.is_there() {
                return Ok(());
            }
        }
    }

    /// Returns the settings of the workspace, and the number of its configuration.
    fn configured(&self) -> Result<(WorkspaceSettings, u64), Setback> {
        let config = self.shared.view(|view, _| view.config(&self.workspace));
        let settings = self.settings.of(self.shared.hosts_of(&self.workspace), &config).map_err(Setback::Config)?;
        Ok((settings, config.revision))
    }

    /// Returns whether the workspace is still the one whose mirror was opened, wasn't removed since and isn't at rest.
    fn is_there(&self) -> bool {
        let found = |view: &mut ClusterView, _| view.is_awake(&self.workspace).then(|| view.stream_id(&self.workspace));
        self.shared.view(found) == Some(self.stream_id.clone())
    }

    async fn follow_from_here(&mut self) -> Result<Followed, Setback> {
        self.stream_id = self.shared.view(|view, _| view.stream_id(&self.workspace));
        // What the registry never saw removed is missed, unless a human said otherwise.
        let replaced = self.shared.accept_missing || self.shared.view(|view, _| view.is_again(&self.workspace));
        let known = self.stream_id.as_deref().filter(|_| replaced);
        let aside = all_set_aside(&self.shared.registry, &self.workspace).await.map_err(io::Error::other)?;
        let mirror = Mirror::open_known(&self.shared.nats, &self.workspace, &self.dir, known, &aside).await?;
        let snapshot = mirror.snapshots().load().unwrap_or_default();
        let saved = snapshot.as_ref().map_or(Seq(0), |(at, _)| *at);
        let reader = mirror.reader();
        let core = replay(snapshot, reader.as_ref(), mirror.archive().as_ref()).map_err(BootError::from)?;
        let index = open_index(&self.dir, reader.as_ref())?;
        Ok(Followed { mirror, core, index, heard: None, let_go: 0, saved })
    }

    /// Follows the log until this node should lead; returns the revision of the lease that it should take then, and `None`
    /// when the node stops, or the workspace rests or is removed.
    async fn follow(&mut self, followed: &mut Followed) -> Result<Option<u64>, Setback> {
        let (mut catching_up, mut synced, mut asked) = (CatchingUp::new(), false, Stopwatch::start());
        let (mut ending, mut looks) = (self.stopping.clone(), self.shared.looks.subscribe());
        let Followed { mirror, core, index, heard, let_go, .. } = followed;
        let (reader, mut fault, mut noted) = (mirror.reader(), None, (0, true));
        loop {
            let archived = self.shared.view(|view, _| view.archived(&self.workspace));
            if archived > *let_go {
                *let_go = archived;
                if let Err(error) = give_back_room(mirror, index).await {
                    tracing::warn!(%error, "a follower keeps what left the log");
                }
            }
            let (last, lag) = (mirror.last(), mirror.lag());
            self.shared.note(&self.workspace, |standing| {
                (standing.last, standing.lag) = (last, lag);
                (standing.follows, standing.fault) = (fault.is_none(), fault.clone());
            });
            let followed = {
                // Kept over the looks: a reader that begins anew after each of them would never get anywhere.
                let mut following = pin!(mirror.follow());
                loop {
                    // Before it leads: a leader lets go of nothing that another one moved.
                    if self.shared.view(|view, _| view.archived(&self.workspace)) > *let_go {
                        break Ok(Vec::new());
                    }
                    if let Some(revision) = self.shared.wants(&self.workspace) {
                        return Ok(Some(revision));
                    }
                    if !self.is_there() {
                        return Ok(None);
                    }
                    let known = (core.state().credentials.len(), self.shared.heartbeat.is_valid());
                    if std::mem::replace(&mut noted, known) != known {
                        self.shared.note_tokens(&self.workspace, core.state().credentials.keys().copied().collect());
                    }
                    if catching_up.is_due(last) {
                        if let Err(error) = index.catch_up(reader.as_ref(), &mut |_, _| {}) {
                            tracing::warn!(%error, "a follower's read model doesn't catch up");
                        }
                        catching_up.done(last);
                    }
                    if !synced && asked.elapsed() >= INDEX_EVERY {
                        (synced, asked) = (self.sync_files().await, Stopwatch::start());
                    }
                    let pause = if synced && catching_up.at == last { LOOK_EVERY } else { INDEX_EVERY };
                    tokio::select! {
                        followed = &mut following => break followed,
                        _ = looks.changed() => {}
                        () = tokio::time::sleep(pause) => {}
                        () = ended(&mut ending) => return Ok(None),
                    }
                }
            };
            let entries = match followed {
                Ok(entries) => entries,
                // What it has read stays good, so it is ready as soon as it hears again.
                Err(MirrorError::Nats(error)) => {
                    if fault.is_none() {
                        tracing::warn!(workspace = self.workspace, %error, "this node doesn't hear the workspace; it tries again");
                    }
                    fault = Some(error.to_string());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            fault = None;
            fold_all(core, &entries);
            // What it reads late was written earlier.
            if !entries.is_empty() && lag == 0 && mirror.lag() == 0 && self.shared.hears() {
                *heard = Some(Stopwatch::start());
            }
        }
    }

    /// Fetches the small files once there are some, so that people find the first human's token on every node.
    async fn sync_files(&self) -> bool {
        let (registry, workspace) = (&self.shared.registry, self.workspace.as_str());
        match has_files(registry, workspace).await {
            Ok(true) => match RegistryFiles::open(registry, workspace, 0, &Files::local(&self.dir)).await {
                Ok(_) => true,
                Err(error) => {
                    tracing::warn!(workspace, %error, "the workspace's small files weren't fetched");
                    false
                }
            },
            Ok(false) | Err(_) => false,
        }
    }

    fn lease(&self, released: bool, After { next, rest }: After) -> LeaseRecord {
        let (node, session) = (self.shared.name.clone(), self.shared.session.clone());
        LeaseRecord { node, session, released, next, rest, rested: self.rested }
    }

    /// Takes the lease of this revision; returns its new revision if this node has it now.
    async fn take(&mut self, revision: u64) -> Option<u64> {
        self.rested = self.shared.view(|view, now| view.rested(&self.workspace, now)).map(|(rested, _)| rested);
        let key = lease_key(&self.workspace);
        let lease = serde_json::to_vec(&self.lease(false, After::default())).unwrap_or_default();
        let taken = match revision {
            0 => self.shared.registry.create(&key, &lease).await,
            revision => self.shared.registry.replace(&key, &lease, revision).await,
        };
        match taken {
            Ok(lease) => Some(lease),
            Err(error) => {
                tracing::info!(workspace = self.workspace, %error, "the lease was not taken");
                // A lost answer leaves a lease of this session that nobody uses: the next look sees it.
                let found = self.shared.registry.get(&key).await.ok().flatten()?;
                let lease = crate::parse::<LeaseRecord>(&found)?;
                let own = lease.session == self.shared.session && !lease.released && found.revision > revision;
                own.then_some(found.revision)
            }
        }
    }

    /// Releases the lease of this revision, while it may still be this node's.
    async fn release(&self, revision: u64, after: After) {
        if !self.shared.heartbeat.is_valid() {
            return;
        }
        let lease = self.lease(true, after);
        if let Err(error) = self.shared.replace_lease(&self.workspace, &lease, revision).await {
            tracing::warn!(workspace = self.workspace, %error, "the lease was not released; it expires");
        }
    }

    /// Leads the workspace with the lease of this revision until it should stop, and releases it then.
    async fn lead(
        &mut self,
        revision: u64,
        followed: Followed,
        mut settings: WorkspaceSettings,
        config: u64,
    ) -> Result<(), Setback> {
        let took = Stopwatch::start();
        let Followed { mirror, mut core, index, heard, .. } = followed;
        let is_new = mirror.epoch() == 0;
        // A log that moved in brings its epochs along.
        let epoch = revision.max(mirror.epoch() + 1);
        let heartbeat = self.shared.heartbeat.clone();
        let Some(stretch) = heartbeat.stretch() else { return Ok(()) };
        let lease = Arc::new(move || heartbeat.stretch() == Some(stretch));
        let (log, entries) = match mirror.lead(epoch, &self.shared.name, lease).await {
            Ok(leading) => leading,
            Err((_mirror, error)) => return Err(error.into()),
        };
        fold_all(&mut core, &entries);
        let local = Files::local(&self.dir);
        let copies = Arc::new(RegistryFiles::open(&self.shared.registry, &self.workspace, epoch, &local).await?);
        // Once for a start: the one that is written since then is the new one, whichever node wrote it.
        settings.renew_operator_token &= copies.revision(FILE_OPERATOR_TOKEN) <= self.shared.started_at;
        let gap = self.gap(core.state().at, heard);
        let opening = Opening {
            log,
            core: Some(core),
            gap,
            index,
            files: Files::copied(&self.dir, copies),
            reserve: Some(self.shared.dir.join(FILE_RESERVE)),
            transport: self.shared.transport,
            url: self.shared.url_of(&self.workspace),
            nodes: Some(Arc::new(NodesOf {
                shared: Arc::clone(&self.shared),
                workspace: self.workspace.clone(),
                stretch,
            })),
        };
        let mut workspace = Workspace::open(settings, opening).await?;
        let routes = app(workspace.context().clone(), &self.settings.mounts, self.settings.pages);
        let ctx = workspace.context().clone();
        let open = Arc::new(Open::new(routes, ctx.handle.clone(), epoch, stretch));
        let (mut stopping, calls) = (workspace.context().stopping.clone(), Arc::clone(&open));
        let sessions = Arc::clone(&workspace.context().sessions);
        workspace.spawn(async move {
            ended(&mut stopping).await;
            while calls.calls.load(Ordering::Acquire) > 0 || sessions.load(Ordering::Acquire) > 0 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Ok(())
        });
        workspace.spawn(tell_of_archive(
            self.shared.registry.clone(),
            self.workspace.clone(),
            workspace.context().clone(),
        ));
        self.shared.open(&self.workspace, Some(Arc::clone(&open)));
        let ms = took.elapsed().as_millis();
        tracing::info!(workspace = self.workspace, epoch, ms, "this node leads the workspace");
        let led = Led { revision, config, open, ctx, woken: is_new || matches!(gap, Gap::Rested(_)) };
        let (stop, drain) = self.serve(&led).await;
        self.shared.open(&self.workspace, None);
        self.close(workspace, &led, stop, drain).await;
        Ok(())
    }

    /// Closes a workspace that is served no longer, and tells who should go on.
    async fn close(&mut self, mut workspace: Workspace, led: &Led, why: Stop, drain: Duration) {
        workspace.drain(drain).await;
        let after = match why {
            Stop::Next(next) => After { next, rest: None },
            // Only now: the last calls may have begun what is due sooner.
            Stop::Unused => After { next: None, rest: self.rest(led).await },
        };
        if after.next.is_some() {
            led.ctx.signer.pass_on();
        }
        workspace.end_writers().await;
        let (epoch, next, rests) = (led.open.epoch, &after.next, after.rest.is_some());
        tracing::info!(workspace = self.workspace, epoch, next, rests, "this node leads the workspace no longer");
        // Before the rest of the end, for which the next leader need not wait.
        self.release(led.revision, after).await;
        let first = led.ctx.archives.first.clone();
        workspace.end().await;
        // A part that left while the last calls ended: the task that tells of it was over by then.
        let first = *first.borrow();
        tell_first(&self.shared.registry, &self.workspace, first).await;
    }

    /// Returns what is known of the time since the log's last fact, which is of this time.
    fn gap(&self, last: Time, heard: Option<Stopwatch>) -> Gap {
        match self.shared.view(|view, now| view.rested(&self.workspace, now)) {
            Some((rested, now)) if last <= Time(rested.at).plus(CLOSE_MS) => Gap::Rested(now),
            Some(_) | None => heard.map_or(Gap::Unknown, |heard| Gap::Idle(heard.elapsed())),
        }
    }

    /// Returns whether the workspace may rest: nobody uses it, and nothing is due soon.
    async fn may_rest(&self, led: &Led) -> bool {
        // The one of calls that name none answers strangers, too.
        let Some(after) = self.shared.rest_after.filter(|_| self.workspace != WORKSPACE_MAIN) else { return false };
        if led.ctx.sessions.load(Ordering::Acquire) > 0 {
            led.open.touch();
            return false;
        }
        let limit = |unused| if unused && led.woken { after.min(UNUSED_MAX) } else { after };
        let unused = led.open.unused_for().is_some_and(|(since, unused)| since >= limit(unused));
        if !unused || !self.shared.view(|view, now| view.may_rest(now)) {
            return false;
        }
        let soon = u64::try_from(after.min(REST_MIN).as_millis()).unwrap_or(u64::MAX);
        match led.ctx.agenda().await {
            Ok(agenda) => !agenda.busy && agenda.next.is_none_or(|next| next.since(agenda.now) >= soon),
            Err(_) => false,
        }
    }

    /// Returns the rest that begins, and notes when; `None` if the broker doesn't serve, so that another one should lead.
    async fn rest(&mut self, led: &Led) -> Option<Rest> {
        let agenda = led.ctx.agenda().await.ok()?;
        self.rested = Some(Rested { at: agenda.now.0, since: wall().0 });
        Some(Rest {
            lasts_ms: agenda.next.map(|next| next.since(agenda.now)),
            tokens: Rest::tokens(&led.ctx.handle.credentials()),
            config: led.config,
        })
    }

    /// Waits until the workspace should be closed; returns why, and how long calls may take to end.
    async fn serve(&self, led: &Led) -> (Stop, Duration) {
        let handle = &led.ctx.handle;
        let (mut failed, mut ending) = (handle.failed(), self.stopping.clone());
        let mut looks = self.shared.looks.subscribe();
        loop {
            tokio::select! {
                found = failed.wait_for(Option::is_some) => {
                    let reason = found.ok().and_then(|found| found.as_ref().map(|failed| failed.reason.clone()));
                    tracing::error!(workspace = self.workspace, ?reason, "the broker failed");
                    return (Stop::Next(None), Duration::ZERO);
                }
                () = ended(&mut ending) => return (Stop::Next(self.shared.successor(&self.workspace)), DRAIN_MAX),
                _ = looks.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            let last = *handle.committed().borrow();
            self.shared.note(&self.workspace, |standing| {
                (standing.last, standing.lag, standing.follows, standing.fault) = (last, 0, true, None);
            });
            if !self.shared.holds(&led.open) || self.shared.lost(&self.workspace, led.revision) {
                tracing::warn!(workspace = self.workspace, "the lease is over");
                self.shared.note_tokens(&self.workspace, handle.credentials());
                return (Stop::Next(None), Duration::ZERO);
            }
            if let Some(next) = self.shared.hand_over(&self.workspace) {
                return (Stop::Next(Some(next)), DRAIN_MAX);
            }
            if !self.is_there() {
                return (Stop::Next(None), DRAIN_MAX);
            }
            // With the new configuration it opens anew, here.
            if self.shared.view(|view, _| view.config(&self.workspace)).revision != led.config {
                return (Stop::Next(Some(self.shared.name.clone())), DRAIN_MAX);
            }
            if self.may_rest(led).await {
                return (Stop::Unused, DRAIN_MAX);
            }
        }
    }
}

/// A workspace that this node leads.
struct Led {
    /// The revision of its lease.
    revision: u64,
    /// The number of its configuration.
    config: u64,
    open: Arc<Open>,
    ctx: Context,
    /// Whether it was at rest, or nobody ever led it: what woke it may be all that there was to do.
    woken: bool,
}

/// The nodes of a workspace, as this one knows them.
struct NodesOf {
    shared: Arc<Shared>,
    workspace: String,
    /// The stretch of renewals in which the lease was won.
    stretch: u64,
}

impl Nodes for NodesOf {
    fn leads(&self) -> bool {
        self.shared.heartbeat.stretch() == Some(self.stretch)
    }

    fn nodes(&self) -> NodesView {
        self.shared.view(|view, now| {
            let leader = view.leader(&self.workspace, now);
            let node = |(name, info, alive): (&str, &NodeInfo, bool)| NodeView {
                name: name.to_owned(),
                url: info.url.clone(),
                version: info.version.clone(),
                alive,
                able: !info.unfit.contains(&self.workspace),
            };
            let nodes = view.nodes(now).map(node).collect();
            NodesView {
                nodes,
                epoch: leader.as_ref().map_or(0, |leader| leader.epoch),
                leader: leader.map(|it| it.node),
                stores: self.shared.lagging().iter().map(ToString::to_string).collect(),
            }
        })
    }
}

/// Lets go of what left the stream, in the mirror and in the read model.
async fn give_back_room(mirror: &mut Mirror, index: &mut Index) -> Result<(), Setback> {
    let first = mirror.let_go().await?;
    Ok(index.trim(first)?)
}

fn fold_all(core: &mut Core, entries: &[(Seq, Entry)]) {
    entries.iter().for_each(|(_, entry)| fold(core, entry));
}
