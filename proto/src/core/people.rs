//! Escalations to humans and their answers, rooms, and leases on resources (H1, R4, C1).

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::{Outcome, Step};
use crate::envelope::{Address, Draft, MessageType};
use crate::fact::{ClaimMode, EscalationCause, Fact, Key, Message, Part, Place, Recipient};
use crate::guards::{Line, Plan};
use crate::ids::{AgentId, ClaimId, ConvId, EscalationId, RoomId, Seq, TaskId, TurnId};
use crate::input::{Question, Reply, RoomPost};
use crate::names::{AgentName, Ref, RequestId, Resource};
use crate::refusal::{Code, Refusal};
use crate::rules::Rule;
use crate::state::{EscalationState, Known, Principal, Running};

impl Step<'_> {
    pub(super) fn escalate(&mut self, by: Principal, turn: Option<TurnId>, question: Question) -> Outcome {
        self.holds(by)?;
        let (agent, max) = (by.agent(), self.state().limits.escalations_open_max);
        let open = self.state().agents[agent.0 as usize].escalations_open;
        if open >= max {
            return Err(Refusal::new(Code::EscalationsOpen).numbers(max, open + 1));
        }
        let body_max = self.state().limits.body_bytes_max;
        if question.body.len() as u64 > body_max {
            return Err(Refusal::new(Code::TooLarge).numbers(body_max, question.body.len() as u64));
        }
        let (task, conv) = self.where_asked(agent, turn, question.reference.as_ref())?;
        let escalation = EscalationId(self.state().last_escalation() + 1);
        self.record(Fact::EscalationOpened {
            escalation,
            task,
            agent,
            conv,
            cause: EscalationCause::Asked,
            body: question.body,
            options: question.options,
        });
        self.wake(self.state().human_for(task));
        Ok(Reply::Escalated(escalation))
    }

    /// The task that asks, and its conversation; outside a turn, the conversation that is named.
    fn where_asked(
        &mut self,
        agent: AgentId,
        turn: Option<TurnId>,
        reference: Option<&Ref>,
    ) -> Result<(Option<TaskId>, ConvId), Refusal> {
        self.runs(agent)?;
        if let Some(task) = self.task_in_turn(agent, turn)? {
            return Ok((Some(task), self.state().tasks[&task].conv));
        }
        let reference = reference.ok_or_else(|| Refusal::new(Code::RefRequired))?;
        match self.state().conv_of(reference.as_str()) {
            Some(conv) if self.state().conversations[&conv].has_part(agent) => Ok((None, conv)),
            Some(_) => Err(Refusal::new(Code::RefInUse).about(reference)),
            None => {
                let plan = Plan::Open(reference.clone(), None);
                Ok((None, self.open(agent, &Line { plan, fault: None, depth: 0 }, false)))
            }
        }
    }

    /// Refuses what an agent does while it or the workspace is paused or stopped (H4).
    pub(super) fn runs(&self, agent: AgentId) -> Result<(), Refusal> {
        let state = self.state();
        match state.running.max(state.agents[agent.0 as usize].running) {
            Running::Active => Ok(()),
            Running::Paused => Err(Code::Paused.into()),
            Running::Stopped => Err(Code::Stopped.into()),
        }
    }

    /// The task of the open turn, or none outside every turn; a stale or ambiguous one is refused.
    pub(super) fn task_in_turn(&self, agent: AgentId, turn: Option<TurnId>) -> Result<Option<TaskId>, Refusal> {
        if turn.is_none() && self.state().agents[agent.0 as usize].turns.is_empty() {
            return Ok(None);
        }
        let turn = self.turn_of(agent, turn).map_err(|(_, refusal)| refusal)?;
        Ok(Some(self.state().turns[&turn].task))
    }

    /// A human's answer goes back to exactly the task that asked (D9, H1).
    pub(super) fn answer(&mut self, by: Principal, id: EscalationId, body: Box<str>) -> Outcome {
        self.human(by)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let escalation = self.state().escalations.get(&id).ok_or_else(unknown)?;
        if escalation.state != EscalationState::Open {
            return Err(Refusal::new(Code::AlreadySettled).about(id));
        }
        let (agent, conv, asked) = (escalation.agent, escalation.conv, escalation.asked);
        self.lift_place(Place::Conversation(conv), by.agent());
        let open = escalation_task(self.state(), id);
        let Some(task) = open else {
            self.record(Fact::EscalationNoted { escalation: id, by: by.agent(), body });
            return Ok(Reply::Done);
        };
        let seq = self.reply_to(task, by.agent(), agent, body, Some(id), asked);
        Ok(Reply::Sent(alloc::vec![seq]))
    }

    /// Delivers words from a human or the broker to a task.
    pub(super) fn reply_to(
        &mut self,
        task: TaskId,
        from: AgentId,
        to: AgentId,
        body: Box<str>,
        escalation: Option<EscalationId>,
        asked: Seq,
    ) -> Seq {
        let known = &self.state().tasks[&task];
        let message = Message {
            from,
            to: Recipient::One(to),
            kind: MessageType::Response,
            conv: known.conv,
            depth: 0,
            hops: known.hop,
            grant: Some(known.grant),
            sender_task: None,
            cause: Some(asked),
            in_reply_to: Some(asked),
            key: None,
            action: None,
            payload: None,
            body,
            metadata: None,
            part: Part::Reply { task, escalation },
        };
        self.record(Fact::Accepted { message: Box::new(message) });
        self.wake(to);
        self.state().seq
    }

    /// A human's RESPONSE message answers the escalation that its `request_id` names.
    pub(super) fn human_response(&mut self, by: Principal, draft: Draft) -> Outcome {
        let id = draft.request_id.as_ref().and_then(|id| EscalationId::parse(id.as_str()));
        let id = id.ok_or_else(|| Refusal::new(Code::ReplyNotExpected))?;
        self.answer(by, id, draft.body)
    }

    pub(super) fn open_room(&mut self, by: Principal, name: Ref, members: &[AgentName]) -> Outcome {
        self.human(by)?;
        let mut ids = Vec::with_capacity(members.len());
        for member in members {
            let unknown = || Refusal::new(Code::UnknownRecipient).about(member);
            ids.push(self.state().live(member.as_str()).ok_or_else(unknown)?);
        }
        let max = self.state().limits.rooms_max;
        let count = self.state().rooms.len() as u64;
        let room = match self.state().room_names.get(&name) {
            Some(known) => *known,
            None if count >= max => return Err(Refusal::new(Code::Saturated).numbers(max, count + 1)),
            None => RoomId(self.state().last_room() + 1),
        };
        self.record(Fact::RoomOpened { room, name, members: ids });
        if !self.rule(Rule::HumanWords) {
            self.record(Fact::Posted { room, from: by.agent(), body: "joined".into() });
        }
        Ok(Reply::Opened(room))
    }

    /// A post without an envelope: an agent's counts in the room, a human's is a grant for whom it
    /// mentions (R1, R4).
    pub(super) fn post(&mut self, by: Principal, id: RoomId, post: &RoomPost) -> Outcome {
        self.holds(by)?;
        let room = self.state().rooms.get(&id).ok_or_else(|| Refusal::new(Code::UnknownRequest).about(id))?;
        if !by.is_human() && !room.members.contains(&by.agent()) {
            return Err(Refusal::new(Code::Forbidden).about(&room.name));
        }
        let max = self.state().limits.body_bytes_max;
        if post.body.len() as u64 > max {
            return Err(Refusal::new(Code::TooLarge).numbers(max, post.body.len() as u64));
        }
        let key = post.key.as_ref().map(|id| Key { id: id.clone(), fingerprint: fingerprint(&room.name, post) });
        if let Some(again) = self.posted_before(by.agent(), key.as_ref())? {
            return Ok(again);
        }
        if by.is_human() {
            return self.human_post(by, id, post, key);
        }
        let heard_before = key.as_ref().is_some_and(|key| self.state().keys.contains(key.id.as_str()));
        let refusal = self.judge_post(by.agent(), id, heard_before);
        if let Some(key) = key.filter(|_| !heard_before || refusal.is_none()) {
            self.record(Fact::PostKeyed { room: id, agent: by.agent(), key, admitted: refusal.is_none() });
        }
        if let Some(refusal) = refusal {
            return Err(refusal);
        }
        self.record(Fact::Posted { room: id, from: by.agent(), body: post.body.clone() });
        Ok(Reply::Sent(alloc::vec![self.state().seq]))
    }

    /// Counts an agent's post, unless a try of it was counted before, and only then looks for what refuses it.
    fn judge_post(&mut self, agent: AgentId, room: RoomId, heard_before: bool) -> Option<Refusal> {
        let place = Place::Room(room);
        let turns = if heard_before { self.state().turns_in(place) } else { self.hear_in(agent, place).1 };
        let limits = &self.state().limits;
        let over = [(Code::TurnsHard, limits.turns_hard_max), (Code::TurnsSoft, limits.turns_soft_max)];
        let mut over = over.into_iter().filter(|(code, max)| turns >= *max && self.enforces(code.word()));
        let refused = over.next().map(|(code, max)| Refusal::new(code).numbers(max, turns));
        refused.or_else(|| self.runs(agent).err())
    }

    /// The first answer to a post that was admitted under the same key (Q1).
    fn posted_before(&self, agent: AgentId, key: Option<&Key>) -> Result<Option<Reply>, Refusal> {
        let keys = &self.state().keys;
        let Some(key) = key.filter(|key| keys.contains(key.id.as_str()) && self.rule(Rule::Idempotency)) else {
            return Ok(None);
        };
        let same = |known: &&Known| known.sender == agent && known.fingerprint == Some(key.fingerprint);
        let conflict = || Refusal::new(Code::IdempotencyConflict).about(&key.id);
        let known = keys.chosen(key.id.as_str()).filter(same).ok_or_else(conflict)?;
        let mut sent = known.messages.to_vec();
        let requests = (1..).map_while(|n| keys.chosen(request_of(&key.id, n)?.as_str()));
        sent.extend(requests.flat_map(|known| known.messages.to_vec()));
        Ok((!sent.is_empty()).then_some(Reply::Again(sent)))
    }

    fn human_post(&mut self, by: Principal, id: RoomId, post: &RoomPost, key: Option<Key>) -> Outcome {
        if post.body.trim().is_empty() && self.rule(Rule::HumanWords) {
            return Err(Refusal::new(Code::Malformed).about("body is empty"));
        }
        let agent = |name: &&AgentName| {
            !self.state().live(name.as_str()).is_some_and(|id| self.state().agents[id.0 as usize].is_human())
        };
        let mentions = post.mentions.iter().filter(agent);
        let draft = |(number, name): (usize, &AgentName)| {
            let mut draft = Draft::new(MessageType::Request, Address::Name(name.clone()), &post.body);
            draft.reference.clone_from(&post.reference);
            draft.request_id = post.key.as_ref().and_then(|key| request_of(key, number + 1));
            draft
        };
        // All or none: a post whose mention can't be delivered is refused with the reason.
        let drafts: Vec<Draft> = mentions.enumerate().map(draft).collect();
        for draft in &drafts {
            self.repeated(by.agent(), draft)?;
            self.would_admit(by.agent(), draft.clone())?;
        }
        self.lift_place(Place::Room(id), by.agent());
        if let Some(reference) = &post.reference {
            self.rearm(by.agent(), reference);
        }
        if let Some(key) = key {
            self.record(Fact::PostKeyed { room: id, agent: by.agent(), key, admitted: true });
        }
        self.record(Fact::Posted { room: id, from: by.agent(), body: post.body.clone() });
        let mut sent = alloc::vec![self.state().seq];
        for draft in drafts {
            if let Reply::Sent(positions) = self.send(by, draft)? {
                sent.extend(positions);
            }
        }
        Ok(Reply::Sent(sent))
    }

    /// A human's post about a work item is heard in its conversation and in those that came of it (R4).
    fn rearm(&mut self, by: AgentId, reference: &Ref) {
        let state = self.state();
        let Some(root) = state.conv_of(reference.as_str()) else { return };
        let silent = |conv: &ConvId| state.turns_in(Place::Conversation(*conv)) > 0;
        let convs: Vec<ConvId> = state.lineage_below(root).into_iter().filter(silent).collect();
        for conv in convs {
            self.lift_place(Place::Conversation(conv), by);
            self.record(Fact::Rearmed { conv, by });
        }
    }

    pub(super) fn claim(
        &mut self,
        by: Principal,
        turn: Option<TurnId>,
        resource: Resource,
        mode: ClaimMode,
        ttl_ms: u64,
    ) -> Outcome {
        self.holds(by)?;
        self.runs(by.agent())?;
        let task = self.task_in_turn(by.agent(), turn)?;
        let state = self.state();
        let holder = state.claims.values().find(|held| {
            held.agent != by.agent()
                && (mode == ClaimMode::Exclusive || held.mode == ClaimMode::Exclusive)
                && overlap(held.resource.as_str(), resource.as_str())
        });
        if let Some(held) = holder {
            let request = held.task.and_then(|t| state.tasks.get(&t)).and_then(|t| t.request.as_ref());
            let task = request.map_or("no task", |r| r.id.as_str());
            let wait = held.expires_at.since(self.now);
            let name = state.name_of(held.agent);
            return Err(Refusal::new(Code::ClaimHeld).about(format_args!("{name} in {task}")).retry_after(wait.max(1)));
        }
        let (max, count) = (state.limits.claims_max, state.agents[by.agent().0 as usize].claims);
        if count >= max {
            return Err(Refusal::new(Code::Saturated).numbers(max, count + 1));
        }
        let expires_at = self.now.plus(ttl_ms.clamp(1, state.limits.claim_ms_max));
        let claim = ClaimId(state.last_claim() + 1);
        self.record(Fact::Claimed { claim, agent: by.agent(), task, resource, mode, expires_at });
        Ok(Reply::Claimed(claim))
    }

    pub(super) fn release(&mut self, by: Principal, id: ClaimId) -> Outcome {
        self.holds(by)?;
        let unknown = || Refusal::new(Code::UnknownRequest).about(id);
        let claim = self.state().claims.get(&id).ok_or_else(unknown)?;
        if claim.agent != by.agent() && !by.is_human() {
            return Err(Code::Forbidden.into());
        }
        self.record(Fact::Released { claim: id });
        Ok(Reply::Done)
    }
}

