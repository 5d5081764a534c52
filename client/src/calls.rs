//! The broker's calls, one method each.

use std::time::Duration;

use lastword_wire::{
    AgentToken, ApprovalView, ArchivesView, ClaimView, ClockView, ConversationSummary, ConversationView,
    DecideApproval, Delivery, Envelope, EscalationAnswer, EscalationView, Explanation, Extend, Extended, Finish,
    Finished, HeldCall, IncidentView, LimitsView, MoveToArchive, MovedToArchive, NewClaim, NewEscalation, NewRoom,
    NewSchedule, Page, Post, Posted, Progress, ReadyView, Renewed, RequestView, RoomView, ScheduleView, StoredMessage,
    Usage, UseApproval,
};
use reqwest::{Method, RequestBuilder};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::error::ClientError;
use crate::http::{Client, segment};
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
    ///
    /// # Errors
    /// See [`ClientError`]; so for every call.
    pub async fn send(&self, envelope: &Envelope, terms: &SendTerms) -> Result<Sent, ClientError> {
        let mut request = self.request(Method::POST, "/v1/messages").json(envelope);
        if let Some(key) = &terms.idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        if let Some(wait) = terms.wait {
            request = request.query(&[("wait", milliseconds(wait))]);
        }
        self.sent(request).await
    }

    /// Sends a message in its text form, which begins with the header.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send_text(&self, text: String) -> Result<Sent, ClientError> {
        self.send_text_keyed(text, None).await
    }

    /// Like [`Client::send_text`], with an idempotency key: a retry with the same key returns the first result.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn send_text_keyed(&self, text: String, key: Option<&str>) -> Result<Sent, ClientError> {
        let mut request = self.request(Method::POST, "/v1/messages").header("Content-Type", "text/plain").body(text);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        self.sent(request).await
    }

    async fn sent(&self, request: RequestBuilder) -> Result<Sent, ClientError> {
        let raw = self.json_or_nothing(request).await?;
        Ok(raw.map_or_else(|| Sent::Other(json!({})), sent))
    }

    /// Takes the next delivery; waits for one up to `wait`, and returns `None` after that.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn inbox(&self, wait: Duration) -> Result<Option<Delivery>, ClientError> {
        let request = self.request(Method::GET, "/v1/inbox").query(&[("wait", milliseconds(wait))]);
        self.json_or_nothing(request.query(&[("turns", "true")])).await
    }

    /// Takes the next delivery as [`Client::inbox`] does, and leaves: the last answer to a request that no turn sent opens
    /// no turn (F1).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn inbox_once(&self, wait: Duration) -> Result<Option<Delivery>, ClientError> {
        let request = self.request(Method::GET, "/v1/inbox").query(&[("wait", milliseconds(wait))]);
        self.json_or_nothing(request).await
    }

    /// Finishes a turn.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn finish(&self, turn: &str, finish: &Finish) -> Result<Finished, ClientError> {
        self.post(&format!("/v1/turns/{}/finish", segment(turn)), finish).await
    }

    /// Reports progress, which renews the lease.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn progress(&self, turn: &str, progress: &Progress) -> Result<Renewed, ClientError> {
        self.post(&format!("/v1/turns/{}/progress", segment(turn)), progress).await
    }

    /// Reports that the program of this agent works by itself after a turn ended, with what it used since (H4).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn worked_outside(&self, turn: &str, usage: Option<&Usage>) -> Result<Renewed, ClientError> {
        self.progress(turn, &Progress { outside: true, usage: usage.cloned(), ..Progress::default() }).await
    }

    /// Lists the messages that match a query.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn messages(&self, query: &MessageQuery) -> Result<Page<StoredMessage>, ClientError> {
        self.json(self.request(Method::GET, "/v1/messages").query(query)).await
    }

    /// Returns a message by its id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn message(&self, id: &str) -> Result<StoredMessage, ClientError> {
        self.get(&format!("/v1/messages/{}", segment(id))).await
    }

    /// Lists conversations.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn conversations(&self) -> Result<Page<ConversationSummary>, ClientError> {
        self.get("/v1/conversations").await
    }

    /// Lists at most `most` conversations, newest first; with `open` only those with open requests.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn newest_conversations(
        &self,
        most: usize,
        open: bool,
    ) -> Result<Page<ConversationSummary>, ClientError> {
        let request = self.request(Method::GET, "/v1/conversations").query(&[("limit", most)]);
        // A server before this parameter refuses it, so it is sent only where it is wanted.
        self.json(if open { request.query(&[("open", true)]) } else { request }).await
    }

    /// Returns a conversation as a tree.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn conversation(&self, reference: &str) -> Result<ConversationView, ClientError> {
        self.get(&format!("/v1/conversations/{}", segment(reference))).await
    }

    /// Extends the grants of a conversation (D9); returns what still holds them.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn grant(&self, reference: &str, extend: &Extend) -> Result<Extended, ClientError> {
        let path = format!("/v1/conversations/{}/grant", segment(reference));
        let extended = self.json_or_nothing(self.request(Method::POST, &path).json(extend)).await?;
        Ok(extended.unwrap_or_default())
    }

    /// Pauses a conversation, an agent or the workspace (H4).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn pause(&self, target: Target<'_>) -> Result<Value, ClientError> {
        self.control(target, "pause").await
    }

    /// Lifts a pause, a stop or a latch.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn resume(&self, target: Target<'_>) -> Result<Value, ClientError> {
        self.control(target, "resume").await
    }

    /// Stops a conversation, an agent or the workspace (H4).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn stop(&self, target: Target<'_>) -> Result<Value, ClientError> {
        self.control(target, "stop").await
    }

    async fn control(&self, target: Target<'_>, verb: &str) -> Result<Value, ClientError> {
        let path = match target {
            Target::Conversation(reference) => format!("/v1/conversations/{}/{verb}", segment(reference)),
            Target::Agent(name) => format!("/v1/agents/{}/{verb}", segment(name)),
            Target::Workspace => format!("/v1/workspace/{verb}"),
        };
        self.value(&path, &json!({})).await
    }

    /// Makes a call whose response, if any, has no type.
    async fn value(&self, path: &str, body: &(impl serde::Serialize + Sync)) -> Result<Value, ClientError> {
        let request = self.request(Method::POST, path).json(body);
        self.json_or_nothing(request).await.map(|value| value.unwrap_or_else(|| json!({})))
    }

    /// Returns the state of a request.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn request_state(&self, id: &str) -> Result<RequestView, ClientError> {
        self.get(&format!("/v1/requests/{}", segment(id))).await
    }

    /// Cancels a request.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn cancel(&self, id: &str) -> Result<RequestView, ClientError> {
        self.post(&format!("/v1/requests/{}/cancel", segment(id)), &json!({})).await
    }

    /// Sends a question to a human (an escalation).
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn escalate(&self, question: &NewEscalation) -> Result<EscalationView, ClientError> {
        self.post("/v1/escalations", question).await
    }

    /// Lists the escalations.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn escalations(&self) -> Result<Page<EscalationView>, ClientError> {
        self.pages("/v1/escalations").await
    }

    /// Returns an escalation by its id.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn escalation(&self, id: &str) -> Result<EscalationView, ClientError> {
        self.get(&format!("/v1/escalations/{}", segment(id))).await
    }

    /// Answers an escalation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn answer_escalation(&self, id: &str, answer: &EscalationAnswer) -> Result<EscalationView, ClientError> {
        self.post(&format!("/v1/escalations/{}/answer", segment(id)), answer).await
    }

    /// Holds a tool call for a decision.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn hold(&self, call: &HeldCall) -> Result<ApprovalView, ClientError> {
        self.post("/v1/approvals", call).await
    }

    /// Lists held calls.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn approvals(&self) -> Result<Page<ApprovalView>, ClientError> {
        self.pages("/v1/approvals").await
    }

    /// Returns an approval; waits for its decision up to `wait`.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn approval(&self, id: &str, wait: Option<Duration>) -> Result<ApprovalView, ClientError> {
        let mut request = self.request(Method::GET, &format!("/v1/approvals/{}", segment(id)));
        if let Some(wait) = wait {
            request = request.query(&[("wait", milliseconds(wait))]);
        }
        self.json(request).await
    }

    /// Decides on a held call.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn decide(&self, id: &str, decision: &DecideApproval) -> Result<ApprovalView, ClientError> {
        self.post(&format!("/v1/approvals/{}/decision", segment(id)), decision).await
    }

    /// Uses an approval for exactly this call; an approval can be used once.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn use_approval(&self, id: &str, call: &UseApproval) -> Result<ApprovalView, ClientError> {
        self.post(&format!("/v1/approvals/{}/use", segment(id)), call).await
    }

    /// Explains the state of a message, a recorded refusal, an approval or an escalation.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn explanation(&self, id: &str) -> Result<Explanation, ClientError> {
        self.get(&format!("/v1/explanations/{}", segment(id))).await
    }

    /// Lists the incidents.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn incidents(&self) -> Result<Page<IncidentView>, ClientError> {
        self.get("/v1/incidents").await
    }

    /// Opens a room, or sets its members.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn open_room(&self, room: &NewRoom) -> Result<RoomView, ClientError> {
        self.post("/v1/rooms", room).await
    }

    /// Lists the rooms.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn rooms(&self) -> Result<Page<RoomView>, ClientError> {
        self.json(self.request(Method::GET, "/v1/rooms")).await
    }

    /// Posts to a room, without mentions, a REF or a key.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post_to_room(&self, room: &str, body: &str) -> Result<Posted, ClientError> {
        let post = Post { body: body.to_owned(), mentions: None, reference: None };
        self.post_in_room(room, &post, None).await
    }

    /// Posts to a room; a retry with the same key returns the first result.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn post_in_room(&self, room: &str, post: &Post, key: Option<&str>) -> Result<Posted, ClientError> {
        let mut request = self.request(Method::POST, &format!("/v1/rooms/{}/messages", segment(room))).json(post);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        self.json(request).await
    }

    /// Adds a schedule, or replaces the one with its name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn set_schedule(&self, schedule: &NewSchedule) -> Result<ScheduleView, ClientError> {
        self.post("/v1/schedules", schedule).await
    }

    /// Lists the schedules.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn schedules(&self) -> Result<Page<ScheduleView>, ClientError> {
        self.get("/v1/schedules").await
    }

    /// Removes a schedule.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn remove_schedule(&self, name: &str) -> Result<(), ClientError> {
        let path = format!("/v1/schedules/{}", segment(name));
        self.answer(self.request(Method::DELETE, &path)).await.map(drop)
    }

    /// Runs a schedule now.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn run_schedule(&self, name: &str) -> Result<ScheduleView, ClientError> {
        let path = format!("/v1/schedules/{}/run", segment(name));
        self.json(self.request(Method::POST, &path)).await
    }

    /// Claims a resource.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn claim(&self, claim: &NewClaim) -> Result<ClaimView, ClientError> {
        self.post("/v1/claims", claim).await
    }

    /// Releases a claim.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn release(&self, id: &str) -> Result<(), ClientError> {
        let path = format!("/v1/claims/{}", segment(id));
        self.answer(self.request(Method::DELETE, &path)).await.map(drop)
    }

    /// Returns the limits in force.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn limits(&self) -> Result<LimitsView, ClientError> {
        self.get("/v1/limits").await
    }

    /// Returns the broker's time and the system clock's.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn clock(&self) -> Result<ClockView, ClientError> {
        self.get("/v1/clock").await
    }

    /// Accepts that the system clock is right; only humans may.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn accept_clock(&self) -> Result<ClockView, ClientError> {
        self.json(self.request(Method::POST, "/v1/clock/accept")).await
    }

    /// Returns the log's extent and the segments that left it; for humans.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn archives(&self) -> Result<ArchivesView, ClientError> {
        self.get("/v1/archives").await
    }

    /// Moves the oldest part of the log to the archive. Only an owner may.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn move_to_archive(&self, wanted: &MoveToArchive) -> Result<MovedToArchive, ClientError> {
        self.json(self.request(Method::POST, "/v1/archives").json(wanted)).await
    }

    /// Returns whether the server is ready to admit messages, and its clock.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn ready(&self) -> Result<ReadyView, ClientError> {
        self.get("/readyz").await
    }
}

fn sent(raw: Value) -> Sent {
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

/// Formats a duration for the query parameter `wait`.
fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
