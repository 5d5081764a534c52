//! `lastword ask`: sends a human's request to an agent.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastword_client::wire::{Envelope, rfc3339};
use lastword_client::{Client, SendTerms, Sent};
use lastword_proto::{MessageType, Time};

use super::{Context, send, text_or_stdin};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::quantity::{duration, milliseconds};

/// Interval at which the client checks whether something holds the request.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recipient: a name, `@group` or `#action`.
    to: String,
    /// Text of the request [default, or with `-`: standard input].
    body: Option<String>,
    /// REF of the work item [default: a new one].
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// How long to wait for the answer; 0s doesn't wait.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    wait: Duration,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.acting().await?;
    let mut envelope = Envelope::new(MessageType::Request, &args.to, &text_or_stdin(args.body)?);
    // Under its own idempotency key the same send can be repeated to wait on. A request_id would name the work item.
    let terms = SendTerms { idempotency_key: Some(fresh_name()), wait: None };
    envelope.reference = args.reference;
    let waiting = Stopwatch::start();
    // The first send doesn't wait, so that holds can be reported while the later ones do.
    let mut sent = client.send(&envelope, &terms).await?;
    let mut told = BTreeSet::new();
    loop {
        let Sent::One { message, response: None, .. } = &sent else { return send::show(&sent, cx) };
        let left = args.wait.saturating_sub(waiting.elapsed());
        if args.wait.is_zero() {
            return send::show(&sent, cx);
        }
        if left.is_zero() {
            let (ms, reference) = (milliseconds(args.wait), &message.reference);
            return Err(Failure::unavailable(format!("no answer to {} within {ms} ms", message.id)).hint(format!(
                "the work continues: `lastword tree {reference}` shows it, and the answer arrives in `lastword inbox`"
            )));
        }
        let request = message.request_id.clone().unwrap_or_default();
        let terms = SendTerms { wait: Some(left), ..terms.clone() };
        sent = tokio::select! {
            sent = client.send(&envelope, &terms) => sent?,
            failed = tell_holds(&client, &request, &mut told) => failed?,
        };
    }
}

/// Reports on standard error what holds the request, each hold once, with the step that lifts it (R3). Returns only an
/// error, if it can't report.
async fn tell_holds(client: &Client, request: &str, told: &mut BTreeSet<String>) -> Result<Sent, Failure> {
    loop {
        let view = client.request_state(request).await?;
        for held in &view.held_by {
            if told.insert(held.text.clone()) {
                let mut stderr = std::io::stderr().lock();
                writeln!(stderr, "held: {}", escape_line(&held.text))?;
                writeln!(stderr, "  {}", escape_line(&held.lift.cli))?;
            }
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "it limits how long a human waits; no rule depends on it")]
impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed(&self) -> Duration {
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
