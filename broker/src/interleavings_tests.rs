//! Models of the broker's threads: the real judge, writer, queue and wakes, under a scheduler that decides which thread
//! runs after each operation on a lock, a condition variable or a channel. A lost wake is a deadlock, which the scheduler
//! reports. No timer ends a wait here, so that none hides a lost wake.
//!
//! Run them with `cargo test -p lastword-broker --features interleavings --lib interleavings`. Each model runs under
//! random schedules and under schedules with few preemptions (PCT), and again with each wrong order of [`Fault`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;

use futures_util::future::select;
use lastword_core::input::{Consumer, Finish, Registration};
use lastword_core::{Input, Principal, Reply};
use lastword_facts::envelope::{Address, Draft};
use lastword_facts::fact::{Kind, Profile};
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::{Entry, Fact, Limits, MessageType, Seq};
use lastword_store::{AppendError, Archive, InjectedFault, Log, LogReader, MemoryLog, Snapshots};
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};

use crate::faults::{Fault, with};
use crate::identity::{Secret, TurnSigner};
use crate::queue::{Drain, Lane, Queue};
use crate::receiving::testing::Reader;
use crate::{Handle, Live, Receiving, Subscription, Unserved, Wait, boot};

/// The schedules of each kind that a model runs under, unless `LASTWORD_INTERLEAVINGS` says otherwise.
const SCHEDULES: usize = 300;
/// The seed of the random schedules.
const SEED: u64 = 7;
/// The most preemptions of a schedule of the second kind.
const PREEMPTIONS: usize = 3;
/// The stack of a thread, in bytes: a debug build of the core needs more than the scheduler's default.
const STACK_BYTES: usize = 1 << 20;

/// Runs a model under many schedules; panics if one of them breaks it.
fn explore(model: fn()) {
    #[expect(clippy::disallowed_methods, reason = "a test reads the length of its run")]
    let schedules = std::env::var("LASTWORD_INTERLEAVINGS").ok().and_then(|text| text.parse().ok());
    let schedules = schedules.unwrap_or(SCHEDULES);
    let config = || {
        let mut config = Config::new();
        config.stack_size = STACK_BYTES;
        config.failure_persistence = shuttle::FailurePersistence::None;
        config
    };
    Runner::new(RandomScheduler::new_from_seed(SEED, schedules), config()).run(model);
    Runner::new(PctScheduler::new_from_seed(SEED, PREEMPTIONS, schedules), config()).run(model);
}

/// Panics if no schedule shows that the model is broken.
fn notices(fault: Fault, model: fn()) {
    let noticed = with(fault, || catch_unwind(AssertUnwindSafe(|| explore(model)))).is_err();
    assert!(noticed, "no schedule shows {fault:?}");
}

/// A log on a disk that takes its time: other threads run before and after an append.
struct SlowLog(MemoryLog);

impl Log for SlowLog {
    fn begin_epoch(&mut self) -> Result<u64, AppendError> {
        self.0.begin_epoch()
    }

    fn append(&mut self, epoch: u64, expect: Seq, entries: &[Arc<Entry>]) -> Result<Seq, AppendError> {
        thread::yield_now();
        let appended = self.0.append(epoch, expect, entries);
        thread::yield_now();
        appended
    }

    fn reader(&self) -> Arc<dyn LogReader> {
        self.0.reader()
    }

    fn archive(&self) -> Arc<dyn Archive> {
        self.0.archive()
    }

    fn snapshots(&self) -> Arc<dyn Snapshots> {
        self.0.snapshots()
    }
}

/// A broker over a log in memory, with a human and an agent.
struct World {
    log: MemoryLog,
    handle: Handle,
    broker: thread::JoinHandle<()>,
    human: Principal,
    agent: Principal,
}

impl World {
    fn new() -> Self {
        let log = MemoryLog::new();
        let signer = TurnSigner::ephemeral().unwrap();
        let (handle, broker) = boot(Box::new(SlowLog(log.clone())), signer, Limits::default()).unwrap();
        let enrol = |name: &str, kind, by: Option<Principal>| {
            let token = Secret::token().unwrap();
            let registration = Registration {
                name: AgentName::new(name).unwrap(),
                kind,
                profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 },
                credential: token.credential(),
                role: None,
                display_name: None,
                key: None,
            };
            let input = by.map_or(Input::Bootstrap(registration.clone()), |by| Input::Register(by, registration));
            assert!(matches!(block_on(handle.submit(input)), Ok(Reply::Registered(_))));
            handle.prove(token.reveal()).unwrap()
        };
        let human = enrol("ann", Kind::Human, None);
        let agent = enrol("kilo", Kind::Agent, Some(human));
        Self { log, handle, broker, human, agent }
    }

    fn request(&self, n: usize) -> Input {
        let to = Address::Name(AgentName::new("kilo").unwrap());
        let mut draft = Draft::new(MessageType::Request, to, "x");
        draft.reference = Ref::new(&format!("T-{n}")).ok();
        Input::Send(self.human, Box::new(draft))
    }

    /// Ends the broker, which writes all that it has taken.
    fn end(self) -> MemoryLog {
        self.handle.close();
        self.broker.join().unwrap();
        self.log
    }
}

