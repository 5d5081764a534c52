//! Power cuts: unsynced data is lost, kept or torn, and everything acknowledged before is there.
//!
//! A writer runs under `strace`, which records every write and sync. The disk is then rebuilt as it may have been at
//! any moment of that: everything synced, and any part of what followed, in sectors.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use lastword_facts::{Entry, Seq};
use lastword_store::DataDir;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::sample::message;

/// The unit that a disk writes atomically, in bytes.
const SECTOR: usize = 512;
const APPENDS: u64 = 250;
/// The variable with the directory of a recorded writer.
const DIR: &str = "LASTWORD_POWER_DIR";

/// Returns the number of power cuts; `LASTWORD_CUTS=600` for the long run.
fn cuts() -> usize {
    std::env::var_os("LASTWORD_CUTS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(24)
}

/// Returns the seed for moments and losses; `LASTWORD_SEED=7` for others.
fn seed() -> u64 {
    std::env::var_os("LASTWORD_SEED").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(1)
}

/// Returns the entry at a position; lengths differ.
fn entry(n: u64) -> Entry {
    message(n, 1, 2, 0, &"as long as others are not ".repeat(usize::try_from(n * 7 % 60).unwrap()))
}

/// Returns the log's end after the n-th append: a few entries each, and a hundred now and then.
fn end_of(append: u64) -> u64 {
    append * 9 + append / 8 * 100
}

#[test]
#[ignore = "is the writer that the test below starts and records"]
fn the_recorded_writer() {
    let dir = std::env::var_os(DIR).expect("it is started by the test of power cuts");
    let mut log = DataDir::at(Path::new(&dir)).open().unwrap();
    let (epoch, mut last) = (log.begin_epoch().unwrap(), Seq(0));
    for append in 1..=APPENDS {
        let entries: Vec<_> = (last.0 + 1..=end_of(append)).map(entry).map(Arc::new).collect();
        last = log.append(epoch, last, &entries).unwrap();
        std::io::stdout().write_all(format!("acknowledged {}\n", last.0).as_bytes()).unwrap();
    }
}

/// The recorded events, in order.
enum Event {
    Wrote {
        file: String,
        at: usize,
        bytes: Vec<u8>,
    },
    Cut {
        file: String,
        length: usize,
    },
    Unlinked {
        file: String,
    },
    Synced {
        file: String,
    },
    /// The directory was synced: its file names.
    SyncedNames,
    Acknowledged(u64),
}

/// Records a writer; `None` if programs can't be traced, unless that is required.
fn record() -> Option<Vec<Event>> {
    let work = tempfile::tempdir().unwrap();
    let (dir, trace) = (work.path().join("data"), work.path().join("trace"));
    let calls = "trace=pwrite64,write,writev,pwritev,fsync,fdatasync,ftruncate,fallocate,rename,unlink";
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-y", "-xx", "-s", "16777216", "-e", calls, "-e", "signal=none", "-o"]).arg(&trace);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "power::the_recorded_writer", "--ignored", "--nocapture", "--test-threads=1"]);
    let ended = command.env(DIR, &dir).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if ended.is_ok_and(|status| status.success()) {
        let text = fs::read_to_string(&trace).unwrap();
        return Some(text.lines().filter_map(|line| event(line, dir.to_str().unwrap())).collect());
    }
    let told = "\nNOT TESTED: power cuts: `strace` is missing or may not trace here (Debian: apt-get install strace)\n";
    assert!(std::env::var_os("LASTWORD_STRACE").is_none(), "{told}");
    std::io::stderr().write_all(told.as_bytes()).unwrap();
    None
}

/// Parses a line of the trace, `PID call(FD<PATH>, …) = RESULT`, with texts in hex; `None` for calls about other files.
fn event(line: &str, dir: &str) -> Option<Event> {
    assert!(!line.contains("unfinished"), "one thread writes: {line}");
    let (_, call) = line.split_once(' ')?;
    let (name, rest) = call.trim_start().split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") = ")?;
    // The index that readers share with the writer is rebuilt by the first reader.
    let within = |path: &str| {
        let file = path.strip_prefix(dir)?.trim_start_matches('/');
        (!file.ends_with("-shm")).then(|| file.to_owned())
    };
    if name == "unlink" {
        let file = within(&String::from_utf8(bytes(arguments)).unwrap())?;
        return (result == "0").then_some(Event::Unlinked { file });
    }
    let (fd, rest) = arguments.split_once('<')?;
    let (path, rest) = rest.split_once('>')?;
    let path = String::from_utf8(bytes(path)).unwrap();
    let values: Vec<&str> = rest.trim_start_matches(", ").split(", ").collect();
    if name == "write" && fd == "1" {
        let said = String::from_utf8(bytes(values[0])).unwrap();
        return said.strip_prefix("acknowledged ").map(|n| Event::Acknowledged(n.trim_end().parse().unwrap()));
    }
    let file = within(&path)?;
    let number = |value: &str| value.parse().unwrap();
    match name {
        "pwrite64" => {
            let bytes = bytes(values[0]);
            assert_eq!(bytes.len(), number(result), "{name} of {file}");
            Some(Event::Wrote { file, at: number(values[2]), bytes })
        }
        "ftruncate" => Some(Event::Cut { file, length: number(values[0]) }),
        "fsync" if file.is_empty() => Some(Event::SyncedNames),
        "fsync" | "fdatasync" => Some(Event::Synced { file }),
        // The lock file holds only a process id, and a start writes the list of ignored files and the version again: none has
        // to last.
        "write" if matches!(file.as_str(), "lastword.lock" | ".gitignore" | "version") => None,
        other => panic!("the disk of this test knows no {other}: {file}"),
    }
}

