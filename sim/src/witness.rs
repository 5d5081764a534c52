//! Compares the core's state with the numbers that the witness counted.

use lastword_core::State;
use lastword_witness::Witness;

/// Compares the core's own counters with those of the witness, which notes every difference.
pub(crate) fn compare(witness: &mut Witness, state: &State) {
    for (id, grant) in state.grants.iter().filter(|(_, g)| g.end.is_none()) {
        let (counted, kept) = (witness.totals(id), (grant.messages, grant.turns));
        let same = counted == Some(kept);
        witness.expect(same, "counters equal those recomputed", || format!("{counted:?} {kept:?}"));
    }
    let open = state.tasks.values().filter(|t| t.request.is_some() && !t.is_closed()).count();
    let unanswered = witness.unanswered();
    let same = open == unanswered;
    witness.expect(same, "a request is open until it is answered", || format!("{open} {unanswered}"));
}
