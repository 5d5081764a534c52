//! Runs one prompt in a conversation's session.

use std::pin::{Pin, pin};
use std::sync::Arc;

use agent_client_protocol_schema::v1::{
    ContentBlock, ErrorCode, LoadSessionRequest, Meta, NewSessionRequest, PromptRequest, PromptResponse, SessionId,
    SessionModeId, StopReason, TextContent,
};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lastword_client::wire::{ModelUsage, Progress, TRACEPARENT, Usage};
use lastword_facts::FinishStatus;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep, timeout};

use super::connection::CallError;
use super::permission::PermissionRequest;
use super::process::{AgentConnection, Process, Routed};
use super::updates::{PendingPermission, Route};
use super::{Slot, mode};
use crate::event::Event;
use crate::process::DRAIN;
use crate::program::{ALL, AcpUsage};
use crate::run::{Ended, PROGRESS, Run, RunnerContext};
use crate::usage::{consistent, named};
use crate::watch::stopped;
use crate::wording::{self, Denial, Memory};

/// Most permission requests open at once in a prompt; more are cancelled.
const ASKED_MAX: usize = 16;
const NOTES_MAX: usize = 16;
/// Most extra prompts per turn that tell the agent of denied calls.
const FOLLOWED_MAX: usize = 8;

/// A running prompt.
struct Prompting<'a> {
    shared: &'a RunnerContext,
    process: &'a Process,
    link: &'a AgentConnection,
    run: &'a Run,
    route: Arc<Route>,
    asked: mpsc::Receiver<PendingPermission>,
    notes: mpsc::Receiver<String>,
    /// Modes that the agent switched to and in which it doesn't ask.
    switched: mpsc::Receiver<SessionModeId>,
    /// The mode to set again after a switch.
    asking_mode: Option<SessionModeId>,
    /// The calls denied during the current prompt.
    denials: Vec<Denial>,
    /// The last denial, as a sentence part.
    denied: Option<String>,
}

/// How a prompt ended.
enum PromptEnd {
    Answered(Result<PromptResponse, CallError>),
    /// The process ended, or had to be ended.
    Gone(String),
    /// The agent ended the prompt after it was cancelled, or was ended for not doing so.
    Stopped,
}

/// Runs one delivery as a prompt.
pub(super) async fn prompt(shared: &RunnerContext, process: &Process, slot: &mut Slot, run: &mut Run) -> Ended {
    let Some(link) = process.link() else { return Ended::failed("the agent's process is not there") };
    let mut run_status = run.run_status.clone();
    let opened = tokio::select! {
        opened = open(shared, process, link, slot) => opened,
        reason = process.ended() => Err(gone(&reason)),
        _ = stopped(&mut run_status) => return Ended::default(),
    };
    let (session, memory, how) = match opened {
        Ok(opened) => opened,
        Err(reason) => return Ended::failed(reason),
    };
    shared.report.emit(&Event::Session { turn: run.turn.id.clone(), how });
    if memory == Memory::Lost {
        tell_of_new_session(shared, run).await;
    }
    let (asking, asked) = mpsc::channel(ASKED_MAX);
    let (noting, notes) = mpsc::channel(NOTES_MAX);
    let (switching, switched) = mpsc::channel(1);
    let meter = link.acp.metered.then(|| run.meter());
    let route = Arc::new(Route::new(shared.limits.body_bytes_max, asking, noting, switching, meter));
    let _routed: Routed = process.routes.begin(&session, Arc::clone(&route), &run.turn.id);
    // With one open turn the broker knows which turn a tool call belongs to.
    let turn_token = (shared.settings.concurrency > 1).then_some(run.turn.token.as_str());
    let mut text = wording::prompt(&run.delivery, memory, turn_token, &[]);
    let asking_mode = slot.asking.clone();
    let (denials, denied) = (Vec::new(), None);
    let mut prompting =
        Prompting { shared, process, link, run, route, asked, notes, switched, asking_mode, denials, denied };
    let reports = link.acp.usage;
    let mut usage = None;
    let mut followed = 0;
    let ended = loop {
        let over = prompting.send(&session, text).await;
        if let PromptEnd::Answered(Ok(response)) = &over {
            usage = sum(usage, response, reports, prompting.route.take_rounds());
        }
        match prompting.follow() {
            Some(more) if followed < FOLLOWED_MAX && matches!(over, PromptEnd::Answered(Ok(_))) => {
                followed += 1;
                text = more;
            }
            Some(_) | None => break prompting.outcome(over),
        }
    };
    let usage = usage.or_else(|| prompting.route.estimate());
    Ended { usage: priced(usage, prompting.route.cost(), slot), ..ended }
}

