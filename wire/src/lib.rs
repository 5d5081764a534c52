//! The JSON forms of the HTTP surface, shared by server and client.
//!
//! Ids have their printed form (`msg-12`, `turn-3`), moments are RFC 3339 in UTC, and durations are milliseconds.
//! Optional members are omitted when absent. Input is checked when it becomes a [`lastword_facts::Draft`] or a core input.

mod agents;
mod approvals;
mod archives;
pub mod call;
pub mod calls;
mod claims;
mod clock;
mod conversation_status;
mod conversations;
mod envelope;
mod escalations;
mod events;
mod exact;
mod explanations;
mod grants;
mod humans;
mod incidents;
mod lifts;
mod limits;
mod messages;
mod money;
mod near;
mod notifications;
mod outcome;
mod page;
mod problem;
pub mod quote;
pub mod redact;
mod requests;
mod rooms;
mod schedules;
pub mod session;
pub mod text;
mod time;
mod tokens;
mod told;
mod turns;
mod usage;

pub use agents::{AgentGrant, AgentPatch, AgentToken, AgentView, NewAgent, Prompt, TokenTerms, Unavailable};
pub use approvals::{ApprovalView, DecideApproval, HeldCall, UseApproval};
pub use archives::{ArchivesView, MoveToArchive, MovedToArchive, SegmentView};
pub use calls::{CALLS, Call, TypedCall};
pub use claims::{ClaimRule, ClaimView, NewClaim, PathMode, Pattern};
pub use clock::{ClockState, ClockView, DiskSpace, ReadyView, Scrub, ScrubFault};
pub use conversation_status::ConversationStatus;
pub use conversations::{ConversationSummary, ConversationView, Counters, Distance, TreeNode};
pub use envelope::{
    Envelope, FieldError, Metadata, TRACEPARENT, TRACESTATE, TRACESTATE_BYTES_MAX, To, canonical, misnamed,
};
pub use escalations::{EscalationAnswer, EscalationView, LiftView, NewEscalation};
pub use events::Event;
pub use exact::{Arguments, Inexact};
pub use explanations::{
    CausalLink, ExchangeLine, ExchangeVerdict, ExchangeView, Explanation, Hold, RefusedSend, Repetition, Subject,
};
pub use grants::{Extend, Extended, GrantKind, GrantView};
pub use humans::{HumanPatch, IdToken, NewHuman, SignInLink, SignInProvider, SignedIn};
pub use incidents::IncidentView;
pub use lifts::{HeldBy, LiftStep, RefusedAt, grant_body};
pub use limits::{ApprovalRuleView, LimitView, LimitsView};
pub use messages::{DeliveryState, Receipt, StoredMessage};
pub use money::{amount, is_cost, money};
pub use near::{nearest, with_nearest};
pub use notifications::{FailedNotification, Replay, Resent};
pub use outcome::Outcome;
pub use page::Page;
pub use problem::Problem;
pub use requests::{HistoryItem, RequestView};
pub use rooms::{NewRoom, Post, Posted, RoomView};
pub use schedules::{NewSchedule, ScheduleView};
pub use time::{parse_rfc3339, rfc3339};
pub use tokens::{NarrowedToken, NewToken, Scope};
pub use told::told;
pub use turns::{Delivery, Finish, Finished, Notice, NoticeKind, Progress, Renewed, StepResult, TurnView};
pub use usage::{CACHE_READ, CACHE_WRITE, MODELS_MAX, ModelUsage, Usage, microusd, weighted};
