//! Faults of the log on JetStream: servers that are killed, leaders that were replaced, acknowledgements that get lost.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::connection::State;
use lastword_facts::{Entry, Seq};
use lastword_store::{AppendError, Lease, Mirror, MirrorError, Nats};

use crate::nats_server::{
    One, Three, connect, create_stream, delete_consumers, program, runtime, spoil_consumers, until,
};
use crate::sample::{long, note, notes};
use crate::stream::{follow, held, lead, open};

/// Returns how often the stream's leader is killed; `LASTWORD_NATS_KILLS=20` for the long run.
fn kills() -> usize {
    std::env::var_os("LASTWORD_NATS_KILLS").and_then(|n| n.to_str()?.parse().ok()).unwrap_or(3)
}

/// Asserts that the stream has exactly these notes, as a mirror that is fetched anew sees it.
fn assert_notes(nats: &Nats, workspace: &str, last: u64) {
    let dir = tempfile::tempdir().unwrap();
    // Opened again until the stream's leader says that nothing follows: the server that delivers to the mirror may have
    // returned a moment ago, and then it counts what follows in a copy that lacks the newest messages.
    let mirror = loop {
        let mut mirror = open(nats, workspace, dir.path());
        if mirror.lag() == 0 {
            break mirror;
        }
        while mirror.lag() > 0 {
            follow(&mut mirror);
        }
    };
    assert_eq!(mirror.last(), Seq(last));
    let (reader, mut next) = (mirror.reader(), 1);
    while next <= last {
        for (seq, entry) in reader.read(Seq(next), 1000).unwrap() {
            assert_eq!((seq, entry), (Seq(next), note(next)));
            next += 1;
        }
    }
}

/// Returns the sequence of the stream's last message.
fn messages(nats: &Nats, workspace: &str) -> u64 {
    let name = format!("LASTWORD_{workspace}");
    let mut last = None;
    until("the server tells of the stream", || {
        let stream = runtime().block_on(nats.jetstream().get_stream(&name));
        last = stream.ok().map(|stream| stream.cached_info().state.last_sequence);
        last.is_some()
    });
    last.unwrap()
}

