//! Out-of-band acts of humans: pause, resume, stop, extend (H4, D9).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::AnswerStatus;
use lastword_facts::fact::{
    Answer, Control, EndReason, Extension, Fact, GrantEnd, Latched, Place, Role, SYSTEM, Scope,
};
use lastword_facts::ids::{ConvId, GrantId, TaskId};
use lastword_facts::limits::Limits;
use lastword_facts::policy::Policy;
use lastword_facts::refusal::{Code, Refusal};
use lastword_facts::status::Running;

use super::{Outcome, Step};
use crate::input::{Effect, Reply};
use crate::state::Principal;

impl Step<'_> {
    pub(super) fn configure(&mut self, limits: Box<Limits>) -> Outcome {
        // A restart with the same configuration adds no fact, but a new log begins with one even if it is the default.
        if *limits != self.state().limits || self.state().seq.0 == 0 {
            self.record(Fact::Configured { limits });
        }
        Ok(Reply::Done)
    }

    pub(super) fn configure_policy(&mut self, policy: Box<Policy>) -> Outcome {
        if *policy != self.state().policy {
            self.record(Fact::PolicyConfigured { policy });
        }
        Ok(Reply::Done)
    }

    pub(super) fn change_policy(&mut self, by: Principal, policy: Box<Policy>) -> Outcome {
        self.human(by, Role::Owner)?;
        if *policy != self.state().policy {
            self.record(Fact::PolicyChanged { policy, by: by.agent() });
        }
        Ok(Reply::Done)
    }

    pub(super) fn control(&mut self, by: Principal, scope: Scope, control: Control) -> Outcome {
        self.human(by, Role::Operator)?;
        self.exists(scope)?;
        #[cfg(feature = "rules-off")]
        if let Some(reply) = self.naive_control() {
            return Ok(reply);
        }
        self.record(Fact::Controlled { scope, control, by: by.agent() });
        let lifted = match control {
            Control::Pause => Vec::new(),
            Control::Stop => {
                self.stop(by, scope);
                Vec::new()
            }
            Control::Resume => match scope {
                Scope::Conversation(conv) => self.resume_conversation(by, conv),
                Scope::Workspace | Scope::Agent(_) => Vec::new(),
            },
        };
        self.out.effects.push(Effect::WakeAll);
        Ok(Reply::Lifted(lifted))
    }

    fn exists(&self, scope: Scope) -> Result<(), Refusal> {
        let state = self.state();
        let known = match scope {
            Scope::Workspace => true,
            Scope::Agent(agent) => state.agent(agent).is_some_and(|a| a.live),
            Scope::Conversation(conv) => state.conversations.contains_key(&conv),
        };
        if known { Ok(()) } else { Err(Code::UnknownRequest.into()) }
    }

    /// Ends all work in the scope. Every requester gets an outcome, so that none waits for ever.
    fn stop(&mut self, by: Principal, scope: Scope) {
        match scope {
            Scope::Workspace => {
                for grant in
                    self.state().grants.iter().filter(|(_, g)| g.end.is_none()).map(|(id, _)| id).collect::<Vec<_>>()
                {
                    self.end_grant(grant, GrantEnd::Stopped, EndReason::Stopped);
                }
            }
            // Requests that the agent sent end with the tasks in which it sent them.
            Scope::Agent(agent) => self.end_tasks_of(agent, EndReason::Stopped),
            Scope::Conversation(conv) => {
                let grants = self.state().grants.iter().filter(|(_, grant)| grant.end.is_none());
                let started: Vec<(ConvId, TaskId)> =
                    grants.filter_map(|(_, g)| Some((g.conv, g.root_task()?))).collect();
                for conv in self.state().lineage_below(conv) {
                    let open = self.state().conversations[&conv].open_tasks.clone();
                    let roots = started.iter().filter(|(at, _)| *at == conv).map(|(_, task)| *task);
                    for task in open.into_iter().chain(roots) {
                        let outcome = Answer::outcome(task, AnswerStatus::Cancelled, EndReason::Stopped);
                        self.settle(outcome, SYSTEM, "".into(), None);
                    }
                    // The stop holds more than the latch does, and a resume counts from 0.
                    self.lift_place(Place::Conversation(conv), by.agent());
                }
            }
        }
    }

    /// Resumes a conversation with everything below it, and lifts the latches of both and of their grants. A total or
    /// budget that was used up is given once more, or the next send would trip it again.
    fn resume_conversation(&mut self, by: Principal, conv: ConvId) -> Vec<Latched> {
        let mut lifted = Vec::new();
        let mut grants = Vec::new();
        for below in self.state().lineage_below(conv) {
            let known = &self.state().conversations[&below];
            if known.running != Running::Active {
                let scope = Scope::Conversation(below);
                self.record(Fact::Controlled { scope, control: Control::Resume, by: by.agent() });
            }
            if self.state().conversations[&below].latched {
                self.lift_place(Place::Conversation(below), by.agent());
                lifted.push(Latched::Place(Place::Conversation(below)));
            }
            grants.extend(self.state().open_grants_of(below));
        }
        // A resume counts as a human's message: the counters start again from 0.
        self.hear_human(by.agent(), conv, None);
        // Several conversations may share a grant, which must be extended only once.
        grants.sort_unstable();
        grants.dedup();
        for grant in grants {
            let Some(incident) = self.state().grants[&grant].latched.get() else { continue };
            let code = self.state().incidents.get(&incident).map(|i| i.code);
            let extension = code.map(|c| once_more(c, &self.state().limits)).unwrap_or_default();
            self.extend_grant(by.agent(), grant, extension);
            lifted.extend(self.lift_grant(by.agent(), grant));
        }
        lifted
    }

    /// Extends the open grants of a conversation, or one of them.
    pub(super) fn extend(
        &mut self,
        by: Principal,
        conv: ConvId,
        only: Option<GrantId>,
        extension: Extension,
    ) -> Outcome {
        self.human(by, Role::Operator)?;
        let grants = self.open_grants(conv, only)?;
        let mut lifted = Vec::new();
        for grant in grants {
            let asking = if extension.requests > 0 { self.lacking_in(grant, conv) } else { Vec::new() };
            let requests = if asking.is_empty() { extension.requests } else { 0 };
            self.extend_grant(by.agent(), grant, Extension { requests, ..extension });
            for task in asking {
                self.record(Fact::RequestsGranted { task, by: by.agent(), requests: extension.requests });
            }
            lifted.extend(self.lift_grant(by.agent(), grant));
        }
        self.out.effects.push(Effect::WakeAll);
        Ok(Reply::Lifted(lifted))
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "only these codes latch a grant")]
fn once_more(code: Code, limits: &Limits) -> Extension {
    let none = Extension::default();
    match code {
        Code::GrantMessages => Extension { messages: limits.grant_messages_max, ..none },
        Code::GrantTurns => Extension { turns: limits.grant_turns_max, ..none },
        Code::GrantAgents => Extension { agents: limits.grant_agents_max, ..none },
        Code::GrantExpired => Extension { time_ms: limits.grant_age_ms, ..none },
        Code::Budget => {
            Extension { tokens: limits.grant_tokens_max, cost_microusd: limits.grant_cost_microusd_max, ..none }
        }
        _ => none,
    }
}
