//! Exchanges: what an asking task and one delegate say to each other, and whether they make progress (R5).

use alloc::collections::VecDeque;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use super::small::append;
use super::{Asker, EscalationState, Few, State, Table};
use crate::fact::{Level, Message, Part, Recipient, SYSTEM};
use crate::ids::{AgentId, ConvId, EscalationId, GrantId, Seq, TaskId, Time};
use crate::progress::{Curve, Progress, Reading, Stall, Verdict};

/// The requests of one task to one delegate, and the answers to them (R5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exchange {
    agent: AgentId,
    /// The position of its last message.
    last: Seq,
    /// Whether its last message is a request.
    asks: bool,
    due: Due,
    hold: Option<Hold>,
    /// A warning that no reply to a send has carried yet.
    unsaid: bool,
    /// The broker's own question to a human whether it may go on.
    pub(crate) escalation: Option<EscalationId>,
    progress: Progress,
}

/// What is due after the last message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Due {
    Nothing,
    Warning,
    Hold(Stall),
}

/// An exchange that makes no progress: its further requests are refused, or would be (R5, G7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// Why it is held.
    pub stall: Stall,
    /// Whether its requests are refused; `false` if the guard only observed when it was held.
    pub enforced: bool,
}

impl Exchange {
    fn new(agent: AgentId) -> Self {
        Self {
            agent,
            last: Seq(0),
            asks: true,
            due: Due::Nothing,
            hold: None,
            unsaid: false,
            escalation: None,
            progress: Progress::default(),
        }
    }

    /// Folds a message at `seq`, said by the asker or by the delegate.
    fn say(&mut self, seq: Seq, asks: bool, reading: &Reading) {
        // Between two, each message goes to the other one.
        let (from, to) = if asks { (0, 1) } else { (1, 0) };
        self.due = match self.progress.message(from, Some(to), reading) {
            Verdict::Going => Due::Nothing,
            Verdict::Warn => Due::Warning,
            Verdict::Hold(stall) => Due::Hold(stall),
        };
        (self.last, self.asks) = (seq, asks);
    }

    /// Returns its numbers after the last message.
    #[must_use]
    pub const fn curve(&self) -> Curve {
        self.progress.curve()
    }

    /// Returns why it is held, or would be; `None` if it makes progress.
    #[must_use]
    pub const fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// Returns what to record after the last message.
    pub(crate) fn due(&self, enforcing: bool) -> Option<(Level, Stall)> {
        match (self.due, self.hold) {
            (Due::Warning, None) => Some((Level::Warned, Stall::Dry)),
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
    of: Table<TaskId, OfTask>,
    count: usize,
    bytes: u64,
    /// The exchanges in the order of their messages. An entry counts only if no later one is about its exchange.
    recent: VecDeque<(Seq, TaskId, AgentId)>,
    /// The last request whose reply carries a warning.
    warned: Option<(Seq, TaskId, AgentId)>,
}

/// The exchanges of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum OfTask {
    /// One request to one delegate, and nothing since. Many tasks have no more, and nothing can be due yet, so the text's
    /// reading is kept as it came.
    One { agent: AgentId, seq: Seq, first: Reading },
    /// An exchange for each delegate.
    Many(ThinVec<Exchange>),
}

impl OfTask {
    /// Returns the delegates, with the position of the last message and the counted bytes of each.
    fn parts(&self) -> Few<(AgentId, Seq, u64), 4> {
        match self {
            Self::One { agent, seq, first } => Few::from_slice(&[(*agent, *seq, Progress::bytes_of(first))]),
            Self::Many(all) => all.iter().map(|one| (one.agent, one.last, one.progress.bytes())).collect(),
        }
    }

    fn find(&self, agent: AgentId) -> Option<(Seq, u64)> {
        self.parts().into_iter().find(|(known, ..)| *known == agent).map(|(_, seq, bytes)| (seq, bytes))
    }

    /// Returns the exchange with a delegate for its next message.
    fn exchange(&mut self, agent: AgentId) -> &mut Exchange {
        if let Self::One { agent, seq, first } = self {
            let mut exchange = Exchange::new(*agent);
            exchange.say(*seq, true, first);
            let mut all = ThinVec::new();
            append(&mut all, exchange);
            *self = Self::Many(all);
        }
        let Self::Many(all) = self else { unreachable!("one exchange was made a list above") };
        let place = all.iter().position(|exchange| exchange.agent == agent).unwrap_or_else(|| {
            append(all, Exchange::new(agent));
            all.len() - 1
        });
        &mut all[place]
    }
}

/// The entries of `recent` beyond two for each exchange after which those that no longer count are removed.
const STALE_MAX: usize = 64;

impl Exchanges {
    fn get(&self, task: TaskId, agent: AgentId) -> Option<&Exchange> {
        match self.of.get(&task)? {
            OfTask::One { .. } => None,
            OfTask::Many(all) => all.iter().find(|exchange| exchange.agent == agent),
        }
    }

    fn get_mut(&mut self, task: TaskId, agent: AgentId) -> Option<&mut Exchange> {
        match self.of.get_mut(&task)? {
            OfTask::One { .. } => None,
            OfTask::Many(all) => all.iter_mut().find(|exchange| exchange.agent == agent),
        }
    }

    fn contains(&self, task: TaskId, agent: AgentId) -> bool {
        self.of.get(&task).is_some_and(|of| of.find(agent).is_some())
    }

