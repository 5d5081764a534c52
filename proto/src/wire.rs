//! The JSON forms of the HTTP surface, shared by server and client.
//!
//! Ids are the printed ones (`msg-12`, `turn-3`), moments RFC 3339 in UTC, durations milliseconds. What
//! may be absent is left out. What comes in is checked where it becomes a [`crate::Draft`] or an input.

pub mod call;
mod clock;
mod conversation_status;
mod envelope;
mod explanation;
mod lift;
mod people;
mod schedules;
mod time;
mod views;
mod work;

pub use clock::{ClockState, ClockView, DiskSpace, ReadyView};
pub use conversation_status::ConversationStatus;
pub use envelope::{Envelope, FieldError, Metadata, To};
pub use explanation::{CausalLink, Explanation, Hold, RefusedSend, Subject};
pub use lift::{HeldBy, LiftStep, RefusedAt, grant_body};
pub use people::{AgentGrant, HumanPatch, NewHuman};
pub use schedules::{NewSchedule, ScheduleView};
pub use time::{parse_rfc3339, rfc3339};
pub use views::{
    AgentPatch, AgentToken, AgentView, ApprovalRuleView, ClaimView, ConversationSummary, ConversationView, Counters,
    Distance, Event, Extend, GrantView, HistoryItem, IncidentView, LimitView, LimitsView, NewAgent, NewClaim, NewRoom,
    Post, Posted, RequestView, RoomView, TreeNode,
};
pub use work::{
    ApprovalView, DecideApproval, Delivery, DeliveryState, EscalationAnswer, EscalationView, Finish, Finished,
    HeldCall, LiftView, NewEscalation, Notice, NoticeKind, Page, Problem, Progress, Renewed, StoredMessage, TurnView,
    Usage, UseApproval,
};
