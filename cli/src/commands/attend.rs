//! Brings an agent's messages into the interactive session of its program, while this process runs beside it.
//!
//! A launcher knows how its program reports what happens in the session, and how the program takes a text. What follows
//! from each event is decided by the hooks that Claude Code calls, so that every program is treated the same way.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

use lastword_client::wire::quote;
use lastword_client::{Client, is_transient};
use lastword_programs::{
    Asked, Attendant, Happened, HookError, Occasion, Order, Requests, follow_ends, hook, hook_wait,
};
use serde_json::Value;
use tokio::sync::mpsc::channel;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{MissedTickBehavior, Sleep, interval, sleep, timeout};

use super::launch::{Calls, SessionPlace};

/// Time between two renewals of the lease; far below the shortest useful lease.
const RENEW: Duration = Duration::from_secs(20);
/// Pause before a call that failed is repeated.
const RETRY: Duration = Duration::from_secs(1);
/// Time for an interrupted program to stop, before it is ended.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit for charging a program's usage before the program is ended.
const CHARGE: Duration = Duration::from_secs(2);
/// The name of the session's state file. The launcher has a private folder, so one name serves each session.
const SESSION: &str = "session";

/// Delivers the agent's messages until the session is gone. `folder` holds the session's state, `used` counts its requests.
pub(super) async fn attend(
    mut end: Attendant,
    client: &Client,
    folder: &Path,
    place: &SessionPlace,
    used: Requests,
    calls: Calls,
) -> String {
    let waited_for = occasion("");
    // The process ends with the session, so the wait never has to look for it.
    let gone = || false;
    let mut message = Box::pin(take(client, folder, &waited_for, &gone));
    let (stopped, mut stops) = channel(1);
    let mut follow = pin!(follow_ends(client, &place.name, folder, &stopped));
    let mut ticks = interval(RENEW);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut at = Attended {
        client,
        folder,
        place,
        used,
        calls,
        works: false,
        continued: false,
        handed: false,
        strays: 0,
        dialogs: BTreeMap::new(),
        deciding: JoinSet::new(),
    };
    // When a program that was interrupted is ended.
    let mut patience = pin!(None);
    loop {
        let order = tokio::select! {
            happened = end.happened.recv() => {
                let Some(happened) = happened else { return "the session's server is gone".to_owned() };
                if matches!(happened, Happened::Answered(_) | Happened::BrokeOff(_)) {
                    patience.set(None);
                }
                at.happened(happened).await
            }
            text = &mut message => {
                message = Box::pin(take(client, folder, &waited_for, &gone));
                (at.works, at.handed) = (true, true);
                at.used.take();
                Some(Order::Say(text))
            }
            Some(()) = stops.recv() => (at.works && patience.is_none()).then_some(Order::Interrupt),
            () = &mut follow => return "stops are no longer followed".to_owned(),
            () = over(patience.as_mut()) => {
                patience.set(None);
                at.end_program("the program did not stop when it was interrupted".to_owned()).await
            }
            Some(decided) = at.deciding.join_next() => at.decided(decided.ok().flatten()).await,
            _ = ticks.tick() => at.tick().await,
        };
        let Some(order) = order else { continue };
        if order == Order::Interrupt && patience.is_none() {
            patience.set(Some(sleep(PATIENCE)));
        }
        if end.orders.send(order).await.is_err() {
            return "the session's server is gone".to_owned();
        }
    }
}

/// Resolves once the time of a program that was interrupted is over; never if none was.
async fn over(patience: Pin<&mut Option<Sleep>>) {
    match patience.as_pin_mut() {
        Some(over) => over.await,
        None => pending().await,
    }
}

