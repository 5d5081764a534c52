//! Bit flips anywhere in a log's files: either the content is read as written, or the walk over the log reports a
//! fault.

use std::fs;
use std::path::Path;

use lastword_facts::Seq;
use lastword_store::format::{FILE_DATABASE, FILE_HEAD};
use lastword_store::{DataDir, ReadError};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::sample::message;

/// Returns how many bits are flipped in each file, one at a time; `LASTWORD_FLIPS=20000` for the long run.
fn flips() -> usize {
    std::env::var_os("LASTWORD_FLIPS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(150)
}

/// Returns the seed that chooses the bits; `LASTWORD_SEED=7` for others.
fn seed() -> u64 {
    std::env::var_os("LASTWORD_SEED").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(1)
}

/// A row in its stored form.
type Row = (i64, i64, i64, Vec<u8>, Vec<u8>);

/// The files of a log as a kill leaves them, each with its name, and their rows.
struct Files {
    files: Vec<(String, Vec<u8>)>,
    rows: Vec<Row>,
}

impl Files {
    /// Writes a log with rows of different lengths; the last ones are in the WAL, or all are in the database.
    fn written(in_wal: bool) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut log = DataDir::at(dir.path()).open().unwrap();
        let (mut epoch, mut last) = (log.begin_epoch().unwrap(), Seq(0));
        for n in 0..24 {
            if n == 12 {
                // The next append to a reopened log copies its WAL into the database.
                drop(log);
                log = DataDir::at(dir.path()).open().unwrap();
                epoch = log.begin_epoch().unwrap();
            }
            let long = |part: u64| message(n + part, 1, 2, 0, &"long ".repeat(part as usize * 400)).into();
            let entries: Vec<_> = (1..=n % 4 + 1).map(long).collect();
            last = log.append(epoch, last, &entries).unwrap();
        }
        let kept = tempfile::tempdir().unwrap();
        copy(dir.path(), kept.path());
        if !in_wal {
            Connection::open(kept.path().join(FILE_DATABASE))
                .unwrap()
                .execute_batch("PRAGMA journal_mode = DELETE")
                .unwrap();
        }
        // Read before closing a connection tidies the files up.
        let files = read(kept.path());
        let rows = rows(kept.path()).unwrap();
        assert_eq!(rows.len(), 24);
        Self { files, rows }
    }

    /// Copies the files into a directory, with one bit of one file flipped.
    fn put(&self, file: usize, bit: usize) -> TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (n, (name, bytes)) in self.files.iter().enumerate() {
            let mut bytes = bytes.clone();
            if n == file {
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        dir
    }

    /// Returns whether the walk reports a fault; if not, checks that everything is as it was written.
    fn noticed(&self, file: usize, bit: usize) -> bool {
        let dir = self.put(file, bit);
        let walked = DataDir::at(dir.path()).verify(None, &mut |_, _| Ok(()), &mut |_, _| {});
        if walked.is_ok() {
            let name = &self.files[file].0;
            let read = rows(dir.path()).unwrap_or_else(|error| panic!("bit {bit} of {name} went unnoticed: {error}"));
            assert!(read == self.rows, "bit {bit} of {name} went unnoticed");
        }
        walked.is_err()
    }
}

/// Reads all files except the WAL's index, which SQLite rebuilds.
fn read(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let wanted = [FILE_DATABASE.to_owned(), format!("{FILE_DATABASE}-wal"), FILE_HEAD.to_owned()];
    let there = wanted.into_iter().filter(|name| dir.join(name).exists());
    there.map(|name| (name.clone(), fs::read(dir.join(name)).unwrap())).collect()
}

fn copy(from: &Path, to: &Path) {
    for (name, bytes) in read(from) {
        fs::write(to.join(name), bytes).unwrap();
    }
}

fn rows(dir: &Path) -> rusqlite::Result<Vec<Row>> {
    let db = Connection::open(dir.join(FILE_DATABASE))?;
    let mut statement = db.prepare("SELECT first_seq, count, epoch, blob, hash FROM log ORDER BY first_seq")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?;
    rows.collect()
}

#[test]
fn a_bit_that_flips_anywhere_in_the_files_is_noticed_or_changes_nothing_that_is_read() {
    let mut rng = StdRng::seed_from_u64(seed());
    for in_wal in [false, true] {
        let log = Files::written(in_wal);
        for (file, (name, bytes)) in log.files.iter().enumerate().filter(|(_, (name, _))| name != FILE_HEAD) {
            let bits = bytes.len() * 8;
            let noticed = (0..flips()).filter(|_| log.noticed(file, rng.random_range(0..bits))).count();
            println!("{name} of {} bytes: {noticed} of {} flips noticed", bytes.len(), flips());
            // The rest is unused space, or data that SQLite keeps twice.
            assert!(noticed * 3 > flips(), "{name}: {noticed}");
        }
        assert_eq!(log.files.len(), if in_wal { 3 } else { 2 }, "the database, its WAL, the note of the end");
    }
}

#[test]
fn every_bit_that_flips_in_the_note_of_the_end_is_noticed() {
    let log = Files::written(false);
    let file = log.files.iter().position(|(name, _)| name == FILE_HEAD).unwrap();
    for bit in 0..log.files[file].1.len() * 8 {
        assert!(log.noticed(file, bit), "bit {bit}");
    }
}

#[test]
fn a_row_that_changed_on_the_disk_is_neither_read_nor_backed_up() {
    let mut rng = StdRng::seed_from_u64(seed());
    let log = Files::written(false);
    for row in 0..log.rows.len() {
        let dir = tempfile::tempdir().unwrap();
        copy_into(&log, dir.path());
        let (first, count, mut blob) = (log.rows[row].0, log.rows[row].1, log.rows[row].3.clone());
        let bit = rng.random_range(0..blob.len() * 8);
        blob[bit / 8] ^= 1 << (bit % 8);
        let db = Connection::open(dir.path().join(FILE_DATABASE)).unwrap();
        db.execute("UPDATE log SET blob = ?1 WHERE first_seq = ?2", rusqlite::params![blob, first]).unwrap();
        drop(db);
        let reader = DataDir::at(dir.path()).open_reader().unwrap();
        let (first, last) = (first.cast_unsigned(), (first + count - 1).cast_unsigned());
        for seq in 1..=reader.last().unwrap().0 {
            let read = reader.entry(Seq(seq));
            assert_eq!(read.is_err(), (first..=last).contains(&seq), "row {row}, bit {bit}: entry {seq}: {read:?}");
        }
        assert!(matches!(reader.read(Seq(1), 10_000), Err(ReadError::Damaged { at, .. }) if at == Seq(first)));
        let made = DataDir::at(dir.path()).back_up(&[], &mut Vec::new(), &mut |_, _| {});
        assert!(made.is_err(), "row {row}, bit {bit} is in the backup");
    }
}

fn copy_into(log: &Files, dir: &Path) {
    for (name, bytes) in &log.files {
        fs::write(dir.join(name), bytes).unwrap();
    }
}
