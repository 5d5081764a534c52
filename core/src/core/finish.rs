//! Finishing a turn. A final answer is never lost, whatever limit or hold applies (F2–F6).

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use lastword_facts::envelope::{Address, AnswerStatus, Draft, FinishStatus, Words};
use lastword_facts::fact::{
    Answer, EndReason, Fact, Latched, PartialResult, Place, Rerun, SYSTEM, Spend, TurnCharged, TurnEnd,
};
use lastword_facts::ids::{AgentId, DAY_MS, TaskId, Time, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::Running;

use super::{Outcome, Step};
use crate::guards;
use crate::input::{Finish, Reply};
use crate::rules::Rule;
use crate::state::{Agent, Asker, Phase, Principal, Request, Task};

/// Tells an agent why its last run ended, and that this is the next one (B1).
const HELD: &str = "Your last run on this task was ended because the budget was used up. There is more now: go on where \
                    you stopped, and answer.";
/// The reason of a run that ended as held, though no budget holds it.
const NOT_HELD: &str = "the run was ended for a budget that isn't used up; ask again";
/// Precedes what that run had written.
const HELD_TEXT: &str = "\n\nWhat you had written until then:\n";

impl Step<'_> {
    pub(super) fn finish(&mut self, by: Principal, turn: Option<TurnId>, finish: Finish) -> Outcome {
        self.authenticate(by)?;
        let turn = self.turn_of(by.agent(), turn);
        match turn {
            Ok(turn) => self.finish_turn(turn, finish),
            Err((Some(stale), _)) if self.finished(stale) => self.finished_again(stale, &finish),
            Err((Some(stale), refusal)) => {
                self.late(stale, by.agent(), finish.body);
                Err(refusal)
            }
            Err((None, refusal)) => Err(refusal),
        }
    }

    /// Returns the agent's open turn: the one named, or its only one. A stale one is returned with the refusal, for the
    /// record.
    pub(super) fn turn_of(&self, agent: AgentId, named: Option<TurnId>) -> Result<TurnId, (Option<TurnId>, Refusal)> {
        let state = self.state();
        let mine = |id: &TurnId| state.turns.get(id).filter(|t| t.agent == agent);
        #[cfg(feature = "rules-off")]
        let named = self.naive_turn(agent, named);
        match (named, state.agent(agent).map_or(&[][..], |a| a.turns.as_slice())) {
            (Some(id), _) => match mine(&id) {
                Some(turn) if turn.open => Ok(id),
                known => Err((known.map(|_| id), Code::LeaseLost.into())),
            },
            (None, [only]) => Ok(*only),
            (None, []) => Err((None, Refusal::new(Code::LeaseLost))),
            (None, [_, _, ..]) => Err((None, Refusal::new(Code::TurnRequired))),
        }
    }

    /// Whether its agent ended this turn, and not a lost lease or the broker.
    fn finished(&self, id: TurnId) -> bool {
        let turn = self.state().turns.get(&id);
        turn.is_some_and(|turn| turn.end == Some(TurnEnd::Finished) && turn.said != 0) && self.rule(Rule::LateAnswers)
    }

    /// Answers a repeated finish with the first result. A different one is too late for a turn that has ended (F6).
    fn finished_again(&self, id: TurnId, finish: &Finish) -> Outcome {
        let turn = &self.state().turns[&id];
        if turn.said != said(finish) {
            return Err(Code::TurnClosed.into());
        }
        let task = &self.state().tasks[&turn.task];
        // A later turn may have settled the task; this finish only ended its own turn.
        let settled = task.is_closed() && task.turns.last() == Some(&id);
        let answer = task.request.as_ref().and_then(|request| request.answer.get()).filter(|_| settled);
        Ok(Reply::Finished { answer, open: !settled })
    }

    fn finish_turn(&mut self, id: TurnId, mut finish: Finish) -> Outcome {
        let turn = &self.state().turns[&id];
        let (agent, task, turn_decided) = (turn.agent, turn.task, turn.decided);
        let estimate = (turn.text_bytes + finish.body.len() as u64).div_ceil(4);
        let reported = finish.spend.unwrap_or_default().counted().max(turn.charged());
        // The report is trusted, but not if it is less than the text itself (B1).
        let spend = reported.max(Spend { tokens: estimate, cost_microusd: 0 });
        let estimated = finish.estimated || reported.tokens < spend.tokens || reported.tokens == 0;
        let said = said(&finish);
        let served = &self.state().tasks[&task];
        let (conv, in_flight, sibling) = (served.conv, served.in_flight() > 0, served.sibling);
        // Answers to requests that one task has in flight with one delegate are a fan-out, not a ping-pong (R1).
        if !sibling {
            self.hear_in(agent, Place::Conversation(conv));
        }
        #[cfg(feature = "rules-off")]
        self.naive_answer(Place::Conversation(conv))?;
        // The decision that the agent wants to wait for may have been made already; if so, it opens the next turn.
        let decided = turn_decided.get().filter(|_| finish.status == Some(FinishStatus::Waiting) && !in_flight);
        let status = match finish.status {
            Some(FinishStatus::Held) if self.may_be_held(id) => FinishStatus::Held,
            Some(FinishStatus::Held) => {
                // Nothing would ever go on with it, so the agent's own reason, that more is to come, is wrong.
                finish.reason = Some(NOT_HELD.into());
                FinishStatus::Failed
            }
            Some(FinishStatus::Waiting) if decided.is_some() => FinishStatus::Waiting,
            Some(FinishStatus::Waiting) | None if in_flight => FinishStatus::Waiting,
            Some(FinishStatus::Waiting) | None => FinishStatus::Completed,
            Some(status) => status,
        };
        self.spent_on(id, core::mem::take(&mut finish.models));
        self.record(Fact::TurnCharged(TurnCharged { turn: id, status, spend, estimated, said }));
        #[cfg(feature = "rules-off")]
        if let Some(reply) = self.naive_finish() {
            return Ok(reply);
        }
        if let Some(decided) = decided {
            self.reply_to(task, SYSTEM, agent, "the approval was decided".into(), None, decided);
        }
        // After the turn has ended: a budget that it used up latches the grant, but can't refuse the finish (F6).
        self.check_budget(task, agent);
        self.check_day(agent);
        let reply = match status {
            FinishStatus::Waiting => self.waits(task, agent, finish.body),
            FinishStatus::Held => self.held(id, task, agent, &finish.body),
            FinishStatus::Rejected => self.rejected(task, finish),
            FinishStatus::Partial => self.partly_done(task, finish),
            FinishStatus::Completed | FinishStatus::Failed => self.done(task, status, finish),
        };
        // The agent is free and may take its next delivery.
        self.wake(agent);
        Ok(reply)
    }

    /// Shows the text of a turn that waits to the requester as progress (F3).
    fn waits(&mut self, task: TaskId, agent: AgentId, body: Box<str>) -> Reply {
        if !body.is_empty() {
            self.note_progress(task, agent, body, None, false);
        }
        Reply::Finished { answer: None, open: true }
    }

    /// Whether a budget may have ended a turn: it is used up, or a human has given more since.
    fn may_be_held(&self, id: TurnId) -> bool {
        let state = self.state();
        let turn = &state.turns[&id];
        let grant = state.grants.get(&state.tasks[&turn.task].grant);
        let given = grant.is_some_and(|grant| grant.extensions > 0);
        self.spent_out(id).is_some() || given || state.agent(turn.agent).is_some_and(|a| a.was_granted(self.now))
    }

    /// Keeps the text of a run that a budget ended, for the next turn. That turn opens once the work is held no longer (B1).
    fn held(&mut self, turn: TurnId, task: TaskId, agent: AgentId, body: &str) -> Reply {
        let opened_by = self.state().turns[&turn].delivered.first().map(|ready| ready.message);
        let mut text = String::from(HELD);
        if !body.is_empty() {
            text.push_str(HELD_TEXT);
            text.push_str(body);
        }
        self.reply_to(task, SYSTEM, agent, text.into(), None, opened_by.unwrap_or(self.state().seq));
        Reply::Finished { answer: None, open: true }
    }

    fn done(&mut self, task: TaskId, status: FinishStatus, finish: Finish) -> Reply {
        let empty = finish.body.is_empty() && finish.payload.is_none();
        let root = self.state().tasks[&task].request.is_none();
        let (status, cause) = match status {
            FinishStatus::Failed => (AnswerStatus::Failed, EndReason::Answered),
            FinishStatus::Completed
            | FinishStatus::Partial
            | FinishStatus::Rejected
            | FinishStatus::Waiting
            | FinishStatus::Held => {
                // A root has no requester, so an empty finish of it hides nothing.
                if empty && !root {
                    (AnswerStatus::Failed, EndReason::Empty)
                } else {
                    (AnswerStatus::Completed, EndReason::Answered)
                }
            }
        };
        self.answer_task(task, status, cause, finish)
    }

    /// Routes a rejected request to another agent that serves the action, if there is one (Q4); otherwise settles it.
    fn rejected(&mut self, task: TaskId, finish: Finish) -> Reply {
        let Some(request) = self.state().tasks[&task].request.clone() else {
            return self.answer_task(task, AnswerStatus::Rejected, EndReason::Answered, finish);
        };
        let Some(action) = &request.action else {
            return self.answer_task(task, AnswerStatus::Rejected, EndReason::Answered, finish);
        };
        let limits = &self.state().limits;
        let (runs, reassigned) = (u64::from(request.runs), u64::from(request.reassigned));
        let again = reassigned < limits.reassignments_max && runs < limits.runs_max;
        let asker = self.asker_of(task).agent().unwrap_or(lastword_facts::fact::SYSTEM);
        let room = self.has_room_for_agent(task);
        let tried: Vec<AgentId> = self.state().tasks[&task].tried().collect();
        let next = self.serves(action.as_str(), asker, Some(task), &tried);
        // A reassignment must not pass the limit of agents either; an agent that the grant has woken counts already.
        let next = next.filter(|agent| again && (room || self.has_woken(task, *agent)));
        match next {
            Some(agent) => {
                self.cancel_children(task);
                self.release_claims(task);
                self.requeue(task, agent, Rerun::Rejected, None);
                Reply::Finished { answer: None, open: true }
            }
            None => self.answer_task(task, AnswerStatus::Exhausted, EndReason::NobodyLeft, finish),
        }
    }

    /// Whether the task's grant may wake one more agent (D8).
    fn has_room_for_agent(&self, task: TaskId) -> bool {
        let state = self.state();
        let grant = state.grants.get(&state.tasks[&task].grant);
        grant.is_some_and(|g| {
            (g.agents.len() as u64) < state.limits.grant_agents_max.saturating_add(g.extension().agents)
        })
    }

    fn has_woken(&self, task: TaskId, agent: AgentId) -> bool {
        let state = self.state();
        state.grants.get(&state.tasks[&task].grant).is_some_and(|g| g.agents.contains(&agent))
    }

    /// Runs the failed parts once more (Q5).
    fn partly_done(&mut self, task: TaskId, finish: Finish) -> Reply {
        let request = self.state().tasks[&task].request.as_ref();
        let runs_max = self.state().limits.runs_max;
        let first = request.is_some_and(|r| r.partial.is_none() && u64::from(r.runs) < runs_max);
        if !first || finish.failed.is_empty() {
            return self.answer_task(task, AnswerStatus::Partial, EndReason::Answered, finish);
        }
        let agent = self.state().tasks[&task].agent;
        self.cancel_children(task);
        let Finish { body, completed, failed, .. } = finish;
        self.requeue(task, agent, Rerun::Partial, Some(Box::new(PartialResult { body, completed, failed })));
        Reply::Finished { answer: None, open: true }
    }

    /// Settles the task with its agent's answer, joined with the result of an earlier run.
    fn answer_task(&mut self, task: TaskId, status: AnswerStatus, cause: EndReason, finish: Finish) -> Reply {
        let served = &self.state().tasks[&task];
        let from = served.agent;
        let mut answer = Answer { reason: finish.reason, ..Answer::outcome(task, status, cause) };
        answer.completed = finish.completed;
        answer.failed = finish.failed;
        let seq = self.settle(answer, from, finish.body, finish.payload);
        Reply::Finished { answer: seq, open: false }
    }

    /// Warns the agent when the budget nears its end, and latches the grant when the budget is used up (B1).
    pub(super) fn check_budget(&mut self, task: TaskId, agent: AgentId) {
        let state = self.state();
        let id = state.tasks[&task].grant;
        let Some(grant) = state.grants.get(&id).filter(|g| g.end.is_none() && g.latched.is_none()) else { return };
        let by_grant = guards::budget_of_grant(state, grant);
        if let Some(refusal) = by_grant.filter(|_| self.has_guard("budget")) {
            self.latch(Latched::Grant(id), &refusal);
            return;
        }
        let percent = state.budget_percent(grant);
        if !grant.budget_warned && percent >= state.limits.budget_warning_percent {
            self.record(Fact::BudgetWarned { grant: id, agent, percent });
        }
    }

    /// Lets an agent that has used up its budget of the day rest until the day ends; no other agent is held (B1).
    pub(super) fn check_day(&mut self, agent: AgentId) {
        let state = self.state();
        let rests = |a: &&Agent| a.is_human() || a.rests_until().is_some();
        let Some(known) = state.agent(agent).filter(|a| !rests(a) && self.has_guard("budget")) else { return };
        let Some(refusal) = guards::budget_of_day(state, known, self.now) else { return };
        let (limit, current) = (refusal.limit.unwrap_or(0), refusal.current.unwrap_or(0));
        let until = Time((self.now.day() + 1).saturating_mul(DAY_MS));
        self.record(Fact::AgentRested { agent, until: Some(until) });
        self.note_incident(agent, Code::Budget, limit, current);
    }

    /// Handles a RESPONSE that is sent as a message as the finish of its task (F2, Q7).
    pub(super) fn response(&mut self, by: Principal, draft: &Draft) -> Outcome {
        let turn = match &draft.request_id {
            Some(id) => Some(self.answering(by.agent(), id.as_str(), draft)?),
            None => draft.turn,
        };
        let finish = Finish {
            status: draft.status,
            body: draft.body.clone(),
            payload: draft.payload.clone(),
            ..Finish::default()
        };
        let open = self.state().agent(by.agent()).is_some_and(|a| !a.turns.is_empty());
        if turn.is_none() && !open {
            return Err(Code::ReplyNotExpected.into());
        }
        if let Some(ended) = turn.filter(|turn| self.finished(*turn)) {
            return match self.finished_again(ended, &finish) {
                // As a message it is late, not a retry: the turn's own finish was another one.
                Err(_) => {
                    let id = draft.request_id.as_ref().map_or("", RequestId::as_str);
                    self.late(ended, by.agent(), finish.body);
                    Err(Refusal::new(Code::AlreadySettled).about(id))
                }
                first => first,
            };
        }
        let turn = self.turn_of(by.agent(), turn).map_err(|(_, refusal)| refusal)?;
        self.check_asserted_header(self.state().turns[&turn].task, draft)?;
        self.finish(by, Some(turn), finish)
    }

    /// Checks the claims of an answer about itself (E3). It goes to the requester of its task, under the task's REF.
    fn check_asserted_header(&self, task: TaskId, draft: &Draft) -> Result<(), Refusal> {
        let state = self.state();
        let task = &state.tasks[&task];
        let depth = if task.asker.is_task() { task.depth_in(task.conv) } else { 0 };
        let reference = state.ref_of(task.conv);
        let answers = task.request.as_ref().map(|r| r.message);
        let asker = task.asker.agent().map(|a| state.name_of(a));
        if draft.from.as_ref().is_some_and(|from| from.as_str() != state.name_of(task.agent)) {
            return Err(Code::FromMismatch.into());
        }
        if let Some(claim) = draft.depth.filter(|claim| *claim != depth) {
            return Err(Refusal::new(Code::DepthMismatch).numbers(depth.into(), claim.into()));
        }
        if draft.reference.is_some() && draft.reference.as_ref() != reference {
            return Err(Refusal::new(Code::RefConflict).about(reference.map_or("", |r| r.as_str())));
        }
        let elsewhere = matches!(&draft.to, Address::Name(to) if asker.is_some() && Some(to.as_str()) != asker);
        if elsewhere || (draft.in_reply_to.is_some() && draft.in_reply_to != answers) {
            return Err(Code::ReplyNotExpected.into());
        }
        Ok(())
    }

    /// Returns the open turn in which `agent` answers the request, opening one if needed. Refuses everything else with
    /// a typed refusal.
    fn answering(&mut self, agent: AgentId, request: &str, draft: &Draft) -> Result<TurnId, Refusal> {
        let Some((id, task)) = self.state().task_of(request) else {
            return Err(Refusal::new(Code::UnknownRequest).about(request));
        };
        let tried = task.tried().any(|one| one == agent);
        let last = task.turns.iter().rev().copied().find(|t| self.state().turns[t].agent == agent);
        match task.phase {
            Phase::Open(turn) if task.agent == agent => Ok(turn),
            Phase::Closed(..) if tried => {
                // The caller compares this finish with the first one of the turn.
                if let Some(turn) = last.filter(|turn| self.finished(*turn)) {
                    return Ok(turn);
                }
                if let Some(turn) = last {
                    self.late(turn, agent, draft.body.clone());
                }
                Err(Refusal::new(Code::AlreadySettled).about(request))
            }
            Phase::Waiting
                if task.agent == agent
                    && task.in_flight() > 0
                    && matches!(draft.status, None | Some(FinishStatus::Waiting)) =>
            {
                // The task waits already, and an answer in flight opens its next turn; only an explicit status is news.
                Err(Code::LeaseLost.into())
            }
            Phase::Queued | Phase::Waiting if task.agent == agent => {
                self.check_asserted_header(id, draft)?;
                self.may_open_turn(agent, id)?;
                let turn = TurnId(self.state().last_turn() + 1);
                self.open_turn(turn, id)
            }
            Phase::Queued | Phase::Waiting | Phase::Open(_) if tried => Err(Code::LeaseLost.into()),
            Phase::Queued | Phase::Waiting | Phase::Open(_) | Phase::Closed(..) => {
                Err(Refusal::new(Code::NotAddressee).about(request))
            }
        }
    }

    /// Refuses to open a turn past a total, in work that is held, or beyond the agent's own limit: answering a queued
    /// request must not be a way around them (D8).
    fn may_open_turn(&mut self, agent: AgentId, id: TaskId) -> Result<(), Refusal> {
        self.require_active(agent)?;
        let state = self.state();
        let (task, own) = (&state.tasks[&id], &state.agents[agent.0 as usize]);
        let (open, most) = (own.turns.len() as u64, own.turns_max(&state.limits));
        if open >= most {
            return Err(Refusal::new(Code::TurnsOpen).numbers(most, open + 1));
        }
        let running = state.running_in(task.conv);
        let holder = || state.holder_of(task.conv, running).or_else(|| state.ref_of(task.conv));
        let held = |code: Code| Refusal { subject: holder().map(|on| on.as_str().into()), ..Refusal::new(code) };
        match running {
            Running::Active => {}
            Running::Paused => return Err(held(Code::Paused)),
            Running::Stopped => return Err(held(Code::Stopped)),
        }
        if state.is_parked(task) {
            return Err(Code::Latched.into());
        }
        if own.rests_until().is_some() {
            return Err(guards::budget_of_day(state, own, self.now).unwrap_or_else(|| Code::Latched.into()));
        }
        let (grant_id, grant) = (task.grant, &state.grants[&task.grant]);
        let max = state.limits.grant_turns_max.saturating_add(grant.extension().turns);
        if grant.turns < max || !self.has_guard("grant_turns") {
            return Ok(());
        }
        let refusal = Refusal::new(Code::GrantTurns).numbers(max, grant.turns + 1);
        self.latch(Latched::Grant(grant_id), &refusal);
        Err(refusal)
    }

    /// Records a finish that came too late, once for each turn. It is shown to the requester and wakes no agent (F6).
    fn late(&mut self, turn: TurnId, agent: AgentId, body: Box<str>) {
        let known = self.state().turns.get(&turn);
        let Some(task) = known.filter(|t| !t.late).map(|t| t.task) else { return };
        self.record(Fact::Late { turn, agent, body });
        if let Asker::Human(human) = self.asker_of(task) {
            self.wake(human);
        }
    }

    /// Returns the task that an agent reports on, if it is its own and open.
    pub(super) fn own_task(&self, agent: AgentId, draft: &Draft) -> Option<TaskId> {
        let state = self.state();
        let named = draft.request_id.as_ref().and_then(|id| state.task_of(id.as_str())).map(|(id, _)| id);
        let by_turn = || self.turn_of(agent, draft.turn).ok().map(|t| state.turns[&t].task);
        let id = if draft.request_id.is_some() { named } else { by_turn() }?;
        let task = state.tasks.get(&id).filter(|t| t.agent == agent && !t.is_closed())?;
        let asker = task.asker.agent().map(|a| state.name_of(a));
        if matches!(&draft.to, Address::Name(to) if Some(to.as_str()) != asker) {
            return None;
        }
        task.request.as_ref().map(|_| id)
    }
}