/// Tells the broker that the agent remembers nothing of what it said before (R5). If that fails, the broker goes on
/// counting it: it warns and holds sooner, and nothing is lost.
async fn tell_of_new_session(shared: &RunnerContext, run: &Run) {
    let report = Progress { new_session: true, ..Progress::default() };
    let told = timeout(PROGRESS, shared.broker.client().progress(&run.turn.id, &report)).await;
    if !matches!(told, Ok(Ok(_))) {
        let message = "the broker was not told that the agent goes on in a new session".to_owned();
        shared.report.emit(&Event::Warning { message });
    }
}

/// Opens the conversation's session: kept, loaded, or new.
async fn open(
    shared: &RunnerContext,
    process: &Process,
    link: &AgentConnection,
    slot: &mut Slot,
) -> Result<(SessionId, Memory, &'static str), String> {
    let cwd = &shared.settings.cwd;
    let meta = (link.acp.session_meta)(&shared.settings)?;
    let was_spare = std::mem::take(&mut slot.spare);
    let memory = match &slot.id {
        Some(id) if slot.start == process.start => {
            // Between two prompts nothing reports a mode that a human or the agent has changed.
            if let Some(asking) = slot.asking.as_ref().filter(|_| !was_spare) {
                mode::set(link, id, asking).await?;
            }
            let (memory, how) = if was_spare { (Memory::Fresh, "new") } else { (Memory::Kept, "kept") };
            return Ok((id.clone(), memory, how));
        }
        Some(_) if was_spare => Memory::Fresh,
        Some(id) if link.capabilities.load_session => {
            let load =
                LoadSessionRequest::new(id.clone(), cwd).mcp_servers(vec![process.mcp(shared)]).meta(meta.clone());
            if let Ok(loaded) = link.connection.call(&load).await {
                slot.asking = mode::hold(shared, link, id, loaded.modes.as_ref()).await?;
                slot.start = process.start;
                return Ok((id.clone(), Memory::Kept, "loaded"));
            }
            Memory::Lost
        }
        Some(_) => Memory::Lost,
        None => Memory::Fresh,
    };
    let new = NewSessionRequest::new(cwd).mcp_servers(vec![process.mcp(shared)]).meta(meta);
    let opened = link.connection.call(&new).await;
    let opened = opened.map_err(|error| format!("the agent opens no session: {}", said(&error)))?;
    let id = opened.session_id;
    let asking = mode::hold(shared, link, &id, opened.modes.as_ref()).await?;
    if opened.modes.is_none() && !shared.settings.unheld && !link.acp.asks_by_settings {
        let message = "the agent reports no modes: whether it asks before it acts is not known".to_owned();
        shared.report.emit(&Event::Warning { message });
    }
    *slot = Slot { id: Some(id.clone()), start: process.start, asking, ..Slot::default() };
    Ok((id, memory, "new"))
}

/// Opens a session before the first delivery.
///
/// # Errors
/// The agent opens none, or has no mode in which it asks.
pub(super) async fn spare(shared: &RunnerContext, process: &Process) -> Result<Slot, String> {
    let Some(link) = process.link() else { return Err("the agent's process is not there".to_owned()) };
    let mut slot = Slot::default();
    tokio::select! {
        opened = open(shared, process, link, &mut slot) => drop(opened?),
        reason = process.ended() => return Err(gone_at_start(&reason)),
    }
    Ok(Slot { spare: true, ..slot })
}

