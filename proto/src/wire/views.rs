//! Agents, requests, conversations, incidents, rooms, claims, limits and events.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::envelope::{AnswerStatus, Priority};
use crate::fact::{ClaimMode, Kind, Role};
use crate::fsm::RequestState;
use crate::guards::GUARDS;
use crate::limits::{Approvers, LIMITS, LimitRow, Limits};
use crate::names::RequestId;
use crate::policy::{Policy, Ruling};
use crate::refusal::Code;
use crate::state::Running;

use super::explanation::RefusedSend;
use super::lift::HeldBy;
use super::work::StoredMessage;

const fn agent() -> Kind {
    Kind::Agent
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

const fn exclusive() -> ClaimMode {
    ClaimMode::Exclusive
}

/// An agent or human to register; `POST /v1/agents`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    /// Its name.
    pub name: String,
    /// Actions that it can serve.
    #[serde(default)]
    pub actions: Vec<String>,
    /// Groups that it belongs to.
    #[serde(default)]
    pub groups: Vec<String>,
    /// `agent` or `human`; `agent` by default.
    #[serde(default = "agent")]
    pub kind: Kind,
    /// Open turns that it may have at once; the workspace's default where it is left out.
    #[serde(default)]
    pub turns_max: u64,
    /// What a human may do; everything where it is left out (H7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// What to change of an agent; `PATCH /v1/agents/{name}`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    /// Actions that it can serve.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub actions: Option<Vec<String>>,
    /// Groups that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<String>>,
    /// Open turns that it may have at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u64>,
    /// Limits of its own in place of the workspace's, by name; 0 takes one away (§1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<BTreeMap<String, u64>>,
}

/// A token, shown this once.
#[derive(Clone, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentToken {
    /// Whose.
    pub name: String,
    /// The token.
    pub token: String,
    /// How often the name was registered.
    pub incarnation: u32,
}

/// An agent or human, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Actions that it can serve.
    pub actions: Vec<String>,
    /// Groups that it belongs to.
    pub groups: Vec<String>,
    /// How often the name was registered.
    pub incarnation: u32,
    /// Whether it runs.
    pub state: Running,
    /// Whether it has a connection open, and so is woken rather than polling (Q2).
    pub connected: bool,
    /// Open turns that it may have at once.
    pub turns_max: u64,
    /// Its open turns.
    pub turns: Vec<String>,
    /// Deliveries that wait for it.
    pub queued: u64,
    /// Notices that wait for it.
    pub notices: u64,
    /// Tokens that it spent today.
    pub tokens_today: u64,
    /// Until when it rests, because its budget of the day is used up (B1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rests_until: Option<String>,
    /// What it may do, where it is a human (H7).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Limits of its own in place of the workspace's, by name (§1).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, u64>,
    /// How far it is to the limits of its sliding windows (G1) and of the work that it may start itself (D7).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Distance>,
}

/// One step of a request.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct HistoryItem {
    /// When.
    pub at: String,
    /// What: `sent`, `taken`, `partial`, `settled`.
    pub event: String,
    /// By whom, or with whom.
    pub agent: String,
    /// The attempt, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
}

/// A request, as it stands; `GET /v1/requests/{id}`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RequestView {
    /// Its id.
    pub request_id: String,
    /// Its state (Q1).
    pub state: RequestState,
    /// Attempts begun or queued.
    pub attempts: u32,
    /// When it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<String>,
    /// Who asked.
    pub from: String,
    /// Who serves it now.
    pub to: String,
    /// Who had it, in order.
    pub tried: Vec<String>,
    /// Its conversation.
    #[serde(rename = "ref")]
    pub reference: String,
    /// The REQUEST.
    pub message: String,
    /// Its order in the recipient's queue.
    pub priority: Priority,
    /// How many deliveries stand before it in the recipient's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_position: Option<u64>,
    /// How it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<AnswerStatus>,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response: Option<StoredMessage>,
    /// What holds it, or work that it led to, until a human acts (R3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held_by: Vec<HeldBy>,
    /// What happened so far.
    pub history: Vec<HistoryItem>,
}

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

