//! What facts hold that no transcript shows.

use lastword_facts::Entry;
use lastword_facts::fact::{Fact, GrantOpened, TurnCharged};

use crate::script::{Broker, play};
use crate::transcripts::transcripts;

/// Returns the entries that a script records, without those of its registrations.
fn log(script: &str) -> Vec<Entry> {
    play(script, Broker::Whole).1.log
}

/// A script in which `a` gets a text of 40 bytes and finishes with these words.
fn finished(words: &str) -> (u64, bool) {
    let script = format!(
        "human uma\nagent a\numa: send a T-1 0123456789012345678901234567890123456789\na: take\na: finish {words}\n"
    );
    let charged = log(&script).into_iter().find_map(|entry| match entry.fact {
        Fact::TurnCharged(TurnCharged { spend, estimated, .. }) => Some((spend.tokens, estimated)),
        _ => None,
    });
    charged.unwrap()
}

#[test]
fn a_usage_is_an_estimate_unless_the_agent_states_at_least_that_of_its_text() {
    let (least, estimated) = finished("done");
    assert!(least > 1 && estimated, "nothing is stated");
    assert_eq!(finished(&format!("tokens={} done", least - 1)), (least, true), "less than the text");
    assert_eq!(finished(&format!("tokens={least} done")), (least, false));
    assert_eq!(finished(&format!("tokens={} done", least + 1)), (least + 1, false));
    assert_eq!(finished("tokens=1000 estimated"), (1_000, true), "the agent itself estimates");
}

#[test]
fn each_fact_of_a_grant_has_the_phi_of_its_grant() {
    let mut kinds = std::collections::BTreeSet::new();
    for (name, script) in transcripts() {
        for entry in log(&script) {
            let of_grant = match &entry.fact {
                Fact::Accepted { message } => message.grant,
                Fact::GrantOpened(GrantOpened { grant, .. }) | Fact::GrantClosed { grant, .. } => Some(*grant),
                Fact::TurnOpened(_) | Fact::TurnCharged(_) | Fact::Requeued(_) => {
                    Some(entry.grant.unwrap_or_else(|| panic!("{name}: no grant has {:?}", entry.fact)).0)
                }
                _ => continue,
            };
            assert_eq!(entry.grant.map(|(grant, _)| grant), of_grant, "{name}: {:?}", entry.fact);
            if let Fact::GrantClosed { .. } = entry.fact {
                assert_eq!(entry.grant.unwrap().1, 0, "{name}: a closed grant causes nothing more");
            }
            kinds.insert(format!("{:?}", std::mem::discriminant(&entry.fact)));
        }
    }
    assert_eq!(kinds.len(), 6);
}
