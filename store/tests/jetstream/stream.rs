//! The log on JetStream: mirrors, leaders, zombies, lost acknowledgements, and servers that are killed.

use std::path::Path;
use std::sync::Arc;

use async_nats::jetstream::stream::Config;
use lastword_facts::{Entry, Seq};
use lastword_store::{
    AppendError, DataDir, Lease, Log, Mirror, MirrorError, MoveError, Nats, NatsError, OpenError, move_in, move_out,
};

use crate::nats_server::{One, create_stream, program, runtime};
use crate::sample::{long, note, notes};

/// A lease that is held.
pub(crate) fn held() -> Lease {
    Arc::new(|| true)
}

/// Opens a mirror, also while the servers have no leader for a moment.
pub(crate) fn open(nats: &Nats, workspace: &str, dir: &Path) -> Mirror {
    loop {
        match runtime().block_on(Mirror::open(nats, workspace, dir)) {
            Err(MirrorError::Nats(NatsError::Unavailable { .. })) => {}
            opened => return opened.unwrap(),
        }
    }
}

/// Follows once, also while the servers have no leader for a moment.
pub(crate) fn follow(mirror: &mut Mirror) -> Vec<(Seq, Entry)> {
    loop {
        match runtime().block_on(mirror.follow()) {
            Err(MirrorError::Nats(NatsError::Unavailable { .. })) => {}
            followed => return followed.unwrap(),
        }
    }
}

pub(crate) fn lead(mirror: Mirror, epoch: u64) -> (Box<dyn Log>, Vec<(Seq, Entry)>) {
    runtime().block_on(mirror.lead(epoch, "node", held())).unwrap()
}

/// Follows until the mirror ends at `last`, and returns what it got.
fn follow_to(mirror: &mut Mirror, last: u64) -> Vec<(Seq, Entry)> {
    let mut got = Vec::new();
    while mirror.last() < Seq(last) {
        got.extend(follow(mirror));
    }
    got
}

fn numbered(range: std::ops::RangeInclusive<u64>) -> Vec<(Seq, Entry)> {
    range.map(|n| (Seq(n), note(n))).collect()
}

#[test]
fn a_follower_has_what_the_leader_appended_and_takes_over() {
    let Some(program) = program("mirrors") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    assert_eq!(runtime().block_on(nats.streams()).unwrap(), ["ws"]);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (mut log, _) = lead(open(&nats, "ws", dirs[0].path()), 5);
    let mut follower = open(&nats, "ws", dirs[1].path());
    assert_eq!(log.begin_epoch(), Ok(5));
    assert_eq!(log.append(5, Seq(0), &notes(1..=3)), Ok(Seq(3)));
    assert_eq!(log.append(5, Seq(3), &notes(4..=4)), Ok(Seq(4)));
    assert_eq!(follow_to(&mut follower, 4), numbered(1..=4));
    assert_eq!((follower.epoch(), follower.lag(), follower.dropped()), (5, 0, 0));
    // What it hasn't followed yet comes with the lead.
    assert_eq!(log.append(5, Seq(4), &notes(5..=6)), Ok(Seq(6)));
    let (mut next, read) = lead(follower, 9);
    assert_eq!(read, numbered(5..=6));
    assert_eq!(next.append(9, Seq(6), &notes(7..=7)), Ok(Seq(7)));
    assert_eq!(log.append(5, Seq(6), &notes(8..=8)), Err(AppendError::Fenced { epoch: 9 }));
    assert_eq!(log.append(5, Seq(6), &notes(8..=8)), Err(AppendError::Fenced { epoch: 9 }), "for good");
    assert_eq!(next.append(9, Seq(7), &notes(8..=8)), Ok(Seq(8)));
    drop((log, next));
    for dir in &dirs {
        let mut mirror = open(&nats, "ws", dir.path());
        follow_to(&mut mirror, 8);
        assert_eq!(mirror.reader().read(Seq(1), 100).unwrap(), numbered(1..=8));
        drop(mirror);
        let walked = DataDir::at(dir.path()).verify(None, &mut |_, _| Ok(()), &mut |_, _| {}).unwrap();
        assert_eq!((walked.entries, walked.end.at), (8, Seq(8)), "it is an ordinary log");
    }
}

