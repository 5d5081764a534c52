//! Prompts that humans typed into the sessions of agents (H8).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::Role;
use lastword_facts::ids::{AgentId, HOUR_MS, TaskId, Time};

use super::{Agent, Opt, State};

/// A prompt that a human typed into an agent's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Typed {
    /// The human who typed it.
    pub by: AgentId,
    /// The time at which it was typed.
    pub at: Time,
    /// The root task of the grant that it opened; none while it has opened none.
    pub root: Opt<TaskId>,
}

impl Agent {
    /// Returns the prompt that was last typed into its session, until it ends.
    #[must_use]
    pub fn typed(&self) -> Option<Typed> {
        self.rare.as_ref()?.typed
    }

    /// Returns the number of grants that prompts typed into its session opened in the hour before `now`, and the oldest
    /// of them.
    #[must_use]
    pub fn typed_grants(&self, now: Time) -> (u64, Option<Time>) {
        let all = self.rare.iter().flat_map(|rare| &rare.typed_grants);
        let mut recent = all.copied().filter(|at| now.since(*at) < HOUR_MS);
        let oldest = recent.next();
        (u64::from(oldest.is_some()) + recent.count() as u64, oldest)
    }
}

impl State {
    /// Returns the typed prompt because of which an agent works now: one whose grant is open, or one that may still
    /// open it.
    #[must_use]
    pub fn typed_word(&self, agent: AgentId, now: Time) -> Option<Typed> {
        let word = self.agent(agent)?.typed()?;
        let in_force = match word.root.get() {
            Some(root) => self.tasks.get(&root).is_some_and(|task| {
                !task.is_closed() && self.grants.get(&task.grant).is_some_and(|grant| grant.end.is_none())
            }),
            None => {
                let gives = |human: &Agent| human.live && human.is_human() && human.role <= Role::Operator;
                now.since(word.at) < self.limits.grant_age_ms && self.agent(word.by).is_some_and(gives)
            }
        };
        in_force.then_some(word)
    }

    pub(super) fn prompt_typed(&mut self, at: Time, agent: AgentId, by: AgentId) {
        self.rare(agent).typed = Some(Typed { by, at, root: Opt::none() });
    }

    pub(super) fn prompt_ended(&mut self, agent: AgentId) {
        self.rare(agent).typed = None;
    }

    /// Notes the root that an agent started because of a typed prompt.
    pub(super) fn typed_root(&mut self, at: Time, agent: AgentId, task: TaskId) {
        let rare = self.rare(agent);
        if let Some(word) = &mut rare.typed {
            word.root = Some(task).into();
        }
        let over = rare.typed_grants.partition_point(|opened| at.since(*opened) >= HOUR_MS);
        rare.typed_grants.drain(..over);
        rare.typed_grants.push(at);
    }
}
