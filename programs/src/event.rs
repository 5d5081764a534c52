//! The events of a runner, for the program that prints or logs them.

use std::fmt;

use lastword_client::Connection;
use serde::Serialize;

/// Something that happened: JSON for programs, `Display` for people.
///
/// Texts of agents are unescaped; escape them before printing. `turn` is the id of a turn (`T-12`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// The runner takes deliveries from now on.
    Ready {
        /// The broker's address.
        url: String,
        /// The driver: `command` or `acp`.
        driver: &'static str,
    },
    /// The agent's process started and speaks the protocol.
    AgentStarted {
        /// Its process id.
        pid: u32,
        /// The name and version that it reports, if any.
        name: Option<String>,
    },
    /// The agent's process ended.
    AgentEnded {
        /// Its exit status or the error, as a sentence part.
        reason: String,
        /// Least pause before the next start, in ms.
        restart_in_ms: u64,
    },
    /// The runner took a delivery and starts its run.
    Taken {
        /// The turn that the delivery opened.
        turn: String,
        /// The attempt, from 1.
        attempt: u32,
        /// The sender's name.
        from: String,
        /// The conversation's REF.
        #[serde(rename = "ref")]
        reference: String,
        /// The request id; `None` for a message that asks for no answer.
        request_id: Option<String>,
    },
    /// An ACP agent has a session for the run.
    Session {
        /// The turn of the run.
        turn: String,
        /// `new`, `kept` (still open in the process) or `loaded` (resumed by its id).
        how: &'static str,
    },
    /// The agent reported progress.
    Progress {
        /// The turn of the run.
        turn: String,
        /// The agent's own words, cut to one line.
        note: String,
    },
    /// The agent asked to call a tool, and the call is held for a decision.
    ApprovalAsked {
        /// The turn of the run.
        turn: String,
        /// The approval's id, for `lastword approve`.
        approval: String,
        /// The tool's name.
        tool: String,
    },
    /// A held call was decided, or its approval expired.
    ApprovalAnswered {
        /// The turn of the run.
        turn: String,
        /// The tool's name.
        tool: String,
        /// Whether the agent may make this call, once.
        allowed: bool,
        /// The reason of a rejection, if one was given.
        reason: Option<String>,
    },
    /// The broker recorded the end of the turn.
    Finished {
        /// The turn of the run.
        turn: String,
        /// `completed`, `waiting`, `failed`, `rejected` or `partial`; `finished` if the agent's own tool ended the turn.
        status: &'static str,
        /// The id of the RESPONSE, if the turn settled its request.
        answer: Option<String>,
        /// The reason of a failure.
        reason: Option<String>,
    },
    /// The broker ended the turn; the runner ended its run.
    Withdrawn {
        /// The turn of the run.
        turn: String,
        /// The broker's reason: a cancel, a stop, a lease that expired.
        reason: &'static str,
    },
    /// The answer came after the turn's end; the broker records and shows it as late.
    Late {
        /// The turn that had ended.
        turn: String,
    },
    /// The broker refused the answer for good.
    Unanswered {
        /// The turn, which stays open until its lease expires.
        turn: String,
        /// The broker's refusal, with its hint.
        reason: String,
    },
    /// A call to the broker failed and is retried.
    Waiting {
        /// The error, with the hint of a refusal.
        reason: String,
    },
    /// The broker answers again.
    Connected,
    /// The runner takes no more deliveries and waits for open turns.
    Stopping {
        /// The number of open turns.
        turns: usize,
    },
    /// Something that an operator should fix; the runner continues.
    Warning {
        /// A sentence for that operator.
        message: String,
    },
}

impl From<Connection> for Event {
    fn from(change: Connection) -> Self {
        match change {
            Connection::Waiting { reason } => Self::Waiting { reason },
            Connection::Connected => Self::Connected,
        }
    }
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

/// The destination of a runner's events.
pub type EventSink = lastword_client::EventSink<Event>;
