//! The bytes that an agent's writes add to the log on one day (G2).

use lastword_facts::fact::{ApprovalAsked, ApprovalDecided, Claimed, EscalationOpened, Fact, StepKept, WorkedOutside};
use lastword_facts::ids::{AgentId, Time};

use super::State;

/// The bytes that a report of work outside a turn counts as.
const OUTSIDE_BYTES: usize = 64;

/// Bytes counted for a write besides its texts: its own fields, and the facts that follow from it.
const WRITE_BYTES: u64 = 512;

impl State {
    /// Charges the author of a fact for the texts in it.
    pub(super) fn charge_bytes(&mut self, at: Time, fact: &Fact) {
        let Some((agent, texts)) = texts_of(fact) else { return };
        if let Some(agent) = self.agents.get_mut(agent.0 as usize) {
            agent.day = agent.day.on(at);
            agent.day.bytes = agent.day.bytes.saturating_add(texts + WRITE_BYTES);
        }
    }
}

/// Returns the author of a write, and the bytes of its texts.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other fact is as short as a few numbers")]
fn texts_of(fact: &Fact) -> Option<(AgentId, u64)> {
    let optional = |text: &Option<lastword_facts::envelope::JsonText>| text.as_deref().map_or(0, str::len);
    let (agent, bytes) = match fact {
        Fact::Accepted { message } => {
            (message.from, message.body.len() + optional(&message.payload) + optional(&message.metadata))
        }
        Fact::Posted { from, body, .. } => (*from, body.len()),
        Fact::EscalationOpened(EscalationOpened { agent, body, options, .. }) => {
            (*agent, body.len() + options.iter().map(|option| option.len()).sum::<usize>())
        }
        Fact::ApprovalAsked(ApprovalAsked { agent, tool, arguments, reason, .. }) => {
            (*agent, tool.len() + arguments.len() + reason.as_ref().map_or(0, |reason| reason.len()))
        }
        Fact::ApprovalDecided(ApprovalDecided { by: Some(by), comment, edited, .. }) => {
            let edited = edited.as_ref().map_or(0, |(arguments, _)| arguments.len());
            (*by, comment.as_ref().map_or(0, |comment| comment.len()) + edited)
        }
        Fact::Late { agent, body, .. } => (*agent, body.len()),
        Fact::SpentOn { agent, models, .. } => (*agent, models.iter().map(|part| part.model.as_str().len()).sum()),
        Fact::WorkedOutside(WorkedOutside { agent, .. }) => (*agent, OUTSIDE_BYTES),
        Fact::StepKept(StepKept { agent, key, result, .. }) => (*agent, key.as_str().len() + result.len()),
        Fact::Claimed(Claimed { agent, resource, .. }) => (*agent, resource.as_str().len()),
        _ => return None,
    };
    Some((agent, bytes as u64))
}
