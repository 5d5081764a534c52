//! Escalations, with their texts from the log.

use lastword_core::State;
use lastword_core::state::Lifts;
use lastword_facts::fact::EscalationOpened;
use lastword_facts::ids::EscalationId;
use lastword_facts::{Entry, Fact};
use lastword_wire::{EscalationView, LiftView, grant_body, rfc3339};

use super::requests::request_of;
use super::words;

/// Returns an escalation with its question and answer from the log; `None` if the id is unknown or forgotten.
pub(crate) fn escalation(
    state: &State,
    id: EscalationId,
    asked: Option<&Entry>,
    answer: Option<&Entry>,
) -> Option<EscalationView> {
    let known = state.escalations.get(&id)?;
    let (message, options) = match asked.map(|entry| &entry.fact) {
        Some(Fact::EscalationOpened(EscalationOpened { body, options, .. })) => (body.to_string(), options.clone()),
        Some(_) | None => (String::new(), Vec::new()),
    };
    let answered_at = answer.map(|entry| rfc3339(entry.at));
    let answer = answer.and_then(|entry| {
        if let Fact::EscalationNoted { body, .. } = &entry.fact {
            Some(body.to_string())
        } else if let Fact::Accepted { message } = &entry.fact {
            Some(message.body.to_string())
        } else {
            None
        }
    });
    let message = words::question(state, known.task, known.cause, &message, None);
    Some(EscalationView {
        id: id.to_string(),
        seq: known.asked.0,
        state: known.state,
        cause: known.cause,
        agent: state.name_of(known.agent).to_owned(),
        reference: state.ref_of(known.conv).map_or_else(String::new, ToString::to_string),
        request_id: request_of(state, known.task),
        message,
        options: options.iter().map(ToString::to_string).collect(),
        limit: known.lifts.as_ref().map(|lifts| words::met(lifts)),
        lifts: known.lifts.as_ref().map_or_else(Vec::new, |lifts| lift_views(state, lifts)),
        created_at: rfc3339(known.at),
        answered_by: known.by.map(|by| state.name_of(by).to_owned()),
        answer,
        answered_at,
        warning: None,
    })
}

fn lift_views(state: &State, lifts: &Lifts) -> Vec<LiftView> {
    let view = |(place, lift): (usize, &lastword_facts::fact::Lift)| LiftView {
        id: format!("lift-{}", place + 1),
        text: words::lift(state, *lift),
        grant: grant_body(*lift),
        chosen: lifts.chosen.is_some_and(|chosen| usize::try_from(chosen) == Ok(place + 1)),
    };
    lifts.lifts.iter().enumerate().map(view).collect()
}
