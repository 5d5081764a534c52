//! A log that is foreign, in use, or damaged is reported, with what to do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use lastword_facts::{Entry, Fact, Seq};
use lastword_store::format::{FILE_DATABASE, FILE_HEAD, FILE_SNAPSHOT, FILE_VERSION, LOG_VERSION};
use lastword_store::{Anchor, DataDir, Expected, OpenError, Problem, Verified, VerifyError};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::sample::{at, note, notes};

/// Returns a closed log of nine entries in the rows 1–3, 4, 5–7, 8–9.
fn written() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    for range in [1..=3, 4..=4, 5..=7, 8..=9] {
        let expect = Seq(range.start() - 1);
        log.append(epoch, expect, &notes(range)).unwrap();
    }
    dir
}

fn sql(dir: &Path, statement: &str) {
    Connection::open(dir.join(FILE_DATABASE)).unwrap().execute_batch(statement).unwrap();
}

fn walk(dir: &Path) -> Result<Verified, VerifyError> {
    DataDir::at(dir).verify(None, &mut |_, _| Ok(()), &mut |_, _| {})
}

fn broken(dir: &Path) -> (u64, Problem) {
    match walk(dir) {
        Err(VerifyError::Broken(broken)) => (broken.at.0, broken.problem),
        other => panic!("the damage went unnoticed: {other:?}"),
    }
}

#[test]
fn a_second_server_on_the_same_directory_is_refused_and_told_who_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let first = DataDir::at(dir.path()).open().unwrap();
    let Err(error) = DataDir::at(dir.path()).open() else { panic!("two servers") };
    assert!(matches!(&error, OpenError::Locked { holder, .. } if *holder == std::process::id().to_string()));
    assert!(error.to_string().contains("--data"), "{error}");
    drop(first);
    assert!(DataDir::at(dir.path()).open().is_ok(), "the lock goes with its holder");
}

#[test]
fn a_log_of_a_newer_version_is_refused() {
    let dir = written();
    sql(dir.path(), "PRAGMA user_version = 99");
    for error in [DataDir::at(dir.path()).open().err(), DataDir::at(dir.path()).open_reader().err()] {
        let error = error.unwrap();
        assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}");
    }
    // The newest version that wrote it is named; this one has noted itself, and an older one doesn't replace it.
    let note = dir.path().join(FILE_VERSION);
    assert_eq!(fs::read_to_string(&note).unwrap().trim(), env!("CARGO_PKG_VERSION"));
    fs::write(&note, "9.0.1\n").unwrap();
    let error = DataDir::at(dir.path()).open().err().unwrap().to_string();
    assert!(error.contains("run lastword 9.0.1 or newer"), "{error}");
    sql(dir.path(), &format!("PRAGMA user_version = {LOG_VERSION}"));
    drop(DataDir::at(dir.path()).open().unwrap());
    assert_eq!(fs::read_to_string(&note).unwrap(), "9.0.1\n");
}

#[test]
fn a_file_that_is_no_log_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(FILE_DATABASE);
    let garbage = "this is not a database ".repeat(500);
    fs::write(&path, &garbage).unwrap();
    assert!(matches!(DataDir::at(dir.path()).open(), Err(OpenError::NotALog { .. })));
    assert!(matches!(DataDir::at(dir.path()).open_reader(), Err(OpenError::NotALog { .. })));
    assert_eq!(fs::read_to_string(&path).unwrap(), garbage);

    fs::remove_file(&path).unwrap();
    sql(dir.path(), "CREATE TABLE photos (id INTEGER)");
    assert!(matches!(DataDir::at(dir.path()).open(), Err(OpenError::NotALog { .. })), "another program's database");
}

#[test]
fn reading_a_directory_without_a_log_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(DataDir::at(dir.path()).open_reader(), Err(OpenError::Missing { .. })));
    assert!(matches!(walk(dir.path()), Err(VerifyError::Open(OpenError::Missing { .. }))));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn the_directory_and_its_files_are_private() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("made/here");
    let mut log = DataDir::at(&dir).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    log.append(epoch, Seq(0), &notes(1..=1)).unwrap();
    log.snapshots().save(Seq(1), b"state").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir), 0o700);
    for file in fs::read_dir(&dir).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn a_sound_log_verifies_and_every_entry_is_shown_once_in_order() {
    let dir = written();
    let mut seen = Vec::new();
    let mut reached = Vec::new();
    let verified = DataDir::at(dir.path()).verify(
        None,
        &mut |seq, entry| {
            seen.push((seq, entry));
            Ok(())
        },
        &mut |at, of| reached.push((at, of)),
    );
    let verified = verified.unwrap();
    assert_eq!((verified.entries, verified.rows, verified.end.at), (9, 4, Seq(9)));
    assert_eq!(seen, (1..=9).map(|n| (Seq(n), note(n))).collect::<Vec<_>>());
    assert_eq!(reached.last(), Some(&(Seq(9), Seq(9))));
}

