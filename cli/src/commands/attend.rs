//! Brings an agent's messages into the interactive session of its program, while this process runs beside it.
//!
//! A launcher knows how its program reports what happens in the session, and how the program takes a text. What follows
//! from each event is decided by the hooks that Claude Code calls, so that every program is treated the same way.

use std::path::Path;
use std::time::Duration;

use lastword_client::{Client, is_transient};
use lastword_runner::{HookError, Occasion, hook, hook_wait};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::failure::Failure;

/// Time between two renewals of the lease; far below the shortest useful lease.
const RENEW: Duration = Duration::from_secs(20);
/// Pause before a call that failed is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Most events and texts that wait between the session and its attendant.
const QUEUE_MAX: usize = 64;
/// The name of the session's state file. The launcher has a private folder, so one name serves each session.
const SESSION: &str = "session";

/// What happens in a program's session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// A session that can take a text began.
    Began,
    /// The user sent this prompt.
    Typed(String),
    /// The model ended its turn with this text.
    Answered(String),
    /// The turn ended without an answer, for this reason.
    BrokeOff(String),
}

/// A program's end of the connection: it reports events and takes texts for the model.
pub(super) struct Session {
    pub(super) happened: Sender<Happened>,
    pub(super) texts: Receiver<String>,
}

/// The attendant's end of the connection.
pub(super) struct Attendant {
    happened: Receiver<Happened>,
    texts: Sender<String>,
}

/// Returns the two ends of a new connection.
pub(super) fn connection() -> (Session, Attendant) {
    let (happened, events) = channel(QUEUE_MAX);
    let (sender, texts) = channel(QUEUE_MAX);
    (Session { happened, texts }, Attendant { happened: events, texts: sender })
}

/// Delivers the agent's messages until the session is gone. `folder` holds the session's state.
pub(super) async fn attend(mut end: Attendant, client: &Client, folder: &Path) -> Failure {
    let waited_for = occasion("");
    // The process ends with the session, so the wait never has to look for it.
    let gone = || false;
    let mut message = Box::pin(take(client, folder, &waited_for, &gone));
    let mut ticks = interval(RENEW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut works, mut continued) = (false, false);
    // Whether a text was handed over of which the session has not reported anything yet.
    let mut handed = false;
    loop {
        let text = tokio::select! {
            happened = end.happened.recv() => match (happened, std::mem::take(&mut handed)) {
                (None, _) => return Failure::unavailable("the session's server is gone"),
                // What was handed over before the session began is worked on now; what another session did has ended.
                (Some(Happened::Began), handed) => {
                    works = handed;
                    None
                }
                (Some(Happened::Typed(prompt)), _) => {
                    (works, continued) = (true, false);
                    call(client, folder, &Occasion { prompt, ..occasion("UserPromptSubmit") }).await
                }
                (Some(Happened::Answered(text)), _) => {
                    let stop = Occasion { last_assistant_message: Some(text), stop_hook_active: continued, ..occasion("Stop") };
                    let next = call(client, folder, &stop).await;
                    (works, continued) = (next.is_some(), next.is_some());
                    next
                }
                (Some(Happened::BrokeOff(failure)), _) => {
                    works = false;
                    call(client, folder, &Occasion { failure, ..occasion("StopFailure") }).await
                }
            },
            text = &mut message => {
                message = Box::pin(take(client, folder, &waited_for, &gone));
                (works, handed) = (true, true);
                Some(text)
            }
            _ = ticks.tick() => {
                // Without work a turn that lapsed is forgotten, so that the next message is waited for.
                let event = if works { "PostToolUse" } else { "" };
                call(client, folder, &occasion(event)).await
            }
        };
        if let Some(text) = text
            && end.texts.send(text).await.is_err()
        {
            return Failure::unavailable("the session's server is gone");
        }
    }
}

fn occasion(event: &str) -> Occasion {
    Occasion { hook_event_name: event.to_owned(), session_id: SESSION.to_owned(), ..Occasion::default() }
}

/// Waits for a message and returns its prompt. A broker that is away or refuses is asked again.
async fn take(client: &Client, folder: &Path, occasion: &Occasion, gone: &(dyn Fn() -> bool + Sync)) -> String {
    loop {
        if let Ok(Some(text)) = hook_wait(client, folder, occasion, gone).await {
            return text;
        }
        sleep(RETRY).await;
    }
}

/// Handles an event as a hook does, and returns the text for the model, if any. A broker that is away is waited for: what
/// the model answered must not be lost.
async fn call(client: &Client, folder: &Path, occasion: &Occasion) -> Option<String> {
    loop {
        match hook(client, folder, occasion).await {
            Ok(said) => {
                let said = said?;
                let text = [&said["reason"], &said["hookSpecificOutput"]["additionalContext"]];
                return text.into_iter().find_map(|text| text.as_str()).map(str::to_owned);
            }
            Err(HookError::Broker(error)) if is_transient(&error) => sleep(RETRY).await,
            // The next event or tick meets the same problem, if it lasts.
            Err(HookError::Broker(_) | HookError::File { .. } | HookError::Human | HookError::NoSession) => {
                return None;
            }
        }
    }
}