    /// Folds a message at `seq`, said by the asker or by the delegate.
    fn say(&mut self, seq: Seq, task: TaskId, agent: AgentId, asks: bool, reading: Reading) {
        self.recent.push_back((seq, task, agent));
        let Some(of) = self.of.get_mut(&task) else {
            self.bytes += Progress::bytes_of(&reading);
            self.count += 1;
            let of = if asks {
                OfTask::One { agent, seq, first: reading }
            } else {
                // Only an exchange that was reset begins with an answer.
                let mut exchange = Exchange::new(agent);
                exchange.say(seq, false, &reading);
                let mut all = ThinVec::new();
                append(&mut all, exchange);
                OfTask::Many(all)
            };
            self.of.insert(task, of);
            return;
        };
        let before = of.find(agent).map(|(_, bytes)| bytes);
        let exchange = of.exchange(agent);
        exchange.say(seq, asks, &reading);
        if asks && core::mem::take(&mut exchange.unsaid) {
            self.warned = Some((seq, task, agent));
        }
        self.bytes = self.bytes + exchange.progress.bytes() - before.unwrap_or(0);
        self.count += usize::from(before.is_none());
        self.forget_stale();
    }

    fn forget_stale(&mut self) {
        if self.recent.len() > 2 * self.count + STALE_MAX {
            let of = &self.of;
            self.recent.retain(|(seq, task, agent)| {
                of.get(task).and_then(|of| of.find(*agent)).is_some_and(|(last, _)| last == *seq)
            });
        }
    }

    /// Returns the exchange whose last message is the oldest.
    fn oldest(&mut self) -> Option<(TaskId, AgentId)> {
        while let Some((seq, task, agent)) = self.recent.pop_front() {
            let last = self.of.get(&task).and_then(|of| of.find(agent)).map(|(seq, _)| seq);
            if last == Some(seq) {
                return Some((task, agent));
            }
        }
        None
    }

    /// Removes an exchange. Returns the broker's question about it.
    fn remove(&mut self, task: TaskId, agent: AgentId) -> Option<EscalationId> {
        let of = self.of.get_mut(&task)?;
        let (_, bytes) = of.find(agent)?;
        self.bytes -= bytes;
        self.count -= 1;
        let mut escalation = None;
        let empty = match of {
            OfTask::One { .. } => true,
            OfTask::Many(all) => {
                let place = all.iter().position(|exchange| exchange.agent == agent)?;
                escalation = all.remove(place).escalation;
                all.is_empty()
            }
        };
        if empty {
            self.of.remove(&task);
        }
        escalation
    }

    /// Removes all exchanges of a task. Returns the broker's questions about them.
    fn close(&mut self, task: TaskId) -> ThinVec<EscalationId> {
        let Some(of) = self.of.remove(&task) else { return ThinVec::new() };
        let parts = of.parts();
        self.count -= parts.len();
        self.bytes -= parts.iter().map(|(.., bytes)| bytes).sum::<u64>();
        self.forget_stale();
        match of {
            OfTask::One { .. } => ThinVec::new(),
            OfTask::Many(all) => all.iter().filter_map(|exchange| exchange.escalation).collect(),
        }
    }
}

impl State {
    /// Returns what a task and one of its delegates say to each other; `None` before their second message, and before
    /// the first one after a reset (R5).
    #[must_use]
    pub fn exchange(&self, task: TaskId, agent: AgentId) -> Option<&Exchange> {
        self.exchanges.get(task, agent)
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
    pub(crate) fn exchange_of(&self, message: &Message) -> Option<(TaskId, AgentId, bool)> {
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

    /// Folds a message into its exchange. `reading` is what its text amounts to, if that is known already.
    pub(super) fn said_in_exchange(&mut self, at: Time, message: &Message, reading: Option<Reading>) {
        let Some((task, agent, asks)) = self.exchange_of(message) else { return };
        let read = || Reading::of(&message.body, message.payload.as_deref());
        debug_assert!(reading.as_ref().is_none_or(|reading| *reading == read()), "the reading of this very text");
        self.exchanges.say(self.seq, task, agent, asks, reading.unwrap_or_else(read));
        while self.exchanges.bytes > self.limits.no_progress_bytes_max {
            let Some((task, agent)) = self.exchanges.oldest() else { return };
            self.reset_exchange(at, task, agent);
        }
    }

    pub(super) fn stalled(
        &mut self,
        (task, agent): (TaskId, AgentId),
        (level, stall, enforced): (Level, Stall, bool),
        escalation: Option<EscalationId>,
    ) {
        let Some(exchange) = self.exchanges.get_mut(task, agent) else { return };
        match level {
            Level::Warned => {}
            Level::Held => exchange.hold = Some(Hold { stall, enforced }),
        }
        exchange.due = Due::Nothing;
        exchange.escalation = escalation;
        // The reply to a finish goes to the delegate, so the warning waits for the next request.
        exchange.unsaid = enforced && !exchange.asks;
        if enforced && exchange.asks {
            self.exchanges.warned = Some((exchange.last, task, agent));
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
                found
                    .extend(known.filter(|(task, agent)| self.exchanges.contains(*task, *agent) && which(self, *task)));
            }
        }
        for (task, agent) in found {
            self.reset_exchange(at, task, agent);
        }
    }
}
