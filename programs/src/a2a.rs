//! The driver of an agent elsewhere that speaks A2A 1.0: a delivery becomes a task there, and the task's answer the turn's.
//!
//! To the broker it is an agent like any other, so depth, hops, budgets and stops bind it. The id of the task is kept as
//! a step, so that a later attempt follows the same task and none is sent twice.

use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lastword_client::wire::{NewEscalation, Progress, StepResult};
use lastword_client::{Backoff, Leaving, RemoteAgent, RemoteError, RemoteEvents, Token};
use lastword_facts::envelope::fnv;
use lastword_facts::{FinishStatus, MessageType};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::run::{Ended, Run, RunnerContext};
use crate::settings::Settings;
use crate::watch::{Stop, stopped};

/// The key of the step that keeps the task.
const STEP: &str = "a2a-task";
/// Begins the keys of the steps that keep what was asked.
const ASKED: &str = "a2a-asked";
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a stream may be silent before the task is asked for.
const SILENCE_MAX: Duration = Duration::from_mins(5);
/// The most bytes of artifacts.
const ARTIFACT_BYTES_MAX: usize = 8 << 20;
/// How often it is looked whether a task has its id.
const PAUSE_NAMED: Duration = Duration::from_millis(20);
/// How long the agent may take to cancel its task.
const CANCEL_MAX: Duration = Duration::from_secs(5);
/// The error of a task that takes no message now.
const UNSUPPORTED: i64 = -32004;

/// The task elsewhere.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct RemoteTask {
    id: String,
    context_id: String,
    /// Where it is: a task that goes to another agent has no place there yet.
    #[serde(default)]
    address: String,
}

/// Runs the agent for one delivery. A run that is stopped cancels its task.
pub(crate) async fn run(shared: &RunnerContext, run: &mut Run) -> Ended {
    let message = &run.delivery.message;
    let known = kept(run, &shared.settings);
    if message.kind == MessageType::Response && message.escalation.is_none() && known.is_none() {
        // The answer to a request that this agent sent elsewhere: no task of its own waits for it.
        return Ended { answer: "Not asked for by this run.".to_owned(), ..Ended::default() };
    }
    let place = Mutex::new(known);
    let mut status = run.run_status.clone();
    let remote = tokio::select! {
        opened = open(&shared.settings) => match opened {
            Ok(remote) => remote,
            Err(error) => return Ended::failed(format!("the agent elsewhere can't be asked: {error}")),
        },
        _ = stopped(&mut status) => return Ended::default(),
    };
    let known = || place.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut working = pin!(work(&remote, run, &place, &shared.settings));
    let mut budget = false;
    let failed = tokio::select! {
        ended = &mut working => match ended {
            Ok(ended) => return ended,
            // The broker may have ended the turn, and its refusal came before its word.
            Err(error) => Some(Ended::failed(format!("the agent elsewhere: {error}"))),
        },
        stop = stopped(&mut status) => {
            budget = stop == Stop::Budget;
            None
        }
    };
    if budget {
        // The task goes on once a human gives more.
        return Ended::default();
    }
    // A task that was just sent has its id soon.
    let named = async {
        while known().is_none() {
            sleep(PAUSE_NAMED).await;
        }
    };
    if failed.is_none() {
        let _named = timeout(CANCEL_MAX, async {
            tokio::select! {
                _ = &mut working => {}
                () = named => {}
            }
        })
        .await;
    }
    if let Some(place) = known() {
        // Best effort: the turn ends here whatever happens there.
        let _cancelled = timeout(CANCEL_MAX, remote.call("CancelTask", &json!({ "id": place.id }))).await;
    }
    failed.unwrap_or_default()
}

async fn open(settings: &Settings) -> Result<RemoteAgent, RemoteError> {
    let unusable = |path: &std::path::Path, error: &dyn std::fmt::Display| {
        RemoteError::Unusable(format!("{}: {error}", path.display()))
    };
    // Read at each run, so that a renewed token counts at once.
    let token = match &settings.remote_token {
        None => None,
        Some(path) => {
            let text = tokio::fs::read_to_string(path).await.map_err(|error| unusable(path, &error))?;
            Some(Token::new(&text).map_err(|error| unusable(path, &error))?)
        }
    };
    let mut pause = Backoff::new(PAUSE_MIN, PAUSE_MAX);
    loop {
        match RemoteAgent::open(&settings.program.to_string_lossy(), token.as_ref()).await {
            // It may be on its way up; whoever stops the run ends this.
            Err(error) => sleep(least_pause(error)?.max(pause.grow())).await,
            Ok(remote) => return Ok(remote),
        }
    }
}

