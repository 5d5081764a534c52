//! Exchanges: what an asking task and one delegate say to each other, and whether they make progress (R5).

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use lastword_facts::fact::{Level, Message, Part, Recipient, SYSTEM};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, GrantId, Seq, TaskId, Time};
use lastword_facts::stall::{Curve, Due, Reading, Stall, StallCause};
use lastword_facts::status::EscalationState;

use super::{Asker, Few, State, Table};

/// The requests of one task to one delegate, and the answers to them (R5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    /// Whether its last message is a request.
    asks: bool,
    due: Due,
    hold: Option<Hold>,
    /// A warning that no reply to a send has carried yet.
    unsaid: bool,
    /// The broker's own question to a human whether it may go on.
    pub(crate) escalation: Option<EscalationId>,
    stall: Stall,
}

/// An exchange that makes no progress: its further requests are refused, or would be (R5, G7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why it is held.
    pub stall: StallCause,
    /// Whether its requests are refused; `false` if the guard only observed when it was held.
    pub enforced: bool,
}

impl Exchange {
    fn new() -> Self {
        Self { asks: true, due: Due::Nothing, hold: None, unsaid: false, escalation: None, stall: Stall::default() }
    }

    /// Folds a message, said by the asker or by the delegate.
    fn say(&mut self, asks: bool, reading: &Reading) {
        // Between two, each message goes to the other one.
        let (from, to) = if asks { (0, 1) } else { (1, 0) };
        self.due = self.stall.message(from, Some(to), reading);
        self.asks = asks;
    }

    /// Returns its numbers after the last message.
    #[must_use]
    pub const fn curve(&self) -> Curve {
        self.stall.curve()
    }

    /// Returns why it is held, or would be; `None` if it makes stall.
    #[must_use]
    pub const fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Returns what to record after the last message.
    pub(crate) fn due(&self, enforcing: bool) -> Option<(Level, StallCause)> {
        match (self.due, self.hold) {
            (Due::Warning, None) => Some((Level::Warned, StallCause::Dry)),
            // Held while the guard only observed: nothing was refused until now.
            (Due::Hold(stall), Some(Hold { enforced: false, .. })) if enforcing => Some((Level::Held, stall)),
            (Due::Hold(stall), None) => Some((Level::Held, stall)),
            (Due::Nothing | Due::Warning | Due::Hold(_), _) => None,
        }
    }
}

/// All exchanges of open tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exchanges {
    of: Table<TaskId, Few<WithDelegate, 1>>,
    count: usize,
    bytes: u64,
    /// The exchanges in the order of their messages. An entry counts only if no later one is about its exchange.
    recent: VecDeque<(Seq, TaskId, AgentId)>,
    /// The last request whose reply carries a warning.
    warned: Option<(Seq, TaskId, AgentId)>,
    /// The exchange in which something is due after the last admitted message.
    due: Option<(TaskId, AgentId)>,
}

/// The exchange of a task with one delegate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct WithDelegate {
    agent: AgentId,
    /// The position of the last message.
    last: Seq,
    said: Said,
}

impl WithDelegate {
    fn new(seq: Seq, agent: AgentId, asks: bool, reading: Box<Reading>) -> Self {
        let said = if asks {
            Said::First(reading)
        } else {
            // Only an exchange that was reset begins with an answer.
            let mut exchange = Box::new(Exchange::new());
            exchange.say(false, &reading);
            Said::More(exchange)
        };
        Self { agent, last: seq, said }
    }
}

/// What was said in an exchange.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Said {
    /// One request. Many have no answer yet, and nothing can be due, so the reading of its text is kept as it came.
    First(Box<Reading>),
    /// More than that.
    More(Box<Exchange>),
}

impl Said {
    fn bytes(&self) -> u64 {
        match self {
            Self::First(reading) => Stall::bytes_of(reading),
            Self::More(exchange) => exchange.stall.bytes(),
        }
    }

    /// Returns the exchange for its next message.
    fn exchange(&mut self) -> &mut Exchange {
        if let Self::First(first) = self {
            let mut exchange = Box::new(Exchange::new());
            exchange.say(true, first);
            *self = Self::More(exchange);
        }
        let Self::More(exchange) = self else { unreachable!("a first message was folded above") };
        exchange
    }

