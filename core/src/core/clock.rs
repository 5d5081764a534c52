//! The clock: a period in which the broker didn't run is a fact (L6).

use lastword_facts::fact::{Fact, Role};

use super::{Outcome, Step};
use crate::input::Reply;
use crate::rules::Rule;
use crate::state::Principal;

impl Step<'_> {
    /// Records that the broker didn't run for the last `ms`, limited to the time since the last fact.
    pub(super) fn idled(&mut self, by: Option<Principal>, ms: u64) -> Outcome {
        if let Some(by) = by {
            self.human(by, Role::Owner)?;
        }
        let ms = ms.min(self.now.since(self.state().at));
        if ms > 0 && self.rule(Rule::Idling) {
            self.record(Fact::Idled { ms, by: by.map(Principal::agent) });
        }
        Ok(Reply::Done)
    }
}