fn sent(reply: Result<Reply, Unserved>) -> Seq {
    let Ok(Reply::Sent(seqs)) = reply else { panic!("{reply:?}") };
    seqs[0]
}

fn producers_a_writer_and_the_judge_share_a_queue() {
    let queue = Arc::new(Queue::new(8));
    let producers: Vec<_> = (0..2_u32)
        .map(|n| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let lane = if n == 0 { Lane::Ahead } else { Lane::Normal };
                queue.push(lane, n).unwrap();
                queue.push(Lane::Normal, n + 10).unwrap();
            })
        })
        .collect();
    let mut taken = Vec::new();
    let mut writers = Vec::new();
    let mut pending = false;
    let mut written = 0;
    while taken.len() < 4 || pending {
        let before = taken.len();
        assert!(queue.drain(&mut taken, Drain { max: 8, wait: None, pending }), "it isn't closed");
        pending |= taken.len() > before;
        if pending && queue.take_writer(true) {
            pending = false;
            written = taken.len();
            let queue = Arc::clone(&queue);
            writers.push(thread::spawn(move || queue.mark_writer_idle()));
        }
    }
    assert_eq!(written, 4, "all that was taken was handed over");
    producers.into_iter().chain(writers).for_each(|thread| thread.join().unwrap());
    taken.sort_unstable();
    assert_eq!(taken, [0, 1, 10, 11]);
    queue.close();
    assert!(!queue.drain(&mut Vec::new(), Drain { max: 8, wait: None, pending: false }), "it is closed and empty");
}

fn a_reply_and_a_read_are_released_once_they_are_durable() {
    let world = World::new();
    let callers: Vec<_> = (0..3)
        .map(|n| {
            let (handle, log, request) = (world.handle.clone(), world.log.clone(), world.request(n));
            thread::spawn(move || {
                let seq = sent(block_on(handle.submit(request)));
                assert!(log.last().unwrap() >= seq, "the reply came before its facts were durable");
                let read = block_on(handle.query(|live| live.state.seq)).unwrap();
                assert!(log.last().unwrap() >= read, "the read saw what was not durable");
                seq
            })
        })
        .collect();
    let mut seqs: Vec<Seq> = callers.into_iter().map(|caller| caller.join().unwrap()).collect();
    let log = world.end();
    seqs.sort_unstable();
    seqs.dedup();
    assert_eq!(seqs.len(), 3);
    for seq in seqs {
        assert!(matches!(log.entry(seq).unwrap().unwrap().fact, Fact::Accepted { .. }));
    }
}

fn a_waiting_agent_gets_its_delivery_and_a_waiting_sender_its_answer() {
    let world = World::new();
    let (handle, agent) = (world.handle.clone(), world.agent);
    let worker = thread::spawn(move || {
        let subscription = Subscription::new(&handle, agent.agent());
        let bell = subscription.bell();
        loop {
            // As in `calls::inbox::take`: listens before it looks.
            let mut ring = pin!(bell.notified());
            ring.as_mut().enable();
            match block_on(handle.submit(Input::Take(agent, None))).unwrap() {
                Reply::Delivery(Some(_)) => break,
                Reply::Delivery(None) => block_on(ring),
                other => panic!("{other:?}"),
            }
        }
        let finish = Finish { body: "done".into(), ..Finish::default() };
        let finished = block_on(handle.submit(Input::Finish(agent, None, Box::new(finish)))).unwrap();
        assert!(matches!(finished, Reply::Finished { answer: Some(_), .. }), "{finished:?}");
    });
    let (waits, by) = (world.handle.clone(), world.human);
    // As in `calls::messages::send`: registered in the step of the send.
    let then = move |reply, _live: &Live<'_>| {
        let request = sent(Ok(reply));
        (request, Wait::new(&waits, by, request, |reply, _live| reply))
    };
    let (request, mut wait) = block_on(world.handle.submit_then(world.request(1), then)).unwrap();
    let answered = |log: &MemoryLog| {
        let all = log.read(Seq(1), 1_000).unwrap();
        all.iter().any(|(_, entry)| {
            matches!(&entry.fact, Fact::Accepted { message }
                if message.kind == MessageType::Response && message.in_reply_to == Some(request))
        })
    };
    let collected = block_on(wait.answer());
    assert!(matches!(collected, Some(Reply::Delivery(Some(_)))), "{collected:?}");
    assert!(answered(&world.log), "the answer came before it was durable");
    worker.join().unwrap();
    drop(wait);
    world.end();
}