    fn escalation(&self) -> Option<EscalationId> {
        match self {
            Self::First(_) => None,
            Self::More(exchange) => exchange.escalation,
        }
    }
}

/// How often in a task a new session of its agent resets what it says and hears (R5).
const SESSIONS_MAX: u8 = 2;
/// The entries of `recent` beyond two for each exchange after which those that no longer count are removed.
const STALE_MAX: usize = 64;

impl Exchanges {
    fn find(&self, task: TaskId, agent: AgentId) -> Option<&WithDelegate> {
        self.of.get(&task)?.iter().find(|one| one.agent == agent)
    }

    fn get(&self, task: TaskId, agent: AgentId) -> Option<&Exchange> {
        match &self.find(task, agent)?.said {
            Said::First(_) => None,
            Said::More(exchange) => Some(exchange),
        }
    }

    /// Folds a message at `seq`, said by the asker or by the delegate.
    fn say(&mut self, seq: Seq, task: TaskId, agent: AgentId, asks: bool, reading: Box<Reading>) {
        self.recent.push_back((seq, task, agent));
        let Some(all) = self.of.get_mut(&task) else {
            let one = WithDelegate::new(seq, agent, asks, reading);
            self.bytes += one.said.bytes();
            self.count += 1;
            return self.of.insert(task, Few::from_buf([one]));
        };
        let Some(one) = all.iter_mut().find(|one| one.agent == agent) else {
            let one = WithDelegate::new(seq, agent, asks, reading);
            self.bytes += one.said.bytes();
            self.count += 1;
            return all.push(one);
        };
        let before = one.said.bytes();
        let exchange = one.said.exchange();
        exchange.say(asks, &reading);
        self.due = (exchange.due != Due::Nothing).then_some((task, agent));
        one.last = seq;
        if asks && core::mem::take(&mut exchange.unsaid) {
            self.warned = Some((seq, task, agent));
        }
        self.bytes = self.bytes + exchange.stall.bytes() - before;
        self.forget_stale();
    }

    fn forget_stale(&mut self) {
        if self.recent.len() > 2 * self.count + STALE_MAX {
            let of = &self.of;
            self.recent.retain(|(seq, task, agent)| {
                of.get(task).is_some_and(|all| all.iter().any(|one| one.agent == *agent && one.last == *seq))
            });
        }
    }

    /// Reads a little of the exchange that is forgotten next, for the reason given at [`State::touch`].
    pub(super) fn touch(&self) {
        let Some((_, task, agent)) = self.recent.front() else { return };
        core::hint::black_box(self.find(*task, *agent).map_or(0, |one| one.said.bytes()));
    }

    /// Returns the exchange whose last message is the oldest.
    fn oldest(&mut self) -> Option<(TaskId, AgentId)> {
        while let Some((seq, task, agent)) = self.recent.pop_front() {
            if self.find(task, agent).is_some_and(|one| one.last == seq) {
                return Some((task, agent));
            }
        }
        None
    }

    /// Removes an exchange. Returns the broker's question about it.
    fn remove(&mut self, task: TaskId, agent: AgentId) -> Option<EscalationId> {
        let all = self.of.get_mut(&task)?;
        let place = all.iter().position(|one| one.agent == agent)?;
        let one = all.remove(place);
        if all.is_empty() {
            self.of.remove(&task);
        }
        self.bytes -= one.said.bytes();
        self.count -= 1;
        one.said.escalation()
    }

    /// Removes all exchanges of a task. Returns the broker's questions about them.
    fn close(&mut self, task: TaskId) -> Few<EscalationId, 2> {
        let Some(all) = self.of.remove(&task) else { return Few::new() };
        self.count -= all.len();
        self.bytes -= all.iter().map(|one| one.said.bytes()).sum::<u64>();
        self.forget_stale();
        all.iter().filter_map(|one| one.said.escalation()).collect()
    }
}

impl State {
    /// Returns what a task and one of its delegates say to each other; `None` before their second message, and before
    /// the first one after a reset (R5).
    #[must_use]
    pub fn exchange(&self, task: TaskId, agent: AgentId) -> Option<&Exchange> {
        self.exchanges.get(task, agent)
    }

    /// Returns the exchange in which something is due after the last admitted message, by its task and delegate.
    pub(crate) const fn due_in_exchange(&self) -> Option<(TaskId, AgentId)> {
        self.exchanges.due
    }

