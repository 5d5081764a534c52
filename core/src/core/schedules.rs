//! Schedules: grants that a human's clock opens (D13). A tick isn't an act of a human.

use alloc::boxed::Box;

use lastword_facts::envelope::{Address, Draft, MessageType};
use lastword_facts::fact::{Fact, Role, Schedule};
use lastword_facts::ids::{AgentId, Time};
use lastword_facts::names::{Label, Ref};
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::input::{Reply, ScheduleTick};
use crate::state::{Principal, Scheduled};

impl Step<'_> {
    pub(super) fn set_schedule(&mut self, by: Principal, schedule: Box<Schedule>, next_at: Time) -> Outcome {
        self.human(by, Role::Operator)?;
        let malformed = |what: &str| Err(Refusal::new(Code::Malformed).about(what));
        if !matches!(schedule.to, Address::Name(_) | Address::Action(_)) {
            return malformed("`to` of a schedule is one agent or `#action`");
        }
        if schedule.body.trim().is_empty() {
            return malformed("`body` is empty");
        }
        let limits = &self.state().limits;
        let (bytes, bytes_max) = (schedule.body.len() as u64, limits.body_bytes_max);
        if bytes > bytes_max {
            return Err(Refusal::new(Code::TooLarge).numbers(bytes_max, bytes));
        }
        let (max, count) = (limits.schedules_max, self.state().schedules.len() as u64);
        // Replacing a schedule is possible even at the limit.
        if count >= max && !self.state().schedules.contains_key(&schedule.name) {
            return Err(Refusal::new(Code::Saturated).numbers(max, count + 1));
        }
        self.record(Fact::ScheduleSet { by: by.agent(), schedule, next_at });
        Ok(Reply::Done)
    }

    pub(super) fn remove_schedule(&mut self, by: Principal, name: &Label) -> Outcome {
        self.human(by, Role::Operator)?;
        self.scheduled(name)?;
        self.record(Fact::ScheduleRemoved { name: name.clone() });
        // Changing a schedule is an act (D12), and the fact doesn't name the human.
        self.act(by)
    }

    /// Removes the schedules of a human together with the human.
    pub(super) fn end_schedules_of(&mut self, human: AgentId) {
        let own = self.state().schedules.iter().filter(|(_, known)| known.by == human);
        for name in own.map(|(name, _)| name.clone()).collect::<alloc::vec::Vec<_>>() {
            self.record(Fact::ScheduleRemoved { name });
        }
    }

    fn scheduled(&self, name: &Label) -> Result<&Scheduled, Refusal> {
        self.state().schedules.get(name).ok_or_else(|| Refusal::new(Code::UnknownRequest).about(name))
    }

    /// Runs a schedule between two ticks: this is the human's own request, and so an act.
    pub(super) fn run_schedule(&mut self, by: Principal, name: &Label, reference: Ref) -> Outcome {
        self.human(by, Role::Operator)?;
        let known = self.scheduled(name)?;
        let draft = Box::new(request(&known.schedule, reference));
        let reply = self.send(by, draft)?;
        let grant = lastword_facts::ids::GrantId(self.state().last_grant());
        if matches!(reply, Reply::Sent(_)) {
            self.record(Fact::ScheduleTicked { name: name.clone(), grant, next_at: None });
        }
        Ok(reply)
    }

    /// Makes one tick, at most once. It opens no grant while the last one is open, while no human has acted for too
    /// long, or if the human who set it may not send requests any more.
    pub(super) fn tick_schedule(&mut self, tick: ScheduleTick) -> Outcome {
        let ScheduleTick { name, due, next_at, reference } = tick;
        let known = self.scheduled(&name)?;
        // The shell may repeat a tick after a restart; only the due one counts.
        if known.next_at != due || self.now < due {
            return Ok(Reply::Done);
        }
        let last = known.grant.get().and_then(|grant| self.state().grants.get(&grant));
        if last.is_some_and(|grant| grant.end.is_none()) {
            self.record(Fact::ScheduleSkipped { name, code: None, next_at });
            return Ok(Reply::Done);
        }
        let (by, draft) = (known.by, Box::new(request(&known.schedule, reference)));
        let asks = self.state().agent(by).is_some_and(|human| human.live && human.role <= Role::Operator);
        let refused = if self.state().unattended(self.now).is_some() {
            Some(Code::Unattended)
        } else if asks {
            self.send_tick(by, draft, name.clone(), next_at).err().map(|refusal| refusal.code)
        } else {
            Some(Code::Forbidden)
        };
        if let Some(code) = refused {
            self.record(Fact::ScheduleSkipped { name, code: Some(code), next_at });
        }
        Ok(Reply::Done)
    }
}

fn request(schedule: &Schedule, reference: Ref) -> Draft {
    let mut draft = Draft::new(MessageType::Request, schedule.to.clone(), &schedule.body);
    draft.reference = Some(reference);
    draft
}