/// A session, as its attendant knows it.
struct Attended<'a> {
    client: &'a Client,
    folder: &'a Path,
    place: &'a SessionPlace,
    used: Requests,
    works: bool,
    /// The model was made to go on at the end of its turn.
    continued: bool,
    /// A text was handed over of which the session has not reported anything yet.
    handed: bool,
    /// The number of turns that the program has started on its own since its user last typed.
    strays: u32,
    calls: Calls,
    /// The open dialogs, each with its call and the task that waits for a human of the team where one decides.
    dialogs: BTreeMap<String, Option<(Occasion, AbortHandle)>>,
    deciding: JoinSet<Option<Decided>>,
}

/// The id of a dialog, its tool, and whether a human of the team allowed its call; `None` if it is up to the session's user.
type Decided = (String, String, Option<Result<(), String>>);

impl Attended<'_> {
    async fn happened(&mut self, happened: Happened) -> Option<Order> {
        let handed = std::mem::take(&mut self.handed);
        match happened {
            Happened::Began => {
                // What was handed over before the session began is worked on now; what another session did has ended.
                self.works = handed;
                None
            }
            Happened::Prompted(prompt) => self.prompted(prompt).await,
            Happened::Used(request) => {
                self.handed = handed;
                self.used.add(&request);
                self.worked(occasion("")).await
            }
            Happened::Asked(asked) => {
                self.handed = handed;
                self.asked(asked).await
            }
            Happened::Settled(id) => {
                self.handed = handed;
                let mut made = occasion("");
                if let Some((asks, decides)) = self.dialogs.remove(&id)? {
                    decides.abort();
                    made = Occasion { begins: true, ..asks };
                }
                self.worked(made).await
            }
            Happened::Answered(_) | Happened::BrokeOff(_) if self.strays > 1 => {
                self.end_program("the program goes on on its own".to_owned()).await
            }
            Happened::Answered(text) => {
                self.close_dialogs();
                self.place.prompt_ended().await;
                let (usage, text, continued) = (self.used.take(), Some(text), self.continued);
                let stop =
                    Occasion { last_assistant_message: text, stop_hook_active: continued, usage, ..occasion("Stop") };
                let next = self.call(stop).await;
                (self.works, self.continued) = (next.is_some(), next.is_some());
                next
            }
            Happened::BrokeOff(failure) => {
                self.close_dialogs();
                self.works = false;
                self.place.prompt_ended().await;
                let usage = self.used.take();
                self.call(Occasion { failure, usage, ..occasion("StopFailure") }).await
            }
        }
    }

    /// Interrupts a turn that the program starts on its own. The end of a second one in a row ends the program.
    async fn prompted(&mut self, prompt: String) -> Option<Order> {
        let typed = match &self.place.vouch {
            Some(vouch) => Some(vouch.began(self.works).await.0),
            None => None,
        };
        // A part of a message's turn goes on with its count.
        if !self.works || typed != Some(false) {
            self.used.take();
        }
        (self.works, self.continued) = (true, false);
        let order = self.call(Occasion { prompt, typed, ..occasion("UserPromptSubmit") }).await;
        self.strays = if order == Some(Order::Interrupt) { self.strays + 1 } else { 0 };
        order
    }

    /// Charges the turn's usage so far, and ends the program. It doesn't wait for a broker that is away.
    async fn end_program(&mut self, failure: String) -> Option<Order> {
        let broken_off = Occasion { failure, usage: self.used.take(), ..occasion("StopFailure") };
        let _charged = timeout(CHARGE, self.call(broken_off)).await;
        self.place.end.notify_one();
        None
    }

    /// A dialog opened: a human of the team decides on what a message asked for if calls are held, else the session's user.
    async fn asked(&mut self, asked: Asked) -> Option<Order> {
        let Asked { id, tool, arguments } = asked;
        if let Some(arguments) = &arguments
            && let Some(reason) = self.conflict(&tool, arguments).await
        {
            return Some(Order::Decide(id, Err(reason)));
        }
        let Some(arguments) = arguments.filter(|_| self.calls.held) else {
            self.dialogs.insert(id, None);
            return self.waits(tool).await;
        };
        let (client, folder) = (self.client.clone(), self.folder.to_owned());
        let asks = Occasion { tool_name: tool, tool_input: arguments.into(), ..occasion("PermissionRequest") };
        let (dialog, call) = (id.clone(), asks.clone());
        let decides = self.deciding.spawn(async move {
            let said = hook(&client, &folder, &call).await.ok().flatten();
            let decision = said.as_ref().and_then(|said| said.pointer("/hookSpecificOutput/decision"));
            Some((dialog, call.tool_name, decision.map(answer)))
        });
        self.dialogs.insert(id, Some((asks, decides)));
        None
    }

    /// Claims what a call would change. Returns why it isn't made, if another task holds that.
    async fn conflict(&self, tool: &str, arguments: &Value) -> Option<String> {
        let (tool_name, tool_input) = (tool.to_owned(), arguments.clone().into());
        let call = Occasion { tool_name, tool_input, ..occasion("PreToolUse") };
        let said = hook(self.client, self.folder, &call).await.ok().flatten()?;
        said.pointer("/hookSpecificOutput/permissionDecisionReason")?.as_str().map(str::to_owned)
    }

    async fn decided(&mut self, decided: Option<Decided>) -> Option<Order> {
        match decided? {
            (id, _, Some(answer)) => Some(Order::Decide(id, answer)),
            (id, tool, None) => {
                self.dialogs.insert(id, None);
                self.waits(tool).await
            }
        }
    }

    async fn waits(&self, message: String) -> Option<Order> {
        self.call(Occasion { message, ..occasion("Notification") }).await
    }

    async fn worked(&self, made: Occasion) -> Option<Order> {
        let waits = self.dialogs.values().any(Option::is_none);
        self.call(Occasion { usage: self.used.used(), waits, hook_event_name: "PostToolUse".to_owned(), ..made }).await
    }

    fn close_dialogs(&mut self) {
        self.dialogs.clear();
        self.deciding.abort_all();
    }

    /// Without work a turn that lapsed is forgotten, so that the next message is waited for.
    async fn tick(&mut self) -> Option<Order> {
        if self.works {
            return self.worked(occasion("")).await;
        }
        self.call(Occasion { usage: self.used.used(), ..occasion("") }).await
    }

    async fn call(&self, occasion: Occasion) -> Option<Order> {
        call(self.client, self.folder, &occasion).await
    }
}

