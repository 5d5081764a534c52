//! The work on each request of a history: how it ended, how long it took and what it spent.

use std::collections::BTreeMap;

use lastword_proto::fact::{Fact, Part};
use lastword_proto::ids::{TaskId, TurnId};
use lastword_proto::{AnswerStatus, Time};

use crate::calls::history::HistoryEntry;

/// The work on one request.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    asked: Option<Time>,
    answered: Option<Time>,
    /// The status of its answer; `None` while it is open.
    pub(super) status: Option<AnswerStatus>,
    /// The tokens spent in its turns.
    pub(super) tokens: u64,
    /// Whether the tokens are estimated from the length of the text, at least in part.
    pub(super) estimated: bool,
    /// The number of deliveries.
    pub(super) attempts: u32,
}

impl Work {
    /// Returns the time from the request to its answer, in ms.
    pub(super) fn took_ms(&self) -> Option<u64> {
        Some(self.answered?.since(self.asked?))
    }
}

/// Returns the work of each request, by the position of its message.
pub(super) fn of(lines: &[HistoryEntry]) -> BTreeMap<u64, Work> {
    let mut tasks: BTreeMap<TaskId, (u64, Work)> = BTreeMap::new();
    let mut turns: BTreeMap<TurnId, TaskId> = BTreeMap::new();
    for line in lines {
        let (at, fact) = (line.entry.at, &line.entry.fact);
        if let Fact::Accepted { message } = fact {
            match &message.part {
                Part::Request(terms) => {
                    let work = Work { asked: Some(at), ..Work::default() };
                    tasks.insert(terms.task, (line.event.seq, work));
                }
                Part::Answer(answer) => {
                    if let Some((_, work)) = tasks.get_mut(&answer.task) {
                        work.answered = Some(at);
                        work.status = Some(answer.status);
                    }
                }
                Part::Plain | Part::Echo | Part::Reply { .. } | Part::Status { .. } => {}
            }
        } else if let Fact::TurnOpened { turn, task, attempt, .. } = fact {
            turns.insert(*turn, *task);
            if let Some((_, work)) = tasks.get_mut(task) {
                work.attempts = work.attempts.max(*attempt);
            }
        } else if let Some((turn, tokens, estimated)) = charged(fact)
            && let Some((_, work)) = turns.get(&turn).and_then(|task| tasks.get_mut(task))
        {
            work.tokens += tokens;
            work.estimated |= estimated;
        }
    }
    tasks.into_values().collect()
}

/// Returns the tokens of a turn that ended, and whether they are estimated.
#[expect(clippy::wildcard_enum_match_arm, reason = "only these facts end a turn")]
const fn charged(fact: &Fact) -> Option<(TurnId, u64, bool)> {
    match fact {
        Fact::TurnClosed { turn, spend, .. } => Some((*turn, spend.tokens, true)),
        Fact::TurnFinished { turn, spend, .. } => Some((*turn, spend.tokens, false)),
        Fact::TurnCharged { turn, spend, estimated, .. } => Some((*turn, spend.tokens, *estimated)),
        _ => None,
    }
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
