//! `lastword verify` on logs with correct hashes, whose faults only the witness can find.

use std::sync::Arc;

use lastword_core::input::{Finish, Registration};
use lastword_core::{Core, Input, Out, Principal};
use lastword_facts::fact::{EDITION, Kind, Part, Profile};
use lastword_facts::names::{AgentName, Ref};
use lastword_facts::{Address, Draft, Entry, Fact, Limits, Message, MessageType, Seq, Time};
use lastword_store::DataDir;

use crate::program::{Ended, run};

/// The data directory that the program uses by default.
const DATA: &str = ".lastword";
/// More notes to one recipient than any window admits by default.
const NOTES: usize = 12;

/// A broker whose clock doesn't move.
#[derive(Default)]
struct Broker {
    core: Core,
    log: Vec<Entry>,
}

impl Broker {
    fn give(&mut self, input: Input) {
        let mut out = Out::default();
        self.core.handle(Time(1_000_000), input, &mut out);
        self.log.append(&mut out.entries);
    }

    fn enrol(&mut self, number: u8, name: &str, kind: Kind) -> Principal {
        let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
        let name = AgentName::new(name).unwrap();
        let registration =
            Registration { name, kind, profile, credential: [number; 32], role: None, display_name: None, key: None };
        self.give(match self.core.state().prove(&[1; 32]) {
            None => Input::Bootstrap(registration),
            Some(human) => Input::Register(human, registration),
        });
        self.core.state().prove(&[number; 32]).unwrap()
    }

    fn send(&mut self, by: Principal, kind: MessageType, to: &str, reference: Option<&str>) {
        let mut draft = Draft::new(kind, Address::Name(AgentName::new(to).unwrap()), "please");
        draft.reference = reference.map(|name| Ref::new(name).unwrap());
        self.give(Input::Send(by, Box::new(draft)));
    }

    fn answer(&mut self, by: Principal) {
        self.give(Input::Take(by, None));
        self.give(Input::Finish(by, None, Box::new(Finish { body: "done".into(), ..Finish::default() })));
    }
}

/// Returns a team's log: a human sends alice a request; alice sends bob twelve notes in a minute and one request.
fn log(edition: u32) -> Vec<Entry> {
    let mut broker = Broker::default();
    broker.give(Input::Configure(Box::new(Limits { pair_messages_max: 100, ..Limits::default() })));
    broker.give(Input::Upgrade(edition));
    let human = broker.enrol(1, "uma", Kind::Human);
    let alice = broker.enrol(2, "alice", Kind::Agent);
    let bob = broker.enrol(3, "bob", Kind::Agent);
    broker.send(human, MessageType::Request, "alice", Some("T-1"));
    broker.give(Input::Take(alice, None));
    for _ in 0..NOTES {
        broker.send(alice, MessageType::Info, "bob", None);
    }
    broker.send(alice, MessageType::Request, "bob", None);
    broker.give(Input::Finish(alice, None, Box::default()));
    broker.answer(bob);
    broker.answer(alice);
    broker.log
}

fn message(entry: &Entry) -> Option<&Message> {
    if let Fact::Accepted { message } = &entry.fact { Some(message) } else { None }
}

/// Writes a log like a server, so that its hash chain is valid, and has the program verify it.
fn verified(entries: Vec<Entry>) -> Ended {
    let dir = tempfile::tempdir().unwrap();
    let mut log = DataDir::at(&dir.path().join(DATA)).open().unwrap();
    let epoch = log.begin_epoch().unwrap();
    let entries: Vec<Arc<Entry>> = entries.into_iter().map(Arc::new).collect();
    log.append(epoch, Seq(0), &entries).unwrap();
    drop(log);
    run(dir.path(), &["verify"])
}

/// Checks that the command reports a fault at this position, with this promise.
#[track_caller]
fn assert_found(ended: &Ended, at: usize, promise: &str) {
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains(&format!("position {at}: a promise is broken: {promise}")), "{ended:?}");
}

#[test]
fn verify_finds_every_promise_kept_in_a_log_of_either_edition() {
    for edition in [1, EDITION] {
        let entries = log(edition);
        let upgraded = entries.iter().any(|entry| matches!(entry.fact, Fact::Upgraded { .. }));
        assert_eq!(upgraded, edition == EDITION);
        let said = verified(entries).ok();
        assert!(said.contains("the witness finds every promise kept"), "{said}");
    }
}

#[test]
fn verify_finds_a_potential_that_is_wrong_in_one_entry() {
    let mut entries = log(EDITION);
    let asks = |entry: &Entry| message(entry).is_some_and(|m| matches!(m.part, Part::Request(_)) && m.hops == 1);
    let place = entries.iter().position(asks).unwrap();
    let (grant, phi) = entries[place].grant.unwrap();
    entries[place].grant = Some((grant, phi + 1));
    assert_found(&verified(entries), place + 1, "phi is what the facts amount to");
}

#[test]
fn verify_finds_a_window_that_was_overrun() {
    let mut entries = log(EDITION);
    let Fact::Configured { limits } = &mut entries[0].fact else { panic!("the numbers come first") };
    limits.pair_messages_max = 10;
    let mut notes =
        entries.iter().enumerate().filter(|(_, entry)| message(entry).is_some_and(|m| m.kind == MessageType::Info));
    let (eleventh, _) = notes.nth(10).unwrap();
    assert_found(&verified(entries), eleventh + 1, "windows: per pair");
}

#[test]
fn verify_finds_an_answer_that_was_given_twice() {
    let mut entries = log(EDITION);
    let answers = |entry: &Entry| message(entry).is_some_and(|m| matches!(m.part, Part::Answer(_)));
    let first = entries.iter().position(answers).unwrap();
    let again = Entry { at: entries.last().unwrap().at, ..entries[first].clone() };
    entries.insert(first + 1, again);
    assert_found(&verified(entries), first + 2, "a request ends exactly once");
}
