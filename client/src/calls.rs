//! The broker's calls, one method each.
#![expect(clippy::missing_errors_doc, reason = "every call fails as `ClientError` says")]

use std::time::Duration;

use lastword_facts::names::RequestId;
use lastword_wire::calls::{
    AcceptClock, AnswerEscalation, Archive, CancelRequest, ClaimResource, DecideOnCall, Escalate, Explain,
    ExtendConversation, FinishTurn, GetApproval, GetArchives, GetClock, GetConversation, GetEscalation, GetLimits,
    GetMessage, GetRequest, HoldCall, ListApprovals, ListClaims, ListConversations, ListEscalations,
    ListFailedNotifications, ListIncidents, ListMessages, ListRooms, ListSchedules, OpenRoom, PauseAgent,
    PauseConversation, PauseWorkspace, PostToRoom, ReleaseClaim, RemoveSchedule, ReplayNotifications, ReportProgress,
    ResendNotification, ResumeAgent, ResumeConversation, ResumeWorkspace, RunSchedule, SendMessage, SetSchedule,
    SpendApproval, StopAgent, StopConversation, StopWorkspace, TakeDelivery,
};
use lastword_wire::{
    AgentToken, ApprovalView, ArchivesView, ClaimView, ClockView, ConversationSummary, ConversationView,
    DecideApproval, Delivery, Envelope, EscalationAnswer, EscalationView, Explanation, Extend, Extended,
    FailedNotification, Finish, Finished, HeldCall, IncidentView, LimitsView, MoveToArchive, MovedToArchive, NewClaim,
    NewEscalation, NewRoom, NewSchedule, Page, Post, Posted, Progress, ReadyView, Renewed, Replay, RequestView, Resent,
    RoomView, ScheduleView, StoredMessage, Usage, UseApproval,
};
use reqwest::Method;
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::asking::Asking;
use crate::error::ClientError;
use crate::http::Client;
use crate::query::MessageQuery;

/// Options of a send.
#[derive(Clone, Debug, Default)]
pub struct SendTerms {
    /// The idempotency key: a retry with the same key returns the first result.
    pub idempotency_key: Option<String>,
    /// How long to wait for the answer; `None` doesn't wait.
    pub wait: Option<Duration>,
}

/// The result of a send.
#[derive(Clone, Debug)]
pub enum Sent {
    /// One stored message.
    One {
        /// The message as it was stored.
        message: Box<StoredMessage>,
        /// Its answer, if the sender waited for it and it came in time.
        response: Option<Box<StoredMessage>>,
        /// The whole response.
        raw: Value,
    },
    /// One message for each recipient of a list.
    Many {
        /// The messages, in the order of the response.
        messages: Vec<StoredMessage>,
        /// The whole response.
        raw: Value,
    },
    /// Not a message: a finish or an escalation.
    Other(Value),
}

impl Sent {
    /// Returns the whole response as JSON.
    #[must_use]
    pub const fn raw(&self) -> &Value {
        match self {
            Self::One { raw, .. } | Self::Many { raw, .. } | Self::Other(raw) => raw,
        }
    }
}

/// A registered agent or human with its token.
pub type Registered = AgentToken;

