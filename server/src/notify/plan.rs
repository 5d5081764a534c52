//! Decides what to send and when: a state machine over facts and virtual time, without a clock and without I/O.
//!
//! Each channel has its own view of the pending topics. A topic is *ready* for a channel once it is severe enough, and
//! again some time after it was sent and is still pending. The first ready topic opens a window; all topics ready at
//! its end are one notification. While a channel sends, it starts no other notification, so everything that becomes
//! ready meanwhile is the next one, however much it is. No queue is needed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use lastword_core::State;
use lastword_core::state::IncidentOn;
use lastword_facts::fact::{
    ApprovalAsked, ApprovalDecided, Control, EscalationCause, EscalationOpened, IncidentNoted, LatchSet, Scope,
};
use lastword_facts::status::ApprovalState;
use lastword_facts::status::EscalationState;
use lastword_facts::status::Running;
use lastword_facts::{Fact, Seq, Time};

use super::book::{ChannelLedger, GivenUp, NotificationLedger, Parcel, Repeats, Topic};
use super::channel::Severity;

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
/// The most times that a topic is sent: once, and two reminders.
const TIMES_MAX: u32 = 3;
/// The part of the time without a human, in percent, from which a human's absence is urgent.
const NEARLY_PERCENT: u64 = 80;
/// A held call is repeated at half of its time if that half is longer than this.
const HALF_MIN_MS: u64 = MINUTE_MS;
/// The pauses before each retry of a failed notification. After the last one it is given up.
const RETRIES_MS: [u64; 5] = [5_000, 30_000, 2 * MINUTE_MS, 10 * MINUTE_MS, 30 * MINUTE_MS];

/// The most notifications of a channel that are kept after they were given up; the oldest is dropped for a further one.
const GIVEN_UP_MAX: usize = 100;

/// The settings of a channel that matter for the plan.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) name: String,
    pub(super) minimum: Severity,
    pub(super) window_ms: u64,
    pub(super) hourly_max: usize,
    pub(super) stale_ms: u64,
}

/// The times and the severity of a pending topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingTopic {
    at: Time,
    expires_at: Option<Time>,
    /// Its severity at the start.
    severity: Severity,
    /// Whether it is repeated while it is pending.
    repeats: bool,
}

impl PendingTopic {
    const fn urgent(at: Time) -> Self {
        Self { at, expires_at: None, severity: Severity::Urgent, repeats: true }
    }

    const fn question(at: Time, cause: EscalationCause) -> Self {
        let severity = match cause {
            EscalationCause::Asked | EscalationCause::NoProgress => Severity::Normal,
            EscalationCause::TimedOut => Severity::Low,
        };
        Self { at, expires_at: None, severity, repeats: true }
    }

    const fn call(at: Time, expires_at: Time) -> Self {
        Self { at, expires_at: Some(expires_at), severity: Severity::Normal, repeats: true }
    }

    /// A topic for information, which is sent once.
    const fn once(at: Time, severity: Severity) -> Self {
        Self { at, expires_at: None, severity, repeats: false }
    }

    /// An incident. One about an agent holds no work, so it is sent once.
    const fn incident(at: Time, on: IncidentOn) -> Self {
        match on {
            IncidentOn::Latch(_) => Self::urgent(at),
            IncidentOn::Agent(_) => Self::once(at, Severity::Normal),
        }
    }

    /// Returns the topic for a fact that the humans' inbox shows for information; `None` for other facts.
    pub(super) fn note(at: Time, fact: &Fact) -> Option<Self> {
        if let Fact::AlertRaised { pushed: true, .. } = fact {
            Some(Self::once(at, Severity::Urgent))
        } else if let Fact::Unattended { percent } = fact {
            let severity = if *percent >= NEARLY_PERCENT { Severity::Urgent } else { Severity::Normal };
            Some(Self::once(at, severity))
        } else if let Fact::GrantAged { .. } = fact {
            Some(Self::once(at, Severity::Normal))
        } else {
            None
        }
    }

    /// Returns the time at which half of its time is over; `None` if it doesn't expire.
    fn half(&self) -> Option<Time> {
        self.expires_at.map(|end| self.at.plus(end.since(self.at) / 2))
    }

    /// Returns its current severity: past half of its time, it is urgent.
    pub(super) fn severity(&self, now: Time) -> Severity {
        if self.half().is_some_and(|half| half <= now) { Severity::Urgent } else { self.severity }
    }

    /// Returns the time from which it has at least this severity; `None` if it never will.
    fn reaches(&self, minimum: Severity) -> Option<Time> {
        if self.severity >= minimum { Some(self.at) } else { self.half() }
    }

