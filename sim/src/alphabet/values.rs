//! What the letters are made of: drafts, answers, calls and ids, known ones and invented ones.

use lastword_core::input::{ClaimDraft, Finish, HeldCall, Question, Verdict};
use lastword_core::{Input, Principal};
use lastword_facts::MessageType;
use lastword_facts::envelope::{Address, Draft, FinishStatus, Priority};
use lastword_facts::fact::{ClaimMode, Decision, ModelSpend, Spend};
use lastword_facts::ids::{AgentId, ApprovalId, EscalationId, TurnId};
use lastword_facts::names::{Label, ModelName, Ref, RequestId, Resource};
use lastword_facts::policy::Subjects;

use super::Random;
use crate::world::{World, request};

impl Random {
    pub(super) fn escalation(&mut self, world: &World) -> EscalationId {
        let known = &world.core().state().escalations;
        let place = self.below(known.len() + 1);
        known.keys().nth(place).copied().unwrap_or(EscalationId(place as u64))
    }

    pub(super) fn draft(&mut self, world: &World) -> Draft {
        let mut draft = request(self.one_of(world), world);
        draft.to = match self.below(20) {
            0 => Address::List(self.several(world)),
            1 => Label::new("work").map_or(Address::All, Address::Action),
            2 => Address::User,
            3 => Address::All,
            _ => draft.to,
        };
        draft.kind = match self.below(20) {
            0..15 => MessageType::Request,
            15 => MessageType::Response,
            16 => MessageType::Status,
            17 => MessageType::Broadcast,
            18 => MessageType::Alert,
            _ => MessageType::Info,
        };
        draft.reference = self.reference(world, 50);
        draft.depth = self.chance(5).then_some(0);
        draft.request_id = self.chance(10).then(|| self.request_id(world));
        draft.action = self.chance(20).then(|| Label::new("work").ok()).flatten();
        draft.turn = self.turn(world, 10);
        draft.wait_ms = self.chance(10).then_some(30_000);
        draft.deadline_ms = self.chance(5).then_some(50_000);
        draft.timeout_ms = self.chance(10).then_some(2_000);
        draft.priority = Priority::ALL[self.below(4)];
        if self.chance(10) {
            draft.body = "R-1, R-2/1 and R-3, please".into();
        }
        draft
    }

    /// Returns the answer to a request in the agent's queue, or to one that it serves.
    pub(super) fn response(&mut self, world: &World, agent: AgentId) -> Draft {
        let state = world.core().state();
        let known = state.agent(agent);
        let queued: Vec<_> = known.iter().flat_map(|known| known.queue.iter().map(|(_, task)| *task)).collect();
        let place = self.below(queued.len());
        let task = queued.get(place).and_then(|task| state.tasks.get(task));
        let mut draft = Draft::new(MessageType::Response, Address::User, "answer");
        draft.request_id = task.and_then(|task| task.request.as_ref()).map(|request| request.id.clone());
        draft.to = task.and_then(|task| task.asker.agent()).map_or(Address::User, |asker| request(asker, world).to);
        draft
    }

    pub(super) fn several(&mut self, world: &World) -> Vec<Address> {
        let count = self.below(4);
        (0..count).map(|_| request(self.one_of(world), world).to).collect()
    }

    /// Returns an old REF, a new one, one below or above another, or none: some agents open new ones for ever.
    pub(super) fn reference(&mut self, world: &World, percent: usize) -> Option<Ref> {
        if !self.chance(percent) {
            return None;
        }
        let known = world.core().state().conversations.len();
        if known > 0 && self.chance(60) {
            let place = self.below(known);
            return world.core().state().conversations.values().nth(place).map(|conv| conv.reference.clone());
        }
        self.refs += 1;
        let below = self.below(self.refs as usize);
        match self.below(4) {
            0 => Ref::new(&format!("R-{below}/{}", self.refs)).ok(),
            1 => Ref::new(&format!("R-{below}")).ok(),
            _ => Ref::new(&format!("R-{}", self.refs)).ok(),
        }
    }