/// Returns the members of a prompt that name its place in a trace, as ACP reserves them.
fn traced(context: Option<&str>) -> Option<Meta> {
    context.map(|context| Meta::from_iter([(TRACEPARENT.to_owned(), context.into())]))
}

fn gone_at_start(reason: &str) -> String {
    format!("the agent's process ended before it opened a session: {reason}")
}

impl Prompting<'_> {
    /// Sends a prompt and waits for its end.
    async fn send(&mut self, session: &SessionId, text: String) -> PromptEnd {
        // Drops what a loaded session replays: it isn't part of the answer.
        self.route.take();
        let request = PromptRequest::new(session.clone(), vec![ContentBlock::Text(TextContent::new(text))])
            .meta(traced(self.run.turn.traceparent.as_deref()));
        let mut answer = pin!(self.link.connection.call(&request));
        let mut run_status = self.run.run_status.clone();
        let mut wishes = FuturesUnordered::new();
        let mut patience: Option<Pin<Box<Sleep>>> = None;
        loop {
            tokio::select! {
                answer = &mut answer => {
                    return match answer {
                        // A response or error after the cancel doesn't change the outcome.
                        _ if patience.is_some() => PromptEnd::Stopped,
                        Err(error) => self.lost(error).await,
                        Ok(response) => PromptEnd::Answered(Ok(response)),
                    };
                }
                Some(note) = self.notes.recv() => self.run.note(&note),
                Some(left_for) = self.switched.recv() => {
                    if let Err(reason) = self.hold_again(session, &left_for).await {
                        self.process.end(self.shared.settings.grace).await;
                        return PromptEnd::Gone(reason);
                    }
                }
                Some(asked) = self.asked.recv() => {
                    wishes.push(PermissionRequest::new(self.shared, self.run, &self.route, asked).settle(self.shared));
                }
                Some(denial) = wishes.next(), if !wishes.is_empty() => self.denials.extend(denial),
                _ = stopped(&mut run_status), if patience.is_none() => {
                    self.link.connection.cancel(session.clone());
                    patience = Some(Box::pin(sleep(self.shared.settings.grace)));
                }
                () = over(&mut patience) => {
                    self.process.end(self.shared.settings.grace).await;
                    return PromptEnd::Stopped;
                }
                reason = self.process.ended() => {
                    // Output sent before the end may still be in flight, even the response.
                    return match timeout(DRAIN, &mut answer).await {
                        Ok(Ok(response)) if patience.is_none() => PromptEnd::Answered(Ok(response)),
                        Ok(Ok(_) | Err(_)) | Err(_) => PromptEnd::Gone(reason),
                    };
                }
            }
        }
    }

    /// Sets the mode in which the agent asks again, after it switched to another.
    async fn hold_again(&self, session: &SessionId, left_for: &SessionModeId) -> Result<(), String> {
        let Some(asking) = &self.asking_mode else { return Ok(()) };
        let message = format!("the agent switched to the mode {}, in which it doesn't ask; set back", left_for.0);
        self.shared.report.emit(&Event::Warning { message });
        mode::set(self.link, session, asking).await
    }

    /// Words the next prompt if calls were denied: the approver's comments, and the denial itself if the agent ended
    /// its turn without a word, so that it can say what becomes of its work.
    fn follow(&mut self) -> Option<String> {
        let denials = std::mem::take(&mut self.denials);
        let last = denials.last()?;
        self.denied = Some(format!("its call of {} was not allowed: {}", last.tool, last.reason));
        let speechless = self.route.is_speechless();
        let told: Vec<String> = denials.iter().filter_map(|denial| wording::denied(denial, speechless)).collect();
        (!told.is_empty()).then(|| told.join("\n\n"))
    }

    /// Tells an agent's error from the end of its process: a connection that closes also fails the call.
    async fn lost(&self, error: CallError) -> PromptEnd {
        let is_closed = matches!(error, CallError::Closed);
        match timeout(DRAIN.saturating_mul(2), self.process.ended()).await {
            Ok(reason) => PromptEnd::Gone(reason),
            Err(_) if is_closed => {
                self.process.end(self.shared.settings.grace).await;
                PromptEnd::Gone("it closed its output".to_owned())
            }
            Err(_) => PromptEnd::Answered(Err(error)),
        }
    }

    fn outcome(&self, over: PromptEnd) -> Ended {
        let answer = self.route.take().trim().to_owned();
        let failed = |reason: String| Ended { answer: answer.clone(), ..Ended::failed(reason) };
        let response = match over {
            PromptEnd::Answered(Ok(response)) => response,
            PromptEnd::Answered(Err(error)) => return failed(format!("the agent gave an error: {}", said(&error))),
            PromptEnd::Gone(reason) => return failed(gone(&reason)),
            PromptEnd::Stopped => return failed("it was cancelled".to_owned()),
        };
        let (status, reason) = match response.stop_reason {
            StopReason::EndTurn => (None, self.denied.as_deref().filter(|_| answer.is_empty())),
            StopReason::MaxTokens if !answer.is_empty() => (Some(FinishStatus::Partial), Some("its tokens ran out")),
            StopReason::MaxTurnRequests if !answer.is_empty() => {
                (Some(FinishStatus::Partial), Some("it may ask its model no more in one turn"))
            }
            StopReason::MaxTokens => (Some(FinishStatus::Failed), Some("its tokens ran out before it said anything")),
            StopReason::MaxTurnRequests => {
                (Some(FinishStatus::Failed), Some("it may ask its model no more in one turn, and said nothing"))
            }
            StopReason::Refusal => (Some(FinishStatus::Rejected), Some("the agent refused")),
            StopReason::Cancelled => {
                let denied = self.denied.as_deref().filter(|_| answer.is_empty());
                (Some(FinishStatus::Failed), denied.or(Some("the agent ended the turn")))
            }
            _ => (Some(FinishStatus::Failed), Some("the agent ended the turn for a reason that is not known here")),
        };
        Ended { answer, status, reason: reason.map(ToOwned::to_owned), usage: None }
    }
}