#[test]
fn a_log_is_verified_beside_the_server_that_writes_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    assert_eq!(walk(dir.path()).unwrap().entries, 0);
    let epoch = log.begin_epoch().unwrap();
    log.append(epoch, Seq(0), &notes(1..=5)).unwrap();
    assert_eq!(walk(dir.path()).unwrap().entries, 5);
}

#[test]
fn the_objection_of_the_caller_breaks_the_verification_where_it_was_made() {
    let dir = written();
    let mut check = |seq: Seq, _| if seq == Seq(6) { Err("phi grew".to_owned()) } else { Ok(()) };
    let result = DataDir::at(dir.path()).verify(None, &mut check, &mut |_, _| {});
    let Err(VerifyError::Broken(broken)) = result else { panic!("{result:?}") };
    assert_eq!((broken.at, broken.problem), (Seq(6), Problem::Check("phi grew".to_owned())));
}

#[test]
fn an_edited_row_is_noticed() {
    for column in ["blob = x'00'", "epoch = 0", "hash = zeroblob(32)", "count = 4"] {
        let dir = written();
        sql(dir.path(), &format!("UPDATE log SET {column} WHERE first_seq = 5"));
        assert_eq!(broken(dir.path()), (5, Problem::Hash), "{column}");
    }
}

#[test]
fn a_row_of_another_type_is_noticed() {
    let dir = written();
    sql(dir.path(), "UPDATE log SET hash = x'1234' WHERE first_seq = 5");
    let (at, problem) = broken(dir.path());
    assert_eq!(at, 5);
    assert!(matches!(problem, Problem::File(_)), "{problem}");
}

#[test]
fn a_removed_row_is_noticed() {
    let dir = written();
    sql(dir.path(), "DELETE FROM log WHERE first_seq = 4");
    assert_eq!(broken(dir.path()), (4, Problem::Gap { found: Seq(5) }));
    let dir = written();
    sql(dir.path(), "DELETE FROM log WHERE first_seq = 1");
    assert_eq!(broken(dir.path()), (1, Problem::Gap { found: Seq(4) }));
}

#[test]
fn swapped_rows_are_noticed() {
    let dir = written();
    sql(
        dir.path(),
        "UPDATE log SET first_seq = 100 WHERE first_seq = 1; UPDATE log SET first_seq = 1 WHERE first_seq = 5;
         UPDATE log SET first_seq = 5 WHERE first_seq = 100;",
    );
    assert_eq!(broken(dir.path()), (1, Problem::Hash));
}

#[test]
fn an_inserted_row_is_noticed() {
    for first in [-3, 0, 2, 10] {
        let dir = written();
        sql(
            dir.path(),
            &format!("INSERT INTO log SELECT {first}, count, epoch, blob, hash FROM log WHERE first_seq = 4"),
        );
        broken(dir.path());
    }
}

#[test]
fn a_truncated_log_is_noticed_and_no_server_starts_on_it() {
    let dir = written();
    sql(dir.path(), "DELETE FROM log WHERE first_seq = 8");
    assert_eq!(broken(dir.path()), (8, Problem::Truncated { acknowledged: Seq(9) }));
    let error = DataDir::at(dir.path()).open().err().unwrap();
    assert!(matches!(error, OpenError::Lost { ends: Seq(7), acknowledged: Seq(9), .. }), "{error}");
    fs::remove_file(dir.path().join(FILE_HEAD)).unwrap();
    let error = DataDir::at(dir.path()).open().err().unwrap();
    assert!(matches!(error, OpenError::NoHead { problem: "missing", .. }), "{error}");
    let accepted = DataDir::at(dir.path()).open_as_it_is().unwrap();
    assert_eq!(accepted.reader().last().unwrap(), Seq(7));
    drop(accepted);
    assert_eq!(DataDir::at(dir.path()).open().unwrap().reader().last().unwrap(), Seq(7), "the loss was accepted");
}

#[test]
fn no_server_starts_on_a_log_whose_end_is_damaged() {
    for (damage, at) in [
        ("UPDATE log SET blob = x'00' WHERE first_seq = (SELECT max(first_seq) FROM log)", "at 8"),
        ("UPDATE log SET epoch = epoch + 1 WHERE first_seq = 5", "at 5"),
        ("UPDATE log SET blob = x'' WHERE first_seq = 1", "at 1"),
    ] {
        let dir = written();
        sql(dir.path(), damage);
        let refused = DataDir::at(dir.path()).open().err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains("is damaged at its end") && refused.contains(at), "{damage}: {refused}");
    }
}

