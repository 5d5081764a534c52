//! Questions to humans (H1).

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use lastword_facts::fact::{EscalationCause, Key, Lift, Met};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, Seq, TaskId, Time};
use lastword_facts::status::EscalationState;

use super::{Closed, Few, Known, Opt, State, Timer};

/// A question to a human (H1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalation {
    /// The task that asked, or whose request timed out.
    pub task: Option<TaskId>,
    /// The agent that asked, or the sender of the request that timed out.
    pub agent: AgentId,
    /// The conversation that the question is about.
    pub conv: ConvId,
    /// Whether an agent asked, or a request that timed out caused it.
    pub cause: EscalationCause,
    /// The position of the question in the log.
    pub asked: Seq,
    /// The time at which it was opened.
    pub at: Time,
    /// Whether it is open, and how it ended.
    pub state: EscalationState,
    /// The human who answered.
    pub by: Option<AgentId>,
    /// The position of the answer in the log.
    pub answer: Option<Seq>,
    /// The time at which it expires; none if it doesn't.
    pub expires_at: Opt<Time>,
    /// The limit that caused it, and the steps that lift it (H6).
    pub lifts: Option<Box<Lifts>>,
}

/// The limit that caused an escalation, and the steps that lift it (H6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifts {
    /// The limit that the task met.
    pub met: Met,
    /// The steps. The number of a step is its place in the list, from 1.
    pub lifts: Vec<Lift>,
    /// The number of the step that a human chose; there is no second choice.
    pub chosen: Option<u32>,
}

impl State {
    pub(super) fn escalation_opened(
        &mut self,
        at: Time,
        id: EscalationId,
        task: Option<TaskId>,
        agent: AgentId,
        conv: ConvId,
        cause: EscalationCause,
    ) {
        self.minted.escalation = id.0;
        let asked = Escalation {
            task,
            agent,
            conv,
            cause,
            asked: self.seq,
            at,
            state: EscalationState::Open,
            by: None,
            answer: None,
            expires_at: Opt::none(),
            lifts: None,
        };
        self.escalations.insert(id, asked);
        self.arm_escalation(id);
        let human = self.human_for(task);
        self.notice(at, human);
        // No task waits for the answer to a time-out, so only its age decides when it is forgotten (L7).
        if cause == EscalationCause::TimedOut {
            self.closed.push_back((at, Closed::Escalation(id)));
        }
        // A time-out is the broker's own question; it must not count as a write of the agent (G1).
        if cause == EscalationCause::Asked {
            self.charge_sender(at, agent, agent);
            self.agents[agent.0 as usize].escalations_open += 1;
        }
        let waits = task.filter(|_| cause == EscalationCause::Asked);
        if let Some(waiting) = waits.and_then(|t| self.tasks.get_mut(&t)) {
            waiting.escalations.push(id);
            waiting.rare.get_or_insert_default().questions += 1;
            let grant = waiting.grant;
            self.human_wait(at, grant, true);
        }
    }

    pub(super) fn escalation_keyed(&mut self, at: Time, id: EscalationId, sender: AgentId, key: &Key) {
        let fingerprint = Some(key.fingerprint);
        // No message is stored for a question, so the key leads to the escalation itself.
        let known = Known { sender, fingerprint, messages: Few::new(), task: None, escalation: Some(id) };
        self.keys.choose(key.id.clone(), known);
        self.closed.push_back((at, Closed::Key(Box::new(key.id.clone()))));
    }

    pub(super) fn escalation_noted(&mut self, at: Time, id: EscalationId, by: AgentId) {
        let answer = Some((by, self.seq));
        if let Some(agent) = self.end_escalation(at, id, EscalationState::Answered, answer) {
            self.notice(at, agent);
        }
    }

    pub(super) fn escalation_lifts(&mut self, id: EscalationId, met: &Met, lifts: &[Lift]) {
        if let Some(known) = self.escalations.get_mut(&id) {
            known.lifts = Some(Box::new(Lifts { met: met.clone(), lifts: lifts.to_vec(), chosen: None }));
        }
    }

    /// Keeps that a lift was chosen. It goes on with the task, which no longer waits for the question beside the lift; a
    /// human may still answer that (H6).
    pub(super) fn lift_chosen(&mut self, at: Time, id: EscalationId, lift: u32) {
        let Some(escalation) = self.escalations.get_mut(&id) else { return };
        if let Some(lifts) = escalation.lifts.as_mut() {
            lifts.chosen = Some(lift);
        }
        let Some(task) = escalation.task.and_then(|task| self.tasks.get_mut(&task)) else { return };
        let rare = task.rare.get_or_insert_default();
        rare.met = None;
        if task.escalations.contains(&id) {
            rare.unwaited.push(id);
            task.escalations.retain(|waited| *waited != id);
            let grant = task.grant;
            self.human_wait(at, grant, false);
        }
    }

    /// Sets the timer after which an agent's question expires (H1).
    fn arm_escalation(&mut self, id: EscalationId) {
        let Some(escalation) = self.escalations.get_mut(&id) else { return };
        if escalation.cause == EscalationCause::Asked && self.limits.escalation_ms > 0 {
            let expires_at = escalation.at.plus(self.limits.escalation_ms);
            escalation.expires_at = expires_at.into();
            self.timers.insert(expires_at, Timer::Escalation(id));
        }
    }

    /// Ends an escalation, if it is open. Returns the agent that it belongs to.
    pub(super) fn end_escalation(
        &mut self,
        at: Time,
        id: EscalationId,
        state: EscalationState,
        answer: Option<(AgentId, Seq)>,
    ) -> Option<AgentId> {
        // A human's words reset the exchange that the broker asks about, which withdraws the question; if they are the
        // answer to it, it is answered.
        let ends = |e: &&mut Escalation| {
            let answered = state == EscalationState::Answered && e.cause == EscalationCause::NoProgress;
            e.state == EscalationState::Open || (answered && e.state == EscalationState::Withdrawn)
        };
        let escalation = self.escalations.get_mut(&id).filter(ends)?;
        escalation.state = state;
        escalation.by = answer.map(|(by, _)| by);
        escalation.answer = answer.map(|(_, seq)| seq);
        if let Some(expires_at) = escalation.expires_at.take() {
            self.timers.remove(expires_at, Timer::Escalation(id));
        }
        let (agent, task, cause) = (escalation.agent, escalation.task, escalation.cause);
        // What a human settled didn't only time out.
        if let Some(task) = task.filter(|_| cause == EscalationCause::TimedOut) {
            self.failed.remove(&task);
        }
        if cause == EscalationCause::Asked {
            let open = &mut self.agents[agent.0 as usize].escalations_open;
            *open = open.saturating_sub(1);
        }
        // Only a task that asked waits: the end of a time-out's notice must not start the clock of a grant that still waits
        // for the answer to another question (D8).
        let waiting = task.and_then(|t| self.tasks.get_mut(&t)).filter(|waiting| waiting.escalations.contains(&id));
        if let Some(waiting) = waiting {
            waiting.escalations.retain(|e| *e != id);
            let grant = waiting.grant;
            self.human_wait(at, grant, false);
        }
        self.closed.push_back((at, Closed::Escalation(id)));
        Some(agent)
    }
}
