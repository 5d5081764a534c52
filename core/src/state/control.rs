//! The fold of pause, resume and stop (H4).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use lastword_facts::fact::{Control, Scope};
use lastword_facts::ids::{AgentId, ConvId, TaskId, Time};
use lastword_facts::status::Running;

use super::State;

impl State {
    pub(super) fn controlled(&mut self, at: Time, scope: Scope, control: Control) {
        let running = match control {
            Control::Pause => Running::Paused,
            Control::Resume => Running::Active,
            Control::Stop => Running::Stopped,
        };
        match scope {
            Scope::Workspace => {
                // A pause of the workspace stops the free time of all agents and the clocks of all grants.
                self.running = running;
                for id in 0..u32::try_from(self.agents.len()).unwrap_or(u32::MAX) {
                    self.refresh_clock(at, AgentId(id));
                }
                for grant in self.open_grants() {
                    self.refresh_grant(at, grant);
                }
            }
            Scope::Agent(agent) => {
                self.agents[agent.0 as usize].running = running;
                self.refresh_clock(at, agent);
                let queued: Vec<TaskId> = self.agents[agent.0 as usize].queue.iter().map(|(_, task)| *task).collect();
                for task in queued {
                    self.refresh_wait(at, task);
                }
            }
            Scope::Conversation(conv) => {
                self.hold(conv, |conv| conv.running = running);
                self.conversation_changed(at, conv);
            }
        }
    }

    /// Updates everything below a conversation that a human paused or resumed.
    fn conversation_changed(&mut self, at: Time, conv: ConvId) {
        let below = self.lineage_below(conv);
        let open = below.iter().filter_map(|id| self.conversations.get(id)).flat_map(|conv| &conv.open_tasks);
        let tasks: BTreeSet<TaskId> = open.copied().collect();
        self.rearm_all(at, tasks);
        // Grants aren't indexed by conversation, and a pause is rare enough to refresh all open ones.
        for grant in self.open_grants() {
            self.refresh_grant(at, grant);
        }
    }
}
