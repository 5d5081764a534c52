//! Q8: two agents that block on each other would wait for ever.

use alloc::vec::Vec;

use lastword_facts::ids::{AgentId, Time};
use lastword_facts::refusal::{Code, Refusal};

use super::View;
use crate::state::{Agent, State};

/// Refuses a blocking request to an agent that blocks, directly or through others, on the sender.
pub(super) fn mutual_wait(view: &View<'_>) -> Option<Refusal> {
    let to = view.to.filter(|_| view.is_request() && view.draft.wait_ms.is_some())?;
    blocks_on(view.state, view.now, to, view.sender)
        .then(|| Refusal::new(Code::MutualWait).about(view.state.name_of(to)))
}

/// Whether `from` blocks in a send on `goal`, directly or through others.
pub(crate) fn blocks_on(state: &State, now: Time, from: AgentId, goal: AgentId) -> bool {
    let mut seen: Vec<AgentId> = Vec::new();
    let mut next = alloc::vec![from];
    while let Some(agent) = next.pop() {
        if agent == goal {
            return true;
        }
        // The agents that block form a graph, which may have cycles that don't include the goal.
        if !seen.contains(&agent) {
            seen.push(agent);
            next.extend(awaited(state, now, agent));
        }
    }
    false
}

/// Returns the agents that serve the requests on which `agent` blocks.
fn awaited(state: &State, now: Time, agent: AgentId) -> impl Iterator<Item = AgentId> + '_ {
    let tasks = state.agent(agent).into_iter().flat_map(Agent::grant_tasks);
    let children = tasks.filter_map(|t| state.tasks.get(&t)).flat_map(|t| &t.children);
    children.filter_map(|c| state.tasks.get(c)).filter_map(move |child| {
        // Only a send that still blocks: a request without `wait`, or past it, holds up no agent.
        let until = child.request.as_ref()?.wait_until.get()?;
        (!child.is_closed() && until > now).then_some(child.agent)
    })
}
