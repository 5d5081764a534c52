//! The broker without a socket: failures of the log, and controls.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use lastword_broker::identity::{Secret, TurnSigner};
use lastword_broker::{Handle, Live, Unserved, boot};
use lastword_core::input::Registration;
use lastword_core::{Input, Principal, Reply};
use lastword_facts::fact::{Control, Kind, Profile, Scope};
use lastword_facts::ids::TurnId;
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::status::Running;
use lastword_facts::{Address, Draft, Entry, Limits, MessageType, Seq};
use lastword_store::{AppendError, Archive, InjectedFault, Log, LogReader, MemoryLog, Snapshots};

fn registration(name: &str, kind: Kind, token: &Secret) -> Registration {
    let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
    Registration {
        name: AgentName::new(name).unwrap(),
        kind,
        profile,
        credential: token.credential(),
        role: None,
        display_name: None,
        key: None,
    }
}

fn start(log: &MemoryLog) -> (Handle, std::thread::JoinHandle<()>) {
    boot(Box::new(log.clone()), TurnSigner::ephemeral().unwrap(), Limits::default()).unwrap()
}

async fn human(handle: &Handle, token: &Secret) -> Principal {
    let reply = handle.submit(Input::Bootstrap(registration("operator", Kind::Human, token))).await.unwrap();
    assert!(matches!(reply, Reply::Registered(_)), "{reply:?}");
    handle.prove(token.reveal()).unwrap()
}

fn send(from: Principal, reference: &str) -> Input {
    let to = Address::Name(AgentName::new("kilo").unwrap());
    let mut draft = Draft::new(MessageType::Request, to, "x");
    draft.reference = Some(Ref::new(reference).unwrap());
    Input::Send(from, Box::new(draft))
}

async fn refs(handle: &Handle) -> Vec<String> {
    let all = |live: &Live<'_>| live.state.conversations.values().map(|conv| conv.reference.to_string()).collect();
    handle.query(all).await.unwrap()
}

