//! Tests of the broker's handle.

use lastword_core::input::OpenTurn;
use lastword_core::{Core, Out};
use lastword_facts::Limits;
use lastword_facts::ids::{GrantId, TaskId};
use lastword_store::{AppendError, Log as _, MemoryLog};

use super::*;

/// Returns a log of so many facts.
fn log_of(facts: u64) -> Box<MemoryLog> {
    let (mut log, mut core, mut out) = (MemoryLog::new(), Core::default(), Out::default());
    for n in 1..=facts {
        let limits = Limits { inbox_max: n, ..Limits::default() };
        core.handle(Time(n), Input::Configure(Box::new(limits)), &mut out);
    }
    let epoch = log.begin_epoch().unwrap();
    let entries: Vec<_> = out.entries.into_iter().map(Arc::new).collect();
    assert_eq!(log.append(epoch, Seq(0), &entries).unwrap(), Seq(facts));
    Box::new(log)
}

#[test]
fn a_delivery_that_was_not_handed_over_is_kept_once() {
    let signer = TurnSigner::ephemeral().unwrap();
    let (handle, thread) = crate::boot(log_of(9), signer, Limits::default()).unwrap();
    let (agent, delivery) =
        (AgentId(1), Delivery { turn: None, message: Seq(7), notices: Vec::new(), steps: Vec::new() });
    drop(handle.parcel(agent, delivery.clone()));
    let again = handle.unread(agent, |_| true).unwrap();
    assert_eq!(again.delivery(), Some(&delivery));
    again.accept();
    assert!(handle.unread(agent, |_| true).is_none());
    handle.close();
    thread.join().unwrap();
}

#[test]
fn a_kept_delivery_that_the_agent_got_otherwise_is_forgotten_and_no_other() {
    let signer = TurnSigner::ephemeral().unwrap();
    let (handle, thread) = crate::boot(log_of(9), signer, Limits::default()).unwrap();
    let agent = AgentId(1);
    let delivery = |message: u64, turn: u64, attempt| {
        let open = OpenTurn {
            turn: TurnId(turn),
            task: TaskId(1),
            attempt,
            lease_until: Time(60),
            grant: GrantId(1),
            trace: None,
        };
        Delivery { turn: Some(open), message: Seq(message), notices: Vec::new(), steps: Vec::new() }
    };
    for kept in [delivery(5, 3, 1), delivery(7, 3, 1), delivery(7, 4, 2)] {
        drop(handle.parcel(agent, kept));
    }
    let left = || handle.kept(agent).iter().map(|seq| seq.0).collect::<Vec<_>>();
    // Given again with a later attempt, it is the same message in the same turn.
    handle.forget_kept(agent, &delivery(7, 3, 2));
    assert_eq!(left(), [5, 7], "the same message in another turn stays");
    handle.forget_kept(AgentId(2), &delivery(5, 3, 1));
    assert_eq!(left(), [5, 7]);
    handle.forget_kept(agent, &delivery(5, 3, 1));
    handle.forget_kept(agent, &delivery(7, 4, 2));
    assert!(left().is_empty() && !handle.0.unread().contains_key(&agent), "nothing of it is held");
    handle.close();
    thread.join().unwrap();
}

#[tokio::test]
async fn commands_of_which_nothing_comes_do_not_fill_a_batch() {
    let signer = TurnSigner::ephemeral().unwrap();
    let (handle, thread) = crate::boot(Box::new(MemoryLog::new()), signer, Limits::default()).unwrap();
    for _ in 0..3 * crate::judge::BATCH_MAX {
        handle.cast(Input::Attach(AgentId(1), false));
    }
    let served = tokio::time::timeout(std::time::Duration::from_secs(20), handle.query(|_live| ())).await;
    assert!(served.is_ok(), "the broker waits for nothing");
    handle.close();
    thread.join().unwrap();
}

#[tokio::test]
async fn a_full_queue_refuses_a_query_and_reaches_the_broker() {
    let signer = TurnSigner::ephemeral().unwrap();
    let (handle, thread) = crate::boot(Box::new(MemoryLog::new()), signer, Limits::default()).unwrap();
    let (held, busy) = std::sync::mpsc::channel::<()>();
    let read = |wait: Option<std::sync::mpsc::Receiver<()>>| {
        QueueEntry::Read(Box::new(move |_: &Live<'_>| {
            wait.map(|wait| wait.recv());
            Box::new(|| ())
        }))
    };
    handle.push(Lane::Normal, read(Some(busy))).unwrap();
    while handle.push(Lane::Normal, read(None)).is_ok() {}
    assert!(matches!(handle.query(|_| ()).await, Err(Unserved::Saturated)));
    // It waits while the broker is busy, in the order in which these are polled.
    let (reached, ()) = tokio::join!(handle.reach(), async { drop(held) });
    reached.unwrap();
    handle.close();
    thread.join().unwrap();
}

#[test]
fn what_fails_behind_a_failure_leaves_the_first_reason() {
    let signer = TurnSigner::ephemeral().unwrap();
    let (handle, thread) = crate::boot(Box::new(MemoryLog::new()), signer, Limits::default()).unwrap();
    handle.0.fail(BrokerFailure::append(&AppendError::Fatal { reason: "a sync failed".to_owned() }));
    handle.0.fail(BrokerFailure::append(&AppendError::Fenced { epoch: 2 }));
    let failed = handle.failed().borrow().clone().unwrap();
    assert!(failed.reason.contains("a sync failed"), "{}", failed.reason);
    thread.join().unwrap();
}

#[test]
fn several_that_were_not_handed_over_are_given_in_their_order_and_an_agents_are_bounded() {
    let signer = TurnSigner::ephemeral().unwrap();
    let limits = Limits { inbox_max: 3, ..Limits::default() };
    let (handle, thread) = crate::boot(log_of(9), signer, limits).unwrap();
    let (agent, human) = (AgentId(1), AgentId(2));
    for seq in [8, 5, 7, 9] {
        let turn = Some(OpenTurn {
            turn: TurnId(seq),
            task: TaskId(1),
            attempt: 1,
            lease_until: Time(60),
            grant: GrantId(1),
            trace: None,
        });
        drop(handle.parcel(agent, Delivery { turn, message: Seq(seq), notices: Vec::new(), steps: Vec::new() }));
        drop(handle.parcel(human, Delivery { turn: None, message: Seq(seq), notices: Vec::new(), steps: Vec::new() }));
    }
    for (whose, expected) in [(agent, &[7, 8, 9][..]), (human, &[5, 7, 8, 9])] {
        assert_eq!(handle.kept(whose).iter().map(|seq| seq.0).collect::<Vec<_>>(), expected);
        for seq in expected {
            let parcel = handle.unread(whose, |_| true).unwrap();
            assert_eq!(parcel.delivery().map(|delivery| delivery.message), Some(Seq(*seq)));
            parcel.accept();
        }
        assert!(handle.unread(whose, |_| true).is_none());
    }
    handle.close();
    thread.join().unwrap();
}