    /// Returns the time at which it is ready for a channel, given the channel's earlier notifications of it; `None` if
    /// never again.
    fn ready(&self, rules: &Rules, told: Option<&Repeats>) -> Option<Time> {
        let Some(told) = told else { return self.reaches(rules.minimum) };
        if told.times >= TIMES_MAX || !self.repeats {
            return None;
        }
        match (self.half(), self.expires_at) {
            // A call that expires before a reminder is due is repeated at half of its time instead.
            (Some(half), Some(end)) if end.since(self.at) < rules.stale_ms => {
                (told.last < half && half.since(self.at) > HALF_MIN_MS).then_some(half)
            }
            _ => Some(told.last.plus(rules.stale_ms)),
        }
    }

    /// Returns the end of the window that opens when it is ready. A topic that expires shortens the window to at most a
    /// quarter of its remaining time; `None` if it has expired by then.
    fn closing(&self, ready: Time, rules: &Rules) -> Option<Time> {
        match self.expires_at {
            Some(end) if end <= ready => None,
            Some(end) => Some(ready.plus(rules.window_ms.min(end.since(ready) / 4))),
            None => Some(ready.plus(rules.window_ms)),
        }
    }
}

/// The outcome of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'r> {
    /// The channel's target accepted it.
    Sent,
    /// The attempt failed for this reason.
    Failed(&'r str),
}

/// What happens to a notification after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it was accepted.
    Done,
    /// It is retried later.
    Again,
    /// All retries failed, so it is kept for a human to send it again.
    GivenUp,
}

/// The pending topics, and the record of what each channel was sent.
pub(super) struct Plan {
    rules: Vec<Rules>,
    waiting: BTreeMap<Topic, PendingTopic>,
    book: NotificationLedger,
    /// The channels with a send in progress, by their place in the configuration.
    busy: BTreeSet<usize>,
    /// The channels that go nowhere at present. What is pending becomes due for them once they do.
    idle: BTreeSet<usize>,
}

impl Plan {
    /// Creates a plan for these channels; records of other channels are dropped.
    pub(super) fn new(rules: Vec<Rules>, mut book: NotificationLedger) -> Self {
        book.retain(|name, _| rules.iter().any(|rules| rules.name == *name));
        for rules in &rules {
            book.entry(rules.name.clone()).or_default();
        }
        Self { rules, waiting: BTreeMap::new(), book, busy: BTreeSet::new(), idle: BTreeSet::new() }
    }

    /// Replaces the channels while no send is in progress. What was sent to those that stay is known.
    pub(super) fn replace(&mut self, rules: Vec<Rules>) {
        let waiting = std::mem::take(&mut self.waiting);
        *self = Self { waiting, ..Self::new(rules, std::mem::take(&mut self.book)) };
    }

    /// Says which channels go nowhere at present.
    pub(super) fn rest(&mut self, idle: BTreeSet<usize>) {
        self.idle = idle;
    }

    /// Returns the record that must survive a restart.
    pub(super) const fn book(&self) -> &NotificationLedger {
        &self.book
    }

    /// Returns all topics that are pending in this state, except those for information.
    pub(super) fn waiting_in(state: &State, now: Time) -> BTreeMap<Topic, PendingTopic> {
        let questions = state.escalations.iter().filter(|(_, known)| known.state == EscalationState::Open);
        let questions =
            questions.map(|(id, known)| (Topic::Question(*id), PendingTopic::question(known.at, known.cause)));
        let calls = state.approvals.iter().filter(|(_, known)| known.state == ApprovalState::Pending);
        let calls = calls.map(|(id, known)| (Topic::Call(*id), PendingTopic::call(known.at, known.expires_at)));
        let incidents = state.incidents.iter().filter(|(_, known)| known.lifted.is_none());
        let incidents = incidents.map(|(id, known)| (Topic::Incident(*id), PendingTopic::incident(known.at, known.on)));
        let stop = (state.running == Running::Stopped).then_some((Topic::Stop, PendingTopic::urgent(now)));
        questions.chain(calls).chain(incidents).chain(stop).collect()
    }

    /// Replaces the pending topics. A topic for information remains pending while some human has it unread in the
    /// inbox.
    pub(super) fn correct(&mut self, mut waiting: BTreeMap<Topic, PendingTopic>, unread: &BTreeSet<Seq>) {
        let notes = self.waiting.iter().filter(|(topic, _)| matches!(topic, Topic::Note(seq) if unread.contains(seq)));
        waiting.extend(notes.map(|(topic, note)| (*topic, *note)));
        for ledger in self.book.values_mut() {
            ledger.told.retain(|topic, _| waiting.contains_key(topic));
        }
        // The state doesn't say when the workspace was stopped, so keep the time of the fact.
        let stopped = self.waiting.get(&Topic::Stop).copied();
        self.waiting = waiting;
        if let (Some(heard), Some(now)) = (stopped, self.waiting.get_mut(&Topic::Stop)) {
            *now = heard;
        }
    }