/// The target of a pause, resume or stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A conversation, by its REF.
    Conversation(&'a str),
    /// An agent, by its name.
    Agent(&'a str),
    /// All agents and conversations.
    Workspace,
}

impl Client {
    /// Sends a message.
    pub async fn send(&self, envelope: &Envelope, terms: &SendTerms) -> Result<Sent, ClientError> {
        sent(self.ask("").body(envelope).key(terms.idempotency_key.as_deref()).wait(terms.wait)).await
    }

    /// Sends a message in its text form, which begins with the header.
    pub async fn send_text(&self, text: String) -> Result<Sent, ClientError> {
        self.send_text_keyed(text, None).await
    }

    /// Like [`Client::send_text`], with an idempotency key: a retry with the same key returns the first result.
    pub async fn send_text_keyed(&self, text: String, key: Option<&str>) -> Result<Sent, ClientError> {
        sent(self.ask("").text(text).key(key)).await
    }

    /// Takes the next delivery; waits for one up to `wait`, and returns `None` after that.
    pub async fn inbox(&self, wait: Duration) -> Result<Option<Delivery>, ClientError> {
        self.ask::<TakeDelivery>("").wait(Some(wait)).query(&[("turns", "true")]).answer().await
    }

    /// Takes the next delivery as [`Client::inbox`] does, and leaves: the last answer to a request that no turn sent opens
    /// no turn (F1).
    pub async fn inbox_once(&self, wait: Duration) -> Result<Option<Delivery>, ClientError> {
        self.ask::<TakeDelivery>("").wait(Some(wait)).answer().await
    }

    /// Finishes a turn.
    pub async fn finish(&self, turn: &str, finish: &Finish) -> Result<Finished, ClientError> {
        self.ask::<FinishTurn>(turn).body(finish).answer().await
    }

    /// Reports progress, which renews the lease.
    pub async fn progress(&self, turn: &str, progress: &Progress) -> Result<Renewed, ClientError> {
        self.ask::<ReportProgress>(turn).body(progress).answer().await
    }

    /// Reports that the program of this agent works by itself after a turn ended, with what it used since (H4).
    pub async fn worked_outside(&self, turn: &str, usage: Option<&Usage>) -> Result<Renewed, ClientError> {
        self.progress(turn, &Progress { outside: true, usage: usage.cloned(), ..Progress::default() }).await
    }

    /// Lists the messages that match a query.
    pub async fn messages(&self, query: &MessageQuery) -> Result<Page<StoredMessage>, ClientError> {
        self.ask::<ListMessages>("").query(query).answer().await
    }

    /// Returns a message by its id.
    pub async fn message(&self, id: &str) -> Result<StoredMessage, ClientError> {
        self.ask::<GetMessage>(id).answer().await
    }

    /// Lists conversations.
    pub async fn conversations(&self) -> Result<Page<ConversationSummary>, ClientError> {
        self.ask::<ListConversations>("").answer().await
    }

    /// Lists at most `most` conversations, newest first; with `open` only those with open requests.
    pub async fn newest_conversations(
        &self,
        most: usize,
        open: bool,
    ) -> Result<Page<ConversationSummary>, ClientError> {
        let asking = self.ask::<ListConversations>("").query(&[("limit", most)]);
        // A server before this parameter refuses it, so it is sent only where it is wanted.
        if open { asking.query(&[("open", true)]) } else { asking }.answer().await
    }

    /// Returns a conversation as a tree.
    pub async fn conversation(&self, reference: &str) -> Result<ConversationView, ClientError> {
        self.ask::<GetConversation>(reference).answer().await
    }

    /// Extends the grants of a conversation (D9); returns what still holds them.
    pub async fn grant(&self, reference: &str, extend: &Extend) -> Result<Extended, ClientError> {
        let extended = self.ask::<ExtendConversation>(reference).body(extend).answer().await?;
        Ok(extended.unwrap_or_default())
    }

    /// Pauses a conversation, an agent or the workspace (H4).
    pub async fn pause(&self, target: Target<'_>) -> Result<(), ClientError> {
        match target {
            Target::Conversation(reference) => self.ask::<PauseConversation>(reference).answer().await,
            Target::Agent(name) => self.ask::<PauseAgent>(name).answer().await,
            Target::Workspace => self.ask::<PauseWorkspace>("").answer().await,
        }
    }

    /// Lifts a pause, a stop or a latch.
    pub async fn resume(&self, target: Target<'_>) -> Result<(), ClientError> {
        match target {
            Target::Conversation(reference) => self.ask::<ResumeConversation>(reference).answer().await,
            Target::Agent(name) => self.ask::<ResumeAgent>(name).answer().await,
            Target::Workspace => self.ask::<ResumeWorkspace>("").answer().await,
        }
    }

    /// Stops a conversation, an agent or the workspace (H4).
    pub async fn stop(&self, target: Target<'_>) -> Result<(), ClientError> {
        match target {
            Target::Conversation(reference) => self.ask::<StopConversation>(reference).answer().await,
            Target::Agent(name) => self.ask::<StopAgent>(name).answer().await,
            Target::Workspace => self.ask::<StopWorkspace>("").answer().await,
        }
    }

    /// Returns the state of a request.
    pub async fn request_state(&self, id: &str) -> Result<RequestView, ClientError> {
        self.ask::<GetRequest>(id).answer().await
    }

    /// Cancels a request.
    pub async fn cancel(&self, id: &str) -> Result<RequestView, ClientError> {
        self.ask::<CancelRequest>(id).answer().await
    }

    /// Sends a question to a human (an escalation).
    pub async fn escalate(&self, question: &NewEscalation) -> Result<EscalationView, ClientError> {
        self.ask::<Escalate>("").body(question).answer().await
    }

    /// Lists the escalations.
    pub async fn escalations(&self) -> Result<Page<EscalationView>, ClientError> {
        self.pages::<ListEscalations, _>().await
    }

    /// Returns an escalation by its id.
    pub async fn escalation(&self, id: &str) -> Result<EscalationView, ClientError> {
        self.ask::<GetEscalation>(id).answer().await
    }

    /// Answers an escalation.
    pub async fn answer_escalation(&self, id: &str, answer: &EscalationAnswer) -> Result<EscalationView, ClientError> {
        self.ask::<AnswerEscalation>(id).body(answer).answer().await
    }

    /// Holds a tool call for a decision.
    pub async fn hold(&self, call: &HeldCall) -> Result<ApprovalView, ClientError> {
        self.ask::<HoldCall>("").body(call).key(call.key.as_ref().map(RequestId::as_str)).answer().await
    }

    /// Lists held calls.
    pub async fn approvals(&self) -> Result<Page<ApprovalView>, ClientError> {
        self.pages::<ListApprovals, _>().await
    }

    /// Returns an approval; waits for its decision up to `wait`.
    pub async fn approval(&self, id: &str, wait: Option<Duration>) -> Result<ApprovalView, ClientError> {
        self.ask::<GetApproval>(id).wait(wait).answer().await
    }

    /// Decides on a held call.
    pub async fn decide(&self, id: &str, decision: &DecideApproval) -> Result<ApprovalView, ClientError> {
        self.ask::<DecideOnCall>(id).body(decision).answer().await
    }

    /// Uses an approval for exactly this call; an approval can be used once. A call that is repeated under its key was made once.
    pub async fn use_approval(&self, id: &str, call: &UseApproval) -> Result<ApprovalView, ClientError> {
        self.ask::<SpendApproval>(id).body(call).key(call.key.as_ref().map(RequestId::as_str)).answer().await
    }

    /// Explains the state of a message, a recorded refusal, an approval or an escalation.
    pub async fn explanation(&self, id: &str) -> Result<Explanation, ClientError> {
        self.ask::<Explain>(id).answer().await
    }

    /// Lists the incidents.
    pub async fn incidents(&self) -> Result<Page<IncidentView>, ClientError> {
        self.ask::<ListIncidents>("").answer().await
    }

    /// Opens a room, or sets its members.
    pub async fn open_room(&self, room: &NewRoom) -> Result<RoomView, ClientError> {
        self.ask::<OpenRoom>("").body(room).answer().await
    }

    /// Lists the rooms.
    pub async fn rooms(&self) -> Result<Page<RoomView>, ClientError> {
        self.ask::<ListRooms>("").answer().await
    }

    /// Posts to a room, without mentions, a REF or a key.
    pub async fn post_to_room(&self, room: &str, body: &str) -> Result<Posted, ClientError> {
        let post = Post { body: body.to_owned(), mentions: None, reference: None };
        self.post_in_room(room, &post, None).await
    }

    /// Posts to a room; a retry with the same key returns the first result.
    pub async fn post_in_room(&self, room: &str, post: &Post, key: Option<&str>) -> Result<Posted, ClientError> {
        self.ask::<PostToRoom>(room).body(post).key(key).answer().await
    }

    /// Adds a schedule, or replaces the one with its name.
    pub async fn set_schedule(&self, schedule: &NewSchedule) -> Result<ScheduleView, ClientError> {
        self.ask::<SetSchedule>("").body(schedule).answer().await
    }

    /// Lists the schedules.
    pub async fn schedules(&self) -> Result<Page<ScheduleView>, ClientError> {
        self.ask::<ListSchedules>("").answer().await
    }

    /// Removes a schedule.
    pub async fn remove_schedule(&self, name: &str) -> Result<(), ClientError> {
        self.ask::<RemoveSchedule>(name).answer().await
    }

    /// Runs a schedule now.
    pub async fn run_schedule(&self, name: &str) -> Result<ScheduleView, ClientError> {
        self.ask::<RunSchedule>(name).answer().await
    }

    /// Claims a resource.
    pub async fn claim(&self, claim: &NewClaim) -> Result<ClaimView, ClientError> {
        self.ask::<ClaimResource>("").body(claim).answer().await
    }

    /// Returns all claims.
    pub async fn claims(&self) -> Result<Page<ClaimView>, ClientError> {
        self.ask::<ListClaims>("").answer().await
    }

    /// Releases a claim.
    pub async fn release(&self, id: &str) -> Result<(), ClientError> {
        self.ask::<ReleaseClaim>(id).answer().await
    }

    /// Returns the limits in force.
    pub async fn limits(&self) -> Result<LimitsView, ClientError> {
        self.ask::<GetLimits>("").answer().await
    }

    /// Returns the broker's time and the system clock's.
    pub async fn clock(&self) -> Result<ClockView, ClientError> {
        self.ask::<GetClock>("").answer().await
    }

    /// Accepts that the system clock is right; only humans may.
    pub async fn accept_clock(&self) -> Result<ClockView, ClientError> {
        self.ask::<AcceptClock>("").answer().await
    }

    /// Returns the log's extent and the segments that left it; for humans.
    pub async fn archives(&self) -> Result<ArchivesView, ClientError> {
        self.ask::<GetArchives>("").answer().await
    }

    /// Lists the notifications that were given up, newest first.
    pub async fn failed_notifications(&self) -> Result<Page<FailedNotification>, ClientError> {
        self.ask::<ListFailedNotifications>("").answer().await
    }

    /// Sends a notification that was given up again.
    pub async fn resend_notification(&self, id: &str) -> Result<Resent, ClientError> {
        self.ask::<ResendNotification>(id).answer().await
    }

    /// Sends a channel what began after a position and is pending.
    pub async fn replay_notifications(&self, replay: &Replay) -> Result<Resent, ClientError> {
        self.ask::<ReplayNotifications>("").body(replay).answer().await
    }

    /// Moves the oldest part of the log to the archive. Only an owner may.
    pub async fn move_to_archive(&self, wanted: &MoveToArchive) -> Result<MovedToArchive, ClientError> {
        self.ask::<Archive>("").body(wanted).answer().await
    }

    /// Returns whether the server is ready to admit messages, and its clock.
    pub async fn ready(&self) -> Result<ReadyView, ClientError> {
        self.json(self.request(Method::GET, "/readyz")).await
    }
}

async fn sent(asking: Asking<'_, SendMessage>) -> Result<Sent, ClientError> {
    let raw: Option<Value> = asking.answer_as().await?;
    Ok(raw.map_or_else(|| Sent::Other(json!({})), parsed))
}

fn parsed(raw: Value) -> Sent {
    // A list has `items`; a response that is neither a list nor a message is returned unparsed.
    if raw.get("items").is_some()
        && let Ok(page) = Page::<StoredMessage>::deserialize(&raw)
    {
        return Sent::Many { messages: page.items, raw };
    }
    let response = raw.get("response").and_then(|response| StoredMessage::deserialize(response).ok()).map(Box::new);
    match StoredMessage::deserialize(&raw) {
        Ok(message) => Sent::One { message: Box::new(message), response, raw },
        Err(_) => Sent::Other(raw),
    }
}
