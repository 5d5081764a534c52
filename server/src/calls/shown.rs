//! The held calls that each reader was shown in full in one response. Such a reader may decide on the call without
//! naming its digest (H2).

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use lastword_broker::identity::unhex;
use lastword_facts::fact::{Digest, hex};
use lastword_facts::ids::{AgentId, ApprovalId};
use lastword_wire::ApprovalView;

/// The most calls remembered for all readers together. A reader whose entry was dropped has to look again.
const REMEMBERED_MAX: usize = 4_096;

/// The calls shown since the server's start, with their digests.
#[derive(Debug, Default)]
pub struct ShownCalls(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    digests: BTreeMap<(AgentId, ApprovalId), Digest>,
    /// The keys of `digests`, oldest first.
    order: VecDeque<(AgentId, ApprovalId)>,
}

impl ShownCalls {
    /// Remembers that `who` gets all of a call with this digest in one response.
    pub(crate) fn remember(&self, who: AgentId, call: ApprovalId, digest: Digest) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.digests.insert((who, call), digest).is_none() {
            known.order.push_back((who, call));
        }
        if known.order.len() > REMEMBERED_MAX
            && let Some(oldest) = known.order.pop_front()
        {
            known.digests.remove(&oldest);
        }
    }

    /// Remembers approvals that are sent to `who` in full.
    pub fn remember_views<'a>(&self, who: AgentId, views: impl IntoIterator<Item = &'a ApprovalView>) {
        for view in views {
            if let (Some(id), Some(digest)) = (ApprovalId::parse(&view.id), unhex(&view.digest)) {
                self.remember(who, id, digest);
            }
        }
    }

    /// Returns the digest of the call that `who` was shown, in hexadecimal.
    pub(crate) fn digest(&self, who: AgentId, call: ApprovalId) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.digests.get(&(who, call)).map(hex)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_of_one_principal_and_has_an_end() {
        let shown = ShownCalls::default();
        for id in 0..=REMEMBERED_MAX as u64 {
            shown.remember(AgentId(1), ApprovalId(id), [7; 32]);
        }
        assert_eq!(shown.digest(AgentId(1), ApprovalId(0)), None, "the oldest is forgotten");
        assert_eq!(shown.digest(AgentId(1), ApprovalId(1)), Some("07".repeat(32)));
        assert_eq!(shown.digest(AgentId(2), ApprovalId(1)), None);
    }
}
