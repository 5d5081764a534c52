//! What left the log for its archive is proven, readable and put back; and no crash loses any of it.

use std::fs;
use std::path::{Path, PathBuf};

use lastword_facts::{Entry, Seq};
use lastword_store::format::{FILE_HEAD, FOLDER_ARCHIVE};
use lastword_store::{Anchor, ArchiveError, Base, DataDir, Expected, Log, Problem, Segment, Verified, VerifyError};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::sample::{note, notes};

/// Opens a log of nine entries in the rows 1–3, 4, 5–7, 8–9.
fn written() -> (TempDir, Box<dyn Log>) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    for range in [1..=3, 4..=4, 5..=7, 8..=9] {
        log.append(epoch, Seq(range.start() - 1), &notes(range)).unwrap();
    }
    (dir, log)
}

fn seal(log: &dyn Log, upto: u64) -> Option<Segment> {
    let base = Base { at: Seq(9), state: b"the state at 9" };
    log.archive().seal(Seq(upto), u64::MAX, base).unwrap().map(|(segment, _)| segment)
}

fn walk(dir: &Path) -> (Result<Verified, VerifyError>, Vec<(Seq, Entry)>) {
    let mut seen = Vec::new();
    let mut check = |seq, entry| {
        seen.push((seq, entry));
        Ok(())
    };
    (DataDir::at(dir).verify(None, &mut check, &mut |_, _| {}), seen)
}

fn broken(dir: &Path) -> (u64, Problem) {
    match walk(dir).0 {
        Err(VerifyError::Broken(broken)) => (broken.at.0, broken.problem),
        other => panic!("the damage went unnoticed: {other:?}"),
    }
}

fn file(dir: &Path, segment: &Segment) -> PathBuf {
    dir.join(FOLDER_ARCHIVE).join(&segment.file)
}

fn all() -> Vec<(Seq, Entry)> {
    (1..=9).map(|n| (Seq(n), note(n))).collect()
}

#[test]
fn a_walk_proves_the_rest_without_the_file_and_the_whole_with_it() {
    let (dir, log) = written();
    let before = walk(dir.path()).0.unwrap();
    let first = seal(log.as_ref(), 4).unwrap();
    let second = seal(log.as_ref(), 7).unwrap();
    let (verified, seen) = walk(dir.path());
    assert_eq!((verified.unwrap(), seen), (before, all()));
    let aside = dir.path().join("aside");
    fs::rename(file(dir.path(), &first), &aside).unwrap();
    let (verified, seen) = walk(dir.path());
    let verified = verified.unwrap();
    assert_eq!((verified.end, verified.unread, verified.entries), (before.end, Some(first.end.at), 5));
    assert_eq!(seen, [], "nothing can be recounted from the middle on");
    // Another part of a log in its place.
    fs::copy(file(dir.path(), &second), file(dir.path(), &first)).unwrap();
    assert!(matches!(broken(dir.path()), (1, Problem::Segment(_))));
    fs::rename(&aside, file(dir.path(), &first)).unwrap();
    let (verified, seen) = walk(dir.path());
    assert_eq!((verified.unwrap(), seen), (before, all()));
}

#[test]
fn a_changed_segment_and_a_changed_list_of_segments_are_noticed() {
    let (dir, log) = written();
    let segment = seal(log.as_ref(), 4).unwrap();
    let path = file(dir.path(), &segment);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let (verified, seen) = walk(dir.path());
        // gzip's header has bytes that mean nothing, as the time.
        assert!(verified.is_err() || seen == all(), "byte {at}");
    }
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(matches!(broken(dir.path()).1, Problem::Segment(_)), "{length} bytes");
    }
    fs::write(&path, &whole).unwrap();
    for (change, at) in [
        ("UPDATE segments SET last_seq = 3", 4),
        ("UPDATE segments SET first_seq = 0", 1),
        ("UPDATE segments SET hash = zeroblob(32)", 4),
        ("DELETE FROM segments", 1),
    ] {
        let copy = tempfile::tempdir().unwrap();
        fs::create_dir(copy.path().join(FOLDER_ARCHIVE)).unwrap();
        fs::copy(&path, file(copy.path(), &segment)).unwrap();
        let db = Connection::open(dir.path().join("lastword.db")).unwrap();
        db.execute("VACUUM INTO ?1", [copy.path().join("lastword.db").to_str().unwrap()]).unwrap();
        Connection::open(copy.path().join("lastword.db")).unwrap().execute_batch(change).unwrap();
        assert!(broken(copy.path()).0 <= at + 1, "{change}: {:?}", broken(copy.path()));
    }
}