impl ConversationView {
    /// The newest grant that is open in it, or the one of its last request.
    #[must_use]
    pub fn grant(&self) -> Option<&GrantView> {
        self.grants.first()
    }
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

/// A grant, as it stands (D8).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct GrantView {
    /// Its id.
    pub id: String,
    /// Who gave it.
    pub giver: String,
    /// When it ends.
    pub expires_at: String,
    /// Whether it is open.
    pub open: bool,
    /// The incident that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latched: Option<String>,
    /// Waking messages that it can still cause, at most.
    pub can_still_cause: u64,
    /// How far it is to each of its totals.
    pub limits: Vec<Distance>,
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

/// What more a human gives; `POST /v1/conversations/{ref}/grant` (D9).
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Extend {
    /// The one grant that gets it, as `grant-3`; without it each open grant of the conversation does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<String>,
    /// Waking messages.
    pub messages: u64,
    /// Turns.
    pub turns: u64,
    /// Distinct agents.
    pub agents: u64,
    /// Requests of the grant's root task.
    pub requests: u64,
    /// Tokens.
    pub tokens: u64,
    /// Money, in dollars.
    pub cost_usd: f64,
    /// Time, in ms.
    pub time_ms: u64,
    /// Rounds of the conversation, of two messages each, with what they need (D2).
    pub rounds: u64,
}

/// A latch that tripped; `GET /v1/incidents` (R3).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct IncidentView {
    /// Its id.
    pub id: String,
    /// What it holds: a grant's id, a REF or a room's name.
    pub on: String,
    /// Which kind of thing that is: `grant`, `conversation` or `room`.
    pub scope: String,
    /// The conversation whose `resume` lifts it; a room has none.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// Which limit tripped.
    pub code: Code,
    /// The limit.
    pub limit: u64,
    /// The value that tripped it: for messages, turns and agents of a grant the one that the next would have made,
    /// else the one that was reached.
    pub current: u64,
    /// When.
    pub at: String,
    /// When it was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_at: Option<String>,
    /// By whom.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// The requests that are parked by it.
    pub parked: Vec<String>,
}

/// A room to open; `POST /v1/rooms`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewRoom {
    /// Its name.
    pub name: String,
    /// Who takes part.
    #[serde(default)]
    pub members: Vec<String>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A room, as it stands.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RoomView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Who takes part.
    pub members: Vec<String>,
    /// Agent messages since a human spoke (R1).
    #[serde(alias = "turns")]
    pub agent_messages: u64,
    /// Posts in it.
    pub messages: u64,
    /// Whether the hard limit holds it.
    pub latched: bool,
}

/// A post to a room; `POST /v1/rooms/{room}/messages`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Post {
    /// What. A human's `@name` asks that agent.
    pub body: String,
    /// A human's: the agents that are asked, in place of the `@name`s of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mentions: Option<Vec<String>>,
    /// A human's: the work item that it is about. Those who are mentioned are asked under it, and the counters of its
    /// conversation and of those that came of it begin again.
    #[serde(default, rename = "ref", skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
}

/// What came of a post.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Posted {
    /// The room.
    pub room: String,
    /// The requests that a human's mentions became.
    pub items: Vec<StoredMessage>,
}

/// A lease on a resource to be had; `POST /v1/claims` (C1).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewClaim {
    /// The resource: `repo:src/auth/*`.
    pub resource: String,
    /// `exclusive` (the default) or `shared`.
    #[serde(default = "exclusive")]
    pub mode: ClaimMode,
    /// How long, in ms; the longest that is allowed where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// The idempotency key, which comes in the header `Idempotency-Key` (Q1).
    #[serde(skip)]
    pub key: Option<RequestId>,
}