    /// Takes a fact into account. Some topics are settled without a fact of their own, so [`Plan::correct`] has to be
    /// called before anything is sent.
    pub(super) fn hear(&mut self, seq: Seq, at: Time, fact: &Fact) {
        if let Some(note) = PendingTopic::note(at, fact) {
            self.waiting.insert(Topic::Note(seq), note);
        } else if let Fact::IncidentNoted(IncidentNoted { incident, agent, .. }) = fact {
            self.waiting.insert(Topic::Incident(*incident), PendingTopic::incident(at, IncidentOn::Agent(*agent)));
        } else if let Fact::EscalationOpened(EscalationOpened { escalation, cause, .. }) = fact {
            self.waiting.insert(Topic::Question(*escalation), PendingTopic::question(at, *cause));
        } else if let Fact::ApprovalAsked(ApprovalAsked { approval, expires_at, .. }) = fact {
            self.waiting.insert(Topic::Call(*approval), PendingTopic::call(at, *expires_at));
        } else if let Fact::LatchSet(LatchSet { incident, .. }) = fact {
            self.waiting.insert(Topic::Incident(*incident), PendingTopic::urgent(at));
        } else if let Fact::ApprovalDecided(ApprovalDecided { approval, .. }) = fact {
            self.settle(Topic::Call(*approval));
        } else if let Fact::EscalationNoted { escalation, .. } | Fact::EscalationAnswered { escalation, .. } = fact {
            self.settle(Topic::Question(*escalation));
        } else if let Fact::Controlled { scope: Scope::Workspace, control, .. } = fact {
            match control {
                Control::Stop => {
                    self.waiting.insert(Topic::Stop, PendingTopic::urgent(at));
                }
                Control::Pause | Control::Resume => self.settle(Topic::Stop),
            }
        }
    }

    fn settle(&mut self, topic: Topic) {
        self.waiting.remove(&topic);
        for ledger in self.book.values_mut() {
            // A later topic with the same id, such as a second stop, is a new one.
            ledger.told.remove(&topic);
        }
    }

    /// Returns the next time at which some channel has something to send.
    pub(super) fn next(&self) -> Option<Time> {
        (0..self.rules.len()).filter_map(|place| self.moment(place)).min()
    }

    /// Returns the channels that have something to send now, by their place in the configuration.
    pub(super) fn due(&self, now: Time) -> Vec<usize> {
        (0..self.rules.len()).filter(|place| self.moment(*place).is_some_and(|at| at <= now)).collect()
    }

    fn moment(&self, place: usize) -> Option<Time> {
        let rests = self.busy.contains(&place) || self.idle.contains(&place);
        let rules = self.rules.get(place).filter(|_| !rests)?;
        let ledger = self.book.get(&rules.name)?;
        // A failed notification goes first; everything newer waits for it.
        if let Some(parcel) = &ledger.parcel {
            return Some(parcel.next);
        }
        Some(self.closing(rules, ledger)?.max(released(rules, ledger).unwrap_or_default()))
    }

    /// Returns the end of the open window, if one is open.
    fn closing(&self, rules: &Rules, ledger: &ChannelLedger) -> Option<Time> {
        let closing = self.waiting.iter().filter_map(|(topic, waiting)| {
            let ready = waiting.ready(rules, ledger.told.get(topic))?;
            waiting.closing(ready, rules)
        });
        closing.min()
    }

    /// Starts the notification that a channel has to send now: the failed one without its settled topics, or a new one
    /// with this id. It is in progress until [`Plan::ended`]. The caller saves the record before it sends.
    pub(super) fn begin(&mut self, place: usize, now: Time, id: &str) -> Option<Parcel> {
        self.moment(place).filter(|moment| *moment <= now)?;
        let rules = self.rules.get(place)?;
        let fresh = self.ready_on(rules, now);
        let closing = self.closing(rules, self.book.get(&rules.name)?);
        let ledger = self.book.get_mut(&rules.name)?;
        if let Some(parcel) = &mut ledger.parcel {
            parcel.topics.retain(|(topic, _)| self.waiting.contains_key(topic));
            if parcel.topics.is_empty() {
                ledger.parcel = None;
            }
        } else if !fresh.is_empty() {
            let held_back = closing.is_some_and(|closing| released(rules, ledger) > Some(closing));
            for (topic, _) in &fresh {
                let told = ledger.told.entry(*topic).or_insert(Repeats { times: 0, last: now });
                *told = Repeats { times: told.times + 1, last: now };
            }
            // Only the last hour counts toward the limit.
            ledger.sent.retain(|at| now.since(*at) < HOUR_MS);
            ledger.sent.push(now);
            let folded = if held_back { fresh.len() } else { 0 };
            ledger.parcel = Some(Parcel { id: id.to_owned(), topics: fresh, folded, failures: 0, next: now });
        }
        let parcel = ledger.parcel.clone()?;
        self.busy.insert(place);
        Some(parcel)
    }