#[test]
fn a_log_whose_start_was_deleted_is_not_taken_for_an_archived_one() {
    let (dir, log) = written();
    drop(log);
    let db = Connection::open(dir.path().join("lastword.db")).unwrap();
    db.execute_batch("DELETE FROM log WHERE first_seq < 5").unwrap();
    assert_eq!(broken(dir.path()), (1, Problem::Gap { found: Seq(5) }));
}

#[test]
fn a_crash_between_the_commit_and_the_files_name_loses_nothing() {
    let (dir, log) = written();
    let segment = seal(log.as_ref(), 4).unwrap();
    let path = file(dir.path(), &segment);
    fs::rename(&path, path.with_added_extension("part")).unwrap();
    assert_eq!(walk(dir.path()).1, all());
    let mut read = Vec::new();
    log.archive().walk(&mut |seq, entry| read.push((seq, entry.clone()))).unwrap();
    assert_eq!(read, all()[..4]);
    assert_eq!(log.archive().segments().unwrap()[0].bytes, segment.bytes);
}

#[test]
fn what_a_crash_left_of_a_file_that_no_segment_has_is_removed() {
    let (dir, log) = written();
    let segment = seal(log.as_ref(), 3).unwrap();
    let path = file(dir.path(), &segment);
    let known = path.with_added_extension("part");
    fs::rename(&path, &known).unwrap();
    let orphan = path.with_file_name("4-7.segment.part");
    fs::write(&orphan, "half of it").unwrap();
    seal(log.as_ref(), 4).unwrap();
    assert!(!orphan.exists() && known.exists(), "the other one belongs to a segment");
}

#[test]
fn a_head_that_a_power_cut_took_back_into_a_missing_segment_breaks_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    log.append(epoch, Seq(0), &notes(1..=3)).unwrap();
    let early = fs::read(dir.path().join(FILE_HEAD)).unwrap();
    for range in [4..=4, 5..=9] {
        log.append(epoch, Seq(range.start() - 1), &notes(range)).unwrap();
    }
    let segment = seal(log.as_ref(), 4).unwrap();
    drop(log);
    fs::write(dir.path().join(FILE_HEAD), early).unwrap();
    assert_eq!(walk(dir.path()).1, all(), "it is compared");
    fs::remove_file(file(dir.path(), &segment)).unwrap();
    assert_eq!(walk(dir.path()).0.unwrap().uncompared, 1);
}

#[test]
fn a_missing_file_is_named() {
    let (dir, log) = written();
    let segment = seal(log.as_ref(), 4).unwrap();
    fs::remove_file(file(dir.path(), &segment)).unwrap();
    let missing = |error: ArchiveError| assert!(error.to_string().contains("1-4.segment"), "{error}");
    missing(log.archive().walk(&mut |_, _| {}).unwrap_err());
    missing(log.archive().put_back().unwrap_err());
    assert_eq!(log.archive().segments().unwrap()[0].bytes, None);
    assert_eq!(log.reader().first().unwrap(), Seq(5), "nothing has changed");
}

#[test]
fn a_backup_of_a_log_with_an_archive_begins_where_the_log_does() {
    let (dir, log) = written();
    let segment = seal(log.as_ref(), 4).unwrap();
    let mut backup = Vec::new();
    let store = DataDir::at(dir.path());
    let copied = store.back_up(&[], &mut backup, &mut |_, _| {}).unwrap();
    let other = tempfile::tempdir().unwrap();
    let restored = DataDir::at(other.path());
    let (held, files) = restored.restore(&mut backup.as_slice(), &mut |_| {}).unwrap();
    assert_eq!((held, files.len()), (copied, 1), "the base is in it");
    let reopened = restored.open().unwrap();
    assert_eq!(reopened.archive().base().unwrap(), Some((Seq(9), b"the state at 9".to_vec())));
    assert_eq!(reopened.archive().segments().unwrap(), [Segment { bytes: None, ..segment.clone() }]);
    assert_eq!(walk(other.path()).0.unwrap().unread, Some(Seq(4)));
    fs::create_dir(other.path().join(FOLDER_ARCHIVE)).unwrap();
    fs::copy(file(dir.path(), &segment), file(other.path(), &segment)).unwrap();
    assert_eq!(walk(other.path()).1, all(), "with the file it is whole");
}