#[test]
fn a_mirror_is_a_cache_that_comes_back_from_the_stream() {
    let Some(program) = program("mirrors that come back") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    for n in 1..=200 {
        log.append(1, Seq(n - 1), &notes(n..=n)).unwrap();
    }
    drop(log);
    let aside = |n: u64| dir.path().join(format!("aside-{n}"));
    // Deleted: everything comes anew. Damaged at its end: it is moved aside first.
    for n in 0..2 {
        let database = dir.path().join("lastword.db");
        if n == 0 {
            for name in ["lastword.db", "lastword.db-wal", "lastword.db-shm"] {
                let _gone = std::fs::remove_file(dir.path().join(name));
            }
        } else {
            let db = rusqlite::Connection::open(&database).unwrap();
            db.execute("UPDATE log SET blob = zeroblob(40) WHERE first_seq = 199", []).unwrap();
        }
        let mut mirror = open(&nats, "ws", dir.path());
        assert_eq!((mirror.last(), mirror.lag(), aside(1).exists()), (Seq(0), 201, n == 1));
        assert_eq!(follow_to(&mut mirror, 200), numbered(1..=200));
        assert_eq!(mirror.reader().last().unwrap(), Seq(200));
    }
    // What it has is not fetched again.
    assert_eq!((open(&nats, "ws", dir.path()).last(), aside(2).exists()), (Seq(200), false));
    // A long way behind, a new leader reads it all.
    let fresh = tempfile::tempdir().unwrap();
    assert_eq!(lead(open(&nats, "ws", fresh.path()), 2).1, numbered(1..=200));
}

#[test]
fn a_stream_that_lost_what_was_acknowledged_is_refused() {
    let Some(program) = program("a stream that lost its end") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    log.append(1, Seq(0), &notes(1..=3)).unwrap();
    log.append(1, Seq(3), &notes(4..=6)).unwrap();
    drop(log);
    let opened = || runtime().block_on(Mirror::open(&nats, "ws", dir.path())).map(|mirror| mirror.last());
    assert_eq!(opened(), Ok(Seq(6)));
    let stream = runtime().block_on(nats.jetstream().get_stream("LASTWORD_ws")).unwrap();
    // A message that is gone from the middle stops whoever reads it anew, and the last one stops everybody.
    runtime().block_on(stream.delete_message(2)).unwrap();
    let fresh = tempfile::tempdir().unwrap();
    let mut mirror = open(&nats, "ws", fresh.path());
    let read = loop {
        match runtime().block_on(mirror.follow()) {
            Ok(entries) => assert_eq!(entries, []),
            Err(error) => break error,
        }
    };
    assert!(matches!(&read, MirrorError::Damaged { at: 2, .. }), "{read}");
    runtime().block_on(stream.delete_message(3)).unwrap();
    assert!(matches!(opened(), Err(MirrorError::Damaged { at: 3, .. })));
    // Made anew with less in it than was acknowledged.
    runtime().block_on(nats.jetstream().delete_stream("LASTWORD_ws")).unwrap();
    assert_eq!(opened(), Err(MirrorError::Nats(NatsError::Missing { workspace: "ws".to_owned() })));
    create_stream(&nats, "ws", 1);
    assert!(matches!(opened(), Err(MirrorError::Lost { .. })));
    let other = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", other.path()), 1);
    log.append(1, Seq(0), &notes(1..=5)).unwrap();
    assert!(matches!(opened(), Err(MirrorError::Lost { .. })));
    // Made anew with all of it: the mirror is fetched again.
    log.append(1, Seq(5), &notes(6..=7)).unwrap();
    assert_eq!(opened(), Ok(Seq(0)));
    assert!(dir.path().join("aside-1/lastword.db").exists());
}

