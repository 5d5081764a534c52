//! Turns: runs of an agent, from a delivery to the finish (F1).

use alloc::boxed::Box;

use serde::{Deserialize, Serialize};
use thin_vec::ThinVec;

use lastword_facts::fact::{Spend, TurnEnd};
use lastword_facts::fsm::RequestEvent;
use lastword_facts::ids::{AgentId, Seq, TaskId, Time, TurnId};

use super::small::append;
use super::{Opt, Phase, Ready, State, Timer};

/// A turn of an agent (F1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The agent that the turn belongs to.
    pub agent: AgentId,
    /// The task that it serves.
    pub task: TaskId,
    /// The attempt at the task, from 1.
    pub attempt: u32,
    /// The message that opened it, then the answers that joined.
    pub delivered: ThinVec<Ready>,
    /// The end of its lease.
    pub lease_until: Time,
    /// The time at which it was opened.
    pub opened_at: Time,
    /// The refusals in it that count (F5).
    pub refusals: u32,
    /// The length of everything delivered and sent in it, in bytes, to estimate its tokens (B1).
    pub text_bytes: u64,
    /// What it has been charged so far; `None` before its first charge (B1).
    pub(crate) spent: Option<Box<Spend>>,
    /// The position of the last notice shown in it.
    pub notices_through: Opt<Seq>,
    /// The time of its last progress report.
    pub progress_at: Opt<Time>,
    /// Whether it is open.
    pub open: bool,
    /// Whether a dialog of its program waits for the program's own user.
    pub waits_for_user: bool,
    /// How it ended; `None` while it is open.
    pub end: Option<TurnEnd>,
    /// The fingerprint of the finish that ended it, 0 if none did (F6).
    pub said: u64,
    /// Whether a late finish of it was recorded. Only the first one is.
    pub late: bool,
    /// The decision on an approval that was made while it was open.
    pub decided: Opt<Seq>,
}

impl Turn {
    /// Returns what the turn has been charged while it is open (B1).
    #[must_use]
    pub fn charged(&self) -> Spend {
        self.spent.as_deref().copied().unwrap_or_default()
    }

    /// Returns the tokens of its text (B1).
    pub(crate) const fn estimate(&self) -> u64 {
        self.text_bytes.div_ceil(4)
    }
}

/// What a turn has spent since it was opened.
pub(super) struct Charge {
    pub(super) total: Spend,
    pub(super) estimated: bool,
}

impl State {
    pub(super) fn turn_opened(&mut self, at: Time, id: TurnId, task: TaskId, message: Seq, lease_until: Time) {
        self.minted.turn = id.0;
        self.dequeue(at, task);
        let Some(served) = self.tasks.get_mut(&task) else { return };
        let agent = served.agent;
        let turn = Turn {
            agent,
            task,
            attempt: served.attempt,
            delivered: ThinVec::new(),
            lease_until,
            opened_at: at,
            refusals: 0,
            text_bytes: 0,
            spent: None,
            // Notices that arrive during the turn are not in this delivery and must survive its end.
            notices_through: self.agents[agent.0 as usize].notices.back().map(|(seq, _)| *seq).into(),
            progress_at: Opt::none(),
            open: true,
            waits_for_user: false,
            end: None,
            said: 0,
            late: false,
            decided: Opt::none(),
        };
        // A waiting task is opened by an answer, not by its request.
        let opens = served.phase == Phase::Queued;
        served.phase = Phase::Open(id);
        append(&mut served.turns, id);
        // A lift belongs to the refusal of its turn.
        if let Some(rare) = served.rare.as_deref_mut() {
            rare.met = None;
        }
        let opening = served.request.as_ref().filter(|r| opens && r.message == message);
        let opening = opening.map(|r| Ready { message, depth: None, child: Opt::none(), bytes: r.bytes });
        if let Some(grant) = self.grants.get_mut(&served.grant) {
            grant.turns += 1;
        }
        self.turns.insert(id, turn);
        self.timers.insert(lease_until, Timer::Lease(id));
        self.agents[agent.0 as usize].turns.push(id);
        match opening {
            Some(opening) => {
                self.hand_over(id, opening);
                self.step(task, RequestEvent::Taken);
            }
            None => self.deliver(at, task, message, Some(id)),
        }
        self.refresh_clock(at, agent);
        self.grant_turn(at, task, true);
    }

    fn hand_over(&mut self, turn: TurnId, ready: Ready) {
        if let Some(turn) = self.turns.get_mut(&turn) {
            turn.text_bytes = turn.text_bytes.saturating_add(ready.bytes);
            append(&mut turn.delivered, ready);
        }
    }

    pub(super) fn joined(&mut self, at: Time, turn: TurnId, message: Seq, lease_until: Time) {
        self.renew(turn, lease_until);
        if let Some(task) = self.turns.get(&turn).map(|t| t.task) {
            self.deliver(at, task, message, Some(turn));
        }
    }

