//! Collects an agent's updates in a session while a prompt runs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};

use agent_client_protocol_schema::v1::{
    ContentBlock, RequestPermissionRequest, SessionModeId, SessionUpdate, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields,
};
use lastword_client::wire::{Usage, text};
use tokio::sync::{Notify, mpsc};

use super::connection::Responder;
use super::{content, mode};
use crate::program::ALL;
use crate::run::RunMeter;
use crate::usage::Tokens;

/// Most tool calls of a prompt that are remembered.
const CALLS_MAX: usize = 256;

/// A call for which the agent requests permission.
pub(super) struct PendingPermission {
    pub(super) request: RequestPermissionRequest,
    pub(super) responder: Responder,
}

/// The destination of a session's updates.
pub(super) struct Route {
    updates: Mutex<SessionUpdates>,
    /// Rings when a call has ended.
    ended: Notify,
    asked: mpsc::Sender<PendingPermission>,
    notes: mpsc::Sender<String>,
    switched: mpsc::Sender<SessionModeId>,
    /// Takes the estimate while the prompt runs, for an agent that isn't known to report its tokens at the end.
    meter: Option<RunMeter>,
}

#[derive(Default)]
struct SessionUpdates {
    text: String,
    bytes_max: usize,
    /// A tool was called since the last text, so the next text starts a new paragraph.
    called: bool,
    /// The agent has said nothing since a call was denied.
    speechless: bool,
    calls: BTreeMap<String, ToolCallUpdateFields>,
    cost: Option<f64>,
    /// The tokens in the context, as the agent last reported them.
    context: u64,
    /// What its model requests amount to, by the context that each sent.
    requests: Tokens,
    /// The rounds of tool calls since the last [`Route::take_rounds`].
    rounds: u64,
    /// No call of the last round has ended, and nothing was said since: another call belongs to it.
    in_round: bool,
}