#[test]
fn a_stream_with_another_history_is_refused_and_the_mirror_stays() {
    let Some(program) = program("a stream with another history") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    log.append(1, Seq(0), &notes(1..=3)).unwrap();
    drop(log);
    let database = dir.path().join("lastword.db");
    let rewrite = |sql: &str| rusqlite::Connection::open(&database).unwrap().execute(sql, []).unwrap();
    rewrite("UPDATE log SET hash = zeroblob(32)");
    // The row doesn't prove itself, so this is a damaged mirror and not another history.
    let mut mirror = open(&nats, "ws", dir.path());
    assert_eq!(mirror.last(), Seq(0));
    follow_to(&mut mirror, 3);
    drop(mirror);
    rewrite("DELETE FROM log");
    let refused = runtime().block_on(Mirror::open(&nats, "ws", dir.path())).map(|_| ());
    assert!(
        matches!(&refused, Err(MirrorError::Damaged { problem, .. }) if problem.contains("altered")),
        "{refused:?}"
    );
}

#[test]
fn a_directory_with_a_log_of_its_own_is_no_mirror() {
    let Some(program) = program("a directory with its own log") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    log.append(epoch, Seq(0), &notes(1..=3)).unwrap();
    drop(log);
    let refused = |dir: &Path| runtime().block_on(Mirror::open(&nats, "ws", dir)).map(|_| ()).unwrap_err().to_string();
    assert!(refused(dir.path()).contains("a log of its own"));
    std::fs::remove_file(dir.path().join("lastword.head")).unwrap();
    assert!(refused(dir.path()).contains("a log of its own"));
    // And a mirror isn't served as a log.
    let mirror = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", mirror.path()), 1);
    log.append(1, Seq(0), &notes(1..=3)).unwrap();
    assert!(refused(mirror.path()).contains("in use by process"));
    drop(log);
    assert!(matches!(DataDir::at(mirror.path()).open().map(|_| ()), Err(OpenError::NoHead { .. })));
}

#[test]
fn an_epoch_that_is_not_newer_is_fenced_and_the_mirror_comes_back() {
    let Some(program) = program("epochs that are not newer") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mirror = open(&nats, "ws", dirs[1].path());
    let (mut log, _) = lead(open(&nats, "ws", dirs[0].path()), 7);
    log.append(7, Seq(0), &notes(1..=2)).unwrap();
    let mut mirror = mirror;
    for epoch in [1, 7] {
        let (back, error) = runtime().block_on(mirror.lead(epoch, "late", held())).map(|_| ()).unwrap_err();
        assert_eq!(error, AppendError::Fenced { epoch: 7 });
        mirror = back;
    }
    assert_eq!(log.append(7, Seq(2), &notes(3..=3)), Ok(Seq(3)), "nothing was written");
    assert_eq!(follow_to(&mut mirror, 3), numbered(1..=3));
    assert!(matches!(log.begin_epoch(), Ok(7)));
    assert!(matches!(log.begin_epoch(), Err(AppendError::Fatal { .. })), "once");
}

#[test]
fn a_stream_that_is_full_refuses_whole_commits_and_goes_on_once_there_is_room() {
    let Some(program) = program("a full stream") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    log.append(1, Seq(0), &notes(1..=3)).unwrap();
    let limit = |bytes: i64| {
        let stream = runtime().block_on(nats.jetstream().get_stream("LASTWORD_ws")).unwrap();
        let config = Config { max_bytes: bytes, ..stream.cached_info().config.clone() };
        runtime().block_on(nats.jetstream().update_stream(config)).unwrap();
    };
    limit(1_000_000);
    // Two entries of 800 kB: some parts fit, and don't count.
    let large: Vec<_> = (4..=5).map(long).map(Arc::new).collect();
    let refused = log.append(1, Seq(3), &large);
    assert!(matches!(&refused, Err(AppendError::Full { .. })), "{refused:?}");
    assert_eq!(log.reader().last().unwrap(), Seq(3));
    limit(-1);
    assert!(!log.make_room(&notes(4..=4)), "nothing limits it");
    assert_eq!(log.append(1, Seq(3), &large), Ok(Seq(5)));
    let fresh = tempfile::tempdir().unwrap();
    let mut mirror = open(&nats, "ws", fresh.path());
    let read = follow_to(&mut mirror, 5);
    assert_eq!(read.last(), Some(&(Seq(5), long(5))));
    assert!(mirror.dropped() > 0, "the parts of the first attempt");
}

