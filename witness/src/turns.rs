//! Turns: their openings, their number, and that a finish settles (F1, F2, D8, Q5).

#![expect(clippy::wildcard_enum_match_arm, reason = "the dispatch names every fact; this part looks at its own")]

use lastword_facts::fact::{
    EscalationOpened, Fact, Part, Requeued, Rerun, Spend, TurnCharged, TurnClosed, TurnEnd, TurnFinished, TurnOpened,
    WorkedOutside,
};
use lastword_facts::ids::{AgentId, ConvId, Seq, TaskId, TurnId};
use lastword_facts::{FinishStatus, fact::EscalationCause};
use serde::Serialize;

use super::{Running, Witness};

/// An open turn.
#[derive(Clone, Debug, Serialize)]
pub(super) struct OpenTurn {
    pub(super) task: TaskId,
    agent: AgentId,
    /// What its reports were charged so far.
    charged: Spend,
    /// What the report that is charged next spent on models that it names.
    on_models: Spend,
    /// Answers delivered in it, which are ready again if its lease expires.
    delivered: Vec<(Seq, Option<(ConvId, u8)>)>,
}

/// The most tokens, and millionths of a dollar, that one turn's report counts for (B1).
const REPORT_MAX: u64 = 1_000_000_000_000;

fn counted(spend: Spend) -> Spend {
    Spend { tokens: spend.tokens.min(REPORT_MAX), cost_microusd: spend.cost_microusd.min(REPORT_MAX) }
}

impl Witness {
    pub(super) fn see_turn(&mut self, fact: &Fact) {
        match fact {
            Fact::TurnOpened(TurnOpened { turn, task, message, .. }) => self.turn_opened(*turn, *task, *message),
            Fact::Joined { turn, message, .. } => {
                let task = self.open_turn(*turn).map(|turn| turn.task);
                if let Some(task) = task {
                    self.deliver(task, *message, Some(*turn));
                }
            }
            Fact::Collected { task, message } => self.deliver(*task, *message, None),
            Fact::Renewed { turn, .. } | Fact::WaitsForUser { turn, .. } => drop(self.open_turn(*turn)),
            Fact::TurnClosed(TurnClosed { turn, end, spend, .. }) => {
                let Some((task, closed)) = self.turn_closed(*turn) else { return };
                self.spent_in(task, counted(*spend), closed.charged);
                if let (TurnEnd::LeaseLost, Some(task)) = (end, self.tasks.get_mut(&task)) {
                    task.ready.extend(closed.delivered);
                }
            }
            Fact::Spent { turn, spend } => {
                let Some(open) = self.open_turn(*turn) else { return };
                let (task, charged) = (open.task, std::mem::replace(&mut open.charged, counted(*spend)));
                let on_models = std::mem::take(&mut open.on_models);
                self.spent_on_models(*turn, on_models, *spend);
                self.spent_in(task, counted(*spend), charged);
            }
            Fact::SpentOn { turn, models, .. } => {
                let Some(open) = self.open_turn(*turn) else { return };
                open.on_models = models.iter().fold(Spend::default(), |mut sum, part| {
                    sum.add(part.spend);
                    sum
                });
            }
            Fact::TurnFinished(TurnFinished { turn, status, spend, .. })
            | Fact::TurnCharged(TurnCharged { turn, status, spend, .. }) => {
                let Some((task, closed)) = self.turn_closed(*turn) else { return };
                self.spent_on_models(*turn, closed.on_models, *spend);
                self.spent_in(task, counted(*spend), closed.charged);
                self.finishing = Some(task).filter(|_| !matches!(status, FinishStatus::Waiting | FinishStatus::Held));
            }
            Fact::WorkedOutside(WorkedOutside { turn, grant, spend, .. }) => {
                self.expect(!self.turns.contains_key(turn), "work outside a turn comes after it", || turn.to_string());
                self.spent(*grant, *spend);
            }
            Fact::Requeued(Requeued { task, agent, why, .. }) => self.requeued(*task, *agent, *why),
            other => super::misdirected(other),
        }
    }

    fn turn_opened(&mut self, id: TurnId, task_id: TaskId, message: Seq) {
        self.expect(id.0 > self.last.turn, "numbers are given once", || id.to_string());
        self.last.turn = self.last.turn.max(id.0);
        let Some(task) = self.tasks.get_mut(&task_id) else {
            return self.expect(false, "a turn serves an open task", || task_id.to_string());
        };
        let (agent, grant, conv) = (task.agent, task.grant, task.conv);
        let alone = task.turn.replace(id).is_none();
        let opens = task.request == Some(message);
        let waking = opens || task.ready.contains_key(&message);
        self.expect(alone, "a task has one turn at a time", || task_id.to_string());
        self.expect(waking, "only a request or an answer opens a turn", || message.to_string());
        self.turns.insert(
            id,
            OpenTurn {
                task: task_id,
                agent,
                charged: Spend::default(),
                on_models: Spend::default(),
                delivered: Vec::new(),
            },
        );
        if !opens {
            self.deliver(task_id, message, Some(id));
        }
        self.see_grant_turn(grant);
        let workspace = self.limits.agent_turns_max;
        let held = self.conv(conv).running != Running::Active || self.running != Running::Active;
        let Some(party) = self.parties.get_mut(&agent) else { return };
        party.open_turns += 1;
        let (open, max) = (party.open_turns, party.turns_max(workspace));
        let runs = party.live && party.running == Running::Active && !party.resting && !held;
        self.expect(open <= max, "open turns of an agent", || format!("{open} of {max}"));
        self.expect(runs, "no turn opens where a human or a latch holds", || agent.to_string());
    }

