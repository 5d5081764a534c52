//! Starting the broker: snapshot, tail, epoch, thread.

use std::io;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use lastword_proto::{Core, Entry, Input, Limits, Out, Seq, State};
use lastword_store::{AppendError, Log, ReadError};
use tokio::sync::watch;

use super::handle::{Handle, Shared};
use super::queue::Queue;
use super::recent::Recent;
use super::wakes::Wakes;
use super::writer::{Batch, Writing};
use super::{Broker, QUEUE_MAX};
use crate::clock::Clock;
use crate::identity::{Directory, TurnSigner};
use crate::metrics::Metrics;

/// Entries read at once while replaying.
const REPLAY_BATCH: usize = 16_384;

/// Why the broker can't start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The log can't be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The log can't be written.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// The system has no thread to give.
    #[error("no thread for the broker: {0}")]
    Thread(#[from] io::Error),
}

/// Rebuilds the state from the log, puts `limits` into force where they differ, and starts the thread.
///
/// # Errors
/// The log can't be read or written.
pub fn boot(mut log: Box<dyn Log>, signer: TurnSigner, limits: Limits) -> Result<(Handle, JoinHandle<()>), BootError> {
    let (mut core, snapshot) = rebuild(log.as_ref())?;
    let epoch = log.begin_epoch()?;
    let clock = Clock::starting_at(core.state().at);
    configure(&mut core, log.as_mut(), epoch, &clock, limits)?;
    let (committed, watching) = watch::channel(core.state().seq);
    let (milestones, due) = watch::channel(snapshot);
    let shared = Arc::new(Shared {
        queue: Queue::new(QUEUE_MAX),
        recent: Mutex::new(Recent::behind(core.state().seq)),
        reader: log.reader(),
        clock,
        directory: Directory::of(core.state()),
        signer,
        wakes: Wakes::default(),
        saving: Mutex::default(),
        unread: Mutex::default(),
        limits: core.state().limits.clone(),
        metrics: Metrics::default(),
        committed: watching,
        milestones: due,
        failed: watch::Sender::new(None),
    });
    let writing = Writing::start(log, epoch, Arc::clone(&shared), (committed, milestones))?;
    let batch = Batch::behind(core.state().seq);
    let broker = Broker { core, writing, shared: Arc::clone(&shared), out: Out::default(), batch, calm: true };
    let thread = thread::Builder::new().name("broker".into()).spawn(move || broker.run())?;
    Ok((Handle(shared), thread))
}

/// The core as of the end of the log, and where the snapshot was. One that can't be used costs a longer replay,
/// nothing else.
fn rebuild(log: &dyn Log) -> Result<(Core, Seq), ReadError> {
    let loaded = log.load_snapshot().unwrap_or_else(|error| {
        tracing::warn!(%error, "the snapshot can't be read; replaying the whole log");
        None
    });
    let snapshot = loaded.as_ref().map_or(Seq(0), |(at, _)| *at);
    Ok((replay(loaded, |from, max| log.read(from, max))?, snapshot))
}

/// A core from a snapshot, if it is one of this version, and everything behind it that `read` gives.
pub(super) fn replay(
    snapshot: Option<(Seq, Vec<u8>)>,
    read: impl Fn(Seq, usize) -> Result<Vec<(Seq, Entry)>, ReadError>,
) -> Result<Core, ReadError> {
    let usable = |(at, bytes): (Seq, Vec<u8>)| {
        let state = postcard::from_bytes::<State>(&bytes).ok();
        state.filter(|state| state.seq == at)
    };
    let mut core = snapshot.and_then(usable).map_or_else(Core::default, Core::from_state);
    loop {
        let entries = read(Seq(core.state().seq.0 + 1), REPLAY_BATCH)?;
        if entries.is_empty() {
            return Ok(core);
        }
        for (_seq, entry) in &entries {
            if let Err(mismatch) = core.replay(entry) {
                // The fact holds all the same; `lastword verify` tells whether the log was altered.
                tracing::error!(%mismatch, "the log doesn't follow from itself");
            }
        }
    }
}

fn configure(core: &mut Core, log: &mut dyn Log, epoch: u64, clock: &Clock, limits: Limits) -> Result<(), AppendError> {
    let expect = core.state().seq;
    if core.state().limits == limits && expect > Seq(0) {
        return Ok(());
    }
    let mut out = Out::default();
    core.handle(clock.now(), Input::Configure(Box::new(limits)), &mut out);
    if !out.entries.is_empty() {
        let entries: Vec<_> = out.entries.into_iter().map(Arc::new).collect();
        log.append(epoch, expect, &entries)?;
    }
    Ok(())
}
