//! The promises of a cluster. Each is a function with a sentence for a name, over what the store, the brokers and the
//! clients saw; none of them asks a broker whether it was right.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher as _;
use std::sync::Arc;

use lastword_core::state::{Phase, Task};
use lastword_core::{Core, Input, Reply, State};
use lastword_facts::fact::{Crossing, Part, Place, TurnOpened};
use lastword_facts::ids::{AgentId, GrantId, TaskId, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::{Entry, Fact, MessageType, Seq};
use lastword_witness::Witness;

use super::clients::RACE_MESSAGES;
use super::faults::Met;
use super::{HistoryRun, Scene};
use crate::adversary::falls_silent;
use crate::fallible_log::{Body, Meaning, Stored, Stream, Tail};
use crate::world::World;

/// A promise that a history broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The promise, as a sentence.
    pub promise: &'static str,
    /// What broke it.
    pub detail: String,
}

/// What a promise finds.
type PromiseResult = Result<(), String>;

/// An answer at the moment at which a broker releases it.
pub(super) struct Released<'a> {
    pub(super) node: usize,
    pub(super) call: u64,
    /// The position and the chain of the state that it shows.
    pub(super) shows: (Seq, u64),
    /// The newest position that any answer showed before the call was first sent.
    pub(super) floor: Seq,
    pub(super) reply: &'a Reply,
    pub(super) input: &'a Input,
}

/// Returns the hash of all entries up to this one.
pub(super) fn chained(before: u64, entry: &Entry) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(before);
    hasher.write(&bytes(entry));
    hasher.finish()
}

fn bytes<T: serde::Serialize>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("facts and states are serializable")
}

/// A commit that counts.
#[derive(Debug)]
struct Counted {
    sequence: u64,
    epoch: u64,
    node: usize,
    first: Seq,
    entries: Vec<Arc<Entry>>,
}

/// Follows the stream as the readers must, and every released answer.
pub(super) struct Oracle {
    core: Core,
    witness: Witness,
    tail: Tail,
    counted: Vec<Counted>,
    /// The chain behind each position.
    chains: Vec<u64>,
    /// The newest position that an answer showed.
    shown: Seq,
    /// The messages that a sender was told of, by its key.
    acknowledged: BTreeMap<(AgentId, RequestId), BTreeSet<Vec<Seq>>>,
    /// The task of each turn, and the task that each answer settled.
    turns: BTreeMap<TurnId, TaskId>,
    settled: BTreeMap<Seq, TaskId>,
    /// The hash of what was released.
    released: DefaultHasher,
    answers: u64,
    stored_behind: u64,
    broken: Vec<Broken>,
    /// Whether nothing after this can be judged.
    lost: bool,
}

impl Oracle {
    pub(super) fn new(core: &Core) -> Self {
        Self {
            core: core.clone(),
            witness: Witness::default(),
            tail: Tail::new(true),
            counted: Vec::new(),
            chains: vec![0],
            shown: Seq(0),
            acknowledged: BTreeMap::new(),
            turns: BTreeMap::new(),
            settled: BTreeMap::new(),
            released: DefaultHasher::new(),
            answers: 0,
            stored_behind: 0,
            broken: Vec::new(),
            lost: false,
        }
    }

    pub(super) const fn core(&mut self) -> &mut Core {
        &mut self.core
    }

    pub(super) const fn state(&self) -> &State {
        self.core.state()
    }

    pub(super) const fn shown(&self) -> Seq {
        self.shown
    }

    /// Whether a promise is broken in a way that leaves nothing to judge the rest of the history by.
    pub(super) const fn is_lost(&self) -> bool {
        self.lost
    }

    pub(super) fn into_broken(self) -> Vec<Broken> {
        self.broken
    }

    pub(super) const fn facts(&self) -> u64 {
        self.chains.len() as u64 - 1
    }

    pub(super) const fn answers(&self) -> u64 {
        self.answers
    }

    pub(super) fn digest(&self) -> u64 {
        let mut hasher = self.released.clone();
        hasher.write_u64(self.chains.last().copied().unwrap_or(0));
        hasher.finish()
    }