async fn over(patience: &mut Option<Pin<Box<Sleep>>>) {
    match patience {
        Some(patience) => patience.await,
        None => std::future::pending().await,
    }
}

fn gone(reason: &str) -> String {
    format!("the agent's process ended during the turn: {reason}")
}

/// Words an agent's error in one sentence, with a hint if the agent needs a login.
pub(super) fn said(error: &CallError) -> String {
    let CallError::Agent(error) = error else { return "it closed its output".to_owned() };
    let details = error.data.as_ref().map(|data| format!(" ({data})")).unwrap_or_default();
    let login = error.code == ErrorCode::AuthRequired;
    let hint = if login { "; log it in once by hand, as the user who runs it" } else { "" };
    format!("{}{details}{hint}", error.message)
}

/// Adds one prompt's tokens to the turn's. If the agent reports its last model request only, each round of tool calls
/// counts as one more such request.
fn sum(before: Option<Usage>, response: &PromptResponse, reports: AcpUsage, rounds: u64) -> Option<Usage> {
    let Some(spent) = reported(response) else { return before };
    let before = before.unwrap_or_default();
    let requests = if reports == AcpUsage::LastRequest { rounds.saturating_add(1) } else { 1 };
    let add = |before: u64, spent: u64| before.saturating_add(spent.saturating_mul(requests));
    Some(Usage {
        input_tokens: add(before.input_tokens, spent.input_tokens),
        cache_read_tokens: add(before.cache_read_tokens, spent.cache_read_tokens),
        cache_write_tokens: add(before.cache_write_tokens, spent.cache_write_tokens),
        output_tokens: add(before.output_tokens, spent.output_tokens),
        estimated: reports != AcpUsage::Whole,
        models: both(before.models, &spent.models),
        ..before
    })
}