    /// Returns an open turn; a stale turn has no effect.
    fn open_turn(&mut self, id: TurnId) -> Option<&mut OpenTurn> {
        let open = self.turns.contains_key(&id);
        self.expect(open, "a turn that has ended does nothing", || id.to_string());
        self.turns.get_mut(&id)
    }

    fn turn_closed(&mut self, id: TurnId) -> Option<(TaskId, OpenTurn)> {
        self.open_turn(id)?;
        let closed = self.turns.remove(&id)?;
        if let Some(task) = self.tasks.get_mut(&closed.task) {
            task.turn = None;
        }
        if let Some(party) = self.parties.get_mut(&closed.agent) {
            party.open_turns = party.open_turns.saturating_sub(1);
        }
        Some((closed.task, closed))
    }

    /// Adds a turn's total to its grant, less what the turn was charged before. A total never falls.
    fn spent_in(&mut self, task: TaskId, total: Spend, charged: Spend) {
        let rises = total.tokens >= charged.tokens && total.cost_microusd >= charged.cost_microusd;
        self.expect(rises, "a turn's charge never falls", || task.to_string());
        let spend = Spend {
            tokens: total.tokens.saturating_sub(charged.tokens),
            cost_microusd: total.cost_microusd.saturating_sub(charged.cost_microusd),
        };
        if let Some(grant) = self.tasks.get(&task).map(|task| task.grant) {
            self.spent(grant, spend);
        }
    }

    fn spent_on_models(&mut self, turn: TurnId, on_models: Spend, whole: Spend) {
        let within = on_models.tokens <= whole.tokens && on_models.cost_microusd <= whole.cost_microusd;
        self.expect(within, "models account for at most what their turn spent", || turn.to_string());
    }

    /// Delivers a ready message to a task; its depth counts from now on.
    fn deliver(&mut self, id: TaskId, message: Seq, turn: Option<TurnId>) {
        let ready = self.tasks.get_mut(&id).and_then(|task| task.ready.remove(&message));
        self.expect(ready.is_some(), "each answer is delivered once", || message.to_string());
        let (Some(ready), Some(task)) = (ready, self.tasks.get_mut(&id)) else { return };
        if let Some((conv, depth)) = ready {
            let deepest = task.received.entry(conv).or_default();
            *deepest = depth.max(*deepest);
        }
        if let Some(turn) = turn.and_then(|turn| self.turns.get_mut(&turn)) {
            turn.delivered.push((message, ready));
        }
    }

    fn requeued(&mut self, id: TaskId, agent: AgentId, why: Rerun) {
        let limits = &self.limits;
        let (runs_max, reassignments_max) = (limits.runs_max, limits.reassignments_max);
        let Some(task) = self.tasks.get_mut(&id) else {
            return self.expect(false, "only an open request is run again", || id.to_string());
        };
        task.runs += 1;
        let anew = why == Rerun::Rejected;
        let tried = task.tried.contains(&agent);
        if anew {
            task.reassigned += 1;
            task.tried.push(agent);
        }
        let same = task.agent == agent;
        task.agent = agent;
        if matches!(why, Rerun::Rejected | Rerun::Partial) {
            task.ready.clear();
        }
        let (runs, reassigned, grant) = (task.runs, task.reassigned, task.grant);
        self.expect(runs <= runs_max, "runs of a request", || format!("{runs} of {runs_max}"));
        let within = reassigned <= reassignments_max;
        self.expect(within, "reassignments of a request", || format!("{reassigned} of {reassignments_max}"));
        self.expect(if anew { !tried } else { same }, "no agent is tried twice", || agent.to_string());
        if matches!(why, Rerun::Rejected | Rerun::Partial) {
            self.withdraw(id, false);
        }
        if self.finishing == Some(id) {
            self.finishing = None;
        }
        self.wakes_another(grant, agent);
        self.expect(self.is_agent(agent), "only an agent is woken", || agent.to_string());
    }

    /// Checks that a finish settles: before the next unrelated fact, its task has ended or is run again.
    pub(super) fn settles(&mut self, fact: &Fact) {
        let Some(task) = self.finishing else { return };
        let anew = match fact {
            Fact::Accepted { message } => matches!(message.part, Part::Request(_) | Part::Plain | Part::Echo),
            Fact::EscalationOpened(EscalationOpened { cause, .. }) => *cause == EscalationCause::Asked,
            Fact::Heard { .. }
            | Fact::Refused(_)
            | Fact::TurnOpened(_)
            | Fact::TurnFinished(_)
            | Fact::TurnCharged(_)
            | Fact::Spent { .. }
            | Fact::SpentOn { .. }
            | Fact::Joined { .. }
            | Fact::GrantOpened(_)
            | Fact::ApprovalAsked(_)
            | Fact::Claimed(_)
            | Fact::Posted { .. }
            | Fact::Controlled { .. }
            | Fact::Forgot { .. }
            | Fact::Idled { .. } => true,
            _ => false,
        };
        self.expect(!anew, "a finish settles", || task.to_string());
        if anew {
            self.finishing = None;
        }
    }
}