/// Parses `"\x61\x62"`, with or without the quotes, to bytes.
fn bytes(text: &str) -> Vec<u8> {
    let hex = text.trim_matches('"').split("\\x").skip(1);
    hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

/// A file: the bytes certainly on disk, and the writes that may or may not be.
#[derive(Default)]
struct File {
    safe: Vec<u8>,
    pending: Vec<(usize, Option<Vec<u8>>)>,
    /// Whether it was unlinked, which the directory on disk may not show yet.
    unlinked: bool,
}

impl File {
    /// Applies a write at a position, or a new length.
    fn apply(to: &mut Vec<u8>, at: usize, bytes: Option<&[u8]>) {
        match bytes {
            Some(bytes) => {
                to.resize(to.len().max(at + bytes.len()), 0);
                to[at..at + bytes.len()].copy_from_slice(bytes);
            }
            None => to.resize(at, 0),
        }
    }

    fn write(&mut self, at: usize, bytes: Option<&Vec<u8>>) {
        if self.unlinked {
            // A new file with the same name.
            *self = Self::default();
        }
        self.pending.push((at, bytes.cloned()));
    }

    fn sync(&mut self) {
        for (at, bytes) in self.pending.drain(..) {
            Self::apply(&mut self.safe, at, bytes.as_deref());
        }
    }

    /// Returns the content after a cut: of each unsynced write all, nothing, or some of its sectors.
    fn after_cut(&self, rng: &mut StdRng) -> Vec<u8> {
        let mut left = self.safe.clone();
        for (at, bytes) in &self.pending {
            let Some(bytes) = bytes else {
                if rng.random_bool(0.5) {
                    Self::apply(&mut left, *at, None);
                }
                continue;
            };
            let share = *[0.0, 0.5, 1.0].choose(rng).unwrap();
            let mut from = 0;
            while from < bytes.len() {
                let sector_end = (at + from) / SECTOR * SECTOR + SECTOR - at;
                let until = sector_end.min(bytes.len());
                if rng.random_bool(share) {
                    Self::apply(&mut left, at + from, Some(&bytes[from..until]));
                }
                from = until;
            }
        }
        left
    }
}

/// Cuts the power after some of the events; returns how often acknowledged data was missing. If `syncs` is false, the
/// disk only pretends to sync.
fn campaign(events: &[Event], cuts: usize, syncs: bool) -> usize {
    let mut rng = StdRng::seed_from_u64(seed());
    let mut moments: Vec<usize> = (0..cuts).map(|_| rng.random_range(0..events.len())).collect();
    moments.sort_unstable();
    let (mut files, mut acknowledged, mut lost) = (BTreeMap::<&str, File>::new(), 0, 0);
    let mut moments = moments.into_iter().peekable();
    for (n, event) in events.iter().enumerate() {
        match event {
            Event::Wrote { file, at, bytes } => files.entry(file).or_default().write(*at, Some(bytes)),
            Event::Cut { file, length } => files.entry(file).or_default().write(*length, None),
            Event::Unlinked { file } => files.entry(file).or_default().unlinked = true,
            Event::Synced { file } if syncs => files.entry(file).or_default().sync(),
            Event::SyncedNames if syncs => files.retain(|_, file| !file.unlinked),
            Event::Synced { .. } | Event::SyncedNames => {}
            Event::Acknowledged(last) => acknowledged = *last,
        }
        while moments.next_if_eq(&n).is_some() {
            let dir = tempfile::tempdir().unwrap();
            for (name, file) in &files {
                if !file.unlinked || rng.random_bool(0.5) {
                    fs::write(dir.path().join(name), file.after_cut(&mut rng)).unwrap();
                }
            }
            match reopened(dir.path()) {
                Ok(end) if end >= acknowledged => {}
                Ok(end) if syncs => panic!("cut after event {n}: ends at {end}, acknowledged {acknowledged}"),
                Err(problem) if syncs => panic!("cut after event {n}, acknowledged {acknowledged}: {problem}"),
                Ok(_) | Err(_) => lost += 1,
            }
        }
    }
    assert_eq!(acknowledged, end_of(APPENDS));
    lost
}

/// Opens and reads a log; returns its end, after checking that it holds whole appends as they were written.
fn reopened(dir: &Path) -> Result<u64, String> {
    let mut log = DataDir::at(dir).open().map_err(|error| error.to_string())?;
    let end = log.reader().last().map_err(|error| error.to_string())?;
    if !(0..=APPENDS).any(|append| end_of(append) == end.0) {
        return Err(format!("{} is within an append", end.0));
    }
    let mut check = |seq: Seq, read: Entry| (read == entry(seq.0)).then_some(()).ok_or_else(|| "altered".to_owned());
    if end > Seq(0) {
        DataDir::at(dir).verify(None, &mut check, &mut |_, _| {}).map_err(|error| error.to_string())?;
    }
    let epoch = log.begin_epoch().map_err(|error| error.to_string())?;
    log.append(epoch, end, &[Arc::new(entry(end.0 + 1))]).map(|_| end.0).map_err(|error| error.to_string())
}

#[test]
fn a_power_cut_takes_nothing_that_was_acknowledged() {
    let Some(events) = record() else { return };
    let cuts = cuts();
    campaign(&events, cuts, true);
    let lost = campaign(&events, 10, false);
    assert!(lost > 0, "on a disk that does not sync something is lost, or this test sees nothing");
    println!("{cuts} power cuts among {} calls: nothing lost; {lost} of 10 on a disk that does not sync", events.len());
}