impl Route {
    pub(super) fn new(
        bytes_max: usize,
        asked: mpsc::Sender<PendingPermission>,
        notes: mpsc::Sender<String>,
        switched: mpsc::Sender<SessionModeId>,
        meter: Option<RunMeter>,
    ) -> Self {
        let updates = Mutex::new(SessionUpdates { bytes_max, ..SessionUpdates::default() });
        Self { updates, ended: Notify::new(), asked, notes, switched, meter }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the protocol's enum grows, and other updates don't concern the requester"
    )]
    pub(super) fn receive(&self, update: SessionUpdate) {
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let note = match update {
            SessionUpdate::AgentMessageChunk(chunk) => {
                match &chunk.content {
                    ContentBlock::Text(text) => updates.say(&text.text),
                    other => updates.show(&content::named(other)),
                }
                None
            }
            SessionUpdate::ToolCall(call) => {
                let title = call.title.clone();
                let update = ToolCallUpdate::from(call);
                let (id, fields) = named(update);
                updates.call(&id, fields);
                self.ended.notify_waiters();
                Some(title)
            }
            SessionUpdate::ToolCallUpdate(update) => {
                let title = update.fields.title.clone();
                let (id, fields) = named(update);
                updates.call(&id, fields);
                self.ended.notify_waiters();
                title
            }
            SessionUpdate::UsageUpdate(usage) => {
                updates.sent(usage.used);
                if let Some(meter) = &self.meter {
                    meter.report(updates.estimate());
                }
                updates.cost =
                    usage.cost.filter(|cost| cost.currency == "USD").map(|cost| cost.amount).or(updates.cost);
                None
            }
            SessionUpdate::CurrentModeUpdate(update) if !mode::asks(&update.current_mode_id) => {
                // A switch that is already queued has the same effect.
                let _queued = self.switched.try_send(update.current_mode_id);
                None
            }
            // Thoughts, plans and future updates are meant for a user at an editor.
            _ => None,
        };
        if let Some(note) = note.filter(|note| !note.trim().is_empty()) {
            // The queue is full, and of the notes in it only the last will be sent.
            let _dropped = self.notes.try_send(note);
        }
    }

    /// Counts what the agent uses once the prompt has ended.
    pub(super) fn overhear(&self, update: &SessionUpdate) {
        if let SessionUpdate::UsageUpdate(usage) = update {
            self.updates.lock().unwrap_or_else(PoisonError::into_inner).sent(usage.used);
        }
    }

    /// Returns the estimate of what was used since it was asked for last.
    pub(super) fn take_estimate(&self) -> Option<Usage> {
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        let estimate = updates.estimate();
        updates.requests = Tokens::default();
        estimate
    }

    /// Passes a permission request to the running prompt; cancels it if there are too many or the prompt has ended.
    pub(super) fn ask(&self, request: RequestPermissionRequest, responder: Responder) {
        // One that isn't taken is cancelled as it is dropped.
        let _taken = self.asked.try_send(PendingPermission { request, responder });
    }

    /// Merges the newest fields of a call and returns all that is known of it: a permission request need not repeat
    /// them.
    pub(super) fn call(&self, id: &str, newest: ToolCallUpdateFields) -> ToolCallUpdateFields {
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        updates.call(id, newest);
        updates.calls.get(id).cloned().unwrap_or_default()
    }

    /// Waits until a call has ended, or is so old that it is no longer remembered.
    pub(super) async fn until_ended(&self, id: &str) {
        loop {
            let mut rung = pin!(self.ended.notified());
            rung.as_mut().enable();
            let has_ended = {
                let updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
                updates.calls.get(id).is_none_or(|call| call.status.is_some_and(ended))
            };
            if has_ended {
                return;
            }
            rung.await;
        }
    }

    /// Notes that a call is being denied.
    pub(super) fn deny(&self) {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).speechless = true;
    }

    /// Returns whether the agent has said nothing since one of its calls was denied.
    pub(super) fn is_speechless(&self) -> bool {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).speechless
    }

    /// Takes the text so far; later text starts from empty.
    pub(super) fn take(&self) -> String {
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        updates.called = false;
        updates.speechless = false;
        text::end(&mut updates.text);
        std::mem::take(&mut updates.text)
    }

    /// Takes the number of rounds of tool calls so far: each is a model request that called tools, one or several at once.
    pub(super) fn take_rounds(&self) -> u64 {
        let mut updates = self.updates.lock().unwrap_or_else(PoisonError::into_inner);
        updates.in_round = false;
        std::mem::take(&mut updates.rounds)
    }

    /// Returns what the model requests amount to by the context that each sent; `None` if the agent reports none.
    pub(super) fn estimate(&self) -> Option<Usage> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).estimate()
    }

    /// Returns the session's total cost in USD, if the agent reports it.
    pub(super) fn cost(&self) -> Option<f64> {
        self.updates.lock().unwrap_or_else(PoisonError::into_inner).cost
    }
}

const fn ended(status: ToolCallStatus) -> bool {
    matches!(status, ToolCallStatus::Completed | ToolCallStatus::Failed)
}

/// Splits an update into id and fields, with the tool's name from `_meta` where a program reports it only there.
fn named(update: ToolCallUpdate) -> (String, ToolCallUpdateFields) {
    let mut fields = update.fields;
    let beside = update.meta.as_ref().and_then(|meta| ALL.iter().find_map(|program| (program.acp.meta_tool)(meta)));
    fields.name = fields.name.or_else(|| beside.map(ToOwned::to_owned));
    (update.tool_call_id.0.to_string(), fields)
}

impl SessionUpdates {
    /// Notes a model request that left the context at this size. What was in it before is read from the cache.
    fn sent(&mut self, context: u64) {
        let before = std::mem::replace(&mut self.context, context);
        if context != before {
            let cached = before.min(context);
            self.requests.add(Tokens { input: context - cached, cache_read: cached, ..Tokens::default() });
        }
    }

    fn estimate(&self) -> Option<Usage> {
        let input_tokens = self.requests.input.saturating_add(self.requests.cache_read);
        let cache_read_tokens = self.requests.cache_read;
        (input_tokens > 0).then(|| Usage { input_tokens, cache_read_tokens, estimated: true, ..Usage::default() })
    }

    fn say(&mut self, said: &str) {
        if std::mem::take(&mut self.called) {
            self.break_off();
        }
        self.speechless &= said.trim().is_empty();
        self.in_round = false;
        // One byte over the limit is enough to detect that the text is too long.
        if self.text.len() <= self.bytes_max {
            text::append(&mut self.text, said);
        }
    }

    /// Says what isn't plain text, as a paragraph of its own.
    fn show(&mut self, named: &str) {
        self.break_off();
        self.called = false;
        self.say(named);
        self.called = true;
    }

