//! `lastword ask`: sends a human's request to an agent.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastword_client::wire::{Envelope, StoredMessage, rfc3339};
use lastword_client::{Client, ClientError, SendTerms, Sent, is_transient};
use lastword_facts::{MessageType, Time};
use tokio::signal::unix::{SignalKind, signal};

use super::agent::unavailable;
use super::{Context, send, text_or_stdin};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::quantity::{duration, milliseconds};
use crate::session::Authority;

/// Begins the report of a broker that doesn't answer.
const AWAY: &str = "no broker answers";
/// Interval at which the client checks whether something holds the request.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recipient: a name, `@group` or `#action`.
    to: String,
    /// Text of the request [default, or with `-`: standard input].
    #[arg(allow_hyphen_values = true)]
    body: Option<OsString>,
    /// REF of the work item [default: a new one].
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// How long to wait for the answer; 0s doesn't wait.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    wait: Duration,
}

/// How long a send waits for the answer.
#[derive(Clone, Copy)]
pub(super) struct WaitTimes {
    /// How long its first call waits. Without, what holds the request is reported from the start.
    pub(super) first: Option<Duration>,
    /// How long it waits at most.
    pub(super) most: Duration,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.acting().await?;
    let mut envelope = Envelope::new(MessageType::Request, &args.to, &text_or_stdin(args.body)?);
    envelope.reference = args.reference;
    wait_for_answer(client, None, &envelope, WaitTimes { first: None, most: args.wait }, cx).await
}

/// Sends a request, and waits for its answer.
pub(super) async fn wait_for_answer(
    mut client: Client,
    turn: Option<String>,
    envelope: &Envelope,
    wait: WaitTimes,
    cx: &Context,
) -> Result<(), Failure> {
    // Under its own idempotency key the same send can be repeated to wait on. A request_id would name the work item.
    let terms = SendTerms { idempotency_key: Some(fresh_name()), wait: wait.first };
    let waiting = Stopwatch::start();
    // One listener for the whole wait: a later one doesn't see an earlier signal.
    let mut interrupts = signal(SignalKind::interrupt())?;
    let mut sent = client.send(envelope, &terms).await?;
    let mut reported = BTreeSet::new();
    loop {
        let Sent::One { message, response: None, .. } = &sent else { return send::show(&sent, cx) };
        let left = wait.most.saturating_sub(waiting.elapsed());
        if wait.most.is_zero() {
            return send::show(&sent, cx);
        }
        if left.is_zero() {
            return unanswered(&client, &sent, message, wait.most, cx).await;
        }
        let request = message.request_id.clone().unwrap_or_default();
        if reported.insert(request.clone()) && !cx.out.is_json() {
            tell(&client, message, left).await;
        }
        let terms = SendTerms { wait: Some(left), ..terms.clone() };
        let again = tokio::select! {
            sent = client.send(envelope, &terms) => sent,
            failed = report_holds(&client, &request, &mut reported) => failed,
            _ = interrupts.recv() => return unanswered(&client, &sent, message, waiting.elapsed(), cx).await,
        };
        match again {
            Ok(again) => sent = again,
            Err(error) if is_transient(&error) => {
                if reported.insert(AWAY.to_owned()) {
                    writeln!(std::io::stderr().lock(), "{AWAY}: {} is recorded; waiting for the broker", message.id)?;
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK_AGAIN.min(left)) => {}
                    _ = interrupts.recv() => {
                        return unanswered(&client, &sent, message, waiting.elapsed(), cx).await;
                    }
                }
                // A restarted broker may listen on another port.
                let again = cx.client(Authority::Act).map(|client| send::in_turn(client, turn.as_deref()));
                client = again.unwrap_or(client);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells a person what the wait is for, and how to leave it.
async fn tell(client: &Client, message: &StoredMessage, left: Duration) {
    let why = why_unanswered(client, message.request_id.as_deref().unwrap_or_default()).await;
    let why = why.map(|why| format!(": {why}")).unwrap_or_default();
    // A closed standard error doesn't undo the request.
    let _closed = writeln!(
        std::io::stderr().lock(),
        "waiting up to {} s for the answer to {}{why}\n  Ctrl-C leaves; the answer will be in `lastword inbox`",
        left.as_secs_f64().ceil(),
        message.id
    );
}

/// Reports on standard error what holds the request, each hold once, with the step that lifts it (R3). Returns only an
/// error.
async fn report_holds(client: &Client, request: &str, reported: &mut BTreeSet<String>) -> Result<Sent, ClientError> {
    loop {
        let view = client.request_state(request).await?;
        for held in &view.held_by {
            if reported.insert(held.text.clone()) {
                // A closed standard error doesn't undo the request.
                let mut stderr = std::io::stderr().lock();
                let _closed = writeln!(stderr, "held: {}\n  {}", escape_line(&held.text), escape_line(&held.lift.cli));
            }
        }
        if view.queue_position.is_some()
            && let Ok(agent) = client.agent(&view.to).await
            && let Some(failed) = unavailable(&agent)
            && reported.insert(failed.clone())
        {
            let _closed = writeln!(std::io::stderr().lock(), "{failed}");
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Reports why there is no answer yet and where it will arrive.
async fn unanswered(
    client: &Client,
    sent: &Sent,
    message: &StoredMessage,
    waited: Duration,
    cx: &Context,
) -> Result<(), Failure> {
    if cx.out.is_json() {
        cx.out.json(sent.raw())?;
    }
    let (id, reference) = (&message.id, &message.reference);
    let failure = Failure::no_answer(format!("no answer to {id} within {} ms", milliseconds(waited)));
    let why = why_unanswered(client, message.request_id.as_deref().unwrap_or_default()).await;
    let why = why.unwrap_or_else(|_| "the broker is away, and the request is recorded".to_owned());
    Err(failure
        .hint(format!("{why}\nthe answer will be in `lastword inbox`; `lastword tree {reference}` shows the work")))
}

async fn why_unanswered(client: &Client, request: &str) -> Result<String, ClientError> {
    let view = client.request_state(request).await?;
    if let Some(held) = view.held_by.first() {
        return Ok(format!("held: {}; lift it: {}", escape_line(&held.text), escape_line(&held.lift.cli)));
    }
    let Some(before) = view.queue_position else { return Ok(format!("{} is working on it", escape_line(&view.to))) };
    let agent = client.agent(&view.to).await?;
    if let Some(failed) = unavailable(&agent) {
        return Ok(failed);
    }
    let to = escape_line(&view.to);
    Ok(match (agent.connected, before) {
        (false, _) => format!("{to} is not connected: its messages wait for its session or runner"),
        (true, 0) => format!("{to} has not taken it yet"),
        (true, before) => format!("{to} has not taken it yet; {before} deliveries are before it"),
    })
}

pub(super) struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "it limits how long a human waits; no rule depends on it")]
impl Stopwatch {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Returns an unused name from the time and the process id.
#[expect(clippy::disallowed_methods, reason = "it only makes a name; no rule depends on it")]
fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds);
    let digits: String = rfc3339(Time(now)).chars().filter(char::is_ascii_digit).collect();
    format!("ask-{digits}-{}", std::process::id())
}
