//! What an agent reports of a turn that goes on, or of work after it: progress, and what it has spent (F3, B1, H4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::{Draft, JsonText, MessageType};
use lastword_facts::fact::{Fact, Message, ModelSpend, Part, Recipient, Spend, StepKept, WorkedOutside};
use lastword_facts::ids::{AgentId, HOUR_MS, TaskId, Time, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::guards;
use crate::input::{Progress, Reply};
use crate::state::{Principal, step_bytes};

impl Step<'_> {
    /// Handles a STATUS on the sender's own open task: not counted, at most one a second, renews the lease (R1, E4).
    pub(super) fn status(&mut self, by: Principal, task: TaskId, draft: &Draft) -> Outcome {
        if draft.from.as_ref().is_some_and(|from| from.as_str() != self.state().name_of(by.agent())) {
            return Err(Code::FromMismatch.into());
        }
        self.paced(task)?;
        self.has_room(by.agent())?;
        self.note_progress(task, by.agent(), draft.body.clone(), draft.eta_ms, true);
        let seq = self.state().seq;
        if let Some(turn) = self.state().tasks[&task].turn() {
            self.renew_turn(turn, draft.eta_ms);
        }
        Ok(Reply::Sent(alloc::vec![seq]))
    }

    pub(super) fn progress(&mut self, by: Principal, turn: Option<TurnId>, progress: Progress) -> Outcome {
        self.authenticate(by)?;
        if progress.outside {
            return self.worked_outside(by, turn, progress.spend.unwrap_or_default());
        }
        let turn = self.turn_of(by.agent(), turn).map_err(|(_, refusal)| refusal)?;
        let task = self.state().turns[&turn].task;
        let paced = self.paced(task);
        match progress.step {
            Some((key, result)) => {
                self.keep_step(by.agent(), task, key, result)?;
                // Steps may come faster than reports: then the lease is as new as it needs to be.
                if paced.is_err() {
                    return Ok(self.renewed(turn, self.state().turns[&turn].lease_until));
                }
            }
            None => paced?,
        }
        // A root has no requester who could be shown the note.
        let shown = self.state().tasks[&task].asker.agent().is_some() && !progress.note.is_empty();
        // The lease is renewed without the note.
        if shown && self.has_room(by.agent()).is_ok() {
            self.note_progress(task, by.agent(), progress.note, progress.eta_ms, true);
        }
        if let Some(spend) = progress.spend {
            self.spent_so_far(turn, spend, progress.models);
        }
        if progress.new_session && self.state().a_session_counts(task) {
            self.record(Fact::SessionBegan { task });
        }
        self.waits_for_user(turn, progress.waits_for_user);
        let lease_until = self.renew_turn(turn, progress.eta_ms);
        Ok(self.renewed(turn, lease_until))
    }

    fn renewed(&self, turn: TurnId, lease_until: Time) -> Reply {
        let spent = self.spent_out(turn);
        let finish = spent.as_ref().map(|(refusal, _)| refusal.code);
        let end = spent.filter(|(_, ends)| *ends).map(|(refusal, _)| refusal.code);
        Reply::Renewed { lease_until, finish, end }
    }

    /// Keeps the result of a step. A step whose result is known keeps that (F7).
    fn keep_step(&mut self, agent: AgentId, task: TaskId, key: RequestId, result: JsonText) -> Result<(), Refusal> {
        let steps = self.state().tasks[&task].steps();
        if steps.iter().any(|step| step.key == key) {
            return Ok(());
        }
        // A delivery carries all of them beside its message.
        let (max, kept) = (self.state().limits.body_bytes_max, steps.iter().map(|step| step.bytes).sum::<u64>());
        let wanted = kept + step_bytes(&key, &result);
        if wanted > max {
            return Err(Refusal::new(Code::TooLarge).about("the results of the task's steps").numbers(max, wanted));
        }
        self.has_room(agent)?;
        self.record(Fact::StepKept(StepKept { task, agent, key, result }));
        Ok(())
    }

    /// Records that a dialog of a turn's program opened or closed. It holds the grant's clock no longer than a question could
    /// after the turn began (D8, H1).
    fn waits_for_user(&mut self, id: TurnId, waits: bool) {
        let state = self.state();
        let turn = &state.turns[&id];
        let waits = waits && self.now.since(turn.opened_at) < state.limits.escalation_ms;
        if turn.waits_for_user != waits {
            self.record(Fact::WaitsForUser { turn: id, waits });
        }
    }

    /// Charges the grant of a turn that is over with what the agent's program used by itself since, and tells humans (H4).
    fn worked_outside(&mut self, by: Principal, turn: Option<TurnId>, spend: Spend) -> Outcome {
        self.has_room(by.agent())?;
        let state = self.state();
        let known = turn.and_then(|id| Some((id, state.turns.get(&id).filter(|turn| turn.agent == by.agent())?)));
        let Some((id, turn)) = known.filter(|(_, turn)| !turn.open) else { return Err(Code::LeaseLost.into()) };
        let (agent, task, lease_until) = (turn.agent, turn.task, turn.lease_until);
        let Some(grant) = state.tasks.get(&task).map(|task| task.grant) else { return Err(Code::LeaseLost.into()) };
        let spend = spend.counted();
        if spend != Spend::default() {
            self.record(Fact::WorkedOutside(WorkedOutside { turn: id, agent, grant, spend }));
        }
        self.check_budget(task, agent);
        self.check_day(agent);
        let noted = self.state().agent(agent).and_then(|agent| agent.noted_at(Code::TurnClosed));
        if noted.is_none_or(|at| self.now.since(at) >= HOUR_MS) {
            self.note_incident(agent, Code::TurnClosed, 0, spend.tokens);
        }
        Ok(Reply::Renewed { lease_until, finish: None, end: Some(Code::TurnClosed) })
    }

    /// Charges an open turn with what it reports; the rest follows at its finish (B1).
    fn spent_so_far(&mut self, id: TurnId, reported: Spend, models: Vec<ModelSpend>) {
        let turn = &self.state().turns[&id];
        let (task, agent, charged) = (turn.task, turn.agent, turn.charged());
        let spend = reported.counted().max(charged);
        // A lost or repeated report is made up for by the next, because each one covers the whole turn.
        if spend == charged {
            return;
        }
        self.spent_on(id, models);
        self.record(Fact::Spent { turn: id, spend });
        self.check_budget(task, agent);
        self.check_day(agent);
    }

    /// Records which models the charge that follows is for. A full quota of bytes drops the names, and nothing else.
    pub(super) fn spent_on(&mut self, turn: TurnId, models: Vec<ModelSpend>) {
        let agent = self.state().turns[&turn].agent;
        if !models.is_empty() && self.has_room(agent).is_ok() {
            self.record(Fact::SpentOn { turn, agent, models });
        }
    }

    /// Returns the budget of its grant or of its agent's day that an open turn has used up, for which it is asked to finish;
    /// and whether it has used a quarter more, for which it has to end (B1, R3).
    pub(super) fn spent_out(&self, id: TurnId) -> Option<(Refusal, bool)> {
        let state = self.state();
        let turn = &state.turns[&id];
        let grant = state.grants.get(&state.tasks[&turn.task].grant).filter(|grant| grant.latched.is_some());
        let agent = state.agent(turn.agent).filter(|agent| agent.rests_until().is_some());
        let by_grant = grant.and_then(|grant| guards::budget_of_grant(state, grant));
        let by_day = agent.and_then(|agent| guards::budget_of_day(state, agent, self.now));
        let ends = grant.is_some_and(|grant| guards::ends_turns(state, grant))
            || agent.is_some_and(|agent| guards::day_ends_turns(state, agent, self.now));
        by_grant.or(by_day).map(|refusal| (refusal, ends))
    }

    fn paced(&self, task: TaskId) -> Result<(), Refusal> {
        let state = self.state();
        let turn = state.tasks[&task].turn().and_then(|t| state.turns.get(&t));
        let last = turn.and_then(|t| t.progress_at.get()).max(state.tasks[&task].status_at.get());
        let interval = state.limits.progress_interval_ms;
        match last.map(|at| self.now.since(at)).filter(|since| *since < interval) {
            Some(since) => Err(Refusal::new(Code::SenderRate).numbers(1, 2).retry_after(interval - since)),
            None => Ok(()),
        }
    }

    pub(super) fn note_progress(
        &mut self,
        id: TaskId,
        from: AgentId,
        body: Box<str>,
        eta_ms: Option<u64>,
        acknowledged: bool,
    ) {
        let task = &self.state().tasks[&id];
        let (Some(to), Some(request)) = (task.asker.agent(), &task.request) else { return };
        let message = Message {
            from,
            to: Recipient::One(to),
            kind: MessageType::Status,
            conv: task.conv,
            depth: if task.asker.is_task() { task.depth_in(task.conv) } else { 0 },
            hops: task.hop,
            grant: Some(task.grant),
            sender_task: Some(id),
            cause: Some(request.message),
            in_reply_to: Some(request.message),
            key: None,
            action: None,
            payload: None,
            body,
            metadata: None,
            part: Part::Status { task: id, acknowledged, eta_ms },
        };
        self.record(Fact::Accepted { message: Box::new(message) });
    }

    pub(super) fn renew_turn(&mut self, turn: TurnId, eta_ms: Option<u64>) -> Time {
        let limits = &self.state().limits;
        let eta = eta_ms.unwrap_or(0).min(limits.eta_ms_max);
        let known = self.state().turns.get(&turn).map_or(self.now, |t| t.lease_until);
        // A renewal never shortens a lease that an earlier estimate extended.
        let lease_until = self.now.plus(limits.lease_ms.max(eta)).max(known);
        self.record(Fact::Renewed { turn, lease_until });
        lease_until
    }
}
