//! Admitted messages: counts and charges them, and shows them to their recipients.

use alloc::boxed::Box;

use lastword_facts::fact::{Message, Part, Recipient, SYSTEM};
use lastword_facts::fsm::RequestEvent;
use lastword_facts::ids::{AgentId, Seq, TaskId, Time};
use lastword_facts::status::EscalationState;

use super::{Closed, Few, Known, Opt, Ready, State, Task};

impl State {
    pub(super) fn accepted(&mut self, at: Time, message: &Message) {
        self.nothing_is_due();
        self.count_message(at, message);
        self.remember_key(at, message);
        match &message.part {
            Part::Plain | Part::Echo => {
                self.charge_window(at, message);
                self.charge_notice(at, message);
                self.notice_recipient(at, message);
            }
            Part::Request(terms) => {
                self.charge_window(at, message);
                self.request_accepted(at, message, terms);
                self.third_party_in_exchanges(at, message.conv, message.sender_task);
                self.said_in_exchange(at, message);
            }
            Part::Answer(answer) => {
                self.answered(at, message, answer);
                self.said_in_exchange(at, message);
            }
            Part::Reply { task, escalation } => {
                if let Some(id) = escalation {
                    // First the end of the question, so that the task is not waiting for it when the answer is ready.
                    self.end_escalation(at, *id, EscalationState::Answered, Some((message.from, self.seq)));
                }
                let bytes = message.body.len() as u64;
                self.ready(at, *task, Ready { message: self.seq, depth: None, child: Opt::none(), bytes });
            }
            Part::Status { task, acknowledged, eta_ms } => {
                if let Some(task) = self.tasks.get_mut(task) {
                    task.status_at = at.into();
                }
                if *acknowledged {
                    self.step(*task, RequestEvent::Acknowledged);
                    self.grant_time(at, *task, eta_ms.unwrap_or(0));
                }
                self.charge_notice(at, message);
                self.only_newest(*task);
                self.notice_recipient(at, message);
            }
        }
    }

    fn count_message(&mut self, at: Time, message: &Message) {
        // A tick's request is sent in a human's name, but isn't a human's message: it resets no counter.
        let ticks = message.grant.and_then(|grant| self.grants.get(&grant)).is_some_and(|grant| grant.scheduled);
        let human = self.agents[message.from.0 as usize].is_heard() && (!ticks || !message.part.is_request());
        let bytes = message.body.len() as u64;
        let said = human && message.is_said();
        if said && self.conversations.get(&message.conv).is_some_and(|conv| conv.messages > 0) {
            self.human_in_exchanges(at, message.conv);
        }
        if let Some(conv) = self.conversations.get_mut(&message.conv) {
            conv.messages += 1;
            conv.deepest = conv.deepest.max(message.depth);
            conv.last_at = at;
            // Only `Heard` raises the count; here a human's message resets it (R4).
            conv.agent_messages = if said { 0 } else { conv.agent_messages };
            let to = if let Recipient::One(to) = message.to { Some(to) } else { None };
            for agent in [Some(message.from), to].into_iter().flatten().filter(|a| *a != SYSTEM) {
                if let Err(place) = conv.participants.binary_search(&agent) {
                    conv.participants.insert(place, agent);
                }
            }
        }
        let turn = message.sender_task.and_then(|t| self.tasks.get(&t)).and_then(Task::turn);
        if let Some(turn) = turn.and_then(|t| self.turns.get_mut(&t)) {
            turn.text_bytes = turn.text_bytes.saturating_add(bytes);
        }
    }

    fn remember_key(&mut self, at: Time, message: &Message) {
        let Some(key) = &message.key else { return };
        let seq = self.seq;
        match self.keys.chosen_mut(key.id.as_str()) {
            // Each message of a list is a part of the send. A STATUS that names a request isn't, nor is anything of
            // another sender.
            Some(known) if known.sender == message.from && known.fingerprint == Some(key.fingerprint) => {
                known.messages.push(seq);
            }
            Some(_) => {}
            None => {
                let (sender, fingerprint) = (message.from, Some(key.fingerprint));
                let known =
                    Known { sender, fingerprint, messages: Few::from_slice(&[seq]), task: None, escalation: None };
                self.keys.choose(key.id.clone(), known);
                self.closed.push_back((at, Closed::Key(Box::new(key.id.clone()))));
            }
        }
    }

