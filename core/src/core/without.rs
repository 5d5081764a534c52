//! The behaviour of a naive broker that lacks a rule: compiled for the tests that switch rules off, never shipped.
//!
//! Each function is called at the place where its rule decides, and changes nothing while the rule holds.

use alloc::boxed::Box;
use alloc::format;

use lastword_facts::envelope::{Draft, MessageType};
use lastword_facts::fact::{Crossing, Fact, Place, SYSTEM};
use lastword_facts::ids::{AgentId, TaskId, Time, TurnId};
use lastword_facts::refusal::{Code, Refusal};

use super::Step;
use crate::guards::{Placement, RefProblem, SendContext};
use crate::input::Reply;
use crate::rules::Rule;
use crate::state::{Few, Principal};

impl Step<'_> {
    /// Without `only_requests_wake`: each message to an agent is sent as a REQUEST.
    pub(super) fn naive_draft(&self, mut draft: Box<Draft>) -> Box<Draft> {
        let silent = matches!(draft.kind, MessageType::Info | MessageType::Alert | MessageType::Status);
        if silent && !self.rule(Rule::OnlyRequestsWake) {
            draft.kind = MessageType::Request;
        }
        draft
    }

    /// Without the guard `unknown_recipient`: the broker admits messages that it can deliver to no agent.
    pub(super) fn naive_targets<const N: usize>(
        &self,
        found: Result<Few<AgentId, N>, Refusal>,
    ) -> Result<Few<AgentId, N>, Refusal> {
        found.or_else(
            |refusal| {
                if self.has_guard("unknown_recipient") { Err(refusal) } else { Ok(Few::from_slice(&[SYSTEM])) }
            },
        )
    }

    /// Without `warned_once`: each message beyond the soft limit is warned about, up to the hard one.
    pub(super) fn naive_warning(&mut self, place: Place, agent_messages: u64) {
        let limits = &self.state().limits;
        let beyond = agent_messages > limits.turns_soft_max && agent_messages != limits.turns_hard_max;
        if beyond && !self.rule(Rule::WarnedOnce) {
            self.record(Fact::Warned { place, crossing: Crossing::Soft, agent_messages });
        }
    }

    /// Without `quiet_refusals`: the refusal is also a message, which wakes its sender.
    pub(super) fn naive_refusal(&mut self, task: Option<TaskId>, sender: AgentId, refusal: &Refusal) {
        if let Some(task) = task.filter(|_| !self.rule(Rule::QuietRefusals)) {
            let refused = self.state().seq;
            self.reply_to(task, SYSTEM, sender, format!("{refusal}").into(), None, refused);
        }
    }

    /// Without `correlation`: the answer goes to the sender's newest task.
    pub(super) fn naive_correlation(&self, sender: AgentId, task: &mut Option<TaskId>) {
        if !self.rule(Rule::Correlation) {
            *task = task.and(self.state().agents[sender.0 as usize].grant_tasks().last().copied());
        }
    }

    /// Without the rule on its age: a grant or an approval never expires.
    pub(super) fn naive_expiry(&self, rule: Rule, expires_at: Time) -> Time {
        if self.rule(rule) { expires_at } else { self.now.plus(u64::MAX) }
    }

    /// Without `human_words`: opening a room is a post in it.
    pub(super) fn naive_join(&mut self, by: AgentId, opened: &Reply) {
        let Reply::Opened(room) = *opened else { return };
        if !self.rule(Rule::HumanWords) {
            self.record(Fact::Posted { room, from: by, body: "joined".into() });
        }
    }

    /// Without the guard `ref_required`: a message that names no work item opens a new one.
    pub(super) fn naive_placement(&self, placement: Placement) -> Placement {
        if placement.fault == Some(RefProblem::Required) && !self.has_guard("ref_required") {
            return Placement { plan: self.minted_work(), fault: None, depth: 0 };
        }
        placement
    }

    /// Without `depth_per_conversation`: a task has one depth, the greatest of its conversations.
    pub(super) fn naive_depth(&self, context: SendContext) -> Option<u8> {
        let task = context.task().filter(|_| !self.rule(Rule::DepthPerConversation))?;
        let received = &self.state().tasks[&task].received;
        Some(received.iter().map(|(_, depth)| depth.saturating_add(1)).max().unwrap_or(0))
    }

    /// Without `late_answers`: naming a turn that is over is like naming none, so that the agent's open turn is meant.
    pub(super) fn naive_turn(&self, agent: AgentId, named: Option<TurnId>) -> Option<TurnId> {
        let open = |id: &TurnId| self.state().turns.get(id).is_some_and(|turn| turn.agent == agent && turn.open);
        named.filter(|id| self.rule(Rule::LateAnswers) || open(id))
    }

    /// Without `answers_admitted`: the limit on messages refuses an answer.
    pub(super) fn naive_answer(&self, place: Place) -> Result<(), Refusal> {
        let (turns, max) = (self.state().agent_messages_in(place), self.state().limits.turns_soft_max);
        if turns >= max && !self.rule(Rule::AnswersAdmitted) {
            return Err(Refusal::new(Code::TurnsSoft).numbers(max, turns));
        }
        Ok(())
    }

    /// Without `forwarding`: a finish ends the turn and is routed nowhere.
    pub(super) fn naive_finish(&self) -> Option<Reply> {
        (!self.rule(Rule::Forwarding)).then_some(Reply::Finished { answer: None, open: true })
    }

    /// Without `out_of_band`: a stop is queued behind the messages, and admission doesn't check for it.
    pub(super) fn naive_control(&self) -> Option<Reply> {
        (!self.rule(Rule::OutOfBand)).then_some(Reply::Done)
    }

    /// Without `incarnations`: a proof is valid for any holder of the name.
    pub(super) fn naive_proof(&self, by: Principal) -> bool {
        !self.rule(Rule::Incarnations) && self.state().live(self.state().name_of(by.agent())).is_some()
    }
}