#[test]
fn a_stream_at_its_limit_makes_room_for_what_must_be_written_and_no_more() {
    let Some(program) = program("a full stream") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    log.append(1, Seq(0), &notes(1..=3)).unwrap();
    let stream = || runtime().block_on(nats.jetstream().get_stream("LASTWORD_ws")).unwrap().cached_info().clone();
    let (config, state) = (stream().config, stream().state);
    for (max_bytes, max_messages) in [(state.bytes.cast_signed(), -1), (-1, state.messages.cast_signed())] {
        let last = log.reader().last().unwrap();
        let limited = Config { max_bytes, max_messages, ..config.clone() };
        runtime().block_on(nats.jetstream().update_stream(limited)).unwrap();
        let next = notes(last.0 + 1..=last.0 + 1);
        assert!(matches!(log.append(1, last, &next), Err(AppendError::Full { .. })));
        assert!(log.make_room(&next));
        assert_eq!(log.append(1, last, &next), Ok(Seq(last.0 + 1)));
        let large: Vec<_> = (last.0 + 2..=last.0 + 3).map(long).map(Arc::new).collect();
        assert!(matches!(log.append(1, Seq(last.0 + 1), &large), Err(AppendError::Full { .. })), "not for others");
        let reset = Config { max_bytes: -1, max_messages: -1, ..config.clone() };
        runtime().block_on(nats.jetstream().update_stream(reset)).unwrap();
    }
}

#[test]
fn a_dropped_future_of_a_follower_loses_nothing() {
    let Some(program) = program("followers that are interrupted") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let (dir, follower) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    let writer = std::thread::spawn(move || {
        for n in 1..=500 {
            log.append(1, Seq(n - 1), &notes(n..=n)).unwrap();
        }
    });
    let mut mirror = open(&nats, "ws", follower.path());
    let (mut got, mut turns) = (Vec::new(), 0_u64);
    while mirror.last() < Seq(500) {
        turns += 1;
        let patience = std::time::Duration::from_micros(turns % 7 * 150);
        let followed = runtime().block_on(async { tokio::time::timeout(patience, mirror.follow()).await });
        got.extend(followed.map_or(Vec::new(), Result::unwrap));
    }
    writer.join().unwrap();
    assert_eq!(got, numbered(1..=500));
}