    /// Keeps only the newest STATUS on a task among its requester's notices (L3).
    fn only_newest(&mut self, id: TaskId) {
        let seq = self.seq;
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let asker = task.asker.agent();
        let before = core::mem::replace(&mut task.rare.get_or_insert_default().status, seq.into());
        if let (Some(asker), Some(before)) = (asker, before.get()) {
            self.drop_notice(asker, before);
        }
    }

    pub(super) fn alert_raised(&mut self, at: Time, agent: AgentId, pushed: bool) {
        if pushed {
            self.alert_pushed(at, agent);
            self.notice_humans(at);
        }
    }

    /// Charges a message outside every turn to its sender's day (B1), by the text that its readers are shown.
    fn charge_notice(&mut self, at: Time, message: &Message) {
        // Inside a turn the text is part of the turn's own charge.
        let in_turn = message.sender_task.and_then(|t| self.tasks.get(&t)).is_some_and(|task| task.turn().is_some());
        if in_turn || message.from == SYSTEM || self.agents[message.from.0 as usize].is_human() {
            return;
        }
        // A notice is cut to this length, so a reader never pays for more.
        let shown = (message.body.len() as u64).min(self.limits.notice_bytes_max);
        let readers = match message.to {
            Recipient::One(_) => 1,
            Recipient::All => self.agents.iter().filter(|agent| agent.live && !agent.is_human()).count() as u64,
        };
        self.charge_day(at, message.from, shown.div_ceil(4).saturating_mul(readers));
    }

    fn charge_window(&mut self, at: Time, message: &Message) {
        let to = if let Recipient::One(to) = message.to { to } else { SYSTEM };
        self.charge_sender(at, message.from, to);
    }

    /// Counts one write of an agent in its windows; a write without a recipient counts as one to itself (G1).
    pub(super) fn charge_sender(&mut self, at: Time, from: AgentId, to: AgentId) {
        // One list serves both windows, so it covers the longer one.
        let window = self.limits.window_ms.max(self.limits.fan_out_window_ms);
        let sender = &mut self.agents[from.0 as usize];
        if sender.is_human() || from == SYSTEM {
            return;
        }
        while sender.recent.front().is_some_and(|(first, _)| at.since(*first) >= window) {
            sender.recent.pop_front();
        }
        sender.recent.push_back((at, to));
    }

    fn notice_recipient(&mut self, at: Time, message: &Message) {
        match message.to {
            Recipient::One(to) => self.notice(at, to),
            Recipient::All => {
                for id in (1..u32::try_from(self.agents.len()).unwrap_or(u32::MAX)).map(AgentId) {
                    if id != message.from && self.agents[id.0 as usize].live {
                        self.notice(at, id);
                    }
                }
            }
        }
    }

    /// Adds the fact that is being folded to the notices of an agent or human.
    pub(super) fn notice(&mut self, at: Time, agent: AgentId) {
        let (age, max) = (self.limits.delivery_age_ms, self.limits.inbox_max);
        let seq = self.seq;
        let Some(agent) = self.agents.get_mut(agent.0 as usize).filter(|a| a.live) else { return };
        // A human's notice may be the answer to a grant, so it is never dropped (F6).
        while !agent.is_human()
            && (agent.notices.front().is_some_and(|(_, since)| at.since(*since) >= age)
                || agent.notices.len() as u64 >= max)
        {
            agent.notices.pop_front();
        }
        agent.notices.push_back((seq, at));
    }

    pub(super) fn drop_notices(&mut self, agent: AgentId, through: Seq) {
        let notices = &mut self.agents[agent.0 as usize].notices;
        while notices.front().is_some_and(|(seq, _)| *seq <= through) {
            notices.pop_front();
        }
    }

    pub(super) fn drop_notice(&mut self, agent: AgentId, message: Seq) {
        let agent = &mut self.agents[agent.0 as usize];
        if let Some(place) = agent.notice(message) {
            agent.notices.remove(place);
        }
    }
}
