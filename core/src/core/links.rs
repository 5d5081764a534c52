//! Links by which anybody reads a conversation.

use lastword_facts::fact::{Fact, Role};
use lastword_facts::ids::ConvId;
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::input::Reply;
use crate::state::{LINK_MS_MAX, Principal};

impl Step<'_> {
    /// Makes the link to a conversation, or ends it.
    pub(super) fn set_link(&mut self, by: Principal, conv: ConvId, valid_ms: Option<u64>) -> Outcome {
        self.human(by, Role::Approver)?;
        if !self.state().conversations.contains_key(&conv) {
            return Err(Refusal::new(Code::UnknownRequest).about(conv));
        }
        let until = valid_ms.map(|ms| self.now.plus(ms.min(LINK_MS_MAX)));
        if until.is_some() || self.state().links.contains_key(&conv) {
            self.record(Fact::LinkSet { conv, until, by: by.agent() });
        }
        Ok(Reply::Done)
    }
}