#[test]
fn the_streams_leader_is_killed_under_load_and_nothing_is_lost_or_there_twice() {
    let Some(program) = program("killed servers") else { return };
    let mut three = Three::start(&program);
    let nats = three.connect();
    create_stream(&nats, "ws", 3);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    let (acknowledged, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = {
        let (acknowledged, stop) = (Arc::clone(&acknowledged), Arc::clone(&stop));
        std::thread::spawn(move || {
            let mut last = 0;
            while !stop.load(Ordering::Relaxed) {
                let next = last + 1 + last % 20;
                assert_eq!(log.append(1, Seq(last), &notes(last + 1..=next)), Ok(Seq(next)));
                last = next;
                acknowledged.store(last, Ordering::Relaxed);
            }
            last
        })
    };
    // A node that follows meanwhile loses its consumer, its connection or both.
    let finished = Arc::new(AtomicU64::new(u64::MAX));
    let follower = {
        let (nats, finished) = (three.connect(), Arc::clone(&finished));
        std::thread::spawn(move || {
            let dir = tempfile::tempdir().unwrap();
            let (mut mirror, mut got) = (open(&nats, "ws", dir.path()), Vec::new());
            while mirror.last().0 < finished.load(Ordering::Relaxed) {
                let followed = async { tokio::time::timeout(Duration::from_secs(3), mirror.follow()).await };
                match runtime().block_on(followed) {
                    Ok(Ok(entries)) => got.extend(entries.into_iter().map(|(seq, _)| seq.0)),
                    Ok(Err(error)) => assert!(matches!(error, MirrorError::Nats(_)), "{error}"),
                    Err(_) => {}
                }
            }
            got
        })
    };
    let goes_on = || {
        let before = acknowledged.load(Ordering::Relaxed);
        until("appends are acknowledged", || acknowledged.load(Ordering::Relaxed) > before + 200);
    };
    for _ in 0..kills() {
        goes_on();
        // Three servers outlive the end of one: the one before must have caught up.
        until("all three have the whole stream", || {
            let copies = runtime().block_on(nats.copies("ws"));
            copies.is_ok_and(|copies| copies.current == copies.wanted)
        });
        let leader = three.leader(&nats, "ws");
        three.servers[leader].kill();
        goes_on();
        three.servers[leader].resume();
    }
    goes_on();
    stop.store(true, Ordering::Relaxed);
    let last = writer.join().unwrap();
    assert_notes(&nats, "ws", last);
    finished.store(last, Ordering::Relaxed);
    assert!(follower.join().unwrap().into_iter().eq(1..=last), "each entry once, in order");
}

#[test]
fn a_leader_that_was_replaced_under_load_is_fenced_and_nothing_of_it_counts() {
    let Some(program) = program("zombies") else { return };
    let three = Three::start(&program);
    let nats = three.connect();
    create_stream(&nats, "ws", 3);
    let mut last = 0;
    let mut old: Option<std::thread::JoinHandle<u64>> = None;
    for epoch in 1..=6 {
        let dir = tempfile::tempdir().unwrap();
        let mirror = open(&nats, "ws", dir.path());
        // The leader before appends meanwhile, without knowing.
        let (mut log, _) = lead(mirror, epoch);
        let began = log.reader().last().unwrap().0;
        if let Some(old) = old.take() {
            assert_eq!(old.join().unwrap(), began, "what it had acknowledged is there, and nothing else");
        }
        let (started, starts) = std::sync::mpsc::channel();
        last = began;
        let zombie = std::thread::spawn(move || {
            let _dir = dir;
            let mut last = began;
            loop {
                match log.append(epoch, Seq(last), &notes(last + 1..=last + 3)) {
                    Ok(at) => last = at.0,
                    Err(error) => {
                        assert_eq!(error, AppendError::Fenced { epoch: epoch + 1 });
                        return last;
                    }
                }
                let _seen = started.send(last);
            }
        });
        while last < began + 60 {
            last = starts.recv().unwrap();
        }
        old = Some(zombie);
    }
    let dir = tempfile::tempdir().unwrap();
    let (log, _) = lead(open(&nats, "ws", dir.path()), 7);
    last = last.max(old.unwrap().join().unwrap());
    assert_eq!(log.reader().last().unwrap(), Seq(last));
    assert_notes(&nats, "ws", last);
}

/// What a proxy does with the next publish.
const PASS: u8 = 0;
/// Forwards it, and cuts the connection instead of passing the acknowledgement on.
const LOSE_ACK: u8 = 1;
/// Cuts the connection instead of forwarding it.
const LOSE_PUBLISH: u8 = 2;
/// Keeps it back, with what follows on the connection, until [`Proxy::release`].
const DELAY: u8 = 3;

/// A TCP proxy between a client and a server, which loses what it is told to.
struct Proxy {
    port: u16,
    next: Arc<AtomicU8>,
    kept: Arc<Mutex<Vec<Kept>>>,
}

/// Bytes that were kept back, and the connection to the server on which they belong.
type Kept = (TcpStream, Vec<u8>);

impl Proxy {
    fn start(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Self { port, next: Arc::default(), kept: Arc::default() };
        let (next, kept) = (Arc::clone(&proxy.next), Arc::clone(&proxy.kept));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(("127.0.0.1", server))) else { continue };
                let cutting = Arc::new(AtomicBool::new(false));
                let (next, kept, cuts) = (Arc::clone(&next), Arc::clone(&kept), Arc::clone(&cutting));
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || forwards(client, server, (&next, &kept, &cuts)));
                std::thread::spawn(move || backwards(back.0, back.1, &cutting));
            }
        });
        proxy
    }

    fn arm(&self, what: u8) {
        self.next.store(what, Ordering::SeqCst);
    }

    /// Forwards what was kept back.
    fn release(&self) {
        for (mut server, bytes) in self.kept.lock().unwrap().drain(..) {
            server.write_all(&bytes).unwrap();
            server.flush().unwrap();
        }
    }

    fn connect(&self) -> Nats {
        connect([format!("nats://127.0.0.1:{}", self.port)])
    }
}

type Shared<'a> = (&'a AtomicU8, &'a Mutex<Vec<Kept>>, &'a AtomicBool);