    /// Ends the paragraph.
    fn break_off(&mut self) {
        text::end(&mut self.text);
        let end = self.text.trim_end().len();
        self.text.truncate(end);
        if end > 0 {
            self.text.push_str("\n\n");
        }
    }

    fn call(&mut self, id: &str, newest: ToolCallUpdateFields) {
        self.called = true;
        if !self.calls.contains_key(id) {
            self.rounds += u64::from(!std::mem::replace(&mut self.in_round, true));
            if self.calls.len() >= CALLS_MAX {
                self.calls.pop_first();
            }
        }
        self.in_round &= !newest.status.is_some_and(ended);
        let known = self.calls.entry(id.to_owned()).or_default();
        known.status = newest.status.or(known.status.take());
        known.title = newest.title.or(known.title.take());
        known.name = newest.name.or(known.name.take());
        known.kind = newest.kind.or(known.kind.take());
        known.content = newest.content.or(known.content.take());
        known.locations = newest.locations.or(known.locations.take());
        known.raw_input = newest.raw_input.or(known.raw_input.take());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_is_said_after_a_tool_call_is_a_paragraph_of_its_own() {
        let mut updates = SessionUpdates { bytes_max: 100, ..SessionUpdates::default() };
        updates.say("I'll ");
        updates.say("look. ");
        updates.call("1", ToolCallUpdateFields::new());
        updates.say("It is ");
        updates.say("fine.");
        assert_eq!(updates.text, "I'll look.\n\nIt is fine.");
    }

    #[test]
    fn calls_at_once_are_one_round_and_those_after_a_result_another() {
        let mut updates = SessionUpdates::default();
        let done = || ToolCallUpdateFields::new().status(ToolCallStatus::Completed);
        for (id, fields) in [("1", ToolCallUpdateFields::new()), ("2", ToolCallUpdateFields::new()), ("1", done())] {
            updates.call(id, fields);
        }
        updates.call("2", done());
        assert_eq!(updates.rounds, 1);
        updates.call("3", done());
        updates.call("4", ToolCallUpdateFields::new());
        updates.say("And");
        updates.call("5", ToolCallUpdateFields::new());
        assert_eq!(updates.rounds, 4);
    }

    #[tokio::test]
    async fn the_end_of_a_call_is_waited_for_and_that_of_a_forgotten_one_is_not() {
        let route = Route::new(100, mpsc::channel(1).0, mpsc::channel(1).0, mpsc::channel(1).0, None);
        let runs = |id: &str, status| {
            let fields = ToolCallUpdateFields::new().status(status);
            route.receive(SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields)));
        };
        route.until_ended("1").await;
        runs("1", ToolCallStatus::InProgress);
        let mut ended = pin!(route.until_ended("1"));
        assert!(ended.as_mut().now_or_never().is_none());
        runs("2", ToolCallStatus::Completed);
        assert!(ended.as_mut().now_or_never().is_none(), "another call");
        runs("1", ToolCallStatus::Failed);
        ended.await;
    }

    #[test]
    fn a_tool_is_known_by_the_name_that_is_said_beside_the_protocol() {
        let meta = serde_json::json!({"claudeCode": {"toolName": "Bash"}}).as_object().cloned();
        let call = ToolCallUpdate::new("1", ToolCallUpdateFields::new().title("rm")).meta(meta.clone());
        assert_eq!(named(call).1.name.as_deref(), Some("Bash"));
        let own = ToolCallUpdate::new("1", ToolCallUpdateFields::new().name("look".to_owned())).meta(meta);
        assert_eq!(named(own).1.name.as_deref(), Some("look"), "the protocol's own name goes first");
        assert_eq!(named(ToolCallUpdate::new("1", ToolCallUpdateFields::new().title("rm"))).1.name, None);
    }

    #[test]
    fn what_a_later_update_leaves_out_is_still_known() {
        let mut updates = SessionUpdates::default();
        updates.call("1", ToolCallUpdateFields::new().title("rm").raw_input(serde_json::json!({"cmd": "rm"})));
        updates.call("1", ToolCallUpdateFields::new().title("rm -r"));
        let known = &updates.calls["1"];
        assert_eq!((known.title.as_deref(), known.raw_input.is_some()), (Some("rm -r"), true));
    }
}
