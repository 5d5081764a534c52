//! Taking deliveries: one opens a turn, and later answers for the same task join it (F1).

use alloc::vec::Vec;

use lastword_facts::fact::{Fact, Latched, TurnOpened};
use lastword_facts::ids::{AgentId, Seq, TaskId, TurnId};
use lastword_facts::names::RequestId;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::Running;

use super::{Outcome, Step};
use crate::input::{Consumer, Delivery, OpenTurn, Reply};
use crate::rules::Rule;
use crate::state::{Asker, Phase, Principal, Turn};

/// Who takes a delivery.
enum Taker {
    /// A human, with the message that is taken.
    Human(Option<Delivery>),
    /// An agent, and whether all its turns are open.
    Agent { agent: AgentId, full: bool },
}

impl Step<'_> {
    pub(super) fn take(&mut self, by: Principal, turn: Option<TurnId>) -> Outcome {
        let (agent, full) = match self.taker(by)? {
            Taker::Human(message) => return Ok(Reply::Delivery(message)),
            Taker::Agent { agent, full } => (agent, full),
        };
        // An agent with all its turns open can only continue one of them.
        if turn.is_none() && full && self.state().agents[agent.0 as usize].turns.len() > 1 {
            let turns = self.state().agents[agent.0 as usize].turns.to_vec();
            return self.again_of_several(&turns);
        }
        if turn.is_some() || full {
            let open = self.turn_of(agent, turn).map_err(|(_, refusal)| refusal)?;
            let delivery = self.join(open);
            return Ok(Reply::Delivery(delivery.or_else(|| self.again(open).filter(|_| turn.is_none()))));
        }
        Ok(Reply::Delivery(self.open_next(agent)?))
    }

    /// Takes the next delivery that opens a turn. Unlike [`Step::take`] it never repeats one of an open turn: who receives
    /// has all that was delivered, and several may receive for one agent.
    pub(super) fn receive(&mut self, by: Principal, consumer: Consumer) -> Outcome {
        let (agent, full) = match self.taker(by)? {
            Taker::Human(message) => return Ok(Reply::Delivery(message)),
            Taker::Agent { agent, full } => (agent, full),
        };
        if consumer == Consumer::OneShot
            && let Some(delivery) = self.take_last_answer(agent)
        {
            return Ok(Reply::Delivery(Some(delivery)));
        }
        Ok(Reply::Delivery(if full { None } else { self.open_next(agent)? }))
    }

    /// Continues one of these turns, of the agent's open ones (F1).
    pub(super) fn resume(&mut self, by: Principal, turns: &[TurnId]) -> Outcome {
        let agent = match self.taker(by)? {
            Taker::Human(message) => return Ok(Reply::Delivery(message)),
            Taker::Agent { agent, .. } => agent,
        };
        let own = self.state().agents[agent.0 as usize].turns.iter();
        let open: Vec<TurnId> = own.copied().filter(|turn| turns.contains(turn)).collect();
        match *open {
            [] => Ok(Reply::Delivery(None)),
            [only] => {
                let joined = self.join(only);
                Ok(Reply::Delivery(joined.or_else(|| self.again(only))))
            }
            _ => self.again_of_several(&open),
        }
    }

    /// Takes the answer to a root of an agent that works in no turns, if nothing else of that root is in flight. The root
    /// ends, so that the next job's request is its own (F1).
    fn take_last_answer(&mut self, agent: AgentId) -> Option<Delivery> {
        let state = self.state();
        let mut queue = state.agents[agent.0 as usize].queue.iter().map(|(_, id)| *id);
        let id = queue.find(|id| !state.is_parked(&state.tasks[id])).filter(|_| state.may_take(agent))?;
        let task = &state.tasks[&id];
        let message = task.ready.first().filter(|_| task.asker == Asker::Nobody && task.in_flight() == 1)?.message;
        self.record(Fact::Collected { task: id, message });
        self.end_collected(id);
        Some(Delivery::note(message))
    }

    /// Returns who takes a delivery. A human has no turns: their inbox is read one message at a time.
    fn taker(&mut self, by: Principal) -> Result<Taker, Refusal> {
        self.authenticate(by)?;
        let agent = by.agent();
        if by.is_human() {
            return Ok(Taker::Human(self.take_notice(agent)));
        }
        let state = self.state();
        let own = &state.agents[agent.0 as usize];
        if own.running == Running::Stopped || state.running == Running::Stopped {
            let on = if state.running == Running::Stopped { "workspace" } else { own.name() };
            return Err(Refusal::new(Code::Stopped).about(on));
        }
        Ok(Taker::Agent { agent, full: own.turns.len() as u64 >= own.turns_max(&state.limits) })
    }

    /// Opens a turn for the agent's next task.
    fn open_next(&mut self, agent: AgentId) -> Result<Option<Delivery>, Refusal> {
        if !self.state().may_take(agent) {
            return Ok(None);
        }
        let Some(task) = self.next_task(agent) else { return Ok(None) };
        let turn = TurnId(self.state().last_turn() + 1);
        let age_max = self.state().limits.delivery_age_ms;
        let waiting = self.state().agents[agent.0 as usize].notices.iter();
        // Too old to be worth the reader's attention; the turn's end drops them all the same (L3).
        let fresh = waiting.filter(|(_, at)| self.now.since(*at) < age_max || !self.rule(Rule::NoticeAge));
        let notices: Vec<Seq> = fresh.map(|(seq, _)| *seq).collect();
        self.open_turn(turn, task)?;
        let message = self.state().turns[&turn].delivered.first().map_or(Seq(0), |d| d.message);
        Ok(Some(Delivery { notices, ..self.delivery(turn, message) }))
    }

    /// Takes the oldest message from a human's inbox, which marks it as read.
    fn take_notice(&mut self, human: AgentId) -> Option<Delivery> {
        let (through, _) = *self.state().agents[human.0 as usize].notices.front()?;
        self.record(Fact::Noticed { agent: human, through });
        Some(Delivery::note(through))
    }

    /// Inside a turn: renews the lease if a part of it is used up, and returns the next answer of its task.
    fn join(&mut self, id: TurnId) -> Option<Delivery> {
        let lease_until = self.now.plus(self.state().limits.lease_ms);
        let turn = &self.state().turns[&id];
        let task = &self.state().tasks[&turn.task];
        let held = self.state().is_parked(task) || !self.state().may_take(turn.agent);
        let ready = task.ready.first().copied().filter(|_| !held);
        let Some(ready) = ready else {
            // Renewing at every poll would fill the log; a tenth of the lease is exact enough.
            if lease_until.since(turn.lease_until) * 10 > self.state().limits.lease_ms {
                self.record(Fact::Renewed { turn: id, lease_until });
            }
            return None;
        };
        // A join never shortens a lease that an estimate extended.
        let lease_until = lease_until.max(turn.lease_until);
        self.record(Fact::Joined { turn: id, message: ready.message, lease_until });
        Some(self.delivery(id, ready.message))
    }

    /// Returns the turn's last delivery once more. An agent that doesn't name its turn and has nothing to wait for in
    /// it has lost the reply to its last call, or was restarted (L2). The same delivery has the same id.
    fn again(&self, id: TurnId) -> Option<Delivery> {
        let turn = &self.state().turns[&id];
        let lost = self.state().tasks[&turn.task].in_flight() == 0;
        let last = turn.delivered.last().filter(|_| lost)?;
        Some(self.delivery(id, last.message))
    }

    /// Returns the last delivery of one of several open turns once more. An agent that was restarted gets one after the
    /// other, because the lease of the one that it gets is renewed: next time another one's ends first (L2).
    fn again_of_several(&mut self, turns: &[TurnId]) -> Outcome {
        let state = self.state();
        let lost = turns.iter().filter(|turn| state.tasks[&state.turns[turn].task].in_flight() == 0);
        let Some(turn) = lost.copied().min_by_key(|turn| (state.turns[turn].lease_until, *turn)) else {
            return Err(Code::TurnRequired.into());
        };
        let lease_until = self.now.plus(state.limits.lease_ms).max(state.turns[&turn].lease_until);
        if lease_until > state.turns[&turn].lease_until {
            self.record(Fact::Renewed { turn, lease_until });
        }
        Ok(Reply::Delivery(self.again(turn)))
    }

    fn delivery(&self, id: TurnId, message: Seq) -> Delivery {
        let turn = &self.state().turns[&id];
        let steps = self.state().tasks[&turn.task].kept_steps();
        let grant = self.state().tasks[&turn.task].grant;
        let trace = self.state().grants.get(&grant).and_then(|grant| grant.trace.as_deref().copied());
        let Turn { task, attempt, lease_until, .. } = *turn;
        let turn = OpenTurn { turn: id, task, attempt, lease_until, grant, trace };
        Delivery { turn: Some(turn), message, notices: Vec::new(), steps }
    }

    /// Returns the first task in the agent's queue that is not parked. One whose grant has used up its turns is parked
    /// now (D8).
    fn next_task(&mut self, agent: AgentId) -> Option<TaskId> {
        loop {
            let state = self.state();
            let mut queue = state.agents[agent.0 as usize].queue.iter().map(|(_, id)| *id);
            let id = queue.find(|id| !state.is_parked(&state.tasks[id]))?;
            let grant_id = state.tasks[&id].grant;
            let grant = &state.grants[&grant_id];
            let max = state.limits.grant_turns_max.saturating_add(grant.extension().turns);
            if grant.turns < max || !self.has_guard("grant_turns") {
                return Some(id);
            }
            let refusal = Refusal::new(Code::GrantTurns).numbers(max, grant.turns + 1);
            // The latch parks the task, so the next round of the loop skips it.
            self.latch(Latched::Grant(grant_id), &refusal);
        }
    }

    /// Opens a turn for a queued task, or for a waiting one with an answer.
    pub(super) fn open_turn(&mut self, turn: TurnId, id: TaskId) -> Result<TurnId, Refusal> {
        let task = &self.state().tasks[&id];
        let message = match (task.phase, &task.request, task.ready.first()) {
            (Phase::Queued, Some(request), _) => request.message,
            (Phase::Waiting, Some(request), None) => request.message,
            (_, _, Some(ready)) => ready.message,
            (_, _, None) => return Err(Code::LeaseLost.into()),
        };
        let attempt = task.attempt;
        let lease_until = self.now.plus(self.state().limits.lease_ms);
        self.record(Fact::TurnOpened(TurnOpened { turn, task: id, attempt, message, lease_until }));
        Ok(turn)
    }

    /// Returns the answer that a send waited for, with the send; it opens no turn (Q8).
    pub(super) fn collect(&mut self, by: Principal, request: &RequestId) -> Outcome {
        self.authenticate(by)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(request);
        let (_, child) = self.state().task_of(request.as_str()).ok_or_else(unknown)?;
        if child.asker.agent() != Some(by.agent()) {
            return Err(unknown());
        }
        let Some(answer) = child.request.as_ref().and_then(|r| r.answer.get()) else {
            return Ok(Reply::Delivery(None));
        };
        let Asker::Task { task, .. } = child.asker else {
            if self.state().agent(by.agent()).is_some_and(|agent| agent.notice(answer).is_some()) {
                self.record(Fact::NoticeRead { agent: by.agent(), message: answer });
            }
            return Ok(Reply::Delivery(Some(Delivery::note(answer))));
        };
        let waiting = self.state().tasks.get(&task).is_some_and(|t| t.ready.iter().any(|r| r.message == answer));
        if waiting {
            let turn = self.state().tasks[&task].turn();
            match turn {
                Some(turn) => {
                    let lease_until = self.state().turns[&turn].lease_until;
                    self.record(Fact::Joined { turn, message: answer, lease_until });
                }
                None if self.asker_of(task) == Asker::Nobody => {
                    self.record(Fact::Collected { task, message: answer });
                }
                // The task waits for the answer without a turn: the answer opens the next one.
                None => return Ok(Reply::Delivery(None)),
            }
            self.end_collected(task);
        }
        Ok(Reply::Delivery(Some(Delivery::note(answer))))
    }

    /// Ends a root whose answers were collected. What a human typed goes on until it ends, so its next request belongs to
    /// the same grant (H8).
    fn end_collected(&mut self, task: TaskId) {
        let agent = self.state().tasks.get(&task).map(|task| task.agent);
        let word = agent.and_then(|agent| self.state().typed_word(agent, self.now));
        if word.is_none_or(|word| word.root.get() != Some(task)) {
            self.end_idle_root(task);
        }
    }
}