fn forwards(mut client: TcpStream, mut server: TcpStream, (next, kept, cutting): Shared<'_>) {
    let (mut buffer, mut keeps) = (vec![0; 1 << 20], false);
    while let Ok(read @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..read];
        let publishes = bytes.windows(13).any(|window| window == b"HPUB lastword");
        match if publishes { next.swap(PASS, Ordering::SeqCst) } else { PASS } {
            LOSE_ACK => cutting.store(true, Ordering::SeqCst),
            LOSE_PUBLISH => break,
            DELAY => keeps = true,
            _ => {}
        }
        if keeps {
            kept.lock().unwrap().push((server.try_clone().unwrap(), bytes.to_vec()));
        } else if server.write_all(bytes).is_err() {
            break;
        }
    }
    let _closed = client.shutdown(Shutdown::Both);
    if !keeps {
        let _closed = server.shutdown(Shutdown::Both);
    }
}

fn backwards(mut server: TcpStream, mut client: TcpStream, cutting: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = server.read(&mut buffer) {
        if cutting.load(Ordering::SeqCst) || client.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _closed = client.shutdown(Shutdown::Both);
}

#[test]
fn a_lost_acknowledgement_is_found_by_its_batch_and_a_lost_publish_is_repeated() {
    let Some(program) = program("lost acknowledgements") else { return };
    let one = One::start(&program);
    let direct = one.connect();
    create_stream(&direct, "ws", 1);
    let proxy = Proxy::start(one.server.port);
    let nats = proxy.connect();
    let dir = tempfile::tempdir().unwrap();
    // Also the leader's claim.
    proxy.arm(LOSE_ACK);
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    let mut last = 0;
    for what in [LOSE_ACK, PASS, LOSE_PUBLISH, PASS, DELAY, PASS] {
        proxy.arm(what);
        assert_eq!(log.append(1, Seq(last), &notes(last + 1..=last + 5)), Ok(Seq(last + 5)), "{what}");
        last += 5;
        // What arrives late is refused, for what it expects isn't so any more.
        proxy.release();
    }
    assert_eq!(messages(&direct, "ws"), 7, "a claim and six commits, each once");
    assert_notes(&direct, "ws", last);
    assert_eq!(log.append(1, Seq(last), &notes(last + 1..=last + 1)), Ok(Seq(last + 1)));
    assert_notes(&direct, "ws", last + 1);
}

#[test]
fn a_part_of_a_long_commit_whose_acknowledgement_is_lost_is_there_once() {
    let Some(program) = program("lost acknowledgements of parts") else { return };
    let one = One::start(&program);
    let direct = one.connect();
    create_stream(&direct, "ws", 1);
    let proxy = Proxy::start(one.server.port);
    let nats = proxy.connect();
    let (dir, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    let large: Vec<_> = (1..=2).map(long).map(Arc::new).collect();
    proxy.arm(LOSE_ACK);
    assert_eq!(log.append(1, Seq(0), &large), Ok(Seq(2)));
    let mut mirror = open(&direct, "ws", fresh.path());
    while mirror.last() < Seq(2) {
        follow(&mut mirror);
    }
    assert_eq!(mirror.dropped(), 0);
    assert_eq!(mirror.reader().entry(Seq(2)).unwrap(), Some(long(2)));
}

#[test]
fn a_server_that_stalls_longer_than_an_append_waits_has_it_once() {
    let Some(program) = program("servers that stall") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let asked = Arc::new(AtomicU64::new(0));
    let lease: Lease = {
        let asked = Arc::clone(&asked);
        Arc::new(move || asked.fetch_add(1, Ordering::SeqCst) < 1000)
    };
    let mirror = open(&nats, "ws", dir.path());
    let (mut log, _) = runtime().block_on(mirror.lead(1, "node", lease)).unwrap();
    one.server.signal("STOP");
    let before = asked.load(Ordering::SeqCst);
    let writer = std::thread::spawn(move || {
        assert_eq!(log.append(1, Seq(0), &notes(1..=3)), Ok(Seq(3)));
        assert_eq!(log.append(1, Seq(3), &notes(4..=4)), Ok(Seq(4)));
    });
    until("the append is repeated", || asked.load(Ordering::SeqCst) > before);
    one.server.signal("CONT");
    writer.join().unwrap();
    assert_eq!(messages(&nats, "ws"), 3, "a claim and two commits");
    assert_notes(&nats, "ws", 4);
}

#[test]
fn without_its_lease_an_append_is_ambiguous_and_the_log_takes_no_more() {
    let Some(program) = program("leases that end") else { return };
    let mut one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let holds = Arc::new(AtomicBool::new(true));
    let lease: Lease = {
        let holds = Arc::clone(&holds);
        Arc::new(move || holds.load(Ordering::SeqCst))
    };
    let mirror = open(&nats, "ws", dir.path());
    let (mut log, _) = runtime().block_on(mirror.lead(1, "node", lease)).unwrap();
    log.append(1, Seq(0), &notes(1..=3)).unwrap();
    one.server.kill();
    holds.store(false, Ordering::SeqCst);
    let refused = log.append(1, Seq(3), &notes(4..=4));
    assert!(matches!(refused, Err(AppendError::Ambiguous { .. })), "{refused:?}");
    one.server.resume();
    holds.store(true, Ordering::SeqCst);
    let refused = log.append(1, Seq(3), &notes(4..=4));
    assert!(matches!(&refused, Err(AppendError::Fatal { reason }) if reason.contains("lead again")), "{refused:?}");
    drop(log);
    // A new leader finds out.
    let opened = || runtime().block_on(Mirror::open(&nats, "ws", dir.path())).ok();
    let mut mirror = None;
    until("the server answers", || {
        mirror = opened();
        mirror.is_some()
    });
    let (mut log, _) = runtime().block_on(mirror.unwrap().lead(2, "node", held())).unwrap();
    let last = log.reader().last().unwrap();
    assert!(last == Seq(3) || last == Seq(4));
    assert_eq!(log.append(2, last, &notes(last.0 + 1..=last.0 + 1)), Ok(Seq(last.0 + 1)));
}

#[test]
fn a_follower_whose_consumer_cannot_begin_again_goes_on_with_another_one() {
    let Some(program) = program("consumers that can't begin again") else { return };
    let mut one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    assert_eq!(log.append(1, Seq(0), &notes(1..=1)), Ok(Seq(1)));
    let follower = one.connect();
    let following = hears_of_one(&follower);
    spoil_consumers(&nats, "LASTWORD_ws");
    let following = following.wait();
    one.server.kill();
    until("the follower's connection is lost", || follower.client().connection_state() == State::Disconnected);
    one.server.resume();
    assert_eq!(log.append(1, Seq(1), &notes(2..=2)), Ok(Seq(2)));
    assert_eq!(following.join().unwrap(), [(Seq(2), note(2))]);
}

#[test]
fn a_follower_whose_consumer_is_gone_goes_on_with_another_one() {
    let Some(program) = program("consumers that are gone") else { return };
    let one = One::start(&program);
    let nats = one.connect();
    create_stream(&nats, "ws", 1);
    let dir = tempfile::tempdir().unwrap();
    let (mut log, _) = lead(open(&nats, "ws", dir.path()), 1);
    assert_eq!(log.append(1, Seq(0), &notes(1..=1)), Ok(Seq(1)));
    let following = hears_of_one(&one.connect()).wait();
    delete_consumers(&nats, "LASTWORD_ws");
    assert_eq!(log.append(1, Seq(1), &notes(2..=2)), Ok(Seq(2)));
    assert_eq!(following.join().unwrap(), [(Seq(2), note(2))]);
}

/// A follower that has the first entry.
struct Hearing(Mirror, tempfile::TempDir);

/// Returns a follower that has heard of the first entry, through its consumer.
fn hears_of_one(nats: &Nats) -> Hearing {
    let dir = tempfile::tempdir().unwrap();
    let mut mirror = open(nats, "ws", dir.path());
    while mirror.last() < Seq(1) {
        follow(&mut mirror);
    }
    Hearing(mirror, dir)
}

impl Hearing {
    /// Follows on a thread, without a pause, up to the next entries.
    fn wait(self) -> std::thread::JoinHandle<Vec<(Seq, Entry)>> {
        std::thread::spawn(move || {
            let Self(mut mirror, _dir) = self;
            let heard = async {
                loop {
                    match mirror.follow().await {
                        // It goes on later.
                        Err(MirrorError::Nats(_)) => {}
                        followed => match followed.unwrap() {
                            none if none.is_empty() => {}
                            entries => return entries,
                        },
                    }
                }
            };
            let heard = async { tokio::time::timeout(Duration::from_secs(60), heard).await };
            runtime().block_on(heard).expect("the follower hears nothing")
        })
    }
}
