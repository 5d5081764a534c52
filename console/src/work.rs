//! The work on each request of a history: how it ended, how long it took, what it spent, and what it waited for.

use std::collections::BTreeMap;

use lastword_facts::fact::{
    Answer, ApprovalAsked, ApprovalDecided, Decision, EndReason, EscalationCause, EscalationOpened, Fact, Part,
    Refused, Requeued, Rerun, RootStarted, Spend, TurnCharged, TurnClosed, TurnFinished, TurnOpened, WriteRefused,
};
use lastword_facts::ids::{ApprovalId, EscalationId, TaskId, TurnId};
use lastword_facts::{Message, Seq, Time};
use lastword_wire::Outcome;

use crate::reads::history::{History, HistoryEntry};

/// A stretch of time; it has no end while it lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    /// Its begin.
    pub(super) from: Time,
    /// Its end.
    pub(super) to: Option<Time>,
}

/// A turn on a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkTurn {
    /// When it ran.
    pub(super) span: Span,
    /// The position of the message that opened it.
    message: Seq,
    /// The place of its begin among the lines.
    pub(super) line: usize,
    tokens: u64,
    cost_microusd: u64,
    estimated: bool,
}

#[cfg(test)]
impl WorkTurn {
    /// Returns a turn that spent nothing.
    pub(super) const fn at(span: Span) -> Self {
        Self { span, message: Seq(0), line: 0, tokens: 0, cost_microusd: 0, estimated: false }
    }
}

/// Something that happened on the way to the answer.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    /// Its place among the lines.
    pub(super) line: usize,
    /// The position of the message that opened the turn in which it happened.
    pub(super) cause: Option<Seq>,
    /// What happened.
    pub(super) what: Happened,
}

/// What happened on the way to the answer.
#[derive(Clone, Debug)]
pub(super) enum Happened {
    /// A message or another write was refused.
    Refused,
    /// A held call: its id, the tool, and the decision once there is one.
    Call(ApprovalId, Box<str>, Option<&'static str>),
    /// A question to a human: its id, its text unless it is about a time-out, and how it ended once it has.
    Question(EscalationId, Option<Box<str>>, Option<&'static str>),
}

/// The work on one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// The position of the request; `None` for an agent's own root.
    pub(super) message: Option<u64>,
    /// The message that caused it.
    pub(super) cause: Option<Seq>,
    /// The task in which it was sent.
    pub(super) parent: Option<TaskId>,
    /// The time at which it was sent.
    pub(super) asked: Time,
    /// The time of its answer; `None` while it is open.
    pub(super) answered: Option<Time>,
    /// How it ended; `None` while it is open.
    pub(super) outcome: Option<Outcome>,
    /// Its turns, oldest first.
    pub(super) turns: Vec<WorkTurn>,
    /// The times in which it waited for a human.
    pub(super) waits: Vec<Span>,
    /// The number of deliveries.
    pub(super) attempts: u32,
    /// What happened on the way, oldest first.
    pub(super) marks: Vec<Mark>,
}

impl Work {
    /// Returns the time from the request to its answer, in ms.
    pub(super) fn took_ms(&self) -> Option<u64> {
        Some(self.answered?.since(self.asked))
    }

    fn mark(&mut self, line: usize, what: Happened) {
        let cause = self.turns.last().map(|turn| turn.message);
        self.marks.push(Mark { line, cause, what });
    }

    /// Returns the tokens spent in its turns.
    pub(super) fn tokens(&self) -> u64 {
        self.turns.iter().fold(0, |sum, turn| sum.saturating_add(turn.tokens))
    }

    /// Returns the cost of its turns, in millionths of a dollar.
    pub(super) fn cost_microusd(&self) -> u64 {
        self.turns.iter().fold(0, |sum, turn| sum.saturating_add(turn.cost_microusd))
    }