/// The id of the `n`th request of a post with this key.
fn request_of(key: &RequestId, n: usize) -> Option<RequestId> {
    RequestId::new(&alloc::format!("{key}.{n}")).ok()
}

/// Tells a retry of a post from another post under its key (Q1).
fn fingerprint(room: &Ref, post: &RoomPost) -> u64 {
    let mentions = post.mentions.iter().cloned().map(Address::Name).collect();
    let mut draft = Draft::new(MessageType::Broadcast, Address::List(mentions), &post.body);
    draft.reference.clone_from(&post.reference);
    draft.payload = Some(room.as_str().into());
    draft.fingerprint()
}

fn escalation_task(state: &crate::state::State, id: EscalationId) -> Option<TaskId> {
    let task = state.escalations.get(&id)?.task?;
    state.tasks.get(&task).filter(|t| !t.is_closed()).map(|_| task)
}

/// Whether two resource names can mean the same thing; a trailing `*` stands for everything below.
fn overlap(a: &str, b: &str) -> bool {
    match (a.strip_suffix('*'), b.strip_suffix('*')) {
        (None, None) => a == b,
        (Some(a), None) => b.starts_with(a),
        (None, Some(b)) => a.starts_with(b),
        (Some(a), Some(b)) => a.starts_with(b) || b.starts_with(a),
    }
}
