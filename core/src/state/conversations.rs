//! Conversations, each with one REF (D2).

use serde::{Deserialize, Serialize};

use lastword_facts::fact::Place;
use lastword_facts::ids::{AgentId, ConvId, GrantId, TaskId, Time};
use lastword_facts::names::Ref;
use lastword_facts::status::Running;

use super::{Closed, Few, Opt, State, TaskSet};

/// A conversation: the messages under one REF (D2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// The REF that names it.
    pub reference: Ref,
    /// The conversation from which it was opened.
    pub parent: Option<ConvId>,
    /// The agent or human that opened it.
    pub opener: AgentId,
    /// The agent that rooted it itself, with the task and depth of that root (D3).
    pub root: Option<RootLine>,
    /// The agents and humans that sent or received something in it, by number.
    pub participants: Few<AgentId, 4>,
    /// Agent messages since a human last spoke (R1).
    pub agent_messages: u64,
    /// All messages in it.
    pub messages: u64,
    /// The depth of the deepest message.
    pub deepest: u8,
    /// The depth by which humans extended the limit (D2).
    pub depth_more: u8,
    /// The number of those extensions.
    pub depth_extensions: u8,
    /// Whether a human paused or stopped it.
    pub running: Running,
    /// Whether a latch of the hard limit holds it (R3).
    pub latched: bool,
    /// The number of conversations opened from it, including forgotten ones; the next child's number follows from it.
    pub children: u32,
    /// The open tasks whose requests arrived in it.
    pub open_tasks: TaskSet,
    /// The tasks of open grants that were asked or that ask in it. It isn't forgotten before those grants close.
    pub(crate) users: u32,
    /// The grant of its last request.
    pub grant: Opt<GrantId>,
    /// The time of its last message.
    pub last_at: Time,
    /// The time at which it was opened.
    pub opened_at: Time,
}

/// The last root that an agent started in a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootLine {
    /// The agent that started the root.
    pub agent: AgentId,
    /// The task of the last root.
    pub task: TaskId,
    /// The depth of the deepest message that the root received in it.
    pub received: Option<u8>,
}

impl Conversation {
    pub(super) fn new(at: Time, reference: Ref, parent: Option<ConvId>, opener: AgentId) -> Self {
        Self {
            reference,
            parent,
            opener,
            root: None,
            participants: Few::from_slice(&[opener]),
            agent_messages: 0,
            messages: 0,
            deepest: 0,
            depth_more: 0,
            depth_extensions: 0,
            running: Running::Active,
            latched: false,
            children: 0,
            open_tasks: TaskSet::default(),
            users: 0,
            grant: Opt::none(),
            last_at: at,
            opened_at: at,
        }
    }

    /// Whether `agent` sent or received something in it.
    #[must_use]
    pub fn has_part(&self, agent: AgentId) -> bool {
        self.participants.binary_search(&agent).is_ok()
    }
}

impl State {
    /// Returns the REF of a conversation.
    #[must_use]
    pub fn ref_of(&self, conv: ConvId) -> Option<&Ref> {
        self.conversations.get(&conv).map(|c| &c.reference)
    }

    pub(super) fn conversation_opened(
        &mut self,
        at: Time,
        id: ConvId,
        reference: &Ref,
        parent: Option<ConvId>,
        opener: AgentId,
    ) {
        self.minted.conv = id.0;
        // Never counted down, so that the REF of a forgotten child is not minted again.
        if let Some(parent) = parent.and_then(|p| self.conversations.get_mut(&p)) {
            parent.children += 1;
        }
        // A conversation that had this REF before keeps its records, but loses the name.
        if let Some(before) = self.conv_of(reference.as_str()) {
            self.unname(reference, before);
        }
        self.refs.insert(reference.as_str(), id.0);
        self.count_prefixes(reference.as_str(), true);
        // Queued at its opening: `forget` queues it again until it has been idle long enough.
        self.closed.push_back((at, Closed::Conversation(id)));
        self.conversations.insert(id, Conversation::new(at, reference.clone(), parent, opener));
    }

    pub(super) fn heard(&mut self, place: Place, agent_messages: u64) {
        match place {
            Place::Conversation(conv) => {
                if let Some(conv) = self.conversations.get_mut(&conv) {
                    conv.agent_messages = agent_messages;
                }
            }
            Place::Room(room) => {
                if let Some(room) = self.rooms.get_mut(&room) {
                    room.agent_messages = agent_messages;
                }
            }
        }
    }

    /// Changes the count of tasks that depend on a conversation.
    pub(super) fn uses(&mut self, conv: ConvId, change: i32) {
        if let Some(conv) = self.conversations.get_mut(&conv) {
            conv.users = conv.users.saturating_add_signed(change);
        }
    }
}
