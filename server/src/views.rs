//! The wire forms, built from the state and the log.
//!
//! Names and states are read on the broker's thread, which owns the state; texts are added outside of it.

mod agents;
mod approvals;
mod channels;
mod claims;
mod clock;
mod conversations;
mod devices;
mod escalations;
mod events;
mod explanations;
mod fitting;
mod held;
mod incidents;
mod messages;
mod nodes;
mod notices;
mod requests;
mod rooms;
mod words;

pub(crate) use self::agents::agent;
pub use self::agents::{Activity, Member, OpenTurn, activities, member, polled_at};
pub(crate) use self::approvals::approval;
pub use self::approvals::lease_until;
pub use self::channels::{ListedChannel, NewWebhook, NotifyChannel, NotifyChannels};
pub(crate) use self::claims::claim;
pub(crate) use self::clock::clock;
pub use self::clock::note;
pub(crate) use self::conversations::summary;
pub use self::conversations::{conversation, fullest, grant, listed, outcome, standing, tree, waits_for_human};
pub use self::devices::{DeviceView, NotifiedDevices, Subscription};
pub(crate) use self::escalations::escalation;
pub use self::events::{EventDraft, event, subject};
pub use self::explanations::lift_of;
pub(crate) use self::explanations::{ExplainContext, link, refused};
pub(crate) use self::fitting::{Fitted, fitted};
pub(crate) use self::held::{held, held_in_conversation, held_in_grant, held_in_room, latch_of};
pub use self::incidents::{held_tasks, incident};
pub use self::messages::{Shown, show};
pub(crate) use self::messages::{may_read, show_within, shown};
pub use self::nodes::{NodeView, Nodes, NodesView};
pub use self::notices::{Reader, notices};
pub(crate) use self::notices::{Worded, alert};
pub(crate) use self::requests::request;
pub(crate) use self::rooms::room;
