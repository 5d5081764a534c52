//! Words refusals for people: the hints of the broker are written for the model that made the call.

use lastword_client::wire::Problem;
use lastword_facts::Code;
use lastword_facts::fact::Role;

/// Returns why a call was refused and what a person can do about it.
pub(crate) fn for_people(problem: &Problem) -> String {
    let detail = problem.detail.trim_end_matches('.');
    let step = match &problem.lift {
        Some(lift) => format!("{}: `{}`.", lift.text.trim_end_matches('.'), lift.cli),
        None => step(problem.code).to_owned(),
    };
    format!("{detail}. {step}").trim_end().to_owned()
}

/// Like [`for_people`], for a person with this role by its roles on the server: these decide what it may do.
pub(crate) fn for_person(problem: &Problem, member: Option<Role>) -> String {
    match member.filter(|_| problem.code == Code::Forbidden) {
        None => for_people(problem),
        Some(role) => {
            let article = if matches!(role, Role::Viewer) { "a" } else { "an" };
            let word = role.word();
            format!(
                "Your roles on this server make you {article} {word} here, who may not do that. Whoever manages the \
                 server's roles can give you another."
            )
        }
    }
}

/// Returns the step of a person.
#[expect(clippy::wildcard_enum_match_arm, reason = "for the rest the reason says all")]
const fn step(code: Code) -> &'static str {
    match code {
        Code::Paused | Code::Stopped => "`/lastword resume` resumes it.",
        Code::UnknownRecipient => "`/lastword status` lists the agents.",
        Code::Forbidden => "The owner of the workspace can give you a role for it: `lastword human role`.",
        Code::Unauthenticated => "The Lastword token that the bridge has for you is no longer valid: renew it.",
        Code::FromMismatch => "Begin with your own name, or without a header.",
        Code::DepthMismatch => "Write the depth that is due, or begin without a header.",
        Code::MalformedHeader | Code::Malformed => "Correct it and post it again, or begin without a header.",
        Code::RefInUse | Code::RefConflict => "Use another REF, or write in the thread of that conversation.",
        Code::AlreadySettled => "Someone was faster: nothing is left to do.",
        Code::TooLarge => "Post less text, or a link to it.",
        Code::Saturated
        | Code::DiskLow
        | Code::LogGone
        | Code::SenderRate
        | Code::PairRate
        | Code::FanOut
        | Code::AuthRate => "Post it again in a while.",
        Code::TurnsSoft | Code::TurnsHard | Code::Latched => "A human's message here lifts it.",
        Code::UnknownRequest => "It may be settled and forgotten.",
        Code::ApproverNotAllowed => "Another person has to decide this.",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use lastword_facts::refusal::Refusal;

    use super::*;

    #[test]
    fn no_person_reads_what_was_written_for_a_model() {
        for code in Code::ALL {
            let problem = Problem::new(&Refusal::new(*code));
            let text = for_people(&problem);
            assert!(!text.contains(&problem.hint), "{code}: {text}");
            for word in ["Stop working", "list_agents", "your turn", "retry_after_ms", "resend", "escalate"] {
                assert!(!text.contains(word), "{code}: {text}");
            }
        }
        let stopped = for_people(&Problem::new(&Refusal::new(Code::Stopped)));
        assert_eq!(stopped, "A human has stopped this. `/lastword resume` resumes it.");
    }
}