    fn expect(&mut self, promise: &'static str, found: PromiseResult) {
        if let Err(detail) = found
            && !self.broken.iter().any(|broken| broken.promise == promise)
        {
            self.broken.push(Broken { promise, detail });
        }
    }

    /// Does the same for a promise without which nothing else can be judged.
    fn require(&mut self, promise: &'static str, found: PromiseResult) {
        self.lost |= found.is_err();
        self.expect(promise, found);
    }

    /// Reads what is new in the stream.
    pub(super) fn follow(&mut self, stream: &Stream) {
        while let Some(stored) = stream.get(self.tail.at + 1).filter(|_| !self.lost) {
            match self.tail.read(stored) {
                Meaning::Began => {}
                Meaning::Dropped => self.stored_behind += 1,
                Meaning::Counts(first, entries) => {
                    let fits = first.0 == self.facts() + 1;
                    let gap = || format!("{first} of broker {} behind {}", stored.node, self.facts());
                    self.require("positions have no gap and none is used twice", fits.then_some(()).ok_or_else(gap));
                    if fits {
                        self.count(stored, first, entries);
                    }
                }
            }
        }
    }

    fn count(&mut self, stored: &Stored, first: Seq, entries: Vec<Arc<Entry>>) {
        for entry in &entries {
            let replayed = self.core.replay(entry).map_err(|mismatch| mismatch.to_string());
            self.require("phi is what the facts amount to", replayed);
            self.witness.see(entry);
            let before = self.chains.last().copied().unwrap_or(0);
            self.chains.push(chained(before, entry));
            if let Fact::TurnOpened(TurnOpened { turn, task, .. }) = &entry.fact {
                self.turns.insert(*turn, *task);
            } else if let Fact::Accepted { message } = &entry.fact
                && let Part::Answer(answer) = &message.part
            {
                self.settled.insert(Seq(self.facts()), answer.task);
            }
        }
        let witnessed = self.witness.broken().last().map(|b| (b.promise, format!("{}: {}", b.seq, b.detail)));
        if let Some((promise, detail)) = witnessed {
            self.expect(promise, Err(detail));
        }
        let (epoch, node, sequence) = (stored.epoch, stored.node, self.tail.at);
        self.counted.push(Counted { sequence, epoch, node, first, entries });
    }

    /// Looks at an answer when it is released.
    pub(super) fn released(&mut self, answer: &Released<'_>, met: &mut Met) {
        let Released { node, call, shows: (seq, chain), floor, .. } = *answer;
        self.answers += 1;
        for number in [node as u64, call, seq.0, chain] {
            self.released.write_u64(number);
        }
        let durable = self.every_released_answer_shows_what_is_in_the_log(answer);
        self.require("every released answer shows what is in the log", durable);
        let fresh = floor <= seq;
        let stale =
            || format!("broker {node} answers call {call} as of {seq}; it was sent when {floor} had been shown");
        self.expect("no answer is older than one before its call", fresh.then_some(()).ok_or_else(stale));
        self.shown = self.shown.max(seq);
        let own = self.a_finish_settles_the_request_of_its_own_turn(answer);
        self.expect("a finish settles the request of its own turn", own);
        self.acknowledges(answer, met);
    }

    fn a_finish_settles_the_request_of_its_own_turn(&self, answer: &Released<'_>) -> PromiseResult {
        let Input::Finish(_, Some(turn), _) = answer.input else { return Ok(()) };
        let Reply::Finished { answer: Some(seq), .. } = answer.reply else { return Ok(()) };
        let (served, settled) = (self.turns.get(turn), self.settled.get(seq));
        if served.is_some() && served == settled {
            return Ok(());
        }
        Err(format!("{turn} serves {served:?}, and {seq} settles {settled:?}"))
    }