/// The worker takes a delivery by the judge, or, if it leaves at once, by its next calls.
fn a_delivery_that_the_judge_takes_reaches_its_caller(leaves: bool) {
    let world = World::new();
    let (handle, agent, log) = (world.handle.clone(), world.agent, world.log.clone());
    let worker = thread::spawn(move || {
        let subscription = Subscription::new(&handle, agent.agent());
        let mut receiving = Some(Receiving::new(&subscription, Reader(handle.clone(), agent)));
        receiving.iter().for_each(|receiving| receiving.allow(1));
        if leaves {
            receiving = None;
        }
        let bell = subscription.bell();
        let parcel = loop {
            let mut ring = pin!(bell.notified());
            ring.as_mut().enable();
            let there = receiving.as_mut().and_then(Receiving::take);
            if let Some(parcel) = there.or_else(|| handle.unread(agent.agent(), |_| true)) {
                break parcel;
            }
            match block_on(handle.submit(Input::Receive(agent, Consumer::InTurns))).unwrap() {
                Reply::Delivery(Some(delivery)) => break handle.parcel(agent.agent(), delivery),
                Reply::Delivery(None) => match &receiving {
                    Some(receiving) => drop(block_on(select(ring, pin!(receiving.arrived())))),
                    None => block_on(ring),
                },
                other => panic!("{other:?}"),
            }
        };
        let message = parcel.delivery().unwrap().message;
        parcel.accept();
        let all = log.read(Seq(1), 1_000).unwrap();
        assert!(
            all.iter().any(|(_, entry)| matches!(entry.fact, Fact::TurnOpened(_))),
            "it came before it was durable"
        );
        message
    });
    let request = sent(block_on(world.handle.submit(world.request(1))));
    assert_eq!(worker.join().unwrap(), request);
    world.end();
}

fn a_delivery_is_taken_for_a_caller_that_waits() {
    a_delivery_that_the_judge_takes_reaches_its_caller(false);
}

fn a_delivery_is_taken_for_a_caller_that_leaves() {
    a_delivery_that_the_judge_takes_reaches_its_caller(true);
}

fn a_failed_append_ends_the_broker_and_each_call() {
    let world = World::new();
    world.log.fail_next(InjectedFault::Fatal);
    let callers: Vec<_> = (0..3)
        .map(|n| {
            let (handle, request) = (world.handle.clone(), world.request(n));
            thread::spawn(move || block_on(handle.submit(request)).is_err())
        })
        .collect();
    assert!(callers.into_iter().all(|caller| caller.join().unwrap()), "nothing is acknowledged");
    world.broker.join().unwrap();
}

#[test]
fn no_schedule_breaks_the_broker() {
    explore(producers_a_writer_and_the_judge_share_a_queue);
    explore(a_reply_and_a_read_are_released_once_they_are_durable);
    explore(a_waiting_agent_gets_its_delivery_and_a_waiting_sender_its_answer);
    explore(a_delivery_is_taken_for_a_caller_that_waits);
    explore(a_delivery_is_taken_for_a_caller_that_leaves);
    explore(a_failed_append_ends_the_broker_and_each_call);
}

#[test]
fn the_models_notice_a_lost_wake_of_the_queue() {
    notices(Fault::WakeBeforePush, producers_a_writer_and_the_judge_share_a_queue);
    notices(Fault::AskBeforeIdle, producers_a_writer_and_the_judge_share_a_queue);
    notices(Fault::IdleWithoutWake, producers_a_writer_and_the_judge_share_a_queue);
    notices(Fault::IdleWithoutWake, a_reply_and_a_read_are_released_once_they_are_durable);
}

#[test]
fn the_models_notice_what_is_released_before_it_is_durable() {
    notices(Fault::ReleaseBeforeAppend, a_reply_and_a_read_are_released_once_they_are_durable);
    notices(Fault::IdleBeforeAppend, a_reply_and_a_read_are_released_once_they_are_durable);
    notices(Fault::ReleaseBeforeAppend, a_delivery_is_taken_for_a_caller_that_waits);
    notices(Fault::ReleaseBeforeAppend, a_waiting_agent_gets_its_delivery_and_a_waiting_sender_its_answer);
}

#[test]
fn the_models_notice_a_failure_that_wakes_nobody() {
    notices(Fault::FailWithoutWake, a_failed_append_ends_the_broker_and_each_call);
}