    /// Returns a turn, which may be another agent's or long over.
    pub(super) fn turn(&mut self, world: &World, percent: usize) -> Option<TurnId> {
        self.chance(percent).then(|| {
            let turns = &world.core().state().turns;
            let place = self.below(turns.len() + 2);
            turns.keys().nth(place).unwrap_or(TurnId(place as u64))
        })
    }

    pub(super) fn request_id(&mut self, world: &World) -> RequestId {
        let keys = &world.core().state().keys;
        let place = self.below(keys.len() + 1);
        let known = keys.ids().nth(place);
        known.unwrap_or_else(|| RequestId::new("k-1").expect("a request id"))
    }

    pub(super) fn finish(&mut self) -> Finish {
        let status = [None, None, Some(FinishStatus::Completed), Some(FinishStatus::Partial)];
        let status = if self.chance(25) {
            Some(FinishStatus::ALL[self.below(FinishStatus::ALL.len() - 1)])
        } else {
            status[self.below(4)]
        };
        let failed = if self.chance(50) { vec!["3".into()] } else { Vec::new() };
        let body = if self.chance(10) { "" } else { "answer" };
        let tokens = [50_000, 150_000, 500_000][self.below(3)];
        let spend = self.chance(20).then_some(Spend { tokens, cost_microusd: 0 });
        // Only who reports what it used may have been ended by a budget.
        let held = status == Some(FinishStatus::Waiting) && spend.is_some();
        let status = if held { Some(FinishStatus::Held) } else { status };
        Finish { status, body: body.into(), failed, spend, models: models(spend), ..Finish::default() }
    }

    pub(super) fn question(&mut self, world: &World) -> Question {
        let reference = self.reference(world, 30);
        let options = if self.chance(30) { vec!["yes".into(), "20 more messages".into()] } else { Vec::new() };
        Question { body: "?".into(), options, reference, key: self.key() }
    }

    pub(super) fn key(&mut self) -> Option<RequestId> {
        self.chance(20).then(|| RequestId::new(&format!("w-{}", self.below(6))).ok()).flatten()
    }

    pub(super) fn digest(&mut self) -> [u8; 32] {
        [u8::try_from(self.below(3)).unwrap_or(0); 32]
    }

    pub(super) fn call(&mut self) -> HeldCall {
        let (digest, key) = (self.digest(), self.key());
        HeldCall {
            tool: "shell".into(),
            arguments: "{}".into(),
            reason: None,
            digest,
            subjects: Subjects::default(),
            key,
        }
    }

    pub(super) fn approval(&mut self, world: &World) -> ApprovalId {
        let known = &world.core().state().approvals;
        let place = self.below(known.len() + 2);
        known.keys().nth(place).copied().unwrap_or(ApprovalId(place as u64))
    }

    pub(super) fn decide(&mut self, world: &World, by: Principal) -> Input {
        let id = self.approval(world);
        let digest = world.core().state().approvals.get(&id).map(|a| a.digest);
        let decision = if self.chance(60) { Decision::Approve } else { Decision::ALL[self.below(Decision::ALL.len())] };
        let edited = self.chance(50).then(|| ("{}".into(), [9; 32]));
        Input::Decide(by, id, Box::new(Verdict { decision, comment: None, digest, edited, key: None }))
    }

    pub(super) fn claim(&mut self, world: &World, by: Principal) -> Input {
        let name = ["repo:a/*", "repo:a/b", "repo:c", "*"][self.below(4)];
        let resource = Resource::new(name).expect("a resource name");
        let mode = ClaimMode::ALL[self.below(2)];
        let key = self.key();
        Input::Claim(by, self.turn(world, 10), Box::new(ClaimDraft { resource, mode, ttl_ms: 60_000, key }))
    }
}

/// Returns half of what was spent, as one model's.
pub(super) fn models(spend: Option<Spend>) -> Vec<ModelSpend> {
    let half = |spend: Spend| Spend { tokens: spend.tokens / 2, ..spend };
    let part = |spend| Some(ModelSpend { model: ModelName::new("m").ok()?, spend: half(spend) });
    spend.and_then(part).into_iter().collect()
}
