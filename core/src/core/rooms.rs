//! Rooms and the posts in them (R1, R4).

use alloc::boxed::Box;
use alloc::vec::Vec;

use lastword_facts::envelope::{Address, Draft, MessageType};
use lastword_facts::fact::{Fact, Key, Place, PostKeyed, Role, WriteKind};
use lastword_facts::ids::{AgentId, ConvId, RoomId};
use lastword_facts::names::{AgentName, Ref, RequestId};
use lastword_facts::refusal::{Code, Refusal};

use super::admit::key;
use super::{Outcome, Step};
use crate::input::{Reply, RoomPost};
use crate::rules::Rule;
use crate::state::{Known, Principal};

impl Step<'_> {
    pub(super) fn open_room(
        &mut self,
        by: Principal,
        name: Ref,
        members: &[AgentName],
        id: Option<&RequestId>,
    ) -> Outcome {
        self.human(by, Role::Operator)?;
        let key = key(id, format_args!("{name}\0{members:?}"));
        if let Some(again) = self.made_before(by.agent(), key.as_ref())? {
            return Ok(again);
        }
        let reply = self.set_members(name, members)?;
        #[cfg(feature = "rules-off")]
        self.naive_join(by.agent(), &reply);
        self.keep_key(by.agent(), key, &reply);
        Ok(reply)
    }

    fn set_members(&mut self, name: Ref, members: &[AgentName]) -> Outcome {
        let mut ids = Vec::with_capacity(members.len());
        for member in members {
            let unknown = || Refusal::new(Code::UnknownRecipient).about(member);
            ids.push(self.state().live(member.as_str()).ok_or_else(unknown)?);
        }
        let max = self.state().limits.rooms_max;
        let count = self.state().rooms.len() as u64;
        let room = match self.state().room_names.get(&name) {
            Some(known) => *known,
            // Only a new room counts; changing the members of one is always possible.
            None if count >= max => return Err(Refusal::new(Code::Saturated).numbers(max, count + 1)),
            None => RoomId(self.state().last_room() + 1),
        };
        self.record(Fact::RoomOpened { room, name, members: ids });
        Ok(Reply::Opened(room))
    }

    /// Posts to a room without an envelope: an agent's post counts in the room, a human's opens a grant for each agent
    /// that it mentions (R1, R4).
    pub(super) fn post(&mut self, by: Principal, id: RoomId, post: &RoomPost) -> Outcome {
        self.authenticate(by)?;
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
        self.not_too_often(by.agent())?;
        // A refused post with a key was counted when it was first heard, so its retry is not counted again (R1).
        let heard_before = key.as_ref().is_some_and(|key| self.state().keys.contains(key.id.as_str()));
        let refusal = self.judge_post(by, id, heard_before);
        // Recorded before the post itself; the fold takes the next fact as the keyed one.
        if let Some(key) = key.filter(|_| !heard_before || refusal.is_none()) {
            self.record(Fact::PostKeyed(PostKeyed { room: id, agent: by.agent(), key, admitted: refusal.is_none() }));
        }
        if let Some(refusal) = refusal {
            return Err(self.refuse_write(by, WriteKind::Post, None, refusal));
        }
        self.record(Fact::Posted { room: id, from: by.agent(), body: post.body.clone() });
        Ok(Reply::Sent(alloc::vec![self.state().seq]))
    }

    /// Counts an agent's post, unless an earlier attempt was counted, and only then looks for what refuses it.
    fn judge_post(&mut self, by: Principal, room: RoomId, heard_before: bool) -> Option<Refusal> {
        let agent = by.agent();
        let place = Place::Room(room);
        let turns = if heard_before { self.state().agent_messages_in(place) } else { self.hear_in(agent, place).1 };
        let of_room = |refusal: Refusal| match self.state().rooms.get(&room) {
            Some(room) => refusal.about(&room.name),
            None => refusal,
        };
        let refused = self.over_in_room(turns).map(|(code, max)| of_room(Refusal::new(code).numbers(max, turns)));
        refused.or_else(|| self.admit_write(by, WriteKind::Post).err())
    }

    /// Returns the limit that refuses a post where agents have posted so often since a human spoke (R1).
    pub(super) fn over_in_room(&self, turns: u64) -> Option<(Code, u64)> {
        let limits = &self.state().limits;
        let over = [(Code::TurnsHard, limits.turns_hard_max), (Code::TurnsSoft, limits.turns_soft_max)];
        over.into_iter().find(|(code, max)| turns >= *max && self.enforces(code.word()))
    }

    /// Returns the first result of a post that was admitted under the same key (Q1).
    fn posted_before(&self, agent: AgentId, key: Option<&Key>) -> Result<Option<Reply>, Refusal> {
        let keys = &self.state().keys;
        let Some(key) = key.filter(|key| keys.contains(key.id.as_str()) && self.rule(Rule::Idempotency)) else {
            return Ok(None);
        };
        let same = |known: &&Known| known.sender == agent && known.fingerprint == Some(key.fingerprint);
        let conflict = || Refusal::new(Code::IdempotencyConflict).about(&key.id);
        let known = keys.chosen(key.id.as_str()).filter(same).ok_or_else(conflict)?;
        let mut sent = known.messages.to_vec();
        // The post's requests have keys derived from its own; they belong to the same reply.
        let requests = (1..).map_while(|n| keys.chosen(request_of(&key.id, n)?.as_str()));
        sent.extend(requests.flat_map(|known| known.messages.to_vec()));
        Ok((!sent.is_empty()).then_some(Reply::Again(sent)))
    }

    fn human_post(&mut self, by: Principal, id: RoomId, post: &RoomPost, key: Option<Key>) -> Outcome {
        self.human(by, Role::Viewer)?;
        if let Some(name) = post.mentions.first() {
            let asks = format_args!("a mention such as @{name} is a request, which needs the role operator");
            self.human(by, Role::Operator).map_err(|refused| Refusal::new(refused.code).about(asks))?;
        }
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
            Box::new(draft)
        };
        // All or none: if one mention can't be delivered, the whole post is refused with the reason.
        let drafts: Vec<_> = mentions.enumerate().map(draft).collect();
        for draft in &drafts {
            self.repeated(by.agent(), draft)?;
            self.check_human_draft(by.agent(), draft.clone())?;
        }
        // A viewer may post, but a viewer's text neither lifts nor resets (H7).
        if self.human(by, Role::Approver).is_ok() {
            self.lift_place(Place::Room(id), by.agent());
            self.rearm(by.agent(), post.reference.as_ref());
        }
        if let Some(key) = key {
            self.record(Fact::PostKeyed(PostKeyed { room: id, agent: by.agent(), key, admitted: true }));
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

    /// Resets the counters of the work item that a human's post is about, above it and below it (R4).
    fn rearm(&mut self, by: AgentId, reference: Option<&Ref>) {
        let conv: Option<ConvId> = reference.and_then(|reference| self.state().conv_of(reference.as_str()));
        if let Some(conv) = conv {
            self.hear_human(by, conv, None);
        }
    }
}

/// Returns the id of the `n`th request of a post with this key.
fn request_of(key: &RequestId, n: usize) -> Option<RequestId> {
    RequestId::new(&alloc::format!("{key}.{n}")).ok()
}

/// Returns a hash that tells a retry of a post from another post under its key (Q1).
fn fingerprint(room: &Ref, post: &RoomPost) -> u64 {
    let mentions = post.mentions.iter().cloned().map(Address::Name).collect();
    let mut draft = Draft::new(MessageType::Broadcast, Address::List(mentions), &post.body);
    draft.reference.clone_from(&post.reference);
    draft.payload = Some(room.as_str().into());
    draft.fingerprint()
}
