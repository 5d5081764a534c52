//! Starts the broker: loads the snapshot, replays the rest of the log, takes the epoch, starts the threads.

use std::io;
use std::sync::{Arc, RwLock};

use lastword_core::{Core, Input, Out, Principal, State};
use lastword_facts::fact::EDITION;
use lastword_facts::{Entry, Fact, Limits, Seq, Time};
use lastword_store::{AppendError, Archive, Log, LogReader, ReadError};
use tokio::sync::watch;

use crate::clock::{Clock, Gap, Source, Stopwatch};
use crate::disk::Disk;
use crate::handle::{BrokerShared, Handle};
use crate::holders::Holders;
use crate::identity::{Directory, TurnSigner};
use crate::judge::{Judge, QUEUE_MAX};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::recent::Recent;
use crate::sync::Mutex;
use crate::sync::thread::{self, JoinHandle};
use crate::wakes::Wakes;
use crate::writer::{Batch, Writing};

/// Entries read at once while replaying; bounds the memory of a start.
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
    /// The system can't start another thread.
    #[error("no thread for the broker: {0}")]
    Thread(#[from] io::Error),
}

/// Rebuilds the state from the log, sets `limits` if they differ from those in force, and starts the broker's threads.
///
/// # Errors
/// The log can't be read or written, or the system can't start a thread.
pub fn boot(log: Box<dyn Log>, signer: TurnSigner, limits: Limits) -> Result<(Handle, JoinHandle<()>), BootError> {
    boot_by(
        Boot { clocks: Source::machine(), disk: Arc::default(), core: None, gap: Gap::Unknown },
        log,
        signer,
        limits,
    )
}

/// What a broker starts with besides its log.
pub struct Boot {
    /// The clocks that its time follows.
    pub clocks: Source,
    /// The disk of the log.
    pub disk: Arc<Disk>,
    /// The fold of a part of the log, instead of the snapshot's.
    pub core: Option<Core>,
    /// What is known of the time since the last entry.
    pub gap: Gap,
}

/// Does the same as [`boot`], with the given clocks, disk and core.
///
/// # Errors
/// See [`boot`].
pub fn boot_by(
    Boot { clocks, disk, core, gap }: Boot,
    mut log: Box<dyn Log>,
    signer: TurnSigner,
    limits: Limits,
) -> Result<(Handle, JoinHandle<()>), BootError> {
    let (mut core, snapshot) = match core {
        Some(core) => follow_up(core, log.as_ref())?,
        None => rebuild(log.as_ref())?,
    };
    // A start must succeed on a full disk too: without a running broker no human can stop work.
    let epoch = disk.with_reserve(|| log.begin_epoch(), AppendError::is_full)?;
    // An empty log has no last fact; its clock starts at the wall clock's time.
    let last_fact = Some(core.state().at).filter(|_| core.state().seq > Seq(0));
    let clock = Clock::starting_after(clocks, last_fact, gap);
    begin(&mut core, log.as_mut(), &disk, epoch, &clock, limits)?;
    let (committed, watching) = watch::channel(core.state().seq);
    let (milestones, due) = watch::channel(snapshot);
    let shared = Arc::new(BrokerShared {
        queue: Queue::new(QUEUE_MAX),
        recent: Mutex::new(Recent::after(core.state().seq)),
        reader: log.reader(),
        clock,
        disk,
        directory: Directory::of(core.state()),
        signer,
        wakes: Wakes::default(),
        holders: Holders::new(core.state().limits.holder_ms),
        saving: Mutex::default(),
        unread: Mutex::default(),
        limits: RwLock::new(Arc::new(core.state().limits.clone())),
        metrics: Metrics::of(core.state()),
        committed: watching,
        milestones: due,
        failed: watch::Sender::new(None),
    });
    let writing = Writing::start(log, epoch, Arc::clone(&shared), committed, milestones)?;
    let batch = Batch::after(core.state().seq);
    let dropped_batches = shared.disk.lost();
    let judge = Judge {
        core,
        writing,
        shared: Arc::clone(&shared),
        out: Out::default(),
        batch,
        last_was_small: true,
        dropped_batches,
        since_disk_check: Stopwatch::start(),
    };
    let thread = thread::Builder::new().name("broker".into()).spawn(move || judge.run())?;
    Ok((Handle(shared), thread))
}

/// Returns the core as of the end of the log, and the snapshot's position. An unusable snapshot costs a longer replay,
/// nothing else.
pub(crate) fn rebuild(log: &dyn Log) -> Result<(Core, Seq), ReadError> {
    let loaded = log.snapshots().load().unwrap_or_else(|error| {
        tracing::warn!(%error, "the snapshot can't be read; replaying the whole log");
        None
    });
    let snapshot = loaded.as_ref().map_or(Seq(0), |(at, _)| *at);
    let (reader, archive) = (log.reader(), log.archive());
    let core = replay(loaded, reader.as_ref(), archive.as_ref())?;
    let first = reader.first()?;
    if first > Seq(1) && archive.base().unwrap_or_default().and_then(|(at, bytes)| usable(at, &bytes, first)).is_none()
    {
        // The segments may be carried elsewhere: the next start must not need them.
        let saved = postcard::to_allocvec(core.state()).map_err(|error| error.to_string());
        let saved = saved.and_then(|bytes| archive.save_base(core.state().seq, &bytes).map_err(|e| e.to_string()));
        if let Err(error) = saved {
            tracing::warn!(%error, "the state that replaces the archive can't be saved: keep the archive's files");
        }
    }
    Ok((core, snapshot))
}

