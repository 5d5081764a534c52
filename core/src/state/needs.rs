//! The entries of the log that the state still refers to. What is older may leave the log for its archive.

use lastword_facts::ids::Seq;

use super::{Ready, State, Task, Turn};

impl State {
    /// Returns the oldest position whose entry may still be read; `None` if there is none.
    #[must_use]
    pub fn oldest_needed(&self) -> Option<Seq> {
        self.needed().min()
    }

    /// Returns the positions whose entries may still be read: of messages that wait, of questions, and of outcomes that a
    /// repeated call gets. In no order, and with repetitions.
    pub fn needed(&self) -> impl Iterator<Item = Seq> {
        let tasks = self.tasks.values().flat_map(of_task);
        let turns = self.turns.values().flat_map(of_turn);
        let keys = self.keys.all_chosen().flat_map(|known| known.messages.iter().copied());
        let asked = self.escalations.values().flat_map(|escalation| [Some(escalation.asked), escalation.answer]);
        let notices = self.agents.iter().filter(|agent| agent.live).flat_map(|agent| {
            // An agent is shown nothing older. A human is (F6), but one who never looks must not keep everything.
            let fresh = |since| self.at.since(since) < self.limits.delivery_age_ms;
            agent.notices.iter().filter(move |(_, since)| fresh(*since)).map(|(seq, _)| *seq)
        });
        tasks.chain(turns).chain(keys).chain(asked.flatten()).chain(notices)
    }
}

fn of_task(task: &Task) -> impl Iterator<Item = Seq> {
    let request = task.request.as_deref();
    let partial = request.and_then(|request| request.partial.as_deref()).map(|partial| partial.result);
    let request = request.map(|request| [Some(request.message), request.answer.get()]).into_iter().flatten().flatten();
    let status = task.rare.as_deref().and_then(|rare| rare.status.get());
    let steps = task.steps().iter().map(|step| step.at);
    request.chain(partial).chain(status).chain(steps).chain(task.ready.iter().map(of_ready))
}

fn of_turn(turn: &Turn) -> impl Iterator<Item = Seq> {
    turn.delivered.iter().map(of_ready).chain(turn.decided.get())
}

const fn of_ready(ready: &Ready) -> Seq {
    ready.message
}