    /// Returns whether the tokens are estimated from the length of the text, at least in part.
    pub(super) fn is_estimated(&self) -> bool {
        self.turns.iter().any(|turn| turn.estimated)
    }
}

/// The work of a history.
#[derive(Default)]
pub(super) struct Works {
    /// The work, by its task, in the order of the requests.
    pub(super) tasks: BTreeMap<TaskId, Work>,
    /// The refused messages that belong to none of the tasks, by their place among the lines.
    pub(super) outside: Vec<usize>,
    messages: BTreeMap<u64, TaskId>,
    turns: BTreeMap<TurnId, (TaskId, usize)>,
    calls: BTreeMap<ApprovalId, WaitPlace>,
    decided: BTreeMap<ApprovalId, WaitPlace>,
    questions: BTreeMap<EscalationId, WaitPlace>,
}

/// Where the work on a task notes a wait for a human, and the mark of what it waits for.
#[derive(Clone, Copy)]
struct WaitPlace {
    task: TaskId,
    wait: usize,
    mark: usize,
}

impl Works {
    /// Returns the work on the requests of a page. What follows the page is read only for how they went on.
    pub(super) fn of(history: &History) -> Self {
        let mut works = Self::default();
        for (index, line) in history.lines.iter().enumerate() {
            works.add(index, line, index < history.shown);
        }
        works
    }

    /// Returns the work on one request.
    #[cfg(test)]
    pub(super) fn with(work: Work) -> Self {
        Self { tasks: [(TaskId(1), work)].into(), ..Self::default() }
    }

    /// Returns the work on the request at a position.
    pub(super) fn on(&self, message: u64) -> Option<&Work> {
        self.tasks.get(self.messages.get(&message)?)
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "only these facts concern the course of a request")]
    fn add(&mut self, index: usize, line: &HistoryEntry, on_page: bool) {
        let at = line.entry.at;
        match &line.entry.fact {
            Fact::Accepted { message } => self.message(at, line.event.seq, message, on_page),
            Fact::RootStarted(RootStarted { task, .. }) if on_page => {
                self.tasks.insert(*task, Work { asked: at, ..Work::default() });
            }
            Fact::RootEnded { task, status } => self.end(*task, at, Outcome::of(*status, false)),
            Fact::Requeued(Requeued { task, why: Rerun::Rejected | Rerun::Partial, .. }) => self.withdraw(*task, at),
            Fact::TurnOpened(TurnOpened { turn, task, attempt, message, .. }) => {
                let span = Span { from: at, to: None };
                let begun =
                    WorkTurn { span, message: *message, line: index, tokens: 0, cost_microusd: 0, estimated: false };
                self.turn(*turn, *task, *attempt, begun);
            }
            Fact::TurnClosed(TurnClosed { turn, spend, .. }) => self.charge(*turn, *spend, true, Some(at)),
            Fact::TurnFinished(TurnFinished { turn, spend, .. }) => {
                self.charge(*turn, *spend, false, Some(at));
            }
            Fact::TurnCharged(TurnCharged { turn, spend, estimated, .. }) => {
                self.charge(*turn, *spend, *estimated, Some(at));
            }
            Fact::Spent { turn, spend } => self.charge(*turn, *spend, false, None),
            Fact::Refused(Refused { turn, .. }) | Fact::WriteRefused(WriteRefused { turn, .. }) => {
                let task = turn.and_then(|turn| self.turns.get(&turn)).map(|(task, _)| *task);
                match task.and_then(|task| self.tasks.get_mut(&task)) {
                    Some(work) => work.mark(index, Happened::Refused),
                    None if on_page => self.outside.push(index),
                    None => {}
                }
            }
            Fact::ApprovalAsked(ApprovalAsked { approval, task: Some(task), tool, .. }) => {
                let place = self.wait(*task, at, index, Happened::Call(*approval, tool.clone(), None));
                self.calls.extend(place.map(|place| (*approval, place)));
            }
            Fact::ApprovalDecided(ApprovalDecided { approval, decision, by, .. }) => {
                let word = if by.is_some() { decided(*decision) } else { "expired" };
                if let Some(place) = self.calls.remove(approval) {
                    self.settle(place, at, word);
                    self.decided.insert(*approval, place);
                }
            }
            Fact::ApprovalUsed { approval } => {
                if let Some(place) = self.decided.remove(approval) {
                    self.settle(place, at, MADE);
                }
            }
            Fact::EscalationOpened(EscalationOpened { escalation, task: Some(task), cause, body, .. }) => {
                let body = (*cause != EscalationCause::TimedOut).then(|| body.clone());
                let place = self.wait(*task, at, index, Happened::Question(*escalation, body, None));
                self.questions.extend(place.map(|place| (*escalation, place)));
            }
            Fact::EscalationNoted { escalation, .. } | Fact::EscalationAnswered { escalation, .. } => {
                self.answered(*escalation, at, "answered");
            }
            // The task goes on, whether or not the question is answered.
            Fact::LiftChosen { escalation, .. } => self.answered(*escalation, at, "lifted"),
            Fact::EscalationExpired { escalation } => self.answered(*escalation, at, "expired"),
            _ => {}
        }
    }