/// Returns the fingerprint of a finish. Never 0, which marks a turn that no finish ended (F6).
fn said(finish: &Finish) -> u64 {
    let Finish { status, body, payload, completed, failed, reason, .. } = finish;
    let mut hash = Words::default();
    hash.text(status.map_or("", FinishStatus::word));
    hash.text(body);
    hash.text(payload.as_deref().unwrap_or_default());
    for parts in [completed, failed] {
        hash.number(parts.len() as u64);
        parts.iter().for_each(|part| hash.text(part));
    }
    hash.text(reason.as_deref().unwrap_or_default());
    hash.value().max(1)
}

impl Request {
    /// Joins the result of an earlier, partial run with the answer of the run of its failed parts (Q5).
    pub(super) fn join_partial(&self, answer: &mut Answer) {
        let Some(partial) = &self.partial else {
            answer.earlier = None;
            return;
        };
        answer.earlier = Some(partial.result);
        let mut completed = partial.completed.clone();
        // A completed second run without a list completed all parts that had failed.
        let answered = answer.status == AnswerStatus::Completed && answer.completed.is_empty();
        let now_done = if answered { partial.failed.clone() } else { core::mem::take(&mut answer.completed) };
        completed.extend(now_done);
        answer.completed = completed;
        if !matches!(answer.status, AnswerStatus::Completed | AnswerStatus::Partial) {
            answer.failed.clone_from(&partial.failed);
            // A cancelled request stays cancelled; any other failure still delivers the first run's parts.
            if answer.status != AnswerStatus::Cancelled {
                answer.status = AnswerStatus::Partial;
            }
        }
    }
}

impl Task {
    /// Whether it waits for nothing of its own and no turn serves it.
    pub(crate) fn is_idle(&self) -> bool {
        self.phase == Phase::Waiting && self.in_flight() == 0
    }
}
