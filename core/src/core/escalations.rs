//! Escalations to humans and their answers (H1, H6).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::{Address, AnswerStatus, Draft, MessageType};
use lastword_facts::fact::{
    Answer, EndReason, EscalationCause, EscalationOpened, Fact, Key, Message, Part, Place, Recipient, Role, SYSTEM,
    WriteKind,
};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, Seq, TaskId, TurnId};
use lastword_facts::names::Ref;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::EscalationState;

use super::admit::key;
use super::{Outcome, Step};
use crate::guards::{Placement, Plan};
use crate::input::{Question, Reply};
use crate::state::Principal;

/// The most options of one question.
const OPTIONS_MAX: usize = 16;

impl Step<'_> {
    pub(super) fn escalate(&mut self, by: Principal, turn: Option<TurnId>, question: Question) -> Outcome {
        let id = question.key.clone();
        let key = key(id.as_ref(), format_args!("{}\0{:?}\0{:?}", question.body, question.options, question.reference));
        self.write(by, WriteKind::Escalation, turn, key, |step| step.ask_human(by.agent(), turn, question))
    }

    fn ask_human(&mut self, agent: AgentId, turn: Option<TurnId>, question: Question) -> Outcome {
        let limits = &self.state().limits;
        let (max, body_max) = (limits.escalations_open_max, limits.body_bytes_max);
        let open = self.state().agents[agent.0 as usize].escalations_open;
        if open >= max {
            return Err(Refusal::new(Code::EscalationsOpen).numbers(max, open + 1));
        }
        if question.body.len() as u64 > body_max {
            return Err(Refusal::new(Code::TooLarge).numbers(body_max, question.body.len() as u64));
        }
        if question.options.len() > OPTIONS_MAX {
            let count = question.options.len() as u64;
            return Err(Refusal::new(Code::Malformed)
                .numbers(OPTIONS_MAX as u64, count)
                .about("`options` has too many"));
        }
        // A free-text answer extends nothing (H6), so an option that reads like an extension would mislead the human.
        if let Some(option) = question.options.iter().find(|option| super::lifts::is_worded_as_lift(option)) {
            let said = format_args!("the option {option:?}: only the broker offers an extension");
            return Err(Refusal::new(Code::Malformed).about(said));
        }
        let (task, conv) = self.where_asked(agent, turn, question.reference.as_ref())?;
        if let Some(task) = task {
            self.has_questions_left(task)?;
        }
        let escalation = EscalationId(self.state().last_escalation() + 1);
        self.record(Fact::EscalationOpened(EscalationOpened {
            escalation,
            task,
            agent,
            conv,
            cause: EscalationCause::Asked,
            body: question.body,
            options: question.options,
        }));
        if let Some(task) = task {
            self.offer_lifts(escalation, task);
        }
        self.wake(self.state().human_for(task));
        Ok(Reply::Escalated(escalation))
    }

    /// Refuses a question if the task has used up its limit for escalations and held calls together (H1).
    pub(super) fn has_questions_left(&self, task: TaskId) -> Result<(), Refusal> {
        let max = self.state().limits.task_questions_max;
        let asked = self.state().tasks[&task].questions();
        if asked < max { Ok(()) } else { Err(Refusal::new(Code::TaskQuestions).numbers(max, asked + 1)) }
    }

    /// Returns the task that asks and its conversation; outside a turn, the conversation that is named.
    fn where_asked(
        &mut self,
        agent: AgentId,
        turn: Option<TurnId>,
        reference: Option<&Ref>,
    ) -> Result<(Option<TaskId>, ConvId), Refusal> {
        if let Some(task) = self.task_in_turn(agent, turn)? {
            return Ok((Some(task), self.state().tasks[&task].conv));
        }
        let reference = reference.ok_or_else(|| Refusal::new(Code::RefRequired))?;
        match self.state().conv_of(reference.as_str()) {
            Some(conv) if self.state().conversations[&conv].has_part(agent) => Ok((None, conv)),
            Some(_) => Err(Refusal::new(Code::RefInUse).about(reference)),
            None if self.may_open(agent, reference.as_str()) => {
                let plan = Plan::Open(reference.clone(), None);
                Ok((None, self.open(agent, &Placement { plan, fault: None, depth: 0 }, false)))
            }
            None => Err(Refusal::new(Code::RefInUse).about(reference)),
        }
    }

    /// Returns the task of the open turn, or `None` outside every turn. Refuses a stale or ambiguous turn.
    pub(super) fn task_in_turn(&self, agent: AgentId, turn: Option<TurnId>) -> Result<Option<TaskId>, Refusal> {
        if turn.is_none() && self.state().agents[agent.0 as usize].turns.is_empty() {
            return Ok(None);
        }
        let turn = self.turn_of(agent, turn).map_err(|(_, refusal)| refusal)?;
        Ok(Some(self.state().turns[&turn].task))
    }

    /// Routes a human's answer to exactly the task that asked (D9, H1). Text extends no limit (H6).
    pub(super) fn answer(&mut self, by: Principal, id: EscalationId, body: Box<str>, key: Option<Key>) -> Outcome {
        self.human(by, Role::Approver)?;
        // Before the question is looked at: it may be the next one, which this text doesn't answer.
        if let Some(again) = self.made_before(by.agent(), key.as_ref())? {
            return Ok(again);
        }
        let answered = self.answer_open(by, id, body)?;
        self.keep_key(by.agent(), key, &Reply::Escalated(id));
        Ok(answered)
    }

    fn answer_open(&mut self, by: Principal, id: EscalationId, body: Box<str>) -> Outcome {
        let (agent, conv, asked) = self.open_escalation(id)?;
        let waiting = self.waiting_for(id);
        // First: it is admitted with all that a human's message lifts and resets, or refused without any of it.
        if waiting.is_none()
            && let Some(sent) = self.answer_outside(by, id, &body)?
        {
            return Ok(sent);
        }
        // The reply below resets the counters of its own conversation, so that one needs no `Rearmed` fact.
        let said_in = waiting.map(|task| self.state().tasks[&task].conv);
        self.lift_place(Place::Conversation(conv), by.agent());
        self.hear_human(by.agent(), conv, said_in);
        let Some(task) = waiting else {
            self.record(Fact::EscalationNoted { escalation: id, by: by.agent(), body });
            return Ok(Reply::Done);
        };
        let seq = self.reply_to(task, by.agent(), agent, body, Some(id), asked);
        Ok(Reply::Sent(alloc::vec![seq]))
    }

    /// Returns the agent, the conversation and the position of an open escalation.
    pub(super) fn open_escalation(&self, id: EscalationId) -> Result<(AgentId, ConvId, Seq), Refusal> {
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let escalation = self.state().escalations.get(&id).ok_or_else(unknown)?;
        match escalation.state {
            EscalationState::Open => Ok((escalation.agent, escalation.conv, escalation.asked)),
            EscalationState::Answered | EscalationState::Withdrawn | EscalationState::Expired => {
                Err(Refusal::new(Code::AlreadySettled).about(id))
            }
        }
    }

    /// Answers a question that was asked outside a turn: by a request in the name of this human, which wakes the agent (D9).
    /// `None` if it was asked in a turn, or if this human may give no work.
    fn answer_outside(&mut self, by: Principal, id: EscalationId, body: &str) -> Result<Option<Reply>, Refusal> {
        let escalation = &self.state().escalations[&id];
        let (agent, conv) = (escalation.agent, escalation.conv);
        // A human who asked is told by a notice.
        let outside = escalation.task.is_none() && !self.state().agents[agent.0 as usize].is_human();
        let asked = (outside && escalation.cause == EscalationCause::Asked).then_some(escalation.asked);
        let name = self.state().agents[agent.0 as usize].name.clone();
        let (Some(asked), Some(name), Ok(())) = (asked, name, self.human(by, Role::Operator)) else { return Ok(None) };
        let draft = Draft {
            reference: self.state().ref_of(conv).cloned(),
            in_reply_to: Some(asked),
            ..Draft::new(MessageType::Request, Address::Name(name), body)
        };
        let sent = self.send_for(by.agent(), draft)?;
        if let Reply::Sent(messages) = &sent
            && let Some(message) = messages.first().copied()
        {
            self.record(Fact::EscalationAnswered { escalation: id, by: by.agent(), message });
        }
        Ok(Some(sent))
    }

    /// Returns the open task that gets an escalation's answer.
    pub(super) fn waiting_for(&self, id: EscalationId) -> Option<TaskId> {
        let task = self.state().escalations.get(&id)?.task?;
        self.state().tasks.get(&task).filter(|t| !t.is_closed()).map(|_| task)
    }

    /// Ends the task that asked, without a turn for it, because no human answered in time (H1).
    pub(super) fn escalation_due(&mut self, id: EscalationId) {
        // Read before the fact, which closes the escalation. A task that goes on after a lift waits no more.
        let waits = |task: &TaskId| self.state().tasks[task].escalations.contains(&id);
        let task = self.waiting_for(id).filter(waits);
        self.record(Fact::EscalationExpired { escalation: id });
        if let Some(task) = task {
            let outcome = Answer::outcome(task, AnswerStatus::TimedOut, EndReason::Unanswered);
            self.settle(outcome, SYSTEM, "".into(), None);
        }
    }

    /// Delivers a text from a human or the broker to a task.
    pub(super) fn reply_to(
        &mut self,
        task: TaskId,
        from: AgentId,
        to: AgentId,
        body: Box<str>,
        escalation: Option<EscalationId>,
        asked: Seq,
    ) -> Seq {
        let known = &self.state().tasks[&task];
        let message = Message {
            from,
            to: Recipient::One(to),
            kind: MessageType::Response,
            conv: known.conv,
            // A human's answer adds no depth (D2).
            depth: 0,
            hops: known.hop,
            grant: Some(known.grant),
            sender_task: None,
            cause: Some(asked),
            in_reply_to: Some(asked),
            key: None,
            action: None,
            payload: None,
            body,
            metadata: None,
            part: Part::Reply { task, escalation },
        };
        self.record(Fact::Accepted { message: Box::new(message) });
        self.wake(to);
        self.state().seq
    }

    /// Answers the escalation that the `request_id` of a human's RESPONSE names.
    pub(super) fn human_response(&mut self, by: Principal, draft: Draft) -> Outcome {
        let id = draft.request_id.as_ref().and_then(|id| EscalationId::parse(id.as_str()));
        let id = id.ok_or_else(|| Refusal::new(Code::ReplyNotExpected))?;
        self.answer(by, id, draft.body, None)
    }

    /// Resets the counters of a conversation that a human spoke about, of those above it, and of those below it (R4).
    /// The conversation that holds the human's message, if any, is reset by the message itself.
    pub(super) fn hear_human(&mut self, by: AgentId, conv: ConvId, said_in: Option<ConvId>) {
        let state = self.state();
        let Some(known) = state.conversations.get(&conv) else { return };
        let reference = known.reference.as_str();
        let below = known.children > 0 || state.may_have_below(reference);
        // The usual conversation has nothing above or below it, so the walks are skipped.
        let mut convs: Vec<ConvId> = if known.parent.is_none() && !reference.contains('/') {
            alloc::vec![conv]
        } else {
            state.up(conv).to_vec()
        };
        if below {
            convs.extend(state.lineage_below(conv));
            convs.sort_unstable();
            convs.dedup();
        }
        convs.retain(|id| Some(*id) != said_in && state.agent_messages_in(Place::Conversation(*id)) > 0);
        for id in convs {
            self.lift_place(Place::Conversation(id), by);
            // Lifting a latch resets the counter as well.
            if self.state().agent_messages_in(Place::Conversation(id)) > 0 {
                self.record(Fact::Rearmed { conv: id, by });
            }
        }
    }
}