/// Folds the rest of the log into a core; returns it with the snapshot's position.
fn follow_up(core: Core, log: &dyn Log) -> Result<(Core, Seq), ReadError> {
    let snapshot = log.snapshots().load().ok().flatten().map_or(Seq(0), |(at, _)| at);
    Ok((fold_rest(core, log.reader().as_ref(), log.archive().as_ref())?, snapshot))
}

/// Returns the core of a stored state if this version of the program wrote it and the log goes on behind it.
fn usable(at: Seq, bytes: &[u8], first: Seq) -> Option<Core> {
    let state = postcard::from_bytes::<State>(bytes).ok();
    // Bytes of another version may decode by accident; the position in them would hardly match then.
    state.filter(|state| state.seq == at && at.0 + 1 >= first.0).map(Core::from_state)
}

/// Folds the log into a core, from the snapshot if this version of the program wrote it, otherwise from the start.
///
/// # Errors
/// The log or its archive can't be read, or what a snapshot covered is gone from both.
pub fn replay(snapshot: Option<(Seq, Vec<u8>)>, log: &dyn LogReader, archive: &dyn Archive) -> Result<Core, ReadError> {
    let first = log.first()?;
    let usable = |(at, bytes): (Seq, Vec<u8>)| usable(at, &bytes, first);
    let core = match snapshot.and_then(usable) {
        Some(core) => core,
        None if first == Seq(1) => Core::default(),
        None => match archive.base().unwrap_or_default().and_then(usable) {
            Some(core) => core,
            None => archived(archive, first)?,
        },
    };
    fold_rest(core, log, archive)
}

/// Folds what the log has behind the core.
fn fold_rest(mut core: Core, log: &dyn LogReader, archive: &dyn Archive) -> Result<Core, ReadError> {
    let first = log.first()?;
    let usable = |(at, bytes): (Seq, Vec<u8>)| usable(at, &bytes, first);
    loop {
        let entries = log.read(Seq(core.state().seq.0 + 1), REPLAY_BATCH)?;
        let Some((at, next)) = entries.first() else { return Ok(core) };
        let wanted = core.state().seq.0 + 1;
        let begins_epoch = matches!(next.fact, Fact::EpochBegan { .. }) && log.first()?.0 <= wanted;
        if at.0 != wanted && !begins_epoch {
            // Entries moved to the archive since the read before. Their base was saved first.
            core =
                archive.base().unwrap_or_default().and_then(usable).filter(|base| base.state().seq >= *at).ok_or_else(
                    || ReadError::Damaged {
                        at: *at,
                        problem: "what precedes it is neither in the log nor in the base".to_owned(),
                    },
                )?;
            continue;
        }
        for (_seq, entry) in &entries {
            fold(&mut core, entry);
        }
    }
}

/// Folds the archive into a core: what a log without a usable snapshot or base begins with.
fn archived(archive: &dyn Archive, first: Seq) -> Result<Core, ReadError> {
    let mut core = Core::default();
    archive.walk(&mut |_, entry| fold(&mut core, entry)).map_err(|error| {
        let from = first.0;
        let reason = format!(
            "the log begins at {from}, no state of this version replaces what is before, and its archive can't be read: {error}"
        );
        ReadError::Unavailable { reason }
    })?;
    Ok(core)
}

/// Folds one entry of the log into a core.
pub fn fold(core: &mut Core, entry: &Entry) {
    if let Err(mismatch) = core.replay(entry) {
        // The fact is in the log and therefore holds. `lastword verify` finds out whether the log was altered.
        tracing::error!(%mismatch, "the log doesn't follow from itself");
    }
}

/// Gives the core its first inputs: how long the broker was down, and the limits of the configuration.
fn begin(
    core: &mut Core,
    log: &mut dyn Log,
    disk: &Disk,
    epoch: u64,
    clock: &Clock,
    limits: Limits,
) -> Result<(), AppendError> {
    let expect = core.state().seq;
    let mut out = Out::default();
    if let Some(ms) = clock.downtime() {
        idled(core, clock, None, ms, &mut out);
    }
    // A new log always records its limits, defaults included, so that a replay needs no configuration.
    if core.state().limits != limits || expect == Seq(0) {
        core.handle(clock.now(), Input::Configure(Box::new(limits)), &mut out);
    }
    upgrade(core, clock, expect, &mut out);
    append(log, disk, epoch, expect, out)
}

