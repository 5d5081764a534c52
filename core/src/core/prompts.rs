//! Prompts that a human types into an agent's session: the human's word, as far as a launcher vouches for it (H8).

use alloc::vec::Vec;

use lastword_facts::fact::{Fact, Place, Role};
use lastword_facts::ids::{AgentId, ConvId};
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::guards::{Placement, Plan, SendContext};
use crate::input::{Prompted, Reply};
use crate::rules::Rule;
use crate::state::Principal;

/// The conversation that a typed prompt reaches for the first time, and the human who typed it.
pub(super) type FirstReach = Option<(AgentId, ConvId)>;

impl Step<'_> {
    /// Takes note of a prompt in an agent's session. The grant of a typed one is opened by the first root that the
    /// agent sends because of it, so that a prompt that asks nobody costs one fact at most.
    pub(super) fn prompt(&mut self, by: Principal, agent: AgentId, prompted: Prompted) -> Outcome {
        self.human(by, Role::Operator)?;
        self.known(agent)?;
        if self.state().agents[agent.0 as usize].is_human() {
            return Err(Refusal::new(Code::UnknownRecipient).about("an agent: a human has no session"));
        }
        let before = self.state().agents[agent.0 as usize].typed();
        if prompted == Prompted::Typed {
            self.may_type(by, agent)?;
            // A word that is unused and fresh is as good as another one.
            let same = before.is_some_and(|word| word.by == by.agent() && word.root.is_none());
            if !same || self.now.since(before.map_or(self.now, |word| word.at)) >= self.act_interval() {
                self.record(Fact::PromptTyped { agent, by: by.agent() });
            }
        } else if before.is_some() {
            self.record(Fact::PromptEnded { agent });
        }
        if let Some(root) = before.and_then(|word| word.root.get()) {
            self.end_idle_root(root);
        }
        Ok(Reply::Done)
    }

    /// Refuses a typed prompt if those of an hour have opened as many grants as they may.
    fn may_type(&mut self, by: Principal, agent: AgentId) -> Result<(), Refusal> {
        let max = self.state().limits.typed_grants_per_hour_max;
        let (opened, oldest) = self.state().agents[agent.0 as usize].typed_grants(self.now);
        if opened < max || !self.rule(Rule::TypedAllowance) {
            return Ok(());
        }
        let refusal = Refusal::new(Code::RootAllowance).numbers(max, opened + 1);
        let refusal = refusal.about(format_args!("prompts typed to {}", self.state().name_of(agent)));
        Err(match oldest {
            Some(oldest) => {
                // The grants are used up, but the human is there.
                self.act(by)?;
                refusal.retry_after(oldest.plus(lastword_facts::ids::HOUR_MS).since(self.now))
            }
            None => refusal,
        })
    }

    /// Returns the context of a request that an agent sends because of a typed prompt: in the grant of the prompt, or
    /// opening it. `None` if no typed prompt is in force.
    pub(super) fn typed_context(&self, sender: AgentId) -> Option<SendContext> {
        let word = self.state().typed_word(sender, self.now)?;
        Some(word.root.get().map_or(SendContext::Typed(word.by), SendContext::Inside))
    }

    /// Returns for each target the human whose typed prompt reaches its conversation for the first time with this
    /// request: the turn counters there start again from 0, and its latch is lifted (R3, R4).
    pub(super) fn prompt_reaches(
        &self,
        sender: AgentId,
        context: SendContext,
        targets: &[(Option<AgentId>, Placement)],
    ) -> Vec<FirstReach> {
        let word = match context {
            SendContext::Typed(by) => Some((by, None)),
            SendContext::Inside(task) => {
                let word = self.state().typed_word(sender, self.now).filter(|word| word.root.get() == Some(task));
                word.map(|word| (word.by, self.state().tasks.get(&task)))
            }
            SendContext::Human
            | SendContext::Turn(..)
            | SendContext::Root
            | SendContext::Outside
            | SendContext::Ambiguous
            | SendContext::Lost => None,
        };
        let Some((by, root)) = word else { return Vec::new() };
        let before =
            |conv| root.is_some_and(|root| root.conv == conv || root.delegates.iter().any(|asked| asked.conv == conv));
        let reached = |(_, placement): &(_, Placement)| match placement.plan {
            Plan::Existing(conv) if !before(conv) => Some((by, conv)),
            Plan::Existing(_) | Plan::Open(..) | Plan::None => None,
        };
        targets.iter().map(reached).collect()
    }

    /// Resets the counters of the conversations that a typed prompt reaches, and lifts their latches.
    pub(super) fn hear_prompt(&mut self, reached: &[FirstReach]) {
        for (by, conv) in reached.iter().flatten() {
            self.lift_place(Place::Conversation(*conv), *by);
            self.hear_human(*by, *conv, None);
        }
    }
}