/// Returns the least pause before a call is made again, or the error if that can't help.
fn least_pause(error: RemoteError) -> Result<Duration, RemoteError> {
    match error {
        RemoteError::Unreachable(_) => Ok(Duration::ZERO),
        RemoteError::Busy { wait, .. } => Ok(wait),
        RemoteError::Unusable(_) | RemoteError::Refused { .. } => Err(error),
    }
}

/// Returns the task that an earlier turn began at this address.
fn kept(run: &Run, settings: &Settings) -> Option<RemoteTask> {
    let key = step_key(&address(settings));
    let step = run.turn.steps.iter().find(|step| step.key == key)?;
    RemoteTask::deserialize(&step.result).ok().filter(|place| place.address == address(settings))
}

fn address(settings: &Settings) -> String {
    settings.program.to_string_lossy().into_owned()
}

/// Returns the key of the step that keeps the task at an address: one task may have been at several.
fn step_key(address: &str) -> String {
    format!("{STEP}-{:016x}", fnv(address))
}

async fn work(
    remote: &RemoteAgent,
    run: &Run,
    place: &Mutex<Option<RemoteTask>>,
    settings: &Settings,
) -> Result<Ended, RemoteError> {
    let known = place.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let leaving = run.client.leaving().await;
    let leaving = leaving.map_err(|error| RemoteError::Unusable(format!("the broker gives no causality: {error}")))?;
    let remote = remote.clone().with(&leaving);
    let mut updates = Updates {
        remote: &remote,
        events: None,
        first: None,
        sent: None,
        place: known.clone(),
        pause: Backoff::new(PAUSE_MIN, PAUSE_MAX),
        wait: Duration::ZERO,
    };
    let message = &run.delivery.message;
    // A human's answer to what the agent asked; any other delivery of a task that has begun goes on with it.
    if known.is_none() || message.escalation.is_some() {
        match updates.send(&outgoing(run, known.as_ref(), &leaving)).await {
            Err(RemoteError::Refused { code: UNSUPPORTED, .. }) if known.is_some() => {}
            sent => sent?,
        }
    }
    let mut answer = TaskOutput::default();
    loop {
        let update = updates.next().await?;
        if let Some(task) = found(&update, &address(settings)) {
            let is_new = {
                let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
                let is_new = place.as_ref() != Some(&task);
                *place = Some(task.clone());
                is_new
            };
            if is_new {
                keep(run, &task, step_key(&task.address)).await?;
                updates.place = Some(task);
            }
        }
        if let Some(ended) = answer.hear(&update, run).await? {
            return Ok(ended);
        }
    }
}

/// Keeps the task, so that a later attempt doesn't send another one.
async fn keep(run: &Run, place: &RemoteTask, key: String) -> Result<(), RemoteError> {
    let step = StepResult { key, result: json!(place) };
    let progress = Progress { step: Some(step), ..Progress::default() };
    let kept = run.client.progress(&run.turn.id, &progress).await;
    kept.map(drop).map_err(|error| RemoteError::Unusable(format!("the task can't be kept: {error}")))
}

/// Returns the message for the agent: what was asked, with what it leaves with.
fn outgoing(run: &Run, place: Option<&RemoteTask>, leaving: &Leaving) -> Value {
    let message = &run.delivery.message;
    let text = (!message.body.is_empty()).then(|| json!({ "text": message.body }));
    let data = message.payload.as_ref().map(|payload| json!({ "data": payload }));
    let parts: Vec<Value> = text.into_iter().chain(data).collect();
    // The same for each attempt, so that an agent that knows its callers' ids takes it once.
    let id = message.request_id.as_deref().filter(|_| place.is_none()).unwrap_or(&message.id);
    let mut sent = json!({
        "messageId": id,
        "role": "ROLE_USER",
        "parts": parts,
        "extensions": [leaving.uri],
        "metadata": { &leaving.uri: leaving.value },
    });
    if let Some(place) = place {
        sent["taskId"] = place.id.clone().into();
        sent["contextId"] = place.context_id.clone().into();
    }
    sent
}

