//! What leaves the log of a workspace on JetStream: every node finds it, and the stream shrinks.

use std::fs;
use std::path::Path;

use async_nats::jetstream::object_store::ObjectStore;
use futures_util::TryStreamExt as _;
use lastword_facts::{Entry, Seq};
use lastword_store::format::FOLDER_ARCHIVE;
use lastword_store::{Base, DataDir, Log, Mirror, MirrorError, Nats, move_out};
use tempfile::TempDir;

use crate::nats_server::{One, create_stream, program, runtime};
use crate::sample::{note, notes};
use crate::stream::{follow, lead, open};

/// A workspace with a leader, in whose stream each entry is a commit.
struct Team {
    // Before the server: its tasks use the connection.
    log: Box<dyn Log>,
    _dir: TempDir,
    nats: Nats,
    one: One,
}

impl Team {
    fn start(test: &str) -> Option<Self> {
        let program = program(test)?;
        let one = One::start(&program);
        let nats = one.connect();
        create_stream(&nats, "ws", 1);
        let dir = tempfile::tempdir().unwrap();
        let (log, _) = lead(open(&nats, "ws", dir.path()), 1);
        Some(Self { log, _dir: dir, nats, one })
    }

    fn append(&mut self, range: std::ops::RangeInclusive<u64>) {
        for n in range {
            self.log.append(1, Seq(n - 1), &notes(n..=n)).unwrap();
        }
    }

    fn seal(&self, upto: u64, base_at: u64) {
        let base = format!("the state at {base_at}");
        let base = Base { at: Seq(base_at), state: base.as_bytes() };
        self.log.archive().seal(Seq(upto), u64::MAX, base).unwrap().unwrap();
    }

    /// Appends 500 entries, of which 400 leave in two steps. Each sealed part is longer than the distance of two marks.
    fn archived(test: &str) -> Option<Self> {
        let mut team = Self::start(test)?;
        team.append(1..=300);
        team.seal(200, 250);
        team.log.archive().publish().unwrap();
        assert_eq!(team.messages(), 301, "the older of two starts decides, and there is one");
        team.append(301..=500);
        team.seal(400, 450);
        team.log.archive().publish().unwrap();
        Some(team)
    }

    /// The number of messages in the stream.
    fn messages(&self) -> u64 {
        runtime().block_on(async {
            let mut stream = self.nats.jetstream().get_stream("LASTWORD_ws").await.unwrap();
            stream.info().await.unwrap().state.messages
        })
    }

    fn objects(&self) -> (ObjectStore, Vec<String>) {
        runtime().block_on(async {
            let store = self.nats.jetstream().get_object_store("LASTWORD_ws").await.unwrap();
            let listed: Vec<_> = store.list().await.unwrap().try_collect().await.unwrap();
            (store, listed.into_iter().map(|object| object.name).collect())
        })
    }
}

