//! Settling: each request ends exactly once, together with everything that depends on it (Q7, Q9).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::{AnswerStatus, JsonText, MessageType};
use lastword_facts::fact::{
    Answer, EndReason, EscalationCause, EscalationOpened, Fact, GrantEnd, Message, Part, PartialResult, Recipient,
    Requeued, Rerun, Role, SYSTEM, Spend, TurnClosed, TurnEnd,
};
use lastword_facts::ids::{AgentId, EscalationId, GrantId, Seq, TaskId};
use lastword_facts::names::RequestId;
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::input::Reply;
use crate::rules::Rule;
use crate::state::{Asker, Principal, Turn};

impl Step<'_> {
    /// Ends a task with its one answer, then its children, and its grant if no work is left. Returns the answer's
    /// position; `None` if the task had ended or has no requester.
    pub(super) fn settle(
        &mut self,
        answer: Answer,
        from: AgentId,
        body: Box<str>,
        payload: Option<JsonText>,
    ) -> Option<Seq> {
        let id = answer.task;
        let task = self.state().tasks.get(&id).filter(|t| !t.is_closed())?;
        let mut answer = answer;
        if let Some(request) = &task.request {
            request.join_partial(&mut answer);
        }
        let (server, asker, grant, children) = (task.agent, task.asker, task.grant, task.children.clone());
        if let Some(turn) = task.turn() {
            // A turn that is withdrawn is charged for what it was given, or for what it reported (B1).
            let given = |turn: &Turn| turn.charged().max(Spend { tokens: turn.estimate(), cost_microusd: 0 });
            let spend = self.state().turns.get(&turn).map_or_else(Spend::default, given);
            self.record(Fact::TurnClosed(TurnClosed { turn, end: TurnEnd::Withdrawn, status: None, spend }));
            self.wake(server);
        }
        let seq = if matches!(asker, Asker::Nobody) {
            self.record(Fact::RootEnded { task: id, status: answer.status });
            None
        } else {
            let message = self.answer_message(answer, from, body, payload);
            self.record(Fact::Accepted { message: Box::new(message) });
            let seq = self.state().seq;
            self.check_stall();
            Some(seq)
        };
        // After the answer: a child that is settled finds its requester closed, so it opens no further turn.
        for child in children {
            let outcome = Answer::outcome(child, AnswerStatus::Cancelled, EndReason::AskerEnded);
            self.settle(outcome, SYSTEM, "".into(), None);
        }
        self.release_claims(id);
        if let Some(agent) = asker.agent() {
            self.wake(agent);
        }
        self.close_grant(grant);
        seq
    }

    fn answer_message(&self, answer: Answer, from: AgentId, body: Box<str>, payload: Option<JsonText>) -> Message {
        let task = &self.state().tasks[&answer.task];
        let request = task.request.as_ref();
        Message {
            from,
            to: Recipient::One(task.asker.agent().unwrap_or(SYSTEM)),
            kind: MessageType::Response,
            conv: task.conv,
            depth: if task.asker.is_task() && self.rule(Rule::AnswersDeepen) { task.depth_in(task.conv) } else { 0 },
            hops: task.hop,
            grant: Some(task.grant),
            sender_task: Some(answer.task),
            cause: request.map(|r| r.message),
            in_reply_to: request.map(|r| r.message),
            key: None,
            action: request.and_then(|r| r.action.as_deref().cloned()),
            payload,
            body,
            metadata: None,
            part: Part::Answer(answer),
        }
    }

    /// Cancels what a task has in flight, before it runs again or continues without it.
    pub(super) fn cancel_children(&mut self, task: TaskId) {
        for child in self.state().tasks[&task].children.clone() {
            let outcome = Answer::outcome(child, AnswerStatus::Cancelled, EndReason::AskerEnded);
            self.settle(outcome, SYSTEM, "".into(), None);
        }
    }

    /// Closes a grant of which no task is open (D7).
    pub(super) fn close_grant(&mut self, id: GrantId) {
        let done = self.state().grants.get(&id).is_some_and(|g| g.end.is_none() && g.open_tasks == 0);
        if done {
            self.record(Fact::GrantClosed { grant: id, end: GrantEnd::Finished });
        }
    }

    /// Runs a request again, on the same task (Q3–Q5).
    pub(super) fn requeue(&mut self, task: TaskId, agent: AgentId, why: Rerun, result: Option<Box<PartialResult>>) {
        let same = self.state().tasks[&task].request.as_ref().map(|r| r.ack_ms);
        // The sender chose the time for the first recipient; another one has its own.
        let ack_ms = same.filter(|_| why != Rerun::Rejected).unwrap_or_else(|| self.ack_ms(agent));
        self.record(Fact::Requeued(Requeued { task, agent, why, ack_ms, result }));
        self.wake(agent);
    }

    /// Settles a request that timed out and isn't tried again: the requester is released, and a human is notified (Q3).
    pub(super) fn time_out(&mut self, id: TaskId, cause: EndReason) {
        let task = &self.state().tasks[&id];
        let (agent, conv, asker) = (task.agent, task.conv, task.asker.agent().unwrap_or(task.agent));
        let request = task.request.as_ref().map(|r| r.id.clone());
        self.settle(Answer::outcome(id, AnswerStatus::TimedOut, cause), SYSTEM, "".into(), None);
        let Some(request) = request else { return };
        let escalation = EscalationId(self.state().last_escalation() + 1);
        let body = alloc::format!("{request}: {} -> {}", self.state().name_of(asker), self.state().name_of(agent));
        self.record(Fact::EscalationOpened(EscalationOpened {
            escalation,
            task: Some(id),
            agent: asker,
            conv,
            cause: EscalationCause::TimedOut,
            body: body.into(),
            options: Vec::new(),
        }));
        self.wake(self.state().human_for(Some(id)));
    }

    /// Cancels a request for its requester or a human (Q9).
    pub(super) fn cancel(&mut self, by: Principal, request: &RequestId) -> Outcome {
        self.may(by, Role::Operator)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(request);
        let (id, task) = self.state().task_of(request.as_str()).ok_or_else(unknown)?;
        let (asker, closed) = (task.asker, task.is_closed());
        if !by.is_human() && asker.agent() != Some(by.agent()) {
            return Err(Refusal::new(Code::Forbidden).about(request));
        }
        if closed {
            return Err(Refusal::new(Code::AlreadySettled).about(request));
        }
        let outcome = Answer::outcome(id, AnswerStatus::Cancelled, EndReason::Cancelled);
        let answer = self.settle(outcome, SYSTEM, "".into(), None);
        Ok(Reply::Finished { answer, open: false })
    }

    /// Dismisses a request that ended without its result, which a human then need not look at any more.
    pub(super) fn dismiss(&mut self, by: Principal, request: &RequestId) -> Outcome {
        self.human(by, Role::Approver)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(request);
        let (task, _) = self.state().task_of(request.as_str()).ok_or_else(unknown)?;
        if self.state().failed.contains(&task) {
            self.record(Fact::Dismissed { task, by: by.agent() });
        }
        Ok(Reply::Done)
    }

    /// Ends a root task that waits for nothing any more.
    pub(super) fn end_idle_root(&mut self, id: TaskId) {
        let idle = self.state().tasks.get(&id).is_some_and(|t| t.asker == Asker::Nobody && t.is_idle());
        if idle {
            self.settle(Answer::outcome(id, AnswerStatus::Completed, EndReason::Answered), SYSTEM, "".into(), None);
        }
    }

    /// Ends everything that an agent serves or has started, because it is removed or stopped.
    pub(super) fn end_tasks_of(&mut self, agent: AgentId, cause: EndReason) {
        let open: Vec<TaskId> = self.state().agent(agent).map_or_else(Vec::new, |a| {
            let tasks = a.grant_tasks().into_iter().filter_map(|id| Some((id, self.state().tasks.get(&id)?)));
            tasks.filter(|(_, t)| t.agent == agent && !t.is_closed()).map(|(id, _)| id).collect()
        });
        for id in open {
            self.settle(Answer::outcome(id, AnswerStatus::Failed, cause), SYSTEM, "".into(), None);
        }
    }
}
