//! Extensions of grants and conversations by humans, and the steps that an escalation offers (D2, D9, H6).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::fact::{
    AgentGranted, AgentLimits, EscalationCause, Extension, Fact, Latched, Lift, LimitChanged, Met, Place, Role,
    RoundsGranted, Spend,
};
use lastword_facts::ids::{AgentId, ConvId, EscalationId, GrantId, TaskId};
use lastword_facts::refusal::{Code, Refusal};

use super::{Outcome, Step};
use crate::input::{Effect, Reply};
use crate::state::{Principal, Task};

/// Whether an agent's option reads like an extension that only the broker may offer, such as "20 more messages".
pub(super) fn is_worded_as_lift(option: &str) -> bool {
    const OF: [&str; 12] =
        ["round", "message", "turn", "request", "agent", "token", "hour", "day", "minute", "dollar", "usd", "retr"];
    let lower = option.to_lowercase();
    let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
    let names = |word: &&str| OF.iter().any(|of| word.starts_with(of));
    let more = |word: &&str| matches!(*word, "more" | "extra" | "additional" | "another" | "extend" | "extension");
    let lift = words.first().is_some_and(|word| *word == "lift");
    lift || (words.iter().any(more) && words.iter().any(names))
}

impl Step<'_> {
    /// Records the broker's own sentence and lifts for a question, if a limit that the task met caused it (H6).
    pub(super) fn offer_lifts(&mut self, escalation: EscalationId, task: TaskId) {
        let known = &self.state().tasks[&task];
        let offer = self.of_room(known).or_else(|| {
            let met = known.met()?.clone();
            Some((self.lift_of(&met)?, met))
        });
        if let Some((lift, met)) = offer {
            self.record(Fact::EscalationLifts { escalation, met, lifts: alloc::vec![lift] });
        }
    }

    /// Returns the step for the room that refused the last post of a task's agent, while it still does (R1).
    fn of_room(&self, task: &Task) -> Option<(Lift, Met)> {
        let (id, newest) = self.state().agent(task.agent)?.refused_in()?;
        // A post belongs to no turn, so to each that was open at that time and still is.
        task.turn().filter(|turn| *turn <= newest)?;
        let room = self.state().rooms.get(&id).filter(|room| room.members.contains(&task.agent))?;
        let (code, limit) = self.over_in_room(room.agent_messages)?;
        let met = Met { code, limit, current: room.agent_messages, conv: None, grant: task.grant, extended: 0 };
        Some((Lift::RearmRoom(id), met))
    }

    /// Returns the step that lifts what a task met. For a budget it extends the used-up one; `None` if only the agent's
    /// day is.
    fn lift_of(&self, met: &Met) -> Option<Lift> {
        let lacks = met.current.saturating_sub(met.limit);
        if met.code != Code::Budget {
            return Lift::of(met.code, lacks, 0);
        }
        let spent = crate::guards::budget_of_grant(self.state(), self.state().grants.get(&met.grant)?)?;
        Lift::of(met.code, lacks, if spent.is_cost() { self.state().limits.grant_cost_microusd_max } else { 0 })
    }

    /// Extends a grant. If it is latched, tokens, cost and time count from the current use, so that the extension is
    /// fully available (H6).
    pub(super) fn extend_grant(&mut self, by: AgentId, id: GrantId, mut extension: Extension) {
        let grant = self.state().grants.get(&id).filter(|grant| grant.latched.is_some());
        let over = grant.map(|grant| crate::guards::overrun(self.state(), grant, self.now)).unwrap_or_default();
        let Extension { tokens, cost_microusd, time_ms, .. } = &mut extension;
        for (given, over) in [(tokens, over.tokens), (cost_microusd, over.cost_microusd), (time_ms, over.time_ms)] {
            *given = if *given == 0 { 0 } else { given.saturating_add(over) };
        }
        self.record(Fact::GrantExtended { grant: id, by, extension });
    }

    /// Applies the lift that a human chose: it extends the limit and resumes the task in one act (H6). It answers no
    /// question of an agent; only the human's own words do.
    pub(super) fn choose_lift(
        &mut self,
        by: Principal,
        id: EscalationId,
        number: u32,
        words: Option<Box<str>>,
    ) -> Outcome {
        self.human(by, Role::Operator)?;
        let (agent, conv, asked) = self.open_escalation(id)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(format_args!("lift-{number} of {id}"));
        let known = self.state().escalations.get(&id).ok_or_else(unknown)?;
        let lifts = known.lifts.as_deref().ok_or_else(unknown)?;
        if lifts.chosen.is_some() {
            return Err(Refusal::new(Code::AlreadySettled).about(format_args!("the lift of {id}")));
        }
        let is_question = known.cause == EscalationCause::Asked;
        let place = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let (lift, met) = (*place.and_then(|place| lifts.lifts.get(place)).ok_or_else(unknown)?, lifts.met.clone());
        let task = self.waiting_for(id).ok_or_else(|| Refusal::new(Code::AlreadySettled).about(id))?;
        self.record(Fact::LiftChosen { escalation: id, lift: number, by: by.agent() });
        let chosen = self.state().seq;
        let said = self.state().lift_words(lift);
        self.apply_lift(by.agent(), lift, &met, task);
        // The reply below resets the task's own conversation; see `hear_human`.
        let said_in = Some(self.state().tasks[&task].conv);
        self.hear_human(by.agent(), conv, said_in);
        let words = words.filter(|words| !words.is_empty());
        let (body, answered, cause) = match words {
            Some(words) => (alloc::format!("{said}. {words}"), Some(id), asked),
            None if is_question => (alloc::format!("{said}. {id} is still not answered"), None, chosen),
            None => (said, Some(id), asked),
        };
        let seq = self.reply_to(task, by.agent(), agent, body.into(), answered, cause);
        self.out.effects.push(Effect::WakeAll);
        Ok(Reply::Sent(alloc::vec![seq]))
    }

    fn apply_lift(&mut self, by: AgentId, lift: Lift, met: &Met, task: TaskId) {
        let (grant, conv) = (met.grant, met.conv.unwrap_or(self.state().tasks[&task].conv));
        match lift {
            Lift::Rounds(rounds) => {
                let task = self.asking_in(grant, conv).or(Some(task));
                self.record(Fact::RoundsGranted(RoundsGranted { grant, task, conv, by, rounds }));
            }
            Lift::Rearm => self.hear_human(by, conv, None),
            Lift::RearmRoom(room) => {
                self.lift_place(Place::Room(room), by);
                // The human's own words are for the agent that asked, and not for the room.
                let body = self.state().lift_words(lift).into();
                self.record(Fact::Posted { room, from: by, body });
            }
            Lift::Requests(requests) => {
                // The requests go to the task that asks, which isn't always the grant's root.
                let extension = Extension { requests: 0, ..lift.extension() };
                self.extend_grant(by, grant, extension);
                self.record(Fact::RequestsGranted { task, by, requests });
            }
            Lift::Messages(_)
            | Lift::Turns(_)
            | Lift::Agents(_)
            | Lift::Tokens(_)
            | Lift::CostMicroUsd(_)
            | Lift::TimeMs(_) => self.extend_grant(by, grant, lift.extension()),
        }
        self.lift_grant(by, grant);
    }

    /// Lifts the latch of a grant, unless a limit would trip again at once. Returns the lifted latch.
    pub(super) fn lift_grant(&mut self, by: AgentId, id: GrantId) -> Option<Latched> {
        let on = Latched::Grant(id);
        let grant = self.state().grants.get(&id).filter(|grant| grant.latched.is_some())?;
        if crate::guards::trips_again(self.state(), grant, self.now) {
            return None;
        }
        self.record(Fact::LatchLifted { on, by });
        Some(on)
    }

    /// Returns the task of a grant that sends requests in a conversation: the newest open one with a delegate there.
    fn asking_in(&self, grant: GrantId, conv: ConvId) -> Option<TaskId> {
        let asks = |id: &TaskId| self.state().tasks[id].delegates.iter().any(|d| d.conv == conv);
        self.state().open_tasks_of(grant).filter(asks).last()
    }

    /// Returns the tasks to which requests for a conversation go, unless it is the grant's root alone: the open ones there
    /// that have the fewest left.
    pub(super) fn lacking_in(&self, grant: GrantId, conv: ConvId) -> Vec<TaskId> {
        let state = self.state();
        let left = |id: &TaskId| state.tasks[id].quota_left;
        let mut there: Vec<TaskId> = state.open_tasks_of(grant).filter(|id| state.tasks[id].conv == conv).collect();
        let least = there.iter().map(left).min();
        there.retain(|id| Some(left(id)) == least);
        let root = state.grants[&grant].root_task();
        if there.iter().all(|id| Some(*id) == root) { Vec::new() } else { there }
    }

    /// Extends a conversation by rounds, in each of its open grants (D2).
    pub(super) fn extend_rounds(&mut self, by: Principal, conv: ConvId, rounds: u64) -> Outcome {
        self.human(by, Role::Operator)?;
        let max = self.state().limits.rounds_max;
        if rounds == 0 || rounds > max {
            let refusal = Refusal::new(Code::Malformed).numbers(max, rounds);
            return Err(refusal.about(format_args!("`rounds` is 1 to {max} at a time")));
        }
        let grants = self.open_grants(conv, None)?;
        let mut lifted = Vec::new();
        for grant in grants {
            let task = self.asking_in(grant, conv).or_else(|| self.state().open_tasks_of(grant).next());
            self.record(Fact::RoundsGranted(RoundsGranted { grant, task, conv, by: by.agent(), rounds }));
            lifted.extend(self.lift_grant(by.agent(), grant));
        }
        self.out.effects.push(Effect::WakeAll);
        Ok(Reply::Lifted(lifted))
    }

    /// Returns the open grants of a conversation, or only the one that is named.
    pub(super) fn open_grants(&self, conv: ConvId, only: Option<GrantId>) -> Result<Vec<GrantId>, Refusal> {
        if !self.state().conversations.contains_key(&conv) {
            return Err(Code::UnknownRequest.into());
        }
        let mut grants = self.state().open_grants_of(conv);
        grants.retain(|grant| only.is_none_or(|only| only == *grant));
        if !grants.is_empty() {
            return Ok(grants);
        }
        let reference = self.state().ref_of(conv).map(alloc::string::ToString::to_string).unwrap_or_default();
        Err(match only {
            Some(grant) => Refusal::new(Code::UnknownRequest).about(alloc::format!("{grant}, open, of {reference}")),
            None => {
                Refusal::new(Code::AlreadySettled).about(format_args!("the work of {reference}; send a new request"))
            }
        })
    }

    /// Sets the limits of one agent (§1).
    pub(super) fn limit_agent(&mut self, by: Principal, agent: AgentId, limits: Box<AgentLimits>) -> Outcome {
        self.human(by, Role::Owner)?;
        self.known(agent)?;
        self.record(Fact::AgentLimited { agent, limits });
        self.end_rest(agent);
        Ok(Reply::Done)
    }

    /// Sets limits of the workspace. Agents that rest or wait go on where that leaves them more.
    pub(super) fn change_limits(&mut self, by: Principal, limits: Box<[(Box<str>, u64)]>) -> Outcome {
        self.human(by, Role::Owner)?;
        let is_known = |(limit, _): &(Box<str>, u64)| self.state().limits.value(limit).is_some();
        if !limits.iter().all(is_known) {
            return Err(Code::Malformed.into());
        }
        let begin = self.state().seq;
        for (limit, value) in limits {
            let before = self.state().limits.value(&limit).unwrap_or_default();
            if before != value {
                self.record(Fact::LimitChanged(LimitChanged { limit, before, value, by: by.agent() }));
            }
        }
        if self.state().seq != begin {
            for agent in 0..self.state().agents.len() as u32 {
                self.end_rest(AgentId(agent));
            }
            self.out.effects.push(Effect::WakeAll);
        }
        Ok(Reply::Done)
    }

    /// Extends an agent's budget for today; its rest ends if that is enough (B1). If it rests, tokens and cost count from
    /// the current use, so that the extension is fully available (H6).
    pub(super) fn grant_agent(&mut self, by: Principal, agent: AgentId, mut spend: Spend) -> Outcome {
        self.human(by, Role::Operator)?;
        self.known(agent)?;
        let (state, now) = (self.state(), self.now);
        let known = &state.agents[agent.0 as usize];
        if known.rests_until().is_some() {
            let used = known.day.on(now).spend;
            let past = |used: u64, max: u64| if max == 0 { 0 } else { used.saturating_sub(max) };
            let over = [
                past(used.tokens, known.day_tokens_max(&state.limits, now)),
                past(used.cost_microusd, known.day_cost_microusd_max(&state.limits, now)),
            ];
            for (given, over) in [&mut spend.tokens, &mut spend.cost_microusd].into_iter().zip(over) {
                *given = if *given == 0 { 0 } else { given.saturating_add(over) };
            }
        }
        self.record(Fact::AgentGranted(AgentGranted { agent, by: by.agent(), day: self.now.day(), spend }));
        self.end_rest(agent);
        Ok(Reply::Done)
    }

    /// Ends an agent's rest, if its day has room again.
    fn end_rest(&mut self, agent: AgentId) {
        let state = self.state();
        let rests = state.agents[agent.0 as usize].rests_until().is_some();
        if rests && crate::guards::budget_of_day(state, &state.agents[agent.0 as usize], self.now).is_none() {
            self.record(Fact::AgentRested { agent, until: None });
            self.wake(agent);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_reads_like_an_extension_is_recognised() {
        for option in
            ["2 more rounds", "Grant 20 more messages", "lift-1", "an extra 50,000 tokens", "Extend: 24 hours"]
        {
            assert!(is_worded_as_lift(option), "{option}");
        }
        for option in ["yes", "no", "the blue one", "deploy to more regions", "ask another reviewer", "wait 2 hours"] {
            assert!(!is_worded_as_lift(option), "{option}");
        }
    }
}
