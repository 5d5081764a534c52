//! Test support: a channel with the real core behind it, in virtual time.

use std::collections::BTreeSet;

use lastword_core::input::{Registration, RoomPost};
use lastword_core::{Core, Effect, Input, Out, Principal, Reply};
use lastword_facts::envelope::Draft;
use lastword_facts::fact::{Fact, Kind, Place, Profile};
use lastword_facts::header;
use lastword_facts::ids::{AgentId, Time};
use lastword_facts::names::{AgentName, Ref, RequestId};
use lastword_wire::Problem;

use super::book::BridgeStore;
use super::calls::{BrokerCall, NextStep, call, refused};
use super::dialect::tests::PLAIN;
use super::ids::{ChannelId, PostId, UserId};
use super::inbound::{Act, Known, Thread, Voice, decide, is_inside};
use super::names::Roster;
use super::outbound::warning;
use super::platform::Poster;
use super::post::Post;
use super::post::tests::post;
use super::runs::Run;
use super::settings::BotPolicy;

/// The user of the broker's bot.
pub(crate) const BROKER: UserId = UserId::new(1);
/// Bots that the bridge posts with.
pub(crate) const KILO: UserId = UserId::new(2);
pub(crate) const LIMA: UserId = UserId::new(3);
/// The foreign bot `hive`.
pub(crate) const HIVE: UserId = UserId::new(4);
/// A bot that isn't an agent of the workspace.
pub(crate) const STRANGER: UserId = UserId::new(5);
/// A human listed under `humans`.
pub(crate) const ANN: UserId = UserId::new(7);
/// A human who isn't listed.
pub(crate) const BOB: UserId = UserId::new(8);
/// The channel of the bridge.
pub(crate) const DEN: ChannelId = ChannelId::new(100);
/// A thread in that channel.
pub(crate) const THREAD: ChannelId = ChannelId::new(150);
/// A channel in which the bridge takes no part.
pub(crate) const OUTSIDE: ChannelId = ChannelId::new(200);

/// The channel, the core behind it, and what came of the posts so far.
pub(crate) struct TestChannel {
    core: Core,
    pub(crate) now_ms: u64,
    roster: Roster,
    pub(crate) policy: BotPolicy,
    pub(crate) trusted: BTreeSet<UserId>,
    /// The conversation that the thread shows, if any.
    pub(crate) thread: Option<Thread>,
    book: BridgeStore,
    /// Whether posts are read only after the age limit.
    pub(crate) old: bool,
    /// Warnings: poster, channel and text.
    pub(crate) warned: Vec<(Poster, ChannelId, String)>,
    /// All facts that the core recorded.
    pub(crate) facts: Vec<Fact>,
}

impl TestChannel {
    pub(crate) fn new() -> Self {
        let mut roster = Roster::new(BROKER, &PLAIN);
        roster.add(KILO, "kilo", true);
        roster.add(LIMA, "lima", true);
        roster.add(HIVE, "hive", false);
        let mut den = Self {
            core: Core::default(),
            now_ms: 1_000,
            roster,
            policy: BotPolicy::All,
            trusted: BTreeSet::new(),
            thread: None,
            book: BridgeStore::in_memory().unwrap(),
            old: false,
            warned: Vec::new(),
            facts: Vec::new(),
        };
        den.give(Input::Configure(Box::default()), DEN);
        den.give(Input::Bootstrap(registration("operator", Kind::Human)), DEN);
        for name in ["kilo", "lima", "hive", PLAIN.guest] {
            let input = Input::Register(den.principal("operator"), registration(name, Kind::Agent));
            den.give(input, DEN);
        }
        for channel in [DEN, THREAD, OUTSIDE] {
            let members = ["kilo", "lima", "hive", PLAIN.guest].map(|name| AgentName::new(name).unwrap());
            let name = Ref::new(&PLAIN.room(channel)).unwrap();
            den.give(Input::OpenRoom(den.principal("operator"), name, members.to_vec(), None), channel);
        }
        den
    }