/// Adds the models of one prompt to the turn's.
fn both(mut models: Vec<ModelUsage>, more: &[ModelUsage]) -> Vec<ModelUsage> {
    for part in more {
        match models.iter_mut().find(|known| known.model == part.model) {
            Some(known) => known.tokens = known.tokens.saturating_add(part.tokens),
            None => models.push(part.clone()),
        }
    }
    models
}

/// Returns the tokens of a response.
fn reported(response: &PromptResponse) -> Option<Usage> {
    let Some(spent) = &response.usage else {
        let meta = response.meta.as_ref()?;
        return ALL.iter().find_map(|program| (program.acp.meta_usage)(meta));
    };
    let (cache_read, cache_write) = (spent.cached_read_tokens.unwrap_or(0), spent.cached_write_tokens.unwrap_or(0));
    // Agents differ in whether their input has the cached tokens; the total always has them.
    let input = spent.total_tokens.saturating_sub(spent.output_tokens).max(spent.input_tokens);
    Some(Usage {
        input_tokens: input,
        cache_read_tokens: cache_read,
        cache_write_tokens: cache_write,
        output_tokens: spent.output_tokens,
        ..Usage::default()
    })
}

/// Adds the turn's cost: agents report their session's total, so the cost before the turn is subtracted.
fn priced(usage: Option<Usage>, session: Option<f64>, slot: &mut Slot) -> Option<Usage> {
    let mut usage = usage?;
    if let Some(total) = session {
        usage.cost_usd = Some((total - slot.cost).max(0.0));
        slot.cost = total;
    }
    usage.models = named(usage.models);
    Some(consistent(usage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_client_protocol_schema::v1::Usage as Reported;

    #[test]
    fn the_tokens_of_a_prompt_have_the_cached_ones_whichever_way_they_are_reported() {
        let apart = Reported::new(1_030, 100, 30).cached_read_tokens(800).cached_write_tokens(100);
        let within = Reported::new(1_030, 1_000, 30).cached_read_tokens(800).cached_write_tokens(100);
        for reported in [apart, within] {
            let response = PromptResponse::new(StopReason::EndTurn).usage(reported);
            let sum = sum(None, &response, AcpUsage::Whole, 7).unwrap();
            let cached = (sum.cache_read_tokens, sum.cache_write_tokens);
            assert_eq!((sum.input_tokens, cached, sum.output_tokens), (1_000, (800, 100), 30));
        }
        let of = |model, input, output| serde_json::json!({"model": model, "token_count": {"input_tokens": input, "output_tokens": output}});
        let models = [of("gemini-2.5-pro", 600, 70), of("gemini-2.5-flash", 300, 10)];
        let count = serde_json::json!({"input_tokens": 900, "output_tokens": 80});
        let meta = serde_json::json!({"quota": {"token_count": count, "model_usage": models}});
        let beside = PromptResponse::new(StopReason::EndTurn).meta(meta.as_object().cloned());
        let add = |before| sum(before, &beside, AcpUsage::Whole, 7);
        let twice = add(add(None)).unwrap();
        assert_eq!((twice.input_tokens, twice.output_tokens, twice.estimated), (1_800, 160, false));
        let named: Vec<_> = twice.models.iter().map(|part| (part.model.as_str(), part.tokens)).collect();
        assert_eq!(named, [("gemini-2.5-pro", 1_340), ("gemini-2.5-flash", 620)]);
        assert!(sum(None, &PromptResponse::new(StopReason::EndTurn), AcpUsage::Whole, 7).is_none());
    }
    #[test]
    fn what_an_agent_leaves_out_is_estimated() {
        let response = PromptResponse::new(StopReason::EndTurn).usage(Reported::new(1_000, 900, 100));
        let without_titles = sum(None, &response, AcpUsage::WithoutTitles, 2).unwrap();
        assert_eq!((without_titles.input_tokens, without_titles.estimated), (900, true));
        let last = sum(None, &response, AcpUsage::LastRequest, 2).unwrap();
        assert_eq!((last.input_tokens, last.output_tokens, last.estimated), (2_700, 300, true));
    }
}
