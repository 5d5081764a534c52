//! Runs a property on a target's corpus and on mutations of it, with any toolchain. A fuzz target finds more: it sees
//! which inputs reach new code.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The mutations of a run, unless `LASTWORD_FUZZ_MUTATIONS` says otherwise.
const MUTATIONS: u64 = 4_000;
/// The most changes between an input of the corpus and its mutation.
const CHANGES_MAX: u64 = 4;
/// The longest mutation, in bytes.
const BYTES_MAX: usize = 4_096;

/// Checks the corpus of `target` in `fuzz/corpus`, then mutations of it: the same ones in each run or, if
/// `LASTWORD_FUZZ_SECONDS` is set, others in each run for that long.
///
/// # Panics
/// Panics if the corpus is empty or the property is broken; prints the input that breaks it.
pub(crate) fn run(target: &str, check: impl Fn(&[u8])) {
    let corpus = corpus(target);
    for input in &corpus {
        one(target, input, &check);
    }
    let seed = target.bytes().fold(7, |seed, byte| seed * 31 + u64::from(byte));
    if let Some(seconds) = number("LASTWORD_FUZZ_SECONDS") {
        return for_seconds(target, seconds, &corpus, seed, &check);
    }
    let mut random = Random(seed | 1);
    for _ in 0..number("LASTWORD_FUZZ_MUTATIONS").unwrap_or(MUTATIONS) {
        one(target, &mutated(&corpus, &mut random), &check);
    }
}

/// Checks mutations for this long; prints how many.
#[expect(clippy::disallowed_methods, reason = "a test measures its own time, and begins elsewhere in each run")]
fn for_seconds(target: &str, seconds: u64, corpus: &[Vec<u8>], seed: u64, check: &impl Fn(&[u8])) {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut random = Random((seed ^ u64::from(since_epoch.subsec_nanos()) << 20 ^ since_epoch.as_secs()) | 1);
    let (begin, time) = (Instant::now(), Duration::from_secs(seconds));
    let mut executions = 0_u64;
    while begin.elapsed() < time {
        one(target, &mutated(corpus, &mut random), check);
        executions += 1;
    }
    eprintln!("{target:10} {executions:>9} executions in {seconds} s");
}

#[expect(clippy::disallowed_methods, reason = "a test reads the length of its run")]
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} isn't a number: {text:?}")))
}

fn one(target: &str, input: &[u8], check: &impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        eprintln!("{target} breaks on \"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a file of the corpus").path()).collect();
    // The order of a directory differs between machines.
    paths.sort();
    assert!(!paths.is_empty(), "{target} has a corpus");
    paths.iter().map(|path| fs::read(path).expect("a file of the corpus")).collect()
}

/// Returns an input of the corpus with a few changes.
fn mutated(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = random.of(corpus).clone();
    for _ in 0..=random.below(CHANGES_MAX) {
        let at = random.place(input.len());
        let end = at + random.place(input.len() - at).min(16);
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 => input.insert(at, u8::try_from(random.below(256)).unwrap_or_default()),
            2 => drop(input.drain(at..end)),
            3 => input.extend_from_within(at..end),
            4 => {
                let other = random.of(corpus);
                let from = random.place(other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            5 => {
                let other = random.of(corpus);
                let from = random.place(other.len());
                let piece = &other[from..(from + 16).min(other.len())];
                drop(input.splice(at..end, piece.iter().copied()));
            }
            _ if at < input.len() => input[at] = *random.of(b"\0\xff\x7f\x80[]{}\"\\:,-@#*0919aZ \n\r\t`"),
            _ => {}
        }
        input.truncate(BYTES_MAX);
    }
    input
}

/// Random numbers of no quality (xorshift), the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n.max(1)
    }

    /// Returns a place in something of this length, or its end.
    fn place(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64 + 1)).unwrap_or_default()
    }

    fn of<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let place = self.place(list.len() - 1);
        &list[place]
    }
}