    fn every_released_answer_shows_what_is_in_the_log(&self, answer: &Released<'_>) -> PromiseResult {
        let (seq, chain) = answer.shows;
        let known = usize::try_from(seq.0).ok().and_then(|at| self.chains.get(at));
        if known == Some(&chain) {
            return Ok(());
        }
        let what = if known.is_some() { "other facts than the log's" } else { "facts that aren't in the log" };
        let Released { node, call, reply, .. } = answer;
        Err(format!("broker {node} answers call {call} with {reply:?}, which shows {what} up to {seq}"))
    }

    /// Notes which messages a sender is told of.
    fn acknowledges(&mut self, answer: &Released<'_>, met: &mut Met) {
        let Input::Send(by, draft) = answer.input else { return };
        #[expect(clippy::wildcard_enum_match_arm, reason = "every other reply names no message")]
        let messages = match answer.reply {
            Reply::Sent(messages) => messages,
            Reply::Again(messages) => {
                met.repeats_answered += 1;
                messages
            }
            _ => return,
        };
        let keyed = !matches!(draft.kind, MessageType::Response | MessageType::Status);
        if let Some(key) = draft.request_id.clone().filter(|_| keyed) {
            self.acknowledged.entry((by.agent(), key)).or_default().insert(messages.clone());
        }
    }

    fn entries(&self) -> impl Iterator<Item = (Seq, &Entry)> {
        self.counted.iter().flat_map(|commit| (commit.first.0..).map(Seq).zip(commit.entries.iter().map(AsRef::as_ref)))
    }

    fn an_acknowledged_message_is_in_the_log_exactly_once(&self) -> PromiseResult {
        let mut stored: BTreeMap<(AgentId, &RequestId), Vec<Seq>> = BTreeMap::new();
        let mut copies = BTreeSet::new();
        for (seq, entry) in self.entries() {
            let Fact::Accepted { message } = &entry.fact else { continue };
            // A STATUS names a request, as its key names the request itself.
            let Some(key) = message.key.as_ref().filter(|_| message.kind != MessageType::Status) else { continue };
            stored.entry((message.from, &key.id)).or_default().push(seq);
            if !copies.insert((message.from, &key.id, format!("{:?}", message.to))) {
                return Err(format!("{seq} has the key {} of {} and the same recipient again", key.id, message.from));
            }
        }
        for ((sender, key), messages) in &self.acknowledged {
            let found = stored.get(&(*sender, key));
            if found.is_none_or(|found| !messages.iter().eq([found])) {
                return Err(format!("{sender} was told of {messages:?} under {key}; the log has {found:?}"));
            }
        }
        Ok(())
    }

    fn an_epoch_has_the_records_of_one_leader(&self) -> PromiseResult {
        let mut leaders: BTreeMap<u64, usize> = BTreeMap::new();
        for Counted { sequence, epoch, node, .. } in &self.counted {
            let leader = *leaders.entry(*epoch).or_insert(*node);
            if leader != *node {
                return Err(format!("epoch {epoch} has records of {leader} and, at {sequence}, of {node}"));
            }
        }
        Ok(())
    }

    fn a_crossing_is_warned_about_once(&self, met: &mut Met) -> PromiseResult {
        let mut counts: BTreeMap<Place, u64> = BTreeMap::new();
        let mut warned: BTreeSet<(Place, Crossing)> = BTreeSet::new();
        for (seq, entry) in self.entries() {
            if let Fact::Heard { place, agent_messages, .. } = &entry.fact {
                // A lower count: a human spoke in between.
                if counts.insert(*place, *agent_messages).is_some_and(|before| before >= *agent_messages) {
                    warned.retain(|(on, _)| on != place);
                }
            } else if let Fact::Warned { place, crossing, .. } = &entry.fact {
                met.warnings += 1;
                if !warned.insert((*place, *crossing)) {
                    return Err(format!("{seq} warns of {crossing:?} in {place:?} again"));
                }
            }
        }
        Ok(())
    }