    fn principal(&self, name: &str) -> Principal {
        self.core.state().prove(&credential(name)).unwrap()
    }

    /// Returns the messages of agents in the channel since a human wrote.
    pub(crate) fn turns(&self) -> u64 {
        self.core.state().rooms.values().find(|r| r.name.as_str() == PLAIN.room(DEN)).unwrap().agent_messages
    }

    /// Returns the messages of agents in a conversation since a human wrote.
    pub(crate) fn turns_on(&self, reference: &str) -> u64 {
        let state = self.core.state();
        state.agent_messages_in(Place::Conversation(state.conv_of(reference).unwrap()))
    }

    /// Returns the number of an agent's posts that the core admitted.
    pub(crate) fn admitted(&self, by: &str) -> usize {
        let agent: AgentId = self.core.state().live(by).unwrap();
        self.facts.iter().filter(|fact| matches!(fact, Fact::Posted { from, .. } if *from == agent)).count()
    }

    /// Gives the core one input; its warnings are posted and come back over the gateway.
    fn give(&mut self, input: Input, channel: ChannelId) -> Option<Reply> {
        let mut out = Out::default();
        self.core.handle(Time(self.now_ms), input, &mut out);
        let facts: Vec<Fact> = out.entries.into_iter().map(|entry| entry.fact).collect();
        self.facts.extend(facts.iter().cloned());
        for fact in facts {
            let Fact::Warned { agent_messages, crossing, .. } = fact else { continue };
            let parent = (channel == THREAD).then_some(DEN);
            let inside = is_inside(&[DEN].into(), channel, parent);
            if let Some(posting) = warning(agent_messages, crossing.word(), "here", inside) {
                let text = posting.parts.concat();
                self.warned.push((posting.poster, channel, text.clone()));
                self.hear_as(BROKER, channel, &text, true);
            }
        }
        out.effects.into_iter().find_map(|effect| match effect {
            Effect::Reply(reply) => Some(*reply),
            Effect::Wake(_) | Effect::WakeAll => None,
        })
    }

    /// Returns a new post a second later, without passing it on.
    pub(crate) fn draft(&mut self, author: UserId, text: &str) -> Post {
        self.now_ms += 1_000;
        post(self.now_ms, DEN, author, !matches!(author, ANN | BOB), text)
    }

    /// Posts as a user; returns the acts that the post meant.
    pub(crate) fn posts(&mut self, author: UserId, text: &str) -> Vec<Act> {
        self.hear_as(author, DEN, text, false)
    }

    pub(crate) fn hear_as(&mut self, author: UserId, channel: ChannelId, text: &str, echo: bool) -> Vec<Act> {
        let mut post = self.draft(author, text);
        post.channel = channel;
        self.receive(&Run::of(post), echo)
    }

    pub(crate) fn receive(&mut self, run: &Run, echo: bool) -> Vec<Act> {
        let post = run.first().unwrap().clone();
        let thread = self.thread.clone().filter(|_| post.channel == THREAD);
        let parent = (post.channel == THREAD).then_some(DEN);
        let turn = self
            .roster
            .get(post.author.id)
            .and_then(|member| self.book.turn(&member.agent, post.channel, post.id).unwrap());
        let known = Known {
            roster: &self.roster,
            policy: self.policy,
            trusted: self.trusted.is_empty() || self.trusted.contains(&post.author.id),
            human: post.author.id == ANN,
            inside: is_inside(&[DEN].into(), post.channel, parent),
            echo,
            old: self.old,
            thread: thread.as_ref(),
            turn: turn.as_deref(),
            waiting: None,
        };
        let acts = decide(run, &known);
        for act in &acts {
            if !self.perform(&post, act) {
                break;
            }
        }
        acts
    }

