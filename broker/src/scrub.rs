//! Reads the whole log once a week, slowly, so that a row that the disk changed is found while a backup still has the
//! good one (L5). Reading checks each row's hash.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lastword_facts::{Seq, Time};
use lastword_store::{LogReader, ReadError};
use lastword_wire::{Scrub, ScrubFault, parse_rfc3339, rfc3339};
use tokio::sync::watch;

use crate::files::write_private;
use crate::handle::Handle;
use crate::priority;
use crate::sync::thread::{self, JoinHandle};

/// The file with the last scrub's result.
const FILE_SCRUB: &str = "scrub.json";
/// The time between two scrubs.
const EVERY_MS: u64 = 7 * 24 * 60 * 60 * 1_000;
/// How often the time of the next scrub is compared with the clock.
const LOOK_EVERY: Duration = Duration::from_secs(600);
/// Entries that are read at a time; long ones come in shorter reads.
const ENTRIES_PER_READ: usize = 1_024;
/// The pause behind each read: about 20 MB/s at most.
const PAUSE: Duration = Duration::from_millis(50);

/// What the last scrub found, for the readiness report.
#[derive(Clone, Default)]
pub struct LastScrub(Arc<Mutex<Option<Scrub>>>);

impl LastScrub {
    /// Reads what an earlier process found.
    fn open(path: &Path) -> Self {
        let found = std::fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Self(Arc::new(Mutex::new(found)))
    }

    /// Returns what it found; `None` before the first one ended.
    #[must_use]
    pub fn found(&self) -> Option<Scrub> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, path: &Path, scrub: Scrub) {
        let bytes = serde_json::to_vec(&scrub).unwrap_or_default();
        if let Err(error) = write_private(path, &bytes) {
            tracing::warn!(%error, "the result of the scrub was not kept");
        }
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(scrub);
    }
}

/// Starts the thread that scrubs the log. It ends once `stopping` becomes true.
///
/// # Errors
/// The system can't start the thread.
pub fn start(
    reader: Arc<dyn LogReader>,
    handle: Handle,
    dir: &Path,
    mut stopping: watch::Receiver<bool>,
) -> io::Result<(LastScrub, JoinHandle<()>)> {
    let path = dir.join(FILE_SCRUB);
    let last = LastScrub::open(&path);
    let kept = last.clone();
    let wait = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let run = move || {
        // The disk, too, serves a thread of the lowest priority last.
        priority::lower(priority::NEVER_URGENT);
        let mut pause = |time| {
            let stopped = async { tokio::time::timeout(time, stopping.wait_for(|stopping| *stopping)).await };
            wait.block_on(stopped).is_err()
        };
        while pause(LOOK_EVERY) {
            let last = kept.found().and_then(|scrub| parse_rfc3339(&scrub.at));
            let due = last.is_none_or(|last| handle.now() >= Time(last.0.saturating_add(EVERY_MS)));
            if !due {
                continue;
            }
            let Some(found) = scrub(reader.as_ref(), &mut || pause(PAUSE)) else { return };
            let scrub = Scrub { at: rfc3339(handle.now()), ..found };
            if let Some(fault) = &scrub.fault {
                tracing::error!(at = fault.at, problem = %fault.problem, "the log has changed on the disk");
            }
            kept.keep(&path, scrub);
        }
    };
    Ok((last, thread::Builder::new().name("scrub".into()).spawn(run)?))
}

/// Reads the whole log, and leaves the time to the caller; `None` if `pause` says that the server stops.
fn scrub(reader: &dyn LogReader, pause: &mut dyn FnMut() -> bool) -> Option<Scrub> {
    let failed = |error: &ReadError, at: Seq| {
        let at = if let ReadError::Damaged { at, .. } = error { *at } else { at };
        Scrub { at: String::new(), upto: at.0, fault: Some(ScrubFault { at: at.0, problem: error.to_string() }) }
    };
    let mut next = match reader.first() {
        Ok(first) => first,
        Err(error) => return Some(failed(&error, Seq(0))),
    };
    loop {
        match reader.read(next, ENTRIES_PER_READ) {
            Err(error) => return Some(failed(&error, next)),
            Ok(entries) => match entries.last() {
                None => return Some(Scrub { at: String::new(), upto: next.0.saturating_sub(1), fault: None }),
                Some((last, _)) => next = Seq(last.0 + 1),
            },
        }
        if !pause() {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use lastword_core::{Core, Input, Out};
    use lastword_facts::Limits;
    use lastword_store::{Log as _, MemoryLog};

    use super::*;

    #[test]
    fn a_scrub_reads_to_the_end_of_the_log_and_ends_with_the_server() {
        let (mut log, mut core, mut out) = (MemoryLog::new(), Core::default(), Out::default());
        for n in 1..=3_000 {
            let limits = Limits { inbox_max: n, ..Limits::default() };
            core.handle(Time(n), Input::Configure(Box::new(limits)), &mut out);
        }
        let epoch = log.begin_epoch().unwrap();
        let entries: Vec<_> = out.entries.into_iter().map(Arc::new).collect();
        let last = log.append(epoch, Seq(0), &entries).unwrap();
        let mut reads = 0;
        let found = scrub(log.reader().as_ref(), &mut || {
            reads += 1;
            true
        });
        assert_eq!((found.map(|scrub| (scrub.upto, scrub.fault.is_none())), reads > 1), (Some((last.0, true)), true));
        assert!(scrub(log.reader().as_ref(), &mut || false).is_none(), "the server stops");
    }
}