    fn the_raced_grant_is_used_up_exactly(&self) -> PromiseResult {
        let grant = GrantId(1);
        let by_state = self.state().grants.get(&grant).map(|grant| grant.messages);
        let by_witness = self.witness.totals(grant).map(|(messages, _)| messages);
        if by_state == Some(RACE_MESSAGES) && by_witness == by_state {
            return Ok(());
        }
        Err(format!("{by_state:?} messages by the state, {by_witness:?} by the witness, of {RACE_MESSAGES}"))
    }
}

/// Checks that each request ended at most once, and if `at_rest` that each did.
fn a_request_ends_exactly_once<'a>(entries: impl Iterator<Item = &'a Entry>, at_rest: bool) -> PromiseResult {
    let mut ends: BTreeMap<TaskId, u32> = BTreeMap::new();
    for entry in entries {
        let Fact::Accepted { message } = &entry.fact else { continue };
        match &message.part {
            Part::Request(terms) => {
                ends.entry(terms.task).or_insert(0);
            }
            Part::Answer(answer) => *ends.entry(answer.task).or_insert(0) += 1,
            Part::Plain | Part::Reply { .. } | Part::Status { .. } | Part::Echo => {}
        }
    }
    let wrong = ends.iter().find(|(_, ends)| **ends > 1 || at_rest && **ends == 0);
    wrong.map_or(Ok(()), |(task, ends)| Err(format!("the request of {task} ended {ends} times")))
}

/// Checks that open work waits where its agent, its own requests or a human will find it.
fn every_open_request_waits_for_whom_it_should(state: &State, unanswered: usize) -> PromiseResult {
    for (id, task) in state.tasks.iter().filter(|(_, task)| !task.is_closed()) {
        if !is_found(state, id, task) {
            return Err(format!("{id} of {} is {:?} and nothing leads to it", task.agent, task.phase));
        }
    }
    let open = state.tasks.values().filter(|task| task.request.is_some() && !task.is_closed()).count();
    if open == unanswered { Ok(()) } else { Err(format!("{open} are open, {unanswered} unanswered")) }
}

fn is_found(state: &State, id: TaskId, task: &Task) -> bool {
    let Some(agent) = state.agent(task.agent).filter(|agent| agent.live) else { return false };
    match task.phase {
        Phase::Queued => agent.queue.iter().any(|(_, queued)| *queued == id),
        Phase::Open(turn) => agent.turns.contains(&turn) && state.turns.get(&turn).is_some_and(|turn| turn.open),
        Phase::Waiting => task.in_flight() > 0,
        Phase::Closed(..) => true,
    }
}

/// Checks the commits that one broker counted against the starts of epochs in the stream.
fn no_record_of_an_old_epoch_counts_behind_a_new_one(stream: &Stream, counted: &[u64]) -> PromiseResult {
    for sequence in counted {
        let newest = stream.messages().iter().zip(1..*sequence).filter(|(m, _)| matches!(m.body, Body::EpochStart));
        let newest = newest.map(|(start, _)| start.epoch).max();
        let own = stream.get(*sequence).map(|stored| stored.epoch);
        if own != newest {
            return Err(format!("{sequence} has epoch {own:?} behind the start of {newest:?}, and counts"));
        }
    }
    Ok(())
}