/// A lease on a resource.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ClaimView {
    /// Its id.
    pub id: String,
    /// A number that only grows: who holds a higher one came later.
    pub fence: u64,
    /// The resource.
    pub resource: String,
    /// How it is shared.
    pub mode: ClaimMode,
    /// Who holds it.
    pub agent: String,
    /// For which request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When it ends.
    pub expires_at: String,
}

/// A limit in force.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitView {
    /// Its name; the unit is the last word.
    pub name: String,
    /// The rule that it belongs to.
    pub rule: String,
    /// The value in force.
    pub value: u64,
    /// The default.
    pub default: u64,
    /// What it bounds.
    pub meaning: String,
}

/// The numbers in force; `GET /v1/limits`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct LimitsView {
    /// Each limit.
    pub items: Vec<LimitView>,
    /// For each guard, `enforce` or `observe` (G7).
    pub guards: BTreeMap<String, String>,
    /// Most waking messages that one grant can cause.
    pub bound_messages: u64,
    /// The policy of held calls: the first rule that is about a call holds (H2).
    #[serde(default)]
    pub approvals: Vec<ApprovalRuleView>,
}

/// A rule of the policy of held calls.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ApprovalRuleView {
    /// The calls that it is about, such as `Bash(rm *)`.
    pub call: String,
    /// Whose calls; everybody's where it is empty.
    pub agents: Vec<String>,
    /// `ask` for a decision by `who`; `allow` or `deny` if the policy itself decides.
    pub decision: Ruling,
    /// The tier from which who and time were taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Who may decide: `human`, `asker`, or agents by name.
    pub who: Vec<String>,
    /// Time to decide, after which the call is denied.
    pub timeout_ms: u64,
}

impl LimitsView {
    /// What is in force.
    #[must_use]
    pub fn of(limits: &Limits, policy: &Policy) -> Self {
        let row = |row: &LimitRow| LimitView {
            name: row.name.into(),
            rule: row.rule.into(),
            value: limits.value(row.name).unwrap_or(row.default),
            default: row.default,
            meaning: row.meaning.into(),
        };
        let mode = |name: &str| if limits.observed.observes(name) { "observe" } else { "enforce" };
        let otherwise = ApprovalRuleView {
            call: "*".into(),
            agents: Vec::new(),
            decision: Ruling::Ask,
            tier: None,
            who: who(&limits.approvers),
            timeout_ms: limits.approval_ms,
        };
        let ruled = policy.rules.iter().map(|rule| ApprovalRuleView {
            call: rule.call.to_string(),
            agents: rule.agents.iter().map(ToString::to_string).collect(),
            decision: rule.ruling,
            tier: rule.tier.as_ref().map(ToString::to_string),
            who: who(rule.who.as_ref().unwrap_or(&limits.approvers)),
            timeout_ms: rule.timeout_ms.unwrap_or(limits.approval_ms),
        });
        Self {
            items: LIMITS.iter().map(row).collect(),
            guards: GUARDS.iter().map(|guard| (guard.name.into(), mode(guard.name).into())).collect(),
            bound_messages: limits.bound_messages(),
            approvals: ruled.chain([otherwise]).collect(),
        }
    }
}

fn who(approvers: &Approvers) -> Vec<String> {
    let asker = approvers.asker.then_some("asker");
    let words = ["human"].into_iter().chain(asker).map(Into::into);
    words.chain(approvers.agents.iter().map(ToString::to_string)).collect()
}

/// Something that happened; `GET /v1/events`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Event {
    /// Its position in the log; the `id` of the server-sent event.
    pub seq: u64,
    /// What happened, such as `accepted` or `turn_opened`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When.
    pub at: String,
    /// The agent that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The conversation that it is about.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The request that it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// For `accepted`: the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<StoredMessage>,
    /// The rest.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[cfg_attr(feature = "schema", schema(value_type = Object))]
    pub data: Map<String, Value>,
}