    /// Makes the bridge's calls for an act, and those that follow a refusal; returns whether the next act follows.
    fn perform(&mut self, post: &Post, act: &Act) -> bool {
        let Some(call) = call(act) else { return true };
        let reply = match &call {
            BrokerCall::Post { voice, said } => {
                let mentions = said.mentions.as_deref().unwrap_or_default();
                let about = said.reference.as_deref();
                self.say(&name_of(voice), post.channel, &said.body, mentions, about, Some(post.id))
            }
            BrokerCall::Send { voice, text } => self.send(&name_of(voice), post, text),
            BrokerCall::Finish { .. } => return true,
        };
        let Some(Reply::Refused { refusal, .. }) = reply else { return true };
        match refused(&call, post, self.old, None, &Problem::new(&refusal)) {
            NextStep::Also(more) => more.iter().all(|act| self.perform(post, act)),
            NextStep::GoOn => true,
            NextStep::Stop => false,
        }
    }

    /// An agent sends a message with its header, which nobody sees on the platform.
    pub(crate) fn sends(&mut self, user: UserId, text: &str) {
        let name = self.roster.get(user).unwrap().agent.clone();
        let post = self.draft(user, text);
        self.send(&name, &post, text);
    }

    /// Sends the message of a text with a header.
    fn send(&mut self, name: &str, post: &Post, text: &str) -> Option<Reply> {
        let (header, body) = header::parse(text).unwrap();
        let mut draft = Draft::new(header.kind, header.to, body.trim_start());
        draft.from = Some(header.from);
        draft.reference = Some(header.reference);
        draft.depth = Some(header.depth);
        draft.request_id = Some(RequestId::new(&PLAIN.message_key(post.id)).unwrap());
        let by = self.principal(name);
        self.give(Input::Send(by, Box::new(draft)), post.channel)
    }

    /// Notes a turn of a bot as shown, without knowing the thread's parent, like the bridge.
    pub(crate) fn shows_turn(&mut self, agent: &str, channel: ChannelId, turn: &str) {
        self.book.show_turn(agent, channel, turn, PostId::default()).unwrap();
    }

    /// Posts in the room as an agent whose bot is ours; an admitted post is mirrored and comes back over the gateway.
    pub(crate) fn speaks(&mut self, user: UserId, text: &str) -> bool {
        self.now_ms += 1_000;
        let name = self.roster.get(user).unwrap().agent.clone();
        let reply = self.say(&name, DEN, text, &[], None, None);
        let admitted = matches!(reply, Some(Reply::Sent(_)));
        if admitted {
            self.hear_as(user, DEN, text, true);
        }
        admitted
    }

    /// Posts in a channel's room without mirroring it on the platform.
    pub(crate) fn says_in_room(&mut self, name: &str, channel: ChannelId, text: &str) {
        self.now_ms += 1_000;
        self.say(name, channel, text, &[], None, None);
    }

    fn say(
        &mut self,
        name: &str,
        channel: ChannelId,
        body: &str,
        mentions: &[String],
        about: Option<&str>,
        id: Option<PostId>,
    ) -> Option<Reply> {
        let state = self.core.state();
        let id_of_room = state.room_names[PLAIN.room(channel).as_str()];
        let post = RoomPost {
            body: body.into(),
            mentions: mentions.iter().map(|name| AgentName::new(name).unwrap()).collect(),
            reference: about.map(|text| Ref::new(text).unwrap()),
            key: id.map(|id| RequestId::new(&PLAIN.key(id)).unwrap()),
        };
        let by = self.principal(name);
        self.give(Input::Post(by, id_of_room, Box::new(post)), channel)
    }
}

fn name_of(voice: &Voice) -> String {
    match voice {
        Voice::Agent(agent) => agent.clone(),
        Voice::Guest => PLAIN.guest.to_owned(),
        Voice::Human(_) => "operator".to_owned(),
    }
}

fn registration(name: &str, kind: Kind) -> Registration {
    let profile = Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 };
    Registration {
        name: AgentName::new(name).unwrap(),
        kind,
        profile,
        credential: credential(name),
        role: None,
        display_name: None,
        key: None,
    }
}

fn credential(name: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bytes
}
