//! The state of a task as a fold of the log: the same facts give every stream the same events in the same order.

use std::collections::BTreeMap;

use lastword_facts::fact::{
    ApprovalAsked, ApprovalDecided, EscalationCause, EscalationOpened, Part, Requeued, Rerun, SYSTEM, TurnOpened,
};
use lastword_facts::ids::{ApprovalId, EscalationId, TaskId};
use lastword_facts::{Entry, Fact, Seq, Time};

use crate::model::TaskState;

/// What a task waits for, as far as its caller is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    /// The task at the broker.
    pub(crate) task: TaskId,
    /// Whether its caller answers the agent's questions.
    pub(crate) seated: bool,
    /// Whether the agent has taken it.
    pub(crate) taken: bool,
    /// The held calls, each with its tool.
    pub(crate) held: BTreeMap<ApprovalId, Box<str>>,
    /// The open questions, each with its text.
    pub(crate) asked: BTreeMap<EscalationId, Box<str>>,
    /// The position of the answer.
    pub(crate) settled: Option<Seq>,
}

/// What is said of a state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StatusText {
    /// What it is about, which makes the id of the message: the same in every stream and at every look.
    pub(crate) about: String,
    pub(crate) text: String,
}

/// What a fact changed for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The state, or what is said of it.
    Status { at: Time, state: TaskState, said: Option<StatusText> },
    /// The answer is there.
    Settled,
}

impl Fold {
    /// Returns a task that was just sent.
    pub(crate) const fn new(task: TaskId, seated: bool) -> Self {
        Self { task, seated, taken: false, held: BTreeMap::new(), asked: BTreeMap::new(), settled: None }
    }

    /// Returns the state of a task without an answer, and what is said of it.
    pub(crate) fn standing(&self) -> (TaskState, Option<StatusText>) {
        if let Some((approval, tool)) = self.held.first_key_value() {
            let text = format!("A call of `{tool}` waits for the decision of a person: {approval}.");
            return (TaskState::AuthRequired, Some(StatusText { about: approval.to_string(), text }));
        }
        match self.asked.first_key_value() {
            Some((escalation, question)) => {
                let (state, text) = if self.seated {
                    (TaskState::InputRequired, question.to_string())
                } else {
                    (TaskState::Working, format!("A question of the agent waits for a person: {escalation}."))
                };
                (state, Some(StatusText { about: escalation.to_string(), text }))
            }
            None if self.taken => (TaskState::Working, None),
            None => (TaskState::Submitted, None),
        }
    }

    /// Folds one fact.
    pub(crate) fn hear(&mut self, seq: Seq, entry: &Entry) -> Option<Change> {
        let before = self.standing();
        if let Fact::Accepted { message } = &entry.fact {
            match &message.part {
                Part::Answer(answer) if answer.task == self.task => {
                    self.settled = Some(seq);
                    return Some(Change::Settled);
                }
                Part::Status { task, .. } if *task == self.task => {
                    self.taken = true;
                    if !message.body.is_empty() {
                        let (state, _) = self.standing();
                        let said = StatusText { about: seq.to_string(), text: message.body.to_string() };
                        return Some(Change::Status { at: entry.at, state, said: Some(said) });
                    }
                }
                Part::Reply { task, escalation: Some(escalation) } if *task == self.task => {
                    self.asked.remove(escalation);
                }
                Part::Answer(_)
                | Part::Status { .. }
                | Part::Reply { .. }
                | Part::Plain
                | Part::Request(_)
                | Part::Echo => {}
            }
        } else {
            self.note(&entry.fact);
        }
        let (state, said) = self.standing();
        (before != (state, said.clone())).then_some(Change::Status { at: entry.at, state, said })
    }

    fn note(&mut self, fact: &Fact) {
        if let Fact::TurnOpened(TurnOpened { task, .. }) = fact {
            self.taken |= *task == self.task;
        } else if let Fact::Requeued(Requeued { task, why: Rerun::Rejected | Rerun::Partial, .. }) = fact {
            // Its earlier run's calls and questions are withdrawn.
            if *task == self.task {
                self.held.clear();
                self.asked.clear();
            }
        } else if let Fact::ApprovalAsked(ApprovalAsked { approval, task: Some(task), tool, .. }) = fact {
            if *task == self.task {
                self.held.insert(*approval, tool.clone());
            }
        } else if let Fact::ApprovalDecided(ApprovalDecided { approval, .. }) = fact {
            self.held.remove(approval);
        } else if let Fact::EscalationOpened(EscalationOpened { escalation, task: Some(task), cause, body, .. }) = fact
        {
            if *task == self.task && *cause == EscalationCause::Asked {
                self.asked.insert(*escalation, body.clone());
            }
        } else if let Fact::EscalationNoted { escalation, .. }
        | Fact::EscalationAnswered { escalation, .. }
        | Fact::EscalationExpired { escalation }
        | Fact::LiftChosen { escalation, .. } = fact
        {
            self.asked.remove(escalation);
        }
    }
}

/// Returns whether a fact holds a call of this task.
pub(crate) fn holds(fact: &Fact, of: TaskId) -> bool {
    matches!(fact, Fact::ApprovalAsked(ApprovalAsked { task: Some(task), .. }) if *task == of)
}

/// What follows a held call in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The rule of the policy that applies to it.
    Ruled,
    /// The policy's decision: nobody waits for it.
    Decided,
    /// Something else.
    Other,
}

/// Returns what `next` says of the call that `held` holds, which the policy may decide in the same step.
pub(crate) fn after(held: &Fact, next: &Fact) -> Next {
    let Fact::ApprovalAsked(ApprovalAsked { approval: of, .. }) = held else { return Next::Other };
    if matches!(next, Fact::ApprovalRuled { approval, .. } if approval == of) {
        Next::Ruled
    } else if matches!(next, Fact::ApprovalDecided(ApprovalDecided { approval, by: Some(SYSTEM), .. }) if approval == of)
    {
        Next::Decided
    } else {
        Next::Other
    }
}