/// Returns the answer to a dialog. It is only yes or no, so a call that was edited isn't made.
fn answer(decision: &Value) -> Result<(), String> {
    match (&decision["message"], &decision["updatedInput"]) {
        (Value::Null, Value::Null) => Ok(()),
        (Value::Null, edited) => Err(format!(
            "The call is allowed with other arguments only: {}. The program can't change them; make that call instead.",
            quote::json(&edited.clone().into())
        )),
        (message, _) => Err(message.as_str().unwrap_or_default().to_owned()),
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

/// Handles an event as a hook does, and returns the order for the session, if any. A broker that is away is waited for: what
/// the model answered must not be lost.
async fn call(client: &Client, folder: &Path, occasion: &Occasion) -> Option<Order> {
    loop {
        match hook(client, folder, occasion).await {
            Ok(said) => {
                let said = said?;
                let blocked = occasion.hook_event_name == "UserPromptSubmit" && said["decision"] == "block";
                if blocked || said["continue"] == false {
                    return Some(Order::Interrupt);
                }
                let text = [&said["reason"], &said["hookSpecificOutput"]["additionalContext"]];
                return text.into_iter().find_map(|text| text.as_str()).map(|text| Order::Say(text.to_owned()));
            }
            Err(HookError::Broker(error)) if is_transient(&error) => sleep(RETRY).await,
            // The next event or tick meets the same problem, if it lasts.
            Err(HookError::Broker(_) | HookError::File { .. } | HookError::Human | HookError::NoSession) => {
                return None;
            }
        }
    }
}