/// Opens a log of `rows` rows with one entry each.
fn of_rows(rows: u64) -> (TempDir, Box<dyn Log>) {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    for n in 1..=rows {
        log.append(epoch, Seq(n - 1), &notes(n..=n)).unwrap();
    }
    (dir, log)
}

#[test]
fn a_copy_or_a_walk_whose_rows_leave_for_the_archive_meanwhile_says_so() {
    // More than are read at once.
    let (dir, log) = of_rows(200);
    let moved = |upto| log.archive().seal(Seq(upto), u64::MAX, Base { at: Seq(200), state: b"state" }).unwrap();
    let backed_up = DataDir::at(dir.path()).back_up(&[], &mut Vec::new(), &mut |_, _| drop(moved(100)));
    assert!(backed_up.unwrap_err().to_string().contains("try again"));
    let walked = DataDir::at(dir.path()).verify(None, &mut |_, _| Ok(()), &mut |at, _| {
        // The archive is walked first.
        if at > Seq(100) {
            drop(moved(190));
        }
    });
    assert!(walked.unwrap_err().to_string().contains("verify again"));
    // What was copied before it left stays right.
    DataDir::at(dir.path()).back_up(&[], &mut Vec::new(), &mut |_, _| drop(moved(195))).unwrap();
}

#[test]
fn room_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    for n in 0..200 {
        log.append(epoch, Seq(n * 100), &notes(n * 100 + 1..=n * 100 + 100)).unwrap();
    }
    let bytes = log.archive().bytes().unwrap();
    let base = Base { at: Seq(20_000), state: b"state" };
    log.archive().seal(Seq(19_000), bytes / 4, base).unwrap().unwrap();
    let left = log.archive().bytes().unwrap();
    assert!(left < bytes * 4 / 5 && left > bytes * 3 / 5, "{left} of {bytes}: a segment has about the bytes asked for");
    while log.archive().seal(Seq(19_000), bytes / 4, base).unwrap().is_some() {}
    drop(log);
    let path = dir.path().join("lastword.db");
    let before = fs::metadata(&path).unwrap().len();
    DataDir::at(dir.path()).compact().unwrap();
    let after = fs::metadata(&path).unwrap().len();
    assert!(after < before / 2, "{before} bytes before, {after} after");
    assert_eq!(walk(dir.path()).0.unwrap().entries, 20_000);
}

#[test]
fn a_noted_position_in_a_missing_segment_fails_unless_it_was_only_kept_beside_the_log() {
    let (dir, log) = written();
    let mut notes = Vec::new();
    for upto in [3, 4] {
        notes.push(seal(log.as_ref(), upto).unwrap().end);
    }
    // Both in one segment again.
    while log.archive().put_back().unwrap().is_some() {}
    let segment = seal(log.as_ref(), 4).unwrap();
    let verify = |expected| DataDir::at(dir.path()).verify(expected, &mut |_, _| Ok(()), &mut |_, _| {});
    let named = Expected { anchors: notes.clone(), ..Expected::default() };
    assert_eq!(verify(named.clone()).unwrap().uncompared, 0);
    fs::remove_file(file(dir.path(), &segment)).unwrap();
    assert!(verify(named).unwrap_err().to_string().contains("3 was noted, but can't be compared"));
    let kept = verify(Expected { kept: notes.clone(), ..Expected::default() }).unwrap();
    assert_eq!((kept.uncompared, kept.unread), (1, Some(Seq(4))));
    // The end of a segment is compared without its file.
    verify(Expected { anchors: vec![notes[1]], ..Expected::default() }).unwrap();
    let other = Anchor { hash: [7; 32], ..notes[1] };
    verify(Expected { anchors: vec![other], ..Expected::default() }).unwrap_err();
}

#[test]
fn a_base_of_entries_that_are_lost_is_dropped_with_them() {
    let (dir, log) = written();
    seal(log.as_ref(), 4).unwrap();
    drop(log);
    let db = Connection::open(dir.path().join("lastword.db")).unwrap();
    db.execute_batch("DELETE FROM log WHERE first_seq = 8").unwrap();
    drop(db);
    let log = DataDir::at(dir.path()).open_as_it_is().unwrap();
    assert!(!dir.path().join("base").exists(), "positions after the loss would be taken for its own");
    assert_eq!(log.reader().first().unwrap(), Seq(5));
}