    fn message(&mut self, at: Time, seq: u64, message: &Message, on_page: bool) {
        match &message.part {
            Part::Request(_) if !on_page => {}
            Part::Request(terms) => {
                let cause = message.cause;
                let work =
                    Work { message: Some(seq), cause, parent: message.sender_task, asked: at, ..Work::default() };
                self.messages.insert(seq, terms.task);
                self.tasks.insert(terms.task, work);
            }
            Part::Answer(answer) => self.end(answer.task, at, outcome(answer)),
            Part::Reply { escalation: Some(escalation), .. } => self.answered(*escalation, at, "answered"),
            Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => {}
        }
    }

    fn end(&mut self, task: TaskId, at: Time, outcome: Outcome) {
        if let Some(work) = self.tasks.get_mut(&task) {
            (work.answered, work.outcome) = (Some(at), Some(outcome));
            for wait in work.waits.iter_mut().filter(|wait| wait.to.is_none()) {
                wait.to = Some(at);
            }
        }
        self.withdraw(task, at);
    }

    /// Ends what a task still asked humans, as the broker does when the task ends or starts again.
    fn withdraw(&mut self, task: TaskId, at: Time) {
        let calls = self.calls.extract_if(.., |_, place| place.task == task).map(|(_, place)| place);
        let questions = self.questions.extract_if(.., |_, place| place.task == task).map(|(_, place)| place);
        for place in calls.chain(questions).collect::<Vec<_>>() {
            self.settle(place, at, "withdrawn");
        }
    }

    fn turn(&mut self, turn: TurnId, task: TaskId, attempt: u32, begun: WorkTurn) {
        if let Some(work) = self.tasks.get_mut(&task) {
            work.attempts = work.attempts.max(attempt);
            self.turns.insert(turn, (task, work.turns.len()));
            work.turns.push(begun);
        }
    }

    /// Notes what a turn spent; each report replaces the one before.
    fn charge(&mut self, turn: TurnId, spend: Spend, estimated: bool, end: Option<Time>) {
        let known = self.turns.get(&turn).and_then(|(task, at)| self.tasks.get_mut(task)?.turns.get_mut(*at));
        if let Some(turn) = known {
            let Spend { tokens, cost_microusd } = spend;
            *turn = WorkTurn { span: Span { to: end, ..turn.span }, tokens, cost_microusd, estimated, ..*turn };
        }
    }

    /// Notes that a task waits for a human from now on, and returns the places of the wait and of the mark; `None` if its
    /// request is on another page.
    fn wait(&mut self, task: TaskId, at: Time, line: usize, what: Happened) -> Option<WaitPlace> {
        let work = self.tasks.get_mut(&task)?;
        // A request that timed out is over; nobody waits for the answer to the question about it.
        let ended = work.answered;
        work.waits.push(Span { from: at, to: ended });
        work.mark(line, what);
        Some(WaitPlace { task, wait: work.waits.len() - 1, mark: work.marks.len() - 1 })
    }

    fn answered(&mut self, escalation: EscalationId, at: Time, word: &'static str) {
        if let Some(place) = self.questions.remove(&escalation) {
            self.settle(place, at, word);
        }
    }

    fn settle(&mut self, WaitPlace { task, wait, mark }: WaitPlace, at: Time, word: &'static str) {
        let Some(work) = self.tasks.get_mut(&task) else { return };
        if let Some(wait) = work.waits.get_mut(wait) {
            wait.to = wait.to.or(Some(at));
        }
        match work.marks.get_mut(mark).map(|mark| &mut mark.what) {
            Some(Happened::Call(_, _, settled) | Happened::Question(_, _, settled)) => *settled = Some(word),
            Some(Happened::Refused) | None => {}
        }
    }
}

/// The words for an approved call that its agent made.
const MADE: &str = "approved and made";

/// Returns the word for a call that was decided so, as its own page has it.
pub(super) const fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::Approve | Decision::Edit => "approved",
        Decision::Reject | Decision::Respond => "rejected",
        Decision::Ignore => "ignored",
        Decision::Expire => "expired",
    }
}

const fn outcome(answer: &Answer) -> Outcome {
    Outcome::of(answer.status, matches!(answer.cause, EndReason::Stopped))
}

/// Formats a duration for humans.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}