#[tokio::test]
async fn nothing_is_acknowledged_once_an_append_failed_and_a_restart_keeps_what_was_written() {
    for (fault, reason) in [
        (InjectedFault::AmbiguousLost, "unknown"),
        (InjectedFault::Fatal, "restart the server"),
        (InjectedFault::Conflict, ""),
    ] {
        let log = MemoryLog::new();
        let (handle, thread) = start(&log);
        let (human_token, agent_token) = (Secret::token().unwrap(), Secret::token().unwrap());
        let operator = human(&handle, &human_token).await;
        handle.submit(Input::Register(operator, registration("kilo", Kind::Agent, &agent_token))).await.unwrap();
        assert!(matches!(handle.submit(send(operator, "T-1")).await.unwrap(), Reply::Sent(_)));

        log.fail_next(fault);
        let Err(Unserved::Down(why)) = handle.submit(send(operator, "T-2")).await else { panic!("acknowledged") };
        assert!(why.contains(reason), "{why}");
        assert!(matches!(handle.submit(send(operator, "T-3")).await, Err(Unserved::Down(_))));
        let failed = handle.failed().borrow().clone().unwrap();
        assert_eq!((failed.reason, failed.bug), (why, false));
        thread.join().unwrap();

        let (handle, _thread) = start(&log);
        assert_eq!(refs(&handle).await, ["T-1"]);
        let kilo = handle.prove(agent_token.reveal()).unwrap();
        assert!(matches!(handle.submit(Input::Take(kilo, None)).await.unwrap(), Reply::Delivery(Some(_))));
    }
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_the_broker_goes_on_from_what_is_durable() {
    let log = MemoryLog::new();
    let (handle, thread) = start(&log);
    let (human_token, agent_token) = (Secret::token().unwrap(), Secret::token().unwrap());
    let operator = human(&handle, &human_token).await;
    handle.submit(Input::Register(operator, registration("kilo", Kind::Agent, &agent_token))).await.unwrap();
    let kilo = handle.prove(agent_token.reveal()).unwrap();
    assert!(matches!(handle.submit(send(operator, "T-1")).await.unwrap(), Reply::Sent(_)));

    let durable = log.last().unwrap();
    for n in 0..3 {
        log.fail_next(InjectedFault::Full);
        let lost = handle.submit(send(operator, &format!("LOST-{n}"))).await;
        assert_eq!(lost.err(), Some(Unserved::DiskLow { full: true }));
        assert_eq!(log.last().unwrap(), durable, "nothing was written");
        let after = handle.submit(Input::Take(kilo, None)).await;
        assert_eq!(after.err(), Some(Unserved::DiskLow { full: true }), "no delivery while it is full");
        assert_eq!(refs(&handle).await, ["T-1"], "reads go on, of what is durable");
        // There is room again as soon as the broker checks.
        while handle.submit(Input::Take(kilo, Some(TurnId(u64::MAX)))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let stop = Input::Control(operator, Scope::Workspace, Control::Stop);
    let stopped = handle.submit(stop).await.unwrap();
    assert!(matches!(stopped, Reply::Lifted(_)), "{stopped:?}");
    // A second broker on the log has exactly the durable facts.
    drop(thread);
    let (handle, _thread) = start(&log);
    assert_eq!(refs(&handle).await, ["T-1"]);
    assert!(
        handle.query(|live| live.state.running == Running::Stopped).await.unwrap(),
        "the log goes on without a gap"
    );
}

#[tokio::test]
async fn a_human_stops_a_workspace_on_a_full_disk() {
    let log = MemoryLog::new();
    let (handle, _thread) = start(&log);
    let operator = human(&handle, &Secret::token().unwrap()).await;
    log.fail_next(InjectedFault::Full);
    let lost = handle.submit(Input::OpenRoom(operator, Ref::new("ROOM").unwrap(), Vec::new(), None)).await;
    assert_eq!(lost.err(), Some(Unserved::DiskLow { full: true }));
    // The reserve has room for a stop.
    let stop = Input::Control(operator, Scope::Workspace, Control::Stop);
    let stopped = handle.submit(stop).await.unwrap();
    assert!(matches!(stopped, Reply::Lifted(_)), "{stopped:?}");
}

#[tokio::test]
async fn many_senders_share_an_append_and_each_has_its_own_reply() {
    let log = MemoryLog::new();
    let (handle, _thread) = start(&log);
    let (human_token, agent_token) = (Secret::token().unwrap(), Secret::token().unwrap());
    let operator = human(&handle, &human_token).await;
    handle.submit(Input::Register(operator, registration("kilo", Kind::Agent, &agent_token))).await.unwrap();
    let sends: Vec<_> = (0..200).map(|n| handle.submit(send(operator, &format!("T-{n}")))).collect();
    let mut seen = std::collections::BTreeSet::new();
    for reply in futures_util::future::join_all(sends).await {
        let Reply::Sent(seqs) = reply.unwrap() else { panic!("refused") };
        assert!(seqs.into_iter().all(|seq| seen.insert(seq)));
    }
    assert_eq!(seen.len(), 200);
}

#[tokio::test]
async fn a_panic_of_the_broker_answers_everybody_who_waits_and_a_restart_keeps_what_was_written() {
    let log = MemoryLog::new();
    let (handle, thread) = start(&log);
    let operator = human(&handle, &Secret::token().unwrap()).await;
    let panicking = handle.query(|_live| -> u64 { panic!("a bug in {}", "a test") });
    let (bug, behind, note) = tokio::join!(panicking, handle.submit(send(operator, "T-1")), handle.query(|_| ()));
    let Err(Unserved::Down(why)) = bug else { panic!("answered") };
    assert!(why.contains("a bug in a test") && why.contains("restart the server"), "{why}");
    for ended in [behind.map(|_| ()), note, handle.query(|_| ()).await] {
        assert_eq!(ended, Err(Unserved::Down(why.clone())));
    }
    let failed = handle.failed().borrow().clone().unwrap();
    assert_eq!((failed.reason, failed.bug), (why, true));
    thread.join().unwrap();

    let (handle, _thread) = start(&log);
    assert_eq!(handle.query(|live| live.state.conversations.len()).await, Ok(0), "nothing was promised");
    assert!(handle.query(move |live| live.state.recognizes(operator)).await.unwrap());
}

/// A log whose appends wait until the test lets them pass.
struct Gated {
    log: MemoryLog,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// The number of appends that may pass, and of those that have arrived.
    passes: Mutex<(usize, usize)>,
    changed: Condvar,
}

impl Gate {
    fn open(&self, passes: usize) {
        self.passes.lock().unwrap().0 += passes;
        self.changed.notify_all();
    }

    fn await_arrival(&self, number: usize) {
        drop(self.changed.wait_while(self.passes.lock().unwrap(), |(_, come)| *come < number).unwrap());
    }
}

impl Log for Gated {
    fn begin_epoch(&mut self) -> Result<u64, AppendError> {
        self.log.begin_epoch()
    }

    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError> {
        let mut passes = self.gate.passes.lock().unwrap();
        passes.1 += 1;
        self.gate.changed.notify_all();
        passes = self.gate.changed.wait_while(passes, |(left, _)| *left == 0).unwrap();
        passes.0 -= 1;
        drop(passes);
        self.log.append(epoch, expect, entries)
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        self.log.reader()
    }

    fn archive(&self) -> Arc<dyn Archive> {
        self.log.archive()
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.log.snapshots()
    }
}

#[tokio::test]
async fn what_is_not_durable_is_judged_and_seen_by_nobody() {
    let gate = Arc::new(Gate::default());
    let log = Gated { log: MemoryLog::new(), gate: Arc::clone(&gate) };
    // The appends for the limits, the human and the agent.
    gate.open(3);
    let (handle, thread) = boot(Box::new(log), TurnSigner::ephemeral().unwrap(), Limits::default()).unwrap();
    let (human_token, agent_token) = (Secret::token().unwrap(), Secret::token().unwrap());
    let operator = human(&handle, &human_token).await;
    handle.submit(Input::Register(operator, registration("kilo", Kind::Agent, &agent_token))).await.unwrap();

    // While the first append is held up, enough commands arrive for a batch on the writer's thread.
    let mut sends: Vec<_> = Vec::new();
    let mut submit = |n: usize| {
        let mut sent = Box::pin(handle.submit(send(operator, &format!("T-{n}"))));
        assert!((&mut sent).now_or_never().is_none());
        sends.push(sent);
    };
    submit(0);
    gate.await_arrival(4);
    (1..=10).for_each(&mut submit);
    gate.open(1);
    gate.await_arrival(5);

    // Meanwhile the judge continues; what it reads is held back.
    let (looked, look) = std::sync::mpsc::channel();
    let mut seen = Box::pin(handle.query(move |live| {
        looked.send(live.state.conversations.len()).unwrap();
        live.state.conversations.len()
    }));
    assert!((&mut seen).now_or_never().is_none());
    assert_eq!(look.recv().unwrap(), 11, "the judge is ahead of the disk");
    assert!((&mut seen).now_or_never().is_none(), "and keeps that to itself");
    assert!((&mut sends[10]).now_or_never().is_none());
    assert_eq!(handle.entries(vec![*handle.committed().borrow()]).await.unwrap().len(), 1);
    let beyond = Seq(handle.committed().borrow().0 + 1);
    assert!(handle.entries(vec![beyond]).await.unwrap().is_empty());

    gate.open(1);
    assert_eq!(seen.await.unwrap(), 11);
    for sent in sends {
        assert!(matches!(sent.await.unwrap(), Reply::Sent(_)));
    }
    gate.open(usize::MAX / 2);
    drop(handle);
    drop(thread);
}
