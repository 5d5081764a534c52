//! What open work does: one state, with one word on every page.

use std::collections::BTreeSet;

use lastword_broker::Live;
use lastword_core::State;
use lastword_core::state::{Conversation, Phase, Task};
use lastword_facts::fact::EscalationCause;
use lastword_facts::ids::{AgentId, ConvId, TaskId};
use lastword_facts::status::{ApprovalState, EscalationState, Running};
use lastword_server::views;
use lastword_wire::{ConversationStatus, Outcome};

/// What open work does, in the order of what a human should see first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkState {
    /// A limit holds it.
    Held,
    /// A human paused or stopped its conversation, the workspace, or the agents that could go on.
    Controlled(Running),
    /// A task in it waits for a human; others may go on.
    WaitsForHuman,
    /// An agent has an open turn in it, and no task waits for a human.
    Working,
    /// The agents that could go on aren't connected.
    Gone,
    /// No agent works; a request is queued.
    Queued,
    /// No agent works; its tasks wait for answers.
    WaitsForAnswers,
}

impl WorkState {
    /// Returns what tasks do in a conversation that nothing holds and no human paused. `waits` says that one waits for a human.
    pub(super) fn of(live: &Live<'_>, tasks: &[(TaskId, &Task)], asking: &BTreeSet<TaskId>, waits: bool) -> Self {
        if let Some(running) = all_controlled(live.state, tasks) {
            Self::Controlled(running)
        } else if waits || tasks.iter().any(|(id, _)| asking.contains(id)) {
            Self::WaitsForHuman
        } else if tasks.iter().any(|(id, task)| works(*id, task, asking)) {
            Self::Working
        } else if tasks.iter().any(|(_, task)| is_stuck(live, task))
            && tasks.iter().all(|(_, task)| !task.children.is_empty() || is_stuck(live, task))
        {
            Self::Gone
        } else if tasks.iter().any(|(_, task)| task.phase == Phase::Queued) {
            Self::Queued
        } else {
            Self::WaitsForAnswers
        }
    }
}

/// What a human paused or stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PausedScope {
    /// The agent.
    Agent,
    /// The workspace.
    Workspace,
}

/// What a conversation does, or how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConversationState {
    /// What its open work does.
    Open(WorkState),
    /// A human stopped it, and nothing in it is open.
    Stopped,
    /// Nothing in it is open: how its last work ended, if that is still known.
    Ended(Option<Outcome>),
}

impl ConversationState {
    /// Returns the state of a conversation, whose work includes that of all these below it.
    pub(super) fn of(live: &Live<'_>, conv: &Conversation, below: &[ConvId], asking: &BTreeSet<TaskId>) -> Self {
        let state = live.state;
        match views::standing(state, conv) {
            ConversationStatus::Latched => Self::Open(WorkState::Held),
            ConversationStatus::Paused => Self::Open(WorkState::Controlled(Running::Paused)),
            ConversationStatus::Stopped if conv.open_tasks.is_empty() => Self::Stopped,
            ConversationStatus::Stopped => Self::Open(WorkState::Controlled(Running::Stopped)),
            ConversationStatus::Idle => Self::Ended(views::outcome(state, conv)),
            ConversationStatus::Active => {
                let all = below.iter().filter_map(|conv| state.conversations.get(conv));
                let all = || all.clone().chain(std::iter::once(conv));
                let tasks = all().flat_map(|conv| &conv.open_tasks);
                let tasks: Vec<(TaskId, &Task)> = tasks.filter_map(|id| Some((*id, state.tasks.get(id)?))).collect();
                let waits = all().any(|conv| views::waits_for_human(state, conv));
                Self::Open(WorkState::of(live, &tasks, asking, waits))
            }
        }
    }
}

/// Returns the tasks with a call or a question that a human hasn't decided.
pub(super) fn asking(state: &State) -> BTreeSet<TaskId> {
    let calls = state.approvals.iter().filter(|(_, call)| call.state == ApprovalState::Pending);
    let asked = state.escalations.iter().filter(|(_, asked)| asked.state == EscalationState::Open);
    let asked = asked.filter(|(_, asked)| asked.cause != EscalationCause::TimedOut).map(|(_, asked)| asked.task);
    calls.map(|(_, call)| call.task).chain(asked).flatten().collect()
}

/// Returns whether a task has an open turn and waits for no human.
pub(super) fn works(id: TaskId, task: &Task, asking: &BTreeSet<TaskId>) -> bool {
    matches!(task.phase, Phase::Open(_)) && !asking.contains(&id)
}

/// Returns what a human did to the agents that could go on, if that is all of them.
fn all_controlled(state: &State, tasks: &[(TaskId, &Task)]) -> Option<Running> {
    let mut next = tasks.iter().filter(|(_, task)| task.children.is_empty()).map(|(_, task)| controlled(state, task));
    let first = next.next()??;
    next.all(|running| running.is_some()).then_some(first)
}

/// Returns whether a human paused or stopped the agent of a task.
pub(super) fn controlled(state: &State, task: &Task) -> Option<Running> {
    state.agent(task.agent).map(|agent| agent.running).filter(|running| *running != Running::Active)
}

/// Returns whether a task could only go on with its agent, which isn't there.
pub(super) fn is_stuck(live: &Live<'_>, task: &Task) -> bool {
    task.children.is_empty() && is_gone(live, task.agent)
}

/// Returns whether nothing can go on: the agent has no open turn, and neither is connected nor polls.
pub(super) fn is_gone(live: &Live<'_>, agent: AgentId) -> bool {
    live.state.agent(agent).is_some_and(|known| !known.is_human() && known.turns.is_empty()) && is_away(live, agent)
}

/// Returns whether an agent neither is connected nor polls.
pub(super) fn is_away(live: &Live<'_>, agent: AgentId) -> bool {
    !live.is_attached(agent) && views::polled_at(live, agent).is_none()
}
