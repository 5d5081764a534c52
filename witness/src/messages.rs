//! Messages: permissions, depth (D2), and exactly one answer per request (F6, Q7).

use lastword_facts::fact::{Answer, Message, Part, Recipient, Role, SYSTEM, Terms};
use lastword_facts::ids::{EscalationId, Seq, TaskId};

use super::Witness;
use super::grants::TaskCount;
use super::windows::Target;

impl Witness {
    pub(super) fn see_message(&mut self, message: &Message) {
        let conv = self.conv(message.conv);
        let cap = conv.deeper;
        self.see_depth(message, cap);
        let by_agent = self.is_agent(message.from);
        let said_by_human = self.is_heard(message.from) && message.is_said() && !self.is_tick(message);
        match &message.part {
            Part::Request(terms) => {
                self.admitted(message, by_agent);
                self.request(message, terms);
            }
            Part::Plain | Part::Echo => self.admitted(message, by_agent),
            Part::Answer(answer) => self.answer(message, answer),
            Part::Reply { task, escalation } => self.reply(message, *task, *escalation),
            Part::Status { task, .. } => {
                let open = self.tasks.contains_key(task);
                self.expect(open, "a status is of an open task", || task.to_string());
            }
        }
        if said_by_human {
            self.conv(message.conv).rearm();
        }
    }

    /// Checks a message that an agent sends on its own initiative.
    fn admitted(&mut self, message: &Message, by_agent: bool) {
        if !by_agent {
            return;
        }
        let open = message.sender_task.is_none_or(|task| self.tasks.contains_key(&task));
        self.expect(open, "a task that has ended sends nothing", || format!("{:?}", message.sender_task));
        let running = |party: &super::Party| party.live && party.running == super::Running::Active;
        let runs = self.running == super::Running::Active && self.parties.get(&message.from).is_some_and(running);
        self.expect(runs, "nothing is admitted where a human or a latch holds", || message.from.to_string());
        self.admits(message.conv);
        let target = if let Recipient::One(to) = message.to { Target::One(to) } else { Target::All };
        self.see_window(message.from, target);
    }

    /// Checks the depth: one more than the deepest waking message that the task received in the conversation.
    fn see_depth(&mut self, message: &Message, deeper: u64) {
        let sender = message.sender_task.and_then(|task| self.tasks.get(&task));
        if sender.is_none() && matches!(message.part, Part::Answer(_)) {
            // Its task has ended; the duplicate answer itself is reported elsewhere.
            return;
        }
        let to_human = matches!(message.to, Recipient::One(to) if to == SYSTEM || self.is_human(to));
        let deepens = match &message.part {
            Part::Plain | Part::Echo | Part::Request(_) => !to_human,
            Part::Answer(_) | Part::Status { .. } => {
                sender.and_then(|task| task.asker).is_some_and(|(_, task)| task.is_some())
            }
            Part::Reply { .. } => false,
        };
        let depth = sender.filter(|_| deepens).map_or(0, |task| task.depth_in(message.conv));
        let stated = message.depth;
        self.expect(stated == depth, "depth is that of what was received, and one", || {
            format!("{stated}, not {depth}")
        });
        let own = matches!(message.part, Part::Plain | Part::Echo | Part::Request(_));
        let cap = if own { self.limits.depth_max } else { self.numbers.deepest_max }.saturating_add(deeper);
        let within = u64::from(stated) <= cap || !self.enforced("depth_cap");
        self.expect(within, "depth <= cap", || format!("{stated} of {cap}"));
    }

    fn request(&mut self, message: &Message, terms: &Terms) {
        let (Recipient::One(to), Some(id)) = (message.to, message.grant) else {
            return self.expect(false, "every request belongs to a grant", || format!("{message:?}"));
        };
        self.expect(self.is_agent(to), "only an agent is woken", || to.to_string());
        let asker = message.sender_task.and_then(|task| self.tasks.get_mut(&task));
        let by_task = asker.is_some();
        let (hop, of, left) = asker.map_or((0, id, 1), |task| {
            let left = task.quota;
            task.quota = left.saturating_sub(1);
            (task.hop + 1, task.grant, left)
        });
        self.expect(u64::from(message.hops) == hop, "hops are the edges from the grant", || format!("{hop}"));
        let cap = self.limits.hops_max;
        self.expect(!by_task || hop <= cap || !self.enforced("hop_cap"), "hops <= cap", || format!("{hop} of {cap}"));
        self.expect(left > 0 || !self.enforced("task_requests"), "requests per task <= quota", || {
            terms.task.to_string()
        });
        self.expect(of == id, "what a task asks for is of its grant", || format!("{id}, not {of}"));
        let starts = self.grants.get(&id).is_some_and(|grant| grant.is_fresh() && grant.giver == message.from);
        self.expect(by_task || starts, "work starts only from a grant", || terms.task.to_string());
        let asked_in = message.sender_task.filter(|_| by_task);
        let received = asked_in.map(|_| (message.conv, message.depth)).into_iter().collect();
        let fresh = self.fresh(id, to, message.conv);
        let asker = Some((message.from, asked_in));
        self.begin(terms.task, TaskCount { hop, asker, received, request: Some(Seq(self.seq)), ..fresh });
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.convs.insert(message.conv);
        }
        self.charge(id, to, by_task);
    }

    fn answer(&mut self, message: &Message, answer: &Answer) {
        let Some(task) = self.end(answer.task).filter(|task| task.request.is_some()) else {
            return self.expect(false, "a request ends exactly once", || answer.task.to_string());
        };
        let from = message.from;
        let may = from == SYSTEM || from == task.agent;
        self.expect(may, "who serves a request answers it, or the broker", || from.to_string());
        let asker = task.asker.map(|(agent, _)| Recipient::One(agent));
        self.expect(Some(message.to) == asker, "an answer goes to who asked", || format!("{:?}", message.to));
        self.expect(message.grant == Some(task.grant), "an answer is of its grant", || format!("{:?}", message.grant));
        let closed = task.turn.is_none();
        self.expect(closed, "a task ends with its turn", || answer.task.to_string());
        self.answer_comes(task.grant);
        let above = task.asker.and_then(|(_, task)| task).and_then(|task| self.tasks.get_mut(&task));
        if let Some(above) = above {
            above.ready.insert(Seq(self.seq), Some((message.conv, message.depth)));
        }
    }

    /// Routes a human's reply, or the broker's message on a decision, to the task that waits for it.
    fn reply(&mut self, message: &Message, task: TaskId, escalation: Option<EscalationId>) {
        let seq = Seq(self.seq);
        match self.tasks.get_mut(&task) {
            Some(task) => {
                task.ready.insert(seq, None);
            }
            None => self.expect(false, "only an open task gets a reply", || task.to_string()),
        }
        let Some(id) = escalation else { return };
        let may = self.has_role(message.from, Role::Approver);
        self.expect(may, "only a human who may lifts, extends, stops or answers", || message.from.to_string());
        let asked = self.escalations.get(&id).is_some_and(|known| known.task == Some(task));
        self.expect(asked, "an answer resumes exactly the task that asked", || id.to_string());
        self.escalation_ended(id);
    }
}