#[test]
fn a_history_that_was_rewritten_with_good_hashes_does_not_pass_an_anchor() {
    let dir = written();
    let honest = walk(dir.path()).unwrap().end;
    let forged = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(forged.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    log.append(epoch, Seq(0), &notes(11..=19)).unwrap();
    drop(log);
    let against = |anchor| DataDir::at(forged.path()).verify(Some(anchor), &mut |_, _| Ok(()), &mut |_, _| {});
    assert!(
        matches!(against(honest), Err(VerifyError::Broken(broken)) if broken.problem == Problem::Anchor { noted: Seq(9) })
    );
    let later = Anchor { at: Seq(20), hash: honest.hash };
    assert!(matches!(
        against(later),
        Err(VerifyError::Broken(broken)) if broken.problem == Problem::Truncated { acknowledged: Seq(20) }
    ));
}

#[test]
fn no_alteration_with_good_hashes_passes_a_noted_position() {
    let noted = walk(written().path()).unwrap().end;
    let honest: Vec<Vec<Arc<Entry>>> = [1..=3, 4..=4, 5..=7, 8..=9].map(notes).to_vec();
    type Alter = fn(&mut Vec<Vec<Arc<Entry>>>);
    let alterations: [(&str, Alter, bool); 8] = [
        ("nothing", |_| (), true),
        ("edited", |rows| rows[1][0] = Arc::new(note(40)), false),
        ("deleted", |rows| drop(rows[0].remove(1)), false),
        ("a row deleted", |rows| drop(rows.remove(2)), false),
        ("swapped", |rows| rows[2].swap(0, 2), false),
        ("inserted", |rows| rows[0].insert(1, Arc::new(note(50))), false),
        ("truncated", |rows| drop(rows.pop()), false),
        ("in other rows", |rows| *rows = vec![rows.concat()], false),
    ];
    for (what, alter, passes) in alterations {
        let mut rows = honest.clone();
        alter(&mut rows);
        let dir = tempfile::tempdir().unwrap();
        let mut log = DataDir::at(dir.path()).open().unwrap();
        let (epoch, mut last) = (log.begin_epoch().unwrap(), Seq(0));
        for row in rows {
            last = log.append(epoch, last, &row).unwrap();
        }
        drop(log);
        walk(dir.path()).unwrap_or_else(|error| panic!("{what}: its own hashes are good: {error}"));
        let against = DataDir::at(dir.path()).verify(Some(noted), &mut |_, _| Ok(()), &mut |_, _| {});
        assert_eq!(against.is_ok(), passes, "{what}: {against:?}");
    }
}

/// Returns a log that was cut off behind its sixth entry and goes on at 1000, in another epoch, as after a restore.
fn gone_back() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    log.append(epoch, Seq(0), &notes(1..=6)).unwrap();
    let began = Arc::new(at(7, Fact::EpochBegan { first: Seq(1000) }));
    log.append(epoch, Seq(6), &[began]).unwrap();
    dir
}

#[test]
fn a_noted_position_that_a_restore_replaced_does_not_pass_unless_the_restore_is_known() {
    let noted = walk(written().path()).unwrap().end;
    assert_eq!(noted.at, Seq(9));
    let dir = gone_back();
    let against = |expected: Expected| DataDir::at(dir.path()).verify(expected, &mut |_, _| Ok(()), &mut |_, _| {});
    let unknown = Expected { anchors: vec![noted], restored: vec![Seq(999)], ..Expected::default() };
    let Err(VerifyError::Broken(broken)) = against(unknown) else { panic!("a part that is missing goes unnoticed") };
    assert_eq!((broken.at, broken.problem), (Seq(7), Problem::Replaced { noted: Seq(9), first: Seq(1000) }));
    let known = against(Expected { anchors: vec![noted], restored: vec![Seq(1000)], ..Expected::default() }).unwrap();
    assert_eq!((known.replaced, known.entries), (1, 7));
    let end = known.end;
    assert_eq!(
        against(Expected { anchors: vec![end, noted], restored: vec![Seq(1000)], ..Expected::default() }).unwrap().end,
        end
    );
}

#[test]
fn every_flipped_bit_in_a_row_is_noticed() {
    let dir = written();
    sql(dir.path(), "PRAGMA journal_mode = DELETE");
    let path = dir.path().join(FILE_DATABASE);
    let bytes = fs::read(&path).unwrap();
    let body = b"note number 6";
    let at = bytes.windows(body.len()).position(|window| window == body).unwrap();
    // The row around that body: its framing, its neighbors, its hash.
    for offset in at - 100..at + 100 {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 1 << (offset % 8);
        fs::write(&path, &flipped).unwrap();
        assert!(walk(dir.path()).is_err(), "offset {offset}");
    }
}

#[test]
fn a_damaged_snapshot_is_none() {
    let dir = written();
    let log = DataDir::at(dir.path()).open().unwrap();
    log.snapshots().save(Seq(9), b"state").unwrap();
    let path = dir.path().join(FILE_SNAPSHOT);
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(log.snapshots().load().unwrap(), None);
    fs::write(&path, b"LW").unwrap();
    assert_eq!(log.snapshots().load().unwrap(), None);
}
