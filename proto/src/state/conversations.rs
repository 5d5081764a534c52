//! Conversations: where messages are, one a REF (D2).

use serde::{Deserialize, Serialize};

use super::{Closed, Few, Opt, Running, State, TaskSet};
use crate::fact::Place;
use crate::ids::{AgentId, ConvId, GrantId, TaskId, Time};
use crate::names::Ref;

/// A conversation: one REF (D2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Conversation {
    /// Its REF.
    pub reference: Ref,
    /// The conversation from which it was opened.
    pub parent: Option<ConvId>,
    /// Who opened it.
    pub opener: AgentId,
    /// The agent whose own root it is, and that root's task and depth (D3).
    pub root: Option<RootLine>,
    /// Who sent or received something in it, in order of their numbers.
    pub participants: Few<AgentId, 4>,
    /// Agent messages since a human spoke (R1).
    pub agent_messages: u64,
    /// Messages in it.
    pub messages: u64,
    /// Deepest of them.
    pub deepest: u8,
    /// How much deeper than the limit humans let it go (D2).
    pub depth_more: u8,
    /// How often humans did so.
    pub depth_extensions: u8,
    /// Whether it runs.
    pub running: Running,
    /// Whether the hard limit holds it (R3).
    pub latched: bool,
    /// Conversations that were opened from it, those that are forgotten included.
    pub children: u32,
    /// Open tasks whose requests came in it.
    pub open_tasks: TaskSet,
    /// Tasks of open grants that were asked, or ask, in it: it isn't forgotten before they are over.
    pub(crate) users: u32,
    /// The grant of its last request.
    pub grant: Opt<GrantId>,
    /// When something happened last.
    pub last_at: Time,
    /// When it was opened.
    pub opened_at: Time,
}

/// The root task of a conversation that an agent started by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootLine {
    /// Who started it.
    pub agent: AgentId,
    /// Its last root task.
    pub task: TaskId,
    /// The deepest message that the root received in it.
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
    /// The REF of a conversation.
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
        if let Some(parent) = parent.and_then(|p| self.conversations.get_mut(&p)) {
            parent.children += 1;
        }
        // What had this REF before and is still remembered keeps its records, and loses the name.
        if let Some(before) = self.conv_of(reference.as_str()) {
            self.unname(reference, before);
        }
        self.refs.insert(reference.as_str(), id.0);
        self.count_prefixes(reference.as_str(), true);
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

    /// Counts who depends on a conversation.
    pub(super) fn uses(&mut self, conv: ConvId, change: i32) {
        if let Some(conv) = self.conversations.get_mut(&conv) {
            conv.users = conv.users.saturating_add_signed(change);
        }
    }
}