    /// Forgets what was due after the message before.
    pub(super) const fn nothing_is_due(&mut self) {
        self.exchanges.due = None;
    }

    /// Returns the exchange whose warning belongs into the reply to the request at `seq`.
    #[must_use]
    pub fn warned_at(&self, seq: Seq) -> Option<(AgentId, &Exchange)> {
        let (at, task, agent) = self.exchanges.warned?;
        self.exchange(task, agent).filter(|_| at == seq).map(|exchange| (agent, exchange))
    }

    /// Returns the bytes that all exchanges are counted with, which `no_progress_bytes_max` bounds.
    #[must_use]
    pub const fn no_progress_bytes(&self) -> u64 {
        self.exchanges.bytes
    }

    /// Returns the task that asks and the delegate, if the message is one of an exchange, and whether the task asks in
    /// it.
    fn exchange_of(&self, message: &Message) -> Option<(TaskId, AgentId, bool)> {
        let open = |id: &TaskId| self.tasks.get(id).is_some_and(|task| !task.is_closed());
        match (&message.part, message.to) {
            (Part::Request(_), Recipient::One(to)) => message.sender_task.filter(open).map(|task| (task, to, true)),
            // An outcome of the broker is said by neither.
            (Part::Answer(answer), _) if message.from != SYSTEM => match self.tasks.get(&answer.task)?.asker {
                Asker::Task { task, .. } if open(&task) => Some((task, message.from, false)),
                Asker::Task { .. } | Asker::Human(_) | Asker::Nobody => None,
            },
            (
                Part::Request(_)
                | Part::Answer(_)
                | Part::Plain
                | Part::Reply { .. }
                | Part::Status { .. }
                | Part::Echo,
                _,
            ) => None,
        }
    }

    /// Folds a message into its exchange.
    pub(super) fn said_in_exchange(&mut self, at: Time, message: &Message) {
        let reading = self.reading.take();
        let Some((task, agent, asks)) = self.exchange_of(message) else { return };
        let read = || Reading::of(&message.body, message.payload.as_deref());
        debug_assert!(reading.as_ref().is_none_or(|reading| **reading == read()), "the reading of this very text");
        let reading = reading.unwrap_or_else(|| Box::new(read()));
        self.exchanges.say(self.seq, task, agent, asks, reading);
        while self.exchanges.bytes > self.limits.no_progress_bytes_max {
            let Some((task, agent)) = self.exchanges.oldest() else { return };
            self.reset_exchange(at, task, agent);
        }
    }

    pub(super) fn stalled(
        &mut self,
        task: TaskId,
        agent: AgentId,
        level: Level,
        stall: StallCause,
        enforced: bool,
        escalation: Option<EscalationId>,
    ) {
        let all = self.exchanges.of.get_mut(&task);
        let Some(one) = all.and_then(|all| all.iter_mut().find(|one| one.agent == agent)) else { return };
        let (last, exchange) = (one.last, one.said.exchange());
        match level {
            Level::Warned => {}
            Level::Held => exchange.hold = Some(Hold { stall, enforced }),
        }
        exchange.due = Due::Nothing;
        exchange.escalation = escalation;
        // The reply to a finish goes to the delegate, so the warning waits for the next request.
        exchange.unsaid = enforced && !exchange.asks;
        if enforced && exchange.asks {
            self.exchanges.warned = Some((last, task, agent));
        }
    }

    /// Starts an exchange anew: nothing was said in it, and nothing holds it.
    fn reset_exchange(&mut self, at: Time, task: TaskId, agent: AgentId) {
        if let Some(escalation) = self.exchanges.remove(task, agent) {
            self.withdraw_question(at, escalation);
        }
    }

    fn withdraw_question(&mut self, at: Time, id: EscalationId) {
        // A lift that a human chose ends the question as answered, in the fact that follows.
        let chosen = |lifts: &super::Lifts| lifts.chosen.is_some();
        if !self.escalations.get(&id).and_then(|known| known.lifts.as_deref()).is_some_and(chosen) {
            self.end_escalation(at, id, EscalationState::Withdrawn, None);
        }
    }

