//! The sentences of the broker itself, which models and humans read. The core has only codes and numbers.

use lastword_core::State;
use lastword_core::state::{Lifts, Phase};
use lastword_facts::fact::{EndReason, EscalationCause, Lift, Met};
use lastword_facts::ids::{AgentId, TaskId};
use lastword_facts::{AnswerStatus, Code};
use lastword_wire::{amount, money, told};
use serde_json::Value;

/// Parses a JSON text that an edge has already checked.
pub(crate) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.into()))
}

/// Returns the sentence about the limit that caused a question (H6).
pub(crate) fn met(offered: &Lifts) -> String {
    let Met { code, limit, current, extended, conv, .. } = &offered.met;
    let is_cost = offered.lifts.iter().any(|lift| matches!(lift, Lift::CostMicroUsd(_)));
    let [limit, current] = [limit, current].map(|n| amount(is_cost, *n));
    if conv.is_none() && matches!(code, Code::TurnsSoft | Code::TurnsHard) {
        return format!("Too many agent messages in a room without a human message: limit {limit}, {current} so far.");
    }
    let numbers = if offered.met.current > offered.met.limit {
        format!("The limit is {limit}, and this would make it {current}.")
    } else {
        format!("The limit of {limit} is reached.")
    };
    let times = match extended {
        0 => String::new(),
        1 => " A human has extended it once.".to_owned(),
        times => format!(" Humans have extended it {times} times."),
    };
    format!("{}. {numbers}{times}", told(*code))
}

/// Returns what a lift does, in words for the human who can choose it.
pub(crate) fn lift(state: &State, lift: Lift) -> String {
    match lift {
        Lift::CostMicroUsd(cost) => format!("{} more", money(cost)),
        Lift::Rearm => "continue; the count restarts at 0".to_owned(),
        Lift::RearmRoom(room) => {
            let name = state.rooms.get(&room).map_or_else(|| room.to_string(), |room| room.name.to_string());
            format!("continue in the room {name}; the count restarts at 0")
        }
        Lift::Rounds(_)
        | Lift::Messages(_)
        | Lift::Turns(_)
        | Lift::Requests(_)
        | Lift::Agents(_)
        | Lift::Tokens(_)
        | Lift::TimeMs(_) => lift.to_string(),
    }
}

/// Returns the text of a question: the agent's, or the broker's sentence about the request that timed out. Without a
/// reader it names the requester.
pub(crate) fn question(
    state: &State,
    task: Option<TaskId>,
    cause: EscalationCause,
    body: &str,
    reader: Option<AgentId>,
) -> String {
    let late = task.filter(|_| cause == EscalationCause::TimedOut);
    late.and_then(|task| timed_out(state, task, reader)).unwrap_or_else(|| body.to_owned())
}

/// Returns the sentence about a request that timed out for good: who didn't take whose request (Q3).
fn timed_out(state: &State, task: TaskId, reader: Option<AgentId>) -> Option<String> {
    let known = state.tasks.get(&task)?;
    let Phase::Closed(_, cause) = known.phase else { return None };
    let agent = state.name_of(known.agent);
    let asker = known.asker.agent();
    let request = match asker {
        None => "its own root".to_owned(),
        asker if asker == reader => "your request".to_owned(),
        Some(asker) => format!("{}'s request", state.name_of(asker)),
    };
    let attempts = match known.attempt {
        1 => "1 delivery".to_owned(),
        n => format!("{n} deliveries"),
    };
    let taken = !known.turns.is_empty();
    Some(if cause == EndReason::NotAcknowledged && taken {
        format!("{agent} took {request}, stopped responding and didn't take it again: {attempts}.")
    } else if cause == EndReason::LeaseLost {
        format!("{agent} took {request} and stopped responding: {attempts}.")
    } else {
        format!("{agent} didn't take {request} in time: {attempts}.")
    })
}

/// Returns the sentence about an incident of an agent, which holds nothing (D7, G2, B1).
pub(crate) fn noted(
    state: &State,
    agent: AgentId,
    code: Code,
    [limit, current]: [String; 2],
    has_shell: bool,
) -> String {
    let about = state.name_of(agent);
    if code == Code::TurnClosed {
        let step = match has_shell {
            true => format!("`lastword stop --agent {about}`"),
            false => format!("*Stop* on the page of {about}"),
        };
        return format!(
            "The program of {about} worked by itself after its turn had ended, and was interrupted. Tokens until then: \
             {current}. {step} keeps it from new work."
        );
    }
    format!("{about} met a limit repeatedly: {} (limit {limit}, would be {current}). Nothing is held.", told(code))
}

/// Returns the sentence that no human has acted for a large part of the time after which agents start no work (D12).
pub(crate) fn unattended(percent: u64, has_shell: bool) -> String {
    let acts = match has_shell {
        true => "open the console, answer a question, or run `lastword resume --workspace`",
        false => "answer a question, decide a call, or ask an agent",
    };
    format!(
        "No human has acted here for {percent} % of the time after which agents start no work. Any act resets the time: \
         {acts}."
    )
}

/// Returns the body of an answer that the broker itself gives: what happened, and then what to do now (Q3, Q6).
pub(crate) const fn outcome(status: AnswerStatus, cause: EndReason) -> &'static str {
    match cause {
        EndReason::NobodyLeft => {
            "No agent that could do this is left. Do the work yourself now, and do not send this request again."
        }
        EndReason::NotAcknowledged => {
            "The agent didn't take this request, or stopped responding. A human was notified. Do the work yourself now, \
             and do not send this request again."
        }
        EndReason::LeaseLost => {
            "The agent stopped responding while it worked on this. A human was notified. Do the work yourself now, and \
             do not send this request again."
        }
        EndReason::Deadline => {
            "The deadline of this request has passed. Do the work yourself, or finish with what you have."
        }
        EndReason::GrantExpired => "The grant of this work has expired. Finish with what you have.",
        EndReason::Unanswered => {
            "No human answered the agent's question in time. Do the work yourself, or finish with what you have."
        }
        EndReason::Cancelled => "This request was cancelled. Continue without it.",
        EndReason::AskerEnded => "The task that requested this has ended. Stop working on it.",
        EndReason::Stopped => "A human stopped this. Do not retry; finish with what you have.",
        EndReason::RecipientGone => {
            "The agent was removed before it answered. Ask another agent, or do the work yourself now."
        }
        EndReason::Empty => "The agent ended without an answer. Do the work yourself, or continue without it.",
        EndReason::Answered => answered(status),
    }
}

/// Returns what happened to a request whose answer the broker itself gives, for a human, who may have stopped it.
pub(crate) fn outcome_for_human(status: AnswerStatus, cause: EndReason) -> &'static str {
    if cause == EndReason::Stopped { "This was stopped." } else { first_sentence(outcome(status, cause)) }
}

/// Returns the first sentence of a text.
pub(crate) fn first_sentence(text: &str) -> &str {
    text.find(". ").map_or(text, |end| &text[..=end])
}

const fn answered(status: AnswerStatus) -> &'static str {
    match status {
        AnswerStatus::Completed | AnswerStatus::Partial => "",
        AnswerStatus::Rejected => "The agent declined. Do the work yourself, or ask another agent.",
        AnswerStatus::Failed => "The agent tried and failed. Do the work yourself, or continue without it.",
        AnswerStatus::TimedOut => "No answer came in time. Do the work yourself now.",
        AnswerStatus::Exhausted => {
            "Every agent that could do this was tried. Do the work yourself now, and do not send this request again."
        }
        AnswerStatus::Cancelled => "This request was cancelled. Continue without it.",
    }
}