/// Returns the task that an update names.
fn found(update: &Value, address: &str) -> Option<RemoteTask> {
    let (id, context) = match (&update["task"], &update["statusUpdate"], &update["artifactUpdate"]) {
        (task, ..) if task.is_object() => (&task["id"], &task["contextId"]),
        (_, status, _) if status.is_object() => (&status["taskId"], &status["contextId"]),
        (_, _, artifact) => (&artifact["taskId"], &artifact["contextId"]),
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let address = address.to_owned();
    Some(RemoteTask { id: text(id), context_id: text(context), address }).filter(|place| !place.id.is_empty())
}

/// The updates of a task: by its stream, and by asking while there is none.
struct Updates<'a> {
    remote: &'a RemoteAgent,
    events: Option<RemoteEvents>,
    /// What the agent answered to a send without a stream.
    first: Option<Value>,
    /// The message that was sent, until a task is known for it.
    sent: Option<Value>,
    place: Option<RemoteTask>,
    pause: Backoff,
    /// The least pause before the next call.
    wait: Duration,
}

impl Updates<'_> {
    async fn send(&mut self, message: &Value) -> Result<(), RemoteError> {
        let configuration = json!({ "returnImmediately": true });
        let params = json!({ "message": message, "configuration": configuration });
        self.sent = Some(message.clone());
        loop {
            let sent = if self.remote.streaming {
                self.remote.stream("SendStreamingMessage", &params).await.map(|events| self.events = Some(events))
            } else {
                self.remote.call("SendMessage", &params).await.map(|first| self.first = Some(first))
            };
            match sent {
                // It may have been received: the id of the message is the same, which tells the agent.
                Err(error) => sleep(least_pause(error)?.max(self.pause.grow())).await,
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Returns the next update, however long it takes.
    async fn next(&mut self) -> Result<Value, RemoteError> {
        loop {
            if let Some(first) = self.first.take() {
                return Ok(first);
            }
            if let Some(events) = &mut self.events {
                match timeout(SILENCE_MAX, events.next()).await.unwrap_or(Ok(None)) {
                    Ok(Some(update)) => {
                        self.pause = Backoff::new(PAUSE_MIN, PAUSE_MAX);
                        return Ok(update);
                    }
                    Ok(None) => self.events = None,
                    Err(error) => {
                        self.events = None;
                        self.wait = least_pause(error)?;
                    }
                }
            }
            sleep(std::mem::take(&mut self.wait).max(self.pause.grow())).await;
            let Some(place) = self.place.clone() else {
                let Some(message) = self.sent.take() else {
                    return Err(RemoteError::Unusable("it named no task".to_owned()));
                };
                // The stream broke before it named the task. The id of the message is the same, which tells the agent.
                Box::pin(self.send(&message)).await?;
                continue;
            };
            if self.remote.streaming {
                match self.remote.stream("SubscribeToTask", &json!({ "id": place.id })).await {
                    Ok(events) => {
                        self.events = Some(events);
                        continue;
                    }
                    // It has ended, or can't be subscribed to: asking tells.
                    Err(RemoteError::Refused { .. } | RemoteError::Unreachable(_)) => {}
                    Err(error) => {
                        self.wait = least_pause(error)?;
                        continue;
                    }
                }
            }
            match self.remote.call("GetTask", &json!({ "id": place.id })).await {
                Ok(task) => return Ok(json!({ "task": task })),
                Err(error) => self.wait = least_pause(error)?,
            }
        }
    }
}

/// What a task has given so far.
#[derive(Default)]
struct TaskOutput {
    /// The artifacts' ids and parts, in the order in which they came.
    artifacts: Vec<(String, Vec<Value>)>,
    /// What they took on their way.
    bytes: usize,
    /// Whether a human was told that the agent waits for an approval.
    told: bool,
}

impl TaskOutput {
    /// Takes an update; returns how the run ends, if it does.
    async fn hear(&mut self, update: &Value, run: &Run) -> Result<Option<Ended>, RemoteError> {
        if update["message"].is_object() {
            let answer = text_of(&update["message"]["parts"]);
            return Ok(Some(Ended { answer, ..Ended::default() }));
        }
        if update["artifactUpdate"].is_object() {
            self.add(&update["artifactUpdate"]["artifact"], update["artifactUpdate"]["append"] == true)?;
            return Ok(None);
        }
        let task = &update["task"];
        if let Some(artifacts) = task["artifacts"].as_array() {
            self.artifacts.clear();
            self.bytes = 0;
            artifacts.iter().try_for_each(|artifact| self.add(artifact, false))?;
        }
        let status = if task.is_object() { &task["status"] } else { &update["statusUpdate"]["status"] };
        self.stands(status, run).await
    }

    fn add(&mut self, artifact: &Value, append: bool) -> Result<(), RemoteError> {
        self.bytes += artifact["parts"].to_string().len();
        if self.bytes > ARTIFACT_BYTES_MAX {
            let text = format!("its artifacts have more than {ARTIFACT_BYTES_MAX} bytes");
            return Err(RemoteError::Unusable(text));
        }
        let id = artifact["artifactId"].as_str().unwrap_or_default();
        let place = self.artifacts.iter().position(|(known, _)| known == id).unwrap_or_else(|| {
            self.artifacts.push((id.to_owned(), Vec::new()));
            self.artifacts.len() - 1
        });
        let (_, parts) = &mut self.artifacts[place];
        if !append {
            parts.clear();
        }
        parts.extend(artifact["parts"].as_array().into_iter().flatten().cloned());
        Ok(())
    }

    async fn stands(&mut self, status: &Value, run: &Run) -> Result<Option<Ended>, RemoteError> {
        let said = text_of(&status["message"]["parts"]);
        let because = |what: &str| if said.is_empty() { what.to_owned() } else { format!("{what}: {said}") };
        Ok(match status["state"].as_str().unwrap_or_default() {
            "TASK_STATE_COMPLETED" => {
                let texts: Vec<String> = self.artifacts.iter().map(|(_, parts)| text_of_artifact(parts)).collect();
                let answer = if texts.is_empty() { said } else { texts.join("\n\n") };
                Some(Ended { answer, status: Some(FinishStatus::Completed), ..Ended::default() })
            }
            "TASK_STATE_FAILED" => Some(Ended::failed(because("the agent elsewhere failed"))),
            "TASK_STATE_CANCELED" => Some(Ended::failed(because("the task was cancelled elsewhere"))),
            "TASK_STATE_REJECTED" => {
                let reason = Some(because("the agent elsewhere declined"));
                Some(Ended { status: Some(FinishStatus::Rejected), reason, ..Ended::default() })
            }
            "TASK_STATE_INPUT_REQUIRED" if was_asked(run, status) => None,
            "TASK_STATE_INPUT_REQUIRED" => {
                // With the answer the task goes on in a turn of its own.
                ask(run, &format!("{} asks: {said}", run.delivery.message.to)).await.map_err(RemoteError::Unusable)?;
                note_asked(run, status).await;
                Some(Ended { status: Some(FinishStatus::Waiting), ..Ended::default() })
            }
            "TASK_STATE_AUTH_REQUIRED" => {
                run.note(&because("waits for an approval elsewhere"));
                // Once a run: an agent that waits for several has said where.
                if !std::mem::replace(&mut self.told, true) {
                    let to = &run.delivery.message.to;
                    let text =
                        format!("{to} waits for an approval: {said}\n\nDecide it there; {to} then goes on by itself.");
                    // Whether a human can be told here or not, it is decided elsewhere.
                    let _told = ask(run, &text).await;
                }
                None
            }
            _ => {
                run.note(&said);
                None
            }
        })
    }
}

/// Returns what tells one question from another.
fn mark_of(status: &Value) -> Value {
    json!([status["timestamp"], status["message"]["messageId"]])
}

/// Whether the answer to this question is what the turn began with: an agent that goes on may first show the task as it
/// was.
fn was_asked(run: &Run, status: &Value) -> bool {
    let mark = mark_of(status);
    let mut known = run.turn.steps.iter().filter(|step| step.key.starts_with(ASKED));
    run.delivery.message.escalation.is_some() && mark != json!([null, null]) && known.any(|step| step.result == mark)
}

/// Keeps what was asked, for the turn that has the answer.
async fn note_asked(run: &Run, status: &Value) {
    let step = StepResult { key: format!("{ASKED}-{}", run.turn.id), result: mark_of(status) };
    // Best effort: without it a human may be asked twice.
    let _kept = run.client.progress(&run.turn.id, &Progress { step: Some(step), ..Progress::default() }).await;
}

/// Asks a human in the run's turn.
async fn ask(run: &Run, text: &str) -> Result<(), String> {
    let question = NewEscalation { message: text.to_owned(), options: Vec::new(), reference: None, key: None };
    let asked = run.client.escalate(&question).await;
    asked.map(drop).map_err(|error| format!("it asks, and no human can be asked: {error}"))
}

/// Returns the text of parts: texts, data as JSON, and files by their names, which are not fetched.
fn text_of(parts: &Value) -> String {
    let one = |part: &Value| {
        let name = part["filename"].as_str().unwrap_or("without a name");
        match (part["text"].as_str(), part.get("data"), part["url"].as_str(), part["raw"].as_str()) {
            (Some(text), ..) => text.to_owned(),
            (_, Some(data), ..) => data.to_string(),
            (_, _, Some(url), _) => format!("[file {name}: {url}]"),
            (_, _, _, Some(raw)) => format!("[file {name}, {} bytes in base64]", raw.len()),
            (None, None, None, None) => String::new(),
        }
    };
    let texts = parts.as_array().into_iter().flatten().map(one).filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Returns the text of an artifact. Texts that follow each other are one, because the parts that an agent has may be the
/// chunks that it sent.
fn text_of_artifact(parts: &[Value]) -> String {
    let (mut text, mut after_text) = (String::new(), false);
    for part in parts {
        let is_text = part["text"].is_string();
        let said = text_of(&json!([part]));
        let goes_on = text.is_empty() || said.is_empty() || (is_text && after_text);
        if !goes_on {
            text.push_str("\n\n");
        }
        text.push_str(&said);
        after_text = is_text;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_has_the_same_text_in_chunks_and_as_parts() {
        let artifact = |id: &str, parts: Value| json!({ "artifactId": id, "parts": parts });
        let mut chunks = TaskOutput::default();
        chunks.add(&artifact("z", json!([{ "text": "one " }])), false).unwrap();
        chunks.add(&artifact("a", json!([{ "text": "other" }])), false).unwrap();
        chunks.add(&artifact("z", json!([{ "text": "two" }, { "data": [1] }])), true).unwrap();
        let mut whole = TaskOutput::default();
        whole.add(&artifact("z", json!([{ "text": "one " }, { "text": "two" }, { "data": [1] }])), false).unwrap();
        whole.add(&artifact("a", json!([{ "text": "other" }])), false).unwrap();
        for answer in [chunks, whole] {
            let texts: Vec<String> = answer.artifacts.iter().map(|(_, parts)| text_of_artifact(parts)).collect();
            assert_eq!(texts, ["one two\n\n[1]", "other"]);
        }
    }

    #[test]
    fn the_key_of_an_address_is_the_same_after_an_upgrade() {
        assert_eq!(step_key("https://agents.example.com/planner/"), "a2a-task-9fd52b6df1cc3f21");
    }

    #[test]
    fn parts_become_text_and_no_file_is_fetched() {
        let parts = json!([
            { "text": "a" },
            { "data": { "n": 1 } },
            { "url": "http://169.254.169.254/", "filename": "x" },
            { "raw": "AAAA" },
            {},
        ]);
        let text = "a\n\n{\"n\":1}\n\n[file x: http://169.254.169.254/]\n\n[file without a name, 4 bytes in base64]";
        assert_eq!(text_of(&parts), text);
        assert_eq!(text_of(&json!(null)), "");
    }

    #[test]
    fn an_update_names_its_task() {
        let place = RemoteTask { id: "t".into(), context_id: "c".into(), address: "a".into() };
        for update in [
            json!({ "task": { "id": "t", "contextId": "c" } }),
            json!({ "statusUpdate": { "taskId": "t", "contextId": "c" } }),
            json!({ "artifactUpdate": { "taskId": "t", "contextId": "c" } }),
        ] {
            assert_eq!(found(&update, "a").as_ref(), Some(&place), "{update}");
        }
        assert_eq!(found(&json!({ "message": {} }), "a"), None);
    }
}