    /// Gives back the exchanges of a task that closes, or that another run begins anew.
    pub(super) fn close_exchanges(&mut self, at: Time, task: TaskId) {
        for escalation in self.exchanges.close(task) {
            self.end_escalation(at, escalation, EscalationState::Withdrawn, None);
        }
    }

    /// Resets all exchanges in a conversation about which a human said something (R4, R5).
    pub(super) fn human_in_exchanges(&mut self, at: Time, conv: ConvId) {
        if self.exchanges.count > 0 {
            self.reset_exchanges(at, conv, |_, _| true);
        }
    }

    /// Resets the exchanges in a conversation in which a third party asks for something: neither one of the two nor a
    /// task that works below the one that asks (R5).
    pub(super) fn third_party_in_exchanges(&mut self, at: Time, conv: ConvId, sender: Option<TaskId>) {
        // The first message of a conversation finds no exchange there.
        let Some(sender) = sender.filter(|_| self.conversations.get(&conv).is_some_and(|c| c.messages > 1)) else {
            return;
        };
        if self.exchanges.count > 0 {
            self.reset_exchanges(at, conv, |state, asker| !state.is_below(sender, asker));
        }
    }

    /// Returns whether a new session of a task's agent resets an exchange: one that isn't held, and at most
    /// [`SESSIONS_MAX`] times a task (R5). Only a human lifts a hold.
    pub(crate) fn a_session_counts(&self, task: TaskId) -> bool {
        let sessions = self.tasks.get(&task).and_then(|task| task.rare.as_deref()).map_or(0, |rare| rare.sessions);
        sessions < SESSIONS_MAX && self.resets_by_session(task).next().is_some()
    }

    /// Returns the exchanges in which a task's agent speaks and that aren't held: with those it asks, and with its asker.
    fn resets_by_session(&self, task: TaskId) -> impl Iterator<Item = (TaskId, AgentId)> {
        let asks = self.exchanges.of.get(&task).into_iter().flatten().map(move |one| (task, one));
        let known = self.tasks.get(&task);
        let asked = known.and_then(|known| match known.asker {
            Asker::Task { task: asker, .. } => Some((asker, self.exchanges.find(asker, known.agent)?)),
            Asker::Human(_) | Asker::Nobody => None,
        });
        let held = |one: &WithDelegate| match &one.said {
            Said::First(_) => false,
            Said::More(exchange) => exchange.hold.is_some_and(|hold| hold.enforced),
        };
        asks.chain(asked).filter(move |(_, one)| !held(one)).map(|(task, one)| (task, one.agent))
    }

    /// Resets what the agent of a task said before its new session.
    pub(super) fn session_began(&mut self, at: Time, task: TaskId) {
        let found: ThinVec<(TaskId, AgentId)> = self.resets_by_session(task).collect();
        for (task, agent) in found {
            self.reset_exchange(at, task, agent);
        }
        if let Some(task) = self.tasks.get_mut(&task) {
            task.rare.get_or_insert_default().sessions += 1;
        }
    }

    /// Whether a task is another one, or works for it.
    fn is_below(&self, task: TaskId, above: TaskId) -> bool {
        let mut next = Some(task);
        while let Some(id) = next {
            if id == above {
                return true;
            }
            next = match self.tasks.get(&id).map(|task| task.asker) {
                Some(Asker::Task { task, .. }) => Some(task),
                Some(Asker::Human(_) | Asker::Nobody) | None => None,
            };
        }
        false
    }

    fn reset_exchanges(&mut self, at: Time, conv: ConvId, which: impl Fn(&Self, TaskId) -> bool) {
        let mut found: ThinVec<(TaskId, AgentId)> = ThinVec::new();
        let Some(known) = self.conversations.get(&conv) else { return };
        let mut grants: Few<GrantId, 4> = self.at_work_in(known).collect();
        grants.sort_unstable();
        grants.dedup();
        for grant in grants {
            for asker in self.open_tasks_of(grant) {
                let asked = self.tasks[&asker].delegates.iter().filter(|delegate| delegate.conv == conv);
                let known = asked.map(|delegate| (asker, delegate.agent));
                found.extend(
                    known.filter(|(task, agent)| self.exchanges.find(*task, *agent).is_some() && which(self, *task)),
                );
            }
        }
        for (task, agent) in found {
            self.reset_exchange(at, task, agent);
        }
    }
}
