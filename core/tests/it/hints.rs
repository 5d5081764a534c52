//! Every hint leads to a step that is admitted: a transcript follows each hint, under the hint's own words.

use lastword_facts::Code;

use crate::transcripts::transcripts;

/// The refusals that a well-behaved team meets.
const MET: [Code; 37] = [
    Code::PassiveReply,
    Code::Cycle,
    Code::RefInUse,
    Code::RefConflict,
    Code::RefRequired,
    Code::DepthCap,
    Code::HopCap,
    Code::TaskRequests,
    Code::RootAllowance,
    Code::PairRate,
    Code::FanOut,
    Code::GrantMessages,
    Code::GrantTurns,
    Code::GrantAgents,
    Code::GrantExpired,
    Code::Budget,
    Code::TurnsSoft,
    Code::TurnsHard,
    Code::Paused,
    Code::Latched,
    Code::MutualWait,
    Code::TurnClosed,
    Code::LeaseLost,
    Code::TurnRequired,
    Code::IdempotencyConflict,
    Code::ApprovalUsed,
    Code::ApprovalExpired,
    Code::DigestMismatch,
    Code::EscalationsOpen,
    Code::ApprovalsOpen,
    Code::NotApproved,
    Code::ClaimHeld,
    Code::Unattended,
    Code::TaskQuestions,
    Code::CausedByRefused,
    Code::TurnsOpen,
    Code::NoProgress,
];

#[test]
fn every_hint_that_a_team_meets_is_followed_by_a_transcript_and_meets_no_other_refusal() {
    let all = transcripts();
    for code in MET {
        let name = format!("hint-{code}");
        let (_, script) =
            all.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no transcript {name}"));
        let words = script.lines().next().unwrap();
        assert_eq!(words, format!("# {}", code.hint()), "{name} follows another hint");
        let mut refused = script.lines().filter_map(|line| line.strip_prefix("  ! ")?.split(' ').next());
        let first = refused.next();
        assert_eq!(first, Some(code.word()), "{name} meets the refusal first");
        assert!(refused.all(|word| word == code.word()), "a step of {name} is refused for another reason");
        let last = script.lines().rev().find(|line| line.starts_with("  ")).unwrap();
        assert!(!last.starts_with("  ! "), "{name} ends in a refusal");
    }
}