impl HistoryRun<'_> {
    /// Checks the promises that hold for a whole history, once nothing fails any more.
    pub(super) fn judge_the_end(&mut self) {
        let idle = self.is_idle();
        let quiet = idle.then_some(()).ok_or_else(|| self.what_is_in_flight());
        self.oracle.expect("nothing is in flight once nothing fails", quiet);
        for node in 0..self.brokers.len() {
            let counted = no_record_of_an_old_epoch_counts_behind_a_new_one(&self.stream, &self.brokers[node].counted);
            self.oracle.expect("no record of an old epoch counts behind a new one", counted);
        }
        let same = self.facts_alone_rebuild_the_same_state_on_every_broker();
        let oracle = &mut self.oracle;
        oracle.expect("facts alone rebuild the same state on every broker", same);
        let once = oracle.an_acknowledged_message_is_in_the_log_exactly_once();
        oracle.expect("an acknowledged message is in the log exactly once", once);
        let leader = oracle.an_epoch_has_the_records_of_one_leader();
        oracle.expect("an epoch has the records of one leader", leader);
        let ended = a_request_ends_exactly_once(oracle.entries().map(|(_, entry)| entry), false);
        oracle.expect("a request ends exactly once", ended);
        let warned = oracle.a_crossing_is_warned_about_once(&mut self.met);
        oracle.expect("a crossing is warned about once", warned);
        let waits = every_open_request_waits_for_whom_it_should(oracle.state(), oracle.witness.unanswered());
        oracle.expect("every open request waits for whom it should", waits);
        if self.setting.scene == Scene::Race {
            let used = oracle.the_raced_grant_is_used_up_exactly();
            oracle.expect("the raced grant is used up exactly", used);
        }
        self.met.stored_behind += oracle.stored_behind;
        self.rests();
    }

    fn facts_alone_rebuild_the_same_state_on_every_broker(&self) -> PromiseResult {
        let folded = bytes(self.oracle.state());
        for (node, broker) in self.brokers.iter().enumerate() {
            if let Some(gap) = broker.gap {
                return Err(format!("broker {node} read {gap}, which doesn't follow from what it had read"));
            }
            let (seq, expected) = (broker.core.state().seq, self.oracle.state().seq);
            if bytes(broker.core.state()) != folded {
                return Err(format!("broker {node} is at {seq}, the log at {expected}, and the states differ"));
            }
        }
        Ok(())
    }

    /// Humans lift what is held, and then every participant is silent: all work ends.
    fn rests(&mut self) {
        let core = self.brokers.iter().find(|broker| broker.leads()).map(|broker| broker.core.clone());
        let witness = self.oracle.witness.clone();
        let mut world =
            World::resumed(core.unwrap_or_else(|| self.oracle.core.clone()), witness, self.clients.agents());
        let rest = falls_silent(&mut world);
        self.oracle.expect("no grant, no motion", rest);
        let broken = world.broken().first().map(|b| (b.promise, b.detail.clone()));
        if let Some((promise, detail)) = broken {
            self.oracle.expect(promise, Err(detail));
        }
        let entries = self.oracle.entries().map(|(_, entry)| entry);
        let ended = a_request_ends_exactly_once(entries.chain(world.log()), true);
        self.oracle.expect("a request ends exactly once", ended);
    }
}

#[cfg(test)]
mod tests {
    use lastword_core::input::Finish;
    use lastword_facts::limits::Limits;

    use super::*;
    use crate::world::request;

    #[test]
    fn a_request_that_ends_never_or_twice_is_noticed() {
        let mut world = World::new(&Limits::default(), 1);
        let to = world.agents()[0];
        world.give(Input::Send(world.human(), Box::new(request(to, &world))));
        let by = world.agent(to).unwrap();
        world.give(Input::Take(by, None));
        let open = world.log().to_vec();
        world.give(Input::Finish(by, None, Box::new(Finish { body: "done".into(), ..Finish::default() })));
        let (all, answer) = (world.log(), &world.log()[open.len()..]);
        assert_eq!(a_request_ends_exactly_once(all.iter(), true), Ok(()));
        assert_eq!(a_request_ends_exactly_once(open.iter(), false), Ok(()));
        assert!(a_request_ends_exactly_once(open.iter(), true).is_err());
        assert!(a_request_ends_exactly_once(all.iter().chain(answer), false).is_err());
    }

    #[test]
    fn an_open_request_that_is_in_no_queue_is_noticed() {
        let mut world = World::new(&Limits::default(), 1);
        let to = world.agents()[0];
        world.give(Input::Send(world.human(), Box::new(request(to, &world))));
        let mut state = world.core().state().clone();
        assert_eq!(every_open_request_waits_for_whom_it_should(&state, 1), Ok(()));
        assert!(every_open_request_waits_for_whom_it_should(&state, 2).is_err());
        state.agents[to.0 as usize].queue = lastword_core::state::Sorted::default();
        assert!(every_open_request_waits_for_whom_it_should(&state, 1).is_err());
    }
}
