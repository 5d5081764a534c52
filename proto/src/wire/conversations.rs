//! Conversations: their counters, their tree, and how near each is to its limits.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{GrantView, RefusedSend, StoredMessage};
use crate::state::Running;

/// Counters of a conversation.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// Messages in it.
    pub messages: u64,
    /// Agent messages since a human spoke (R1).
    #[serde(alias = "turns")]
    pub agent_messages: u64,
    /// Depth of the deepest message.
    pub deepest: u8,
    /// Open tasks.
    pub open_tasks: u64,
}

/// A conversation in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConversationSummary {
    /// Its REF.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The conversation from which it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_ref: Option<String>,
    /// Who opened it.
    pub opener: String,
    /// Whether it runs.
    pub state: Running,
    /// Whether a limit holds it until a human lifts it.
    pub latched: bool,
    /// Its counters.
    pub counters: Counters,
    /// When it was opened.
    pub opened_at: String,
    /// When something happened last.
    pub last_at: String,
    /// The limit that it is nearest to: one of its own, or of its grant while that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Distance>,
}

/// How far it is to a limit.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Distance {
    /// The limit's name, as in `GET /v1/limits`.
    pub name: String,
    /// The limit.
    pub limit: u64,
    /// The value now.
    pub current: u64,
    /// What is left.
    pub left: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A message and those that it caused.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TreeNode {
    /// The message.
    pub message: StoredMessage,
    /// The messages sent in the turn that it opened, and its answer, oldest first.
    #[cfg_attr(feature = "schema", schema(no_recursion))]
    pub children: Vec<Self>,
    /// A REQUEST: the turns that served it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u64,
    /// A REQUEST: the tokens that those turns spent, once they ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// A REQUEST that was answered: how long that took, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// A REQUEST: the messages that were refused to who serves it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedSend>,
}

/// A conversation as a tree; `GET /v1/conversations/{ref}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConversationView {
    /// What the list shows.
    #[serde(flatten)]
    pub summary: ConversationSummary,
    /// Who takes part.
    pub participants: Vec<String>,
    /// How far it is to each of its own limits.
    pub limits: Vec<Distance>,
    /// The grants that are open in it, the newest first; where none is, the one of its last request.
    pub grants: Vec<GrantView>,
    /// Its messages, each under its cause; child conversations included.
    pub tree: Vec<TreeNode>,
    /// Messages refused here that were sent outside every turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedSend>,
}

impl ConversationView {
    /// The newest grant that is open in it, or the one of its last request.
    #[must_use]
    pub fn grant(&self) -> Option<&GrantView> {
        self.grants.first()
    }
}
