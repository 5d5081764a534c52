//! Conversations: their counters, their tree, and the distance to their limits.

use serde::{Deserialize, Serialize};

use lastword_facts::status::Running;

use crate::{ClaimView, EscalationView, GrantView, HeldBy, Outcome, RefusedSend, StoredMessage, amount, is_cost};

/// Counters of a conversation.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Counters {
    /// All messages in it.
    pub messages: u64,
    /// Agent messages since a human last spoke (R1).
    #[serde(alias = "turns")]
    pub agent_messages: u64,
    /// The depth of the deepest message.
    pub deepest: u8,
    /// The number of open tasks.
    pub open_tasks: u64,
}

/// A conversation in a list.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConversationSummary {
    /// The REF that names it.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The conversation from which it was opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_ref: Option<String>,
    /// The agent or human that opened it.
    pub opener: String,
    /// Whether a human paused or stopped it.
    pub state: Running,
    /// Whether a latch holds it until a human lifts it.
    pub latched: bool,
    /// Whether its open work waits for the decision of a human.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits_for_human: bool,
    /// The agents at work in it that have a dialog of their program open, which only the program's own user can answer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits_for_user: Vec<String>,
    /// Its message and task counters.
    pub counters: Counters,
    /// How its last work ended; absent while a request is open, and once that work is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The time at which it was opened.
    pub opened_at: String,
    /// The time of its last message.
    pub last_at: String,
    /// The limit that it is nearest to: one of its own, or one of its grant while that is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<Distance>,
    /// In a list: the first line of its first message, shortened.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// In a list: the tokens that the turns of its requests spent.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// In a list: the cost of those turns, in millionths of a dollar.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cost_microusd: u64,
}

/// The distance to a limit.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Distance {
    /// The limit's name, as in `GET /v1/limits`.
    pub name: String,
    /// The value of the limit.
    pub limit: u64,
    /// The current value.
    pub current: u64,
    /// The difference between limit and current value, at least 0.
    pub left: u64,
    /// Whether the current value is estimated from the length of the text, at least in part (B1).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl Distance {
    /// Returns the current value and the limit, each in its unit.
    #[must_use]
    pub fn amounts(&self) -> [String; 2] {
        [self.current, self.limit].map(|n| amount(is_cost(&self.name), n))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A message and the messages that it caused.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TreeNode {
    /// The message at this node.
    pub message: StoredMessage,
    /// The messages sent in the turn that it opened, and its answer, oldest first.
    #[cfg_attr(feature = "schema", schema(no_recursion))]
    pub children: Vec<Self>,
    /// REQUEST: the number of turns that served it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub turns: u64,
    /// REQUEST: the tokens that those turns spent, as far as they are reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub tokens: u64,
    /// REQUEST: whether those tokens are estimated from the length of the text, at least in part.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
    /// REQUEST that was answered: the time until the answer, in ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// REQUEST: the refused messages of the agent that serves it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedSend>,
    /// REQUEST: the questions to a human that its task asked, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<EscalationView>,
}

/// A conversation as a tree; `GET /v1/conversations/{ref}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConversationView {
    /// The members that the list shows.
    #[serde(flatten)]
    pub summary: ConversationSummary,
    /// The agents and humans that sent or received something in it.
    pub participants: Vec<String>,
    /// The distance to each of its own limits.
    pub limits: Vec<Distance>,
    /// The grants that are open in it, newest first; if none is open, the grant of its last request.
    pub grants: Vec<GrantView>,
    /// Its messages, each under its cause; includes child conversations.
    pub tree: Vec<TreeNode>,
    /// The messages behind the last one of the tree: `GET /v1/messages?ref=REF` lists all, page by page.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// The facts that the tree doesn't cover yet, because the read model is behind the log.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub behind: u64,
    /// Refused messages that were sent here outside every turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedSend>,
    /// Questions to a human that belong to no request in the tree, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub questions: Vec<EscalationView>,
    /// All that holds its open requests until a human acts: each with the step that lifts it (H6).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// The files and other resources that its requests hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<ClaimView>,
}

impl ConversationView {
    /// Returns the newest grant that is open in it, or the grant of its last request.
    #[must_use]
    pub fn grant(&self) -> Option<&GrantView> {
        self.grants.first()
    }
}