fn append(log: &mut dyn Log, disk: &Disk, epoch: u64, expect: Seq, out: Out) -> Result<(), AppendError> {
    if out.entries.is_empty() {
        return Ok(());
    }
    let entries: Vec<_> = out.entries.into_iter().map(Arc::new).collect();
    disk.with_reserve(|| log.append(epoch, expect, &entries), AppendError::is_full).map(|_| ())
}

/// The moment from which the first numbers of epochs are counted: 2025-01-01 00:00 UTC, in seconds since the Unix epoch.
const EPOCHS_SINCE_S: u64 = 1_735_689_600;
/// Numbers per second between two epochs: more than a broker can issue.
const EPOCH_NUMBERS_PER_S: u64 = 1_000_000;

/// Begins a new epoch in a restored log (L8) and returns its first position. Positions and ids go on behind all that the
/// broker can have issued after the backup, here or in an earlier restore of it: `now` is the wall clock.
///
/// # Errors
/// The log can't be read or written.
pub fn begin_epoch(log: &mut dyn Log, now: Time) -> Result<Seq, BootError> {
    let mut core = replay(None, log.reader().as_ref(), log.archive().as_ref())?;
    let expect = core.state().seq;
    let by_clock = (now.0 / 1_000).saturating_sub(EPOCHS_SINCE_S).saturating_mul(EPOCH_NUMBERS_PER_S);
    // A clock that was set back must not repeat numbers.
    let by_log = core.state().last_number().saturating_add(EPOCH_NUMBERS_PER_S);
    let first = Seq(by_clock.max(by_log) + 1);
    let (epoch, mut out) = (log.begin_epoch()?, Out::default());
    core.handle(core.state().at, Input::BeginEpoch(first), &mut out);
    append(log, &Disk::default(), epoch, expect, out)?;
    Ok(first)
}

/// Records that an older log follows the rules of this edition from here on. Existing entries keep the rules of their
/// own edition.
fn upgrade(core: &mut Core, clock: &Clock, end: Seq, out: &mut Out) {
    let before = core.state().edition;
    if before >= EDITION {
        return;
    }
    core.handle(clock.now(), Input::Upgrade(EDITION), out);
    if end > Seq(0) {
        tracing::info!(
            from = before,
            to = EDITION,
            behind = end.0,
            "the log was upgraded: the rules of a newer edition hold for what is recorded from here on"
        );
    }
}

/// Jumps over a stretch in which the broker didn't run, or one that a human accepts (L6); returns the length of the jump
/// in ms. The core first, then the clock: no input handled in between can mistake the stretch for time that passed.
pub(crate) fn idled(core: &mut Core, clock: &Clock, by: Option<Principal>, ms: u64, out: &mut Out) -> u64 {
    let then = clock.now().plus(ms);
    core.handle(then, Input::Idled(by, ms), out);
    // The core refuses a jump that the caller may not make; then the clock must not move either.
    if core.state().at != then {
        return 0;
    }
    clock.jump(ms);
    ms
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use lastword_store::{Base, MemoryLog};

    use super::*;

    /// Reads few entries at once, and has a segment leave the log before the third read.
    struct Moving {
        log: MemoryLog,
        base: Vec<u8>,
        reads: AtomicUsize,
    }

    impl LogReader for Moving {
        fn first(&self) -> Result<Seq, ReadError> {
            self.log.first()
        }

        fn last(&self) -> Result<Seq, ReadError> {
            self.log.last()
        }

        fn entry(&self, seq: Seq) -> Result<Option<Entry>, ReadError> {
            LogReader::entry(&self.log, seq)
        }

        fn read(&self, from: Seq, max: usize) -> Result<Vec<(Seq, Entry)>, ReadError> {
            if self.reads.fetch_add(1, Ordering::Relaxed) == 2 {
                self.log.seal(Seq(30), u64::MAX, Base { at: Seq(40), state: &self.base }).unwrap().unwrap();
            }
            self.log.read(from, max.min(10))
        }
    }

    #[test]
    fn a_replay_notices_that_entries_moved_to_the_archive_meanwhile() {
        let (mut core, mut log, mut base) = (Core::default(), MemoryLog::new(), Vec::new());
        let epoch = log.begin_epoch().unwrap();
        for n in 1..=60 {
            let mut out = Out::default();
            let limits = Limits { depth_max: 5 + n % 2, ..Limits::default() };
            core.handle(Time(n), Input::Configure(Box::new(limits)), &mut out);
            let entries: Vec<_> = out.entries.into_iter().map(Arc::new).collect();
            assert_eq!(entries.len(), 1);
            log.append(epoch, Seq(n - 1), &entries).unwrap();
            if n == 40 {
                base = postcard::to_allocvec(core.state()).unwrap();
            }
        }
        let moving = Moving { log: log.clone(), base, reads: AtomicUsize::default() };
        let replayed = replay(None, &moving, &log).unwrap();
        assert_eq!(moving.first().unwrap(), Seq(31));
        assert_eq!(replayed.state(), core.state());
    }
}