fn segments(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(dir.join(FOLDER_ARCHIVE))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

fn entries(mirror: &Mirror, from: u64) -> Vec<(Seq, Entry)> {
    mirror.reader().read(Seq(from), 10_000).unwrap()
}

fn expected(range: std::ops::RangeInclusive<u64>) -> Vec<(Seq, Entry)> {
    range.map(|n| (Seq(n), note(n))).collect()
}

/// Follows until the mirror ends at `last`.
fn follow_to(mirror: &mut Mirror, last: u64) {
    while mirror.last() < Seq(last) {
        follow(mirror);
    }
}

fn verified(dir: &Path) -> (u64, u64) {
    let mut walked = 0;
    let mut check = |_, _| {
        walked += 1;
        Ok(())
    };
    let verified = DataDir::at(dir).verify(None, &mut check, &mut |_, _| {}).unwrap();
    (verified.end.at.0, walked)
}

#[test]
fn a_new_node_begins_with_the_archive_and_the_rest_of_the_stream() {
    let Some(mut team) = Team::archived("a new node and an archive") else { return };
    // Of the first 200 entries, those up to the last mark before them; the start of the epoch stays.
    assert_eq!(team.messages(), 501 - 191, "mark 192 is behind entry 191");
    let fresh = tempfile::tempdir().unwrap();
    let mut mirror = open(&team.nats, "ws", fresh.path());
    assert!(mirror.last() >= Seq(450), "it has all that the base lacks: {mirror:?}");
    assert_eq!(mirror.reader().first().unwrap(), Seq(401));
    assert_eq!(mirror.archive().base().unwrap(), Some((Seq(450), b"the state at 450".to_vec())));
    follow_to(&mut mirror, 500);
    assert_eq!(entries(&mirror, 1), expected(401..=500));
    assert_eq!(segments(fresh.path()), ["1-200.segment", "201-400.segment"]);
    assert_eq!(verified(fresh.path()), (500, 500), "the chain goes on from the segments, which are all there");
    assert!(!fresh.path().join("aside-1").exists());
    // It can lead, and goes on sealing.
    let (mut log, _) = lead(mirror, 2);
    log.begin_epoch().unwrap();
    assert!(team.log.append(1, Seq(500), &notes(501..=501)).is_err());
    for n in 501..=700 {
        log.append(2, Seq(n - 1), &notes(n..=n)).unwrap();
    }
    log.archive().seal(Seq(600), u64::MAX, Base { at: Seq(650), state: b"later" }).unwrap().unwrap();
    log.archive().publish().unwrap();
    let (_, names) = team.objects();
    assert_eq!(names.iter().filter(|name| name.starts_with("start-")).count(), 2, "{names:?}");
    assert_eq!(names.iter().filter(|name| name.ends_with(".segment")).count(), 3, "{names:?}");
    drop(log);
    let another = tempfile::tempdir().unwrap();
    let mut mirror = open(&team.nats, "ws", another.path());
    follow_to(&mut mirror, 700);
    assert_eq!(entries(&mirror, 1), expected(601..=700));
    drop(mirror);
    assert_eq!(verified(another.path()), (700, 700));
}

#[test]
fn a_new_node_that_is_stopped_while_it_begins_goes_on() {
    let Some(team) = Team::archived("a new node that is stopped") else { return };
    let fresh = tempfile::tempdir().unwrap();
    drop(open(&team.nats, "ws", fresh.path()));
    // As if it had been stopped before anything behind the segments was written.
    let db = rusqlite::Connection::open(fresh.path().join("lastword.db")).unwrap();
    let mark =
        "UPDATE mirror SET (at, epoch, batch, row_at) = (SELECT at, epoch, batch, 0 FROM marks ORDER BY at LIMIT 1)";
    db.execute_batch(&format!("DELETE FROM log; {mark}")).unwrap();
    drop(db);
    let mut mirror = open(&team.nats, "ws", fresh.path());
    follow_to(&mut mirror, 500);
    assert_eq!(entries(&mirror, 1), expected(401..=500));
    drop(mirror);
    assert_eq!(verified(fresh.path()), (500, 500));
}

#[test]
fn a_mirror_that_missed_what_left_begins_anew_from_the_archive() {
    let Some(mut team) = Team::start("a mirror that was away") else { return };
    team.append(1..=50);
    let dir = tempfile::tempdir().unwrap();
    let mut away = open(&team.nats, "ws", dir.path());
    follow_to(&mut away, 50);
    drop(away);
    team.append(51..=300);
    team.seal(200, 250);
    team.log.archive().publish().unwrap();
    team.append(301..=500);
    team.seal(400, 450);
    team.log.archive().publish().unwrap();
    let mut mirror = open(&team.nats, "ws", dir.path());
    follow_to(&mut mirror, 500);
    assert_eq!(entries(&mirror, 1), expected(401..=500));
    drop(mirror);
    assert_eq!(verified(dir.path()), (500, 500));
    assert!(dir.path().join("aside-1/lastword.db").exists(), "what it had is moved aside");
}

#[test]
fn a_follower_that_meets_a_gap_says_that_the_archive_has_it() {
    let Some(mut team) = Team::start("a follower that meets a gap") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut mirror = open(&team.nats, "ws", dir.path());
    team.append(1..=300);
    team.seal(200, 250);
    team.log.archive().publish().unwrap();
    team.append(301..=500);
    team.seal(400, 450);
    team.log.archive().publish().unwrap();
    let met = loop {
        match runtime().block_on(mirror.follow()) {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(met, MirrorError::Archived { .. }), "{met}");
    drop(mirror);
    let mut mirror = open(&team.nats, "ws", dir.path());
    follow_to(&mut mirror, 500);
    assert_eq!(entries(&mirror, 1), expected(401..=500));
}

#[test]
fn a_follower_lets_go_of_what_left_and_stays_a_log_that_proves_itself() {
    let Some(mut team) = Team::start("a follower lets go") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut mirror = open(&team.nats, "ws", dir.path());
    team.append(1..=300);
    follow_to(&mut mirror, 300);
    assert_eq!(runtime().block_on(mirror.let_go()), Ok(Seq(1)), "nothing left yet");
    team.seal(200, 250);
    team.log.archive().publish().unwrap();
    assert_eq!(runtime().block_on(mirror.let_go()), Ok(Seq(201)));
    assert_eq!(entries(&mirror, 1), expected(201..=300));
    team.append(301..=310);
    follow_to(&mut mirror, 310);
    drop(mirror);
    assert_eq!(verified(dir.path()), (310, 310));
    let mirror = open(&team.nats, "ws", dir.path());
    assert_eq!((mirror.last(), mirror.reader().first().unwrap()), (Seq(310), Seq(201)));
    assert_eq!(mirror.archive().base().unwrap(), Some((Seq(250), b"the state at 250".to_vec())));
}

#[test]
fn nothing_leaves_the_stream_while_a_start_cannot_be_read() {
    let Some(mut team) = Team::start("a start that is damaged") else { return };
    team.append(1..=300);
    team.seal(200, 250);
    team.log.archive().publish().unwrap();
    let (store, names) = team.objects();
    let start = names.into_iter().find(|name| name.starts_with("start-")).unwrap();
    runtime().block_on(store.put(start.as_str(), &mut &b"something else"[..])).unwrap();
    team.append(301..=500);
    team.seal(400, 450);
    assert!(team.log.archive().publish().is_err());
    assert_eq!(team.messages(), 501);
    // The next one counts: a node that begins takes the newest that it can read.
    let fresh = tempfile::tempdir().unwrap();
    let mut mirror = open(&team.nats, "ws", fresh.path());
    follow_to(&mut mirror, 500);
    assert_eq!(entries(&mirror, 1), expected(1..=500));
}

#[test]
fn publishing_is_repeated_after_a_failure_and_changes_nothing_when_nothing_is_new() {
    let Some(mut team) = Team::start("publishing again") else { return };
    team.append(1..=300);
    team.log.archive().publish().unwrap();
    team.seal(200, 250);
    // The server isn't there: the segment stays in the mirror's archive.
    team.one.server.kill();
    assert!(team.log.archive().publish().is_err());
    team.one.server.resume();
    crate::nats_server::until("NATS is back", || team.log.archive().publish().is_ok());
    let before = team.objects().1;
    team.log.archive().publish().unwrap();
    assert_eq!(team.objects().1, before);
}

#[test]
fn a_log_with_an_archive_moves_out_whole() {
    let Some(team) = Team::archived("moving out with an archive") else { return };
    let dir = tempfile::tempdir().unwrap();
    let moved = runtime().block_on(move_out(&team.nats, "ws", &[], dir.path(), &mut |_| {})).unwrap();
    assert_eq!((moved.end.at, moved.rows), (Seq(500), 100));
    assert_eq!(verified(dir.path()), (500, 500));
    let log = DataDir::at(dir.path()).open().unwrap();
    assert_eq!(log.reader().first().unwrap(), Seq(401));
    assert_eq!(log.archive().base().unwrap(), Some((Seq(450), b"the state at 450".to_vec())));
}