    /// Delivers a ready message to a task. From now on its depth counts (D2).
    pub(super) fn deliver(&mut self, at: Time, id: TaskId, message: Seq, turn: Option<TurnId>) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let Some(place) = task.ready.iter().position(|r| r.message == message) else { return };
        let ready = task.ready.remove(place);
        if let Some((conv, depth)) = ready.depth {
            match task.received.iter_mut().find(|(c, _)| *c == conv) {
                Some((_, deepest)) => *deepest = depth.max(*deepest),
                None => append(&mut task.received, (conv, depth)),
            }
        }
        let idle = task.phase == Phase::Waiting && task.ready.is_empty();
        if let Some(child) = ready.child.get() {
            self.step(child, RequestEvent::Delivered);
        }
        match turn {
            Some(turn) => self.hand_over(turn, ready),
            // Nothing else is ready, so the task has nothing to be queued for.
            None if idle => self.dequeue(at, id),
            None => {}
        }
    }

    pub(super) fn renewed(&mut self, at: Time, turn: TurnId, lease_until: Time) {
        self.renew(turn, lease_until);
        if let Some(turn) = self.turns.get_mut(&turn) {
            turn.progress_at = at.into();
            let task = turn.task;
            self.keep_claims(task, lease_until);
        }
    }

    pub(super) fn renew(&mut self, id: TurnId, lease_until: Time) {
        let Some(turn) = self.turns.get_mut(&id) else { return };
        // The timer is found by its time, so it is removed before the time changes.
        self.timers.remove(turn.lease_until, Timer::Lease(id));
        turn.lease_until = lease_until;
        self.timers.insert(lease_until, Timer::Lease(id));
    }

    pub(super) fn turn_closed(&mut self, at: Time, turn: TurnId, end: TurnEnd, charge: Charge) {
        self.end_turn(at, turn, end);
        self.spend(at, turn, charge);
    }

    pub(super) fn turn_finished(&mut self, at: Time, turn: TurnId, charge: Charge, said: u64) {
        self.turn_closed(at, turn, TurnEnd::Finished, charge);
        if let Some(turn) = self.turns.get_mut(&turn) {
            turn.said = said;
        }
    }

    fn end_turn(&mut self, at: Time, id: TurnId, end: TurnEnd) {
        self.waits_for_user(at, id, false);
        let Some(turn) = self.turns.get_mut(&id) else { return };
        turn.open = false;
        turn.end = Some(end);
        let (agent, task, lease, through) = (turn.agent, turn.task, turn.lease_until, turn.notices_through.get());
        let delivered = if end == TurnEnd::LeaseLost { core::mem::take(&mut turn.delivered) } else { ThinVec::new() };
        self.timers.remove(lease, Timer::Lease(id));
        self.agents[agent.0 as usize].turns.retain(|t| *t != id);
        // Only a finish proves that the agent saw the notices; otherwise they are shown again.
        if let (TurnEnd::Finished, Some(through)) = (end, through) {
            self.drop_notices(agent, through);
        }
        self.grant_turn(at, task, false);
        if let Some(task) = self.tasks.get_mut(&task) {
            task.phase = Phase::Waiting;
            if end == TurnEnd::LeaseLost {
                task.lost += 1;
                task.attempt += 1;
                // The core requeues the request itself. The answers go back to the front, in their order.
                let opening = task.request.as_ref().map(|r| r.message);
                for answer in delivered.into_iter().rev().filter(|d| Some(d.message) != opening) {
                    task.ready.insert(0, answer);
                }
            }
            if !task.ready.is_empty() {
                self.enqueue(at, self.turns[&id].task);
            }
        }
        self.refresh_clock(at, agent);
    }

    pub(super) fn finished_late(&mut self, at: Time, turn: TurnId) {
        let Some(turn) = self.turns.get_mut(&turn) else { return };
        turn.late = true;
        let task = self.tasks.get(&turn.task);
        if let Some(asker) = task.and_then(|t| t.asker.agent()) {
            self.notice(at, asker);
        }
    }

    /// Charges a turn with what it has spent since it was opened, less what it was charged before (B1).
    pub(super) fn spend(&mut self, at: Time, turn: TurnId, Charge { total, estimated }: Charge) {
        let Some(turn) = self.turns.get_mut(&turn) else { return };
        let spend = total.beyond(turn.charged());
        turn.spent = turn.open.then(|| Box::new(total.max(turn.charged())));
        let grant = self.tasks.get(&turn.task).map(|t| t.grant);
        let agent = &mut self.agents[turn.agent.0 as usize];
        agent.charge(at, spend, estimated);
        if let Some(grant) = grant.and_then(|g| self.grants.get_mut(&g)) {
            grant.spend.add(spend);
            grant.estimated |= estimated;
        }
    }
}
