//! What a runner tells whoever watches it.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Something that happened, for a program as JSON and for a person by its `Display`.
///
/// Texts of agents in it are as they came: whoever prints them escapes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The runner takes deliveries from now on.
    Ready {
        /// The server.
        url: String,
        /// What runs the agent.
        driver: &'static str,
    },
    /// The agent's process was started and speaks the protocol.
    AgentStarted {
        /// Its process.
        pid: u32,
        /// How it calls itself, where it does.
        name: Option<String>,
    },
    /// The agent's process ended.
    AgentEnded {
        /// How.
        reason: String,
        /// Its next start comes no sooner, in ms.
        restart_in_ms: u64,
    },
    /// A delivery was taken, and its run begins.
    Taken {
        /// The turn.
        turn: String,
        /// The attempt, from 1.
        attempt: u32,
        /// Who sent it.
        from: String,
        /// The conversation.
        #[serde(rename = "ref")]
        reference: String,
        /// The request.
        request_id: Option<String>,
    },
    /// The agent goes on in an earlier session, or in a new one.
    Session {
        /// The turn.
        turn: String,
        /// `new`, `kept` or `loaded`.
        how: &'static str,
    },
    /// The agent said what it is doing.
    Progress {
        /// The turn.
        turn: String,
        /// What.
        note: String,
    },
    /// The agent wants to make a call, which is held.
    ApprovalAsked {
        /// The turn.
        turn: String,
        /// The approval.
        approval: String,
        /// The tool.
        tool: String,
    },
    /// The agent was told whether it may.
    ApprovalAnswered {
        /// The turn.
        turn: String,
        /// The tool.
        tool: String,
        /// Whether it may, this once.
        allowed: bool,
        /// Why not.
        reason: Option<String>,
    },
    /// The turn was finished.
    Finished {
        /// The turn.
        turn: String,
        /// `completed`, `waiting`, `failed`, `rejected` or `partial`.
        status: &'static str,
        /// The RESPONSE, once the request is settled.
        answer: Option<String>,
        /// Why it failed.
        reason: Option<String>,
    },
    /// The turn ended without us, and its run was ended.
    Withdrawn {
        /// The turn.
        turn: String,
        /// Why.
        reason: &'static str,
    },
    /// The answer came when the turn was lost: it is recorded and shown as late.
    Late {
        /// The turn.
        turn: String,
    },
    /// The broker would not have the answer.
    Unanswered {
        /// The turn.
        turn: String,
        /// Why.
        reason: String,
    },
    /// The broker does not answer, or not with work; the runner tries on.
    Waiting {
        /// Why.
        reason: String,
    },
    /// The broker answers again.
    Connected,
    /// The runner takes no more, and waits for the turns that are open.
    Stopping {
        /// How many.
        turns: usize,
    },
    /// Something to be mended.
    Warning {
        /// What.
        message: String,
    },
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready { url, driver } => write!(f, "ready: takes work from {url}, driver {driver}"),
            Self::AgentStarted { pid, name: Some(name) } => write!(f, "agent started: {name}, process {pid}"),
            Self::AgentStarted { pid, name: None } => write!(f, "agent started: process {pid}"),
            Self::AgentEnded { reason, restart_in_ms } => {
                write!(f, "agent ended: {reason}; starts again in {restart_in_ms} ms at the soonest")
            }
            Self::Taken { turn, attempt, from, reference, request_id } => {
                write!(f, "{turn} taken: {reference} from {from}")?;
                request_id.iter().try_for_each(|id| write!(f, " {id}"))?;
                if *attempt > 1 { write!(f, ", attempt {attempt}") } else { Ok(()) }
            }
            Self::Session { turn, how } => write!(f, "{turn} session {how}"),
            Self::Progress { turn, note } => write!(f, "{turn} … {note}"),
            Self::ApprovalAsked { turn, approval, tool } => {
                write!(f, "{turn} asks to call {tool}: `lastword approve {approval}` or `lastword reject {approval}`")
            }
            Self::ApprovalAnswered { turn, tool, allowed: true, .. } => write!(f, "{turn} may call {tool}, once"),
            Self::ApprovalAnswered { turn, tool, reason, .. } => {
                write!(f, "{turn} may not call {tool}")?;
                reason.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Self::Finished { turn, status, answer, reason } => {
                write!(f, "{turn} {status}")?;
                answer.iter().try_for_each(|answer| write!(f, " with {answer}"))?;
                reason.iter().try_for_each(|why| write!(f, ": {why}"))
            }
            Self::Withdrawn { turn, reason } => write!(f, "{turn} ended by the broker: {reason}; its run was ended"),
            Self::Late { turn } => write!(f, "{turn} was lost before; its answer is shown as late"),
            Self::Unanswered { turn, reason } => write!(f, "{turn}: its answer was not taken: {reason}"),
            Self::Waiting { reason } => write!(f, "waiting: {reason}"),
            Self::Connected => f.write_str("connected again"),
            Self::Stopping { turns: 0 } => f.write_str("stopping"),
            Self::Stopping { turns } => write!(f, "stopping; {turns} turns may still end"),
            Self::Warning { message } => write!(f, "warning: {message}"),
        }
    }
}

/// Where events go.
#[derive(Clone)]
pub struct Report(Arc<dyn Fn(&Event) + Send + Sync>);

impl Report {
    /// Each event is given to `tell`.
    pub fn new(tell: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Arc::new(tell))
    }

    pub(crate) fn tell(&self, event: &Event) {
        (self.0)(event);
    }
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Report(…)")
    }
}
