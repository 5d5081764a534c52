//! Which agents block in a send on which (Q8).

use alloc::vec::Vec;

use lastword_facts::ids::{AgentId, Time};

use super::{Agent, State};

impl State {
    /// Returns whether an agent blocks in a send on another one, directly or through others.
    #[must_use]
    pub fn blocks_on(&self, now: Time, from: AgentId, goal: AgentId) -> bool {
        let mut seen: Vec<AgentId> = Vec::new();
        let mut next = alloc::vec![from];
        while let Some(agent) = next.pop() {
            if agent == goal {
                return true;
            }
            // The agents that block form a graph, which may have cycles that don't include the goal.
            if !seen.contains(&agent) {
                seen.push(agent);
                next.extend(self.awaited(now, agent));
            }
        }
        false
    }

    /// Returns the agents that serve the requests on which `agent` blocks.
    fn awaited(&self, now: Time, agent: AgentId) -> impl Iterator<Item = AgentId> + '_ {
        let tasks = self.agent(agent).into_iter().flat_map(Agent::grant_tasks);
        let children = tasks.filter_map(|t| self.tasks.get(&t)).flat_map(|t| &t.children);
        children.filter_map(|c| self.tasks.get(c)).filter_map(move |child| {
            // Only a send that still blocks: a request without `wait`, or past it, holds up no agent.
            let until = child.request.as_ref()?.wait_until.get()?;
            (!child.is_closed() && until > now).then_some(child.agent)
        })
    }
}