#[test]
fn a_log_moves_into_a_stream_and_out_again_with_its_chain() {
    let Some(program) = program("moves") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    for n in 0..20 {
        let epoch = log.begin_epoch().unwrap();
        log.append(epoch, Seq(n * 5), &notes(n * 5 + 1..=n * 5 + 5)).unwrap();
    }
    let large: Vec<_> = (101..=103).map(long).map(Arc::new).collect();
    log.append(20, Seq(100), &large).unwrap();
    drop(log);
    let end = |dir: &Path| DataDir::at(dir).open_chain().unwrap().end().unwrap().unwrap();
    let mut reached = Vec::new();
    let moved = runtime().block_on(move_in(&nats, "ws", dir.path(), &mut |at, last| reached.push((at, last)))).unwrap();
    assert_eq!((moved.end, moved.rows), (end(dir.path()), 23));
    assert_eq!(reached.last(), Some(&(Seq(103), Seq(103))));
    let again = runtime().block_on(move_in(&nats, "ws", dir.path(), &mut |_, _| {}));
    assert!(matches!(again, Err(MoveError::Taken { .. })), "{again:?}");
    // Its epochs come along, so the next one is greater.
    let node = tempfile::tempdir().unwrap();
    let mut mirror = open(&nats, "ws", node.path());
    follow_to(&mut mirror, 103);
    let epoch = mirror.epoch() + 1;
    let (mut log, _) = lead(mirror, epoch);
    log.append(epoch, Seq(103), &notes(104..=104)).unwrap();
    drop(log);
    // What no node wrote stops it, until a human sets it aside.
    let published = async { nats.jetstream().publish("lastword.ws.log", "nobody's".into()).await.unwrap().await };
    let at = runtime().block_on(published).unwrap().sequence;
    let out = tempfile::tempdir().unwrap();
    let stopped = runtime().block_on(move_out(&nats, "ws", &[], out.path(), &mut |_| {}));
    assert!(matches!(&stopped, Err(MoveError::Damaged { at: found, .. }) if *found == at), "{stopped:?}");
    let (aside, _) = runtime().block_on(nats.set_aside("ws", at)).unwrap().unwrap();
    let moved = runtime().block_on(move_out(&nats, "ws", &[aside], out.path(), &mut |_| {})).unwrap();
    assert_eq!(moved.end, end(node.path()));
    let walked = DataDir::at(out.path()).verify(Some(end(dir.path())), &mut |_, _| Ok(()), &mut |_, _| {}).unwrap();
    assert_eq!((walked.entries, walked.end), (104, moved.end));
    let mut log = DataDir::at(out.path()).open().unwrap();
    assert!(log.begin_epoch().unwrap() > epoch);
    drop(log);
    let again = runtime().block_on(move_out(&nats, "ws", &[], out.path(), &mut |_| {}));
    assert!(matches!(again, Err(MoveError::Taken { .. })), "{again:?}");
}

#[test]
fn nobody_leads_a_log_that_was_half_moved_and_the_move_goes_on() {
    let Some(program) = program("moves that are interrupted") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(dir.path()).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    // Many commits of the stream, so that what was sent when the future is dropped isn't the last one.
    for n in 0..120 {
        log.append(epoch, Seq(n * 500), &notes(n * 500 + 1..=n * 500 + 500)).unwrap();
    }
    drop(log);
    // The future is dropped after the first commit.
    let stop = tokio::sync::Notify::new();
    runtime().block_on(async {
        let mut progress = |_: Seq, _: Seq| stop.notify_one();
        tokio::select! {
            biased;
            () = stop.notified() => {}
            moved = move_in(&nats, "ws", dir.path(), &mut progress) => panic!("it wasn't interrupted: {moved:?}"),
        }
    });
    let node = tempfile::tempdir().unwrap();
    let mirror = open(&nats, "ws", node.path());
    let (mirror, error) = runtime().block_on(mirror.lead(99, "early", held())).map(|_| ()).unwrap_err();
    assert!(matches!(&error, AppendError::Fatal { reason } if reason.contains("being copied")), "{error}");
    let out = tempfile::tempdir().unwrap();
    let refused = runtime().block_on(move_out(&nats, "ws", &[], out.path(), &mut |_| {}));
    assert!(matches!(refused, Err(MoveError::Unfinished { .. })), "{refused:?}");
    let mut begins = None;
    let moved = runtime().block_on(move_in(&nats, "ws", dir.path(), &mut |at, _| {
        begins.get_or_insert(at);
    }));
    assert_eq!(moved.unwrap().end.at, Seq(60_000));
    assert!(begins > Some(Seq(500)), "it goes on where it ended: {begins:?}");
    let (log, read) = lead(mirror, 99);
    assert_eq!(read.len(), 60_000);
    assert_eq!(log.reader().last().unwrap(), Seq(60_000));
}
