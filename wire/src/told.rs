//! What a human reads of a refusal, whose title speaks to the agent that met it.

use lastword_facts::Code;

/// What a human reads where the title of a code speaks to the agent that met it.
const TOLD: &[(Code, &str)] = &[
    (Code::Forbidden, "A token isn't allowed to do that"),
    (Code::FromMismatch, "A message names another sender than the one that sent it"),
    (Code::DepthMismatch, "A message names another depth than it has"),
    (Code::SelfSend, "An agent wrote to itself"),
    (Code::PassiveReply, "The recipient waits for the sender's final answer"),
    (Code::Cycle, "The recipient is above the sender in the chain of requests"),
    (Code::RefInUse, "The REF belongs to a conversation that the sender can't start or join"),
    (Code::RefConflict, "The task already has a conversation with that agent"),
    (Code::TaskRequests, "The task has used up its requests"),
    (Code::RootAllowance, "The agent has used up its allowance of roots for now"),
    (Code::PairRate, "Too many messages from one agent to another"),
    (Code::GrantMessages, "The grant has used up its messages"),
    (Code::GrantTurns, "The grant has used up its turns"),
    (Code::GrantAgents, "The grant has used up its agents"),
    (Code::GrantExpired, "The time of the grant is used up"),
    (Code::TurnsSoft, "Too many agent messages without a human message"),
    (Code::TurnsHard, "Too many agent messages without a human message"),
    (Code::Paused, "A human paused it"),
    (Code::Latched, "A limit holds it until a human lifts it"),
    (Code::Stopped, "A human stopped it"),
    (Code::MutualWait, "The recipient waits for an answer of the sender"),
    (Code::TurnClosed, "The turn can't send any more"),
    (Code::LeaseLost, "The turn has ended: its lease was lost, or its request was settled"),
    (Code::TurnRequired, "The agent has several open turns and named none"),
    (Code::ApproverNotAllowed, "The agent isn't allowed to decide the call"),
    (Code::EscalationsOpen, "The agent has reached its limit of open questions"),
    (Code::ApprovalsOpen, "The agent has reached its limit of undecided calls"),
    (Code::TaskQuestions, "The task has used up its questions to humans"),
    (Code::CausedByRefused, "A message that an agent here caused requests work from outside"),
    (Code::RefusedTooOften, "Too many writes of the agent were refused"),
    (Code::TurnsOpen, "The agent has reached its limit of open turns"),
    (Code::EpochOver, "A restore went back to before it was issued"),
    (Code::QuotaBytes, "The agent has written its share of the disk for today"),
    (Code::AuthRate, "Too many failed authentications from one address"),
    (Code::NoProgress, "The requests of one agent to another make no progress"),
];

/// Returns what happened, in words for the human who reads of it.
#[must_use]
pub fn told(code: Code) -> &'static str {
    TOLD.iter().find(|(known, _)| *known == code).map_or(code.title(), |(_, words)| words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_human_reads_of_a_code_speaks_to_no_agent() {
        for code in Code::ALL {
            let words = told(*code).to_lowercase();
            let spoken = words.split([' ', ':', '\'']).any(|word| matches!(word, "you" | "your" | "this" | "here"));
            assert!(!spoken || *code == Code::Unattended || words.contains("an agent here"), "{words}");
        }
    }
}