    /// Returns the topics that are ready for a channel, most urgent first; `true` marks one that was sent before.
    fn ready_on(&self, rules: &Rules, now: Time) -> Vec<(Topic, bool)> {
        let Some(ledger) = self.book.get(&rules.name) else { return Vec::new() };
        let ready = |topic: &Topic, waiting: &PendingTopic| {
            let ready = waiting.ready(rules, ledger.told.get(topic)).filter(|ready| *ready <= now);
            ready.and_then(|ready| waiting.closing(ready, rules)).is_some()
        };
        let found = by_urgency(self.waiting.iter().filter(|(topic, waiting)| ready(topic, waiting)), now);
        found.into_iter().map(|topic| (topic, ledger.told.contains_key(&topic))).collect()
    }

    /// Returns the topics that are pending, as far as the facts that were heard say.
    pub(super) fn topics(&self) -> impl Iterator<Item = Topic> {
        self.waiting.keys().copied()
    }

    /// Returns the current severity of a pending topic.
    pub(super) fn severity(&self, topic: Topic, now: Time) -> Severity {
        self.waiting.get(&topic).map_or(Severity::Low, |waiting| waiting.severity(now))
    }

    /// Records the outcome of an attempt; returns what happens next.
    pub(super) fn ended(&mut self, place: usize, now: Time, outcome: Outcome<'_>) -> Next {
        self.busy.remove(&place);
        let ledger = self.rules.get(place).and_then(|rules| self.book.get_mut(&rules.name));
        let Some(ledger) = ledger else { return Next::Done };
        match (&mut ledger.parcel, outcome) {
            (Some(parcel), Outcome::Failed(reason)) => {
                let pause = usize::try_from(parcel.failures).ok().and_then(|failures| RETRIES_MS.get(failures));
                if let Some(pause) = pause {
                    parcel.failures += 1;
                    parcel.next = now.plus(*pause);
                    Next::Again
                } else {
                    let topics = parcel.topics.iter().map(|(topic, _)| *topic).collect();
                    let given_up = GivenUp { id: parcel.id.clone(), topics, at: now, reason: reason.to_owned() };
                    ledger.parcel = None;
                    ledger.given_up.push(given_up);
                    let over = ledger.given_up.len().saturating_sub(GIVEN_UP_MAX);
                    ledger.given_up.drain(..over);
                    Next::GivenUp
                }
            }
            (_, Outcome::Sent) | (None, Outcome::Failed(_)) => {
                ledger.parcel = None;
                Next::Done
            }
        }
    }

    /// Returns the notifications that were given up, newest first, each with its channel.
    pub(super) fn given_up(&self) -> Vec<(&str, &GivenUp)> {
        let of_channel = self.book.iter().map(|(name, ledger)| ledger.given_up.iter().map(move |kept| (&**name, kept)));
        let mut all: Vec<_> = of_channel.flatten().collect();
        all.sort_by_key(|(_, kept)| Reverse(kept.at));
        all
    }

    /// Records an attempt of a human to send what was given up: it leaves the list unless it failed again.
    pub(super) fn resent(&mut self, id: &str, now: Time, problem: Option<&str>) {
        for ledger in self.book.values_mut() {
            ledger.given_up.retain_mut(|kept| {
                if let Some(reason) = problem.filter(|_| kept.id == id) {
                    (kept.at, kept.reason) = (now, reason.to_owned());
                }
                kept.id != id || problem.is_some()
            });
        }
    }
}

/// Returns topics in the order in which a notification has them: the most urgent first.
pub(super) fn by_urgency<'t>(topics: impl Iterator<Item = (&'t Topic, &'t PendingTopic)>, now: Time) -> Vec<Topic> {
    let mut topics: Vec<_> = topics.collect();
    topics.sort_by_key(|(topic, pending)| (Reverse(pending.severity(now)), pending.at, **topic));
    topics.into_iter().map(|(topic, _)| *topic).collect()
}

/// Returns the time at which the hourly limit allows the next notification; `None` if it allows one now.
fn released(rules: &Rules, ledger: &ChannelLedger) -> Option<Time> {
    let before = ledger.sent.len().checked_sub(rules.hourly_max)?;
    ledger.sent.get(before).map(|sent| sent.plus(HOUR_MS))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
