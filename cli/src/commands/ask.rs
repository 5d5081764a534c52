//! `lastword ask`: a human's request to an agent.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lastword_client::wire::{Envelope, rfc3339};
use lastword_client::{SendTerms, Sent};
use lastword_proto::{MessageType, Time};

use super::{Context, send, text_or_stdin};
use crate::failure::Failure;
use crate::quantity::{duration, milliseconds};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Whom: a name, `@group` or `#action`.
    to: String,
    /// What; from standard input where it is `-` or left out.
    body: Option<String>,
    /// The work item [default: a new one].
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// How long to wait for the answer; 0s sends and goes.
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = duration)]
    wait: Duration,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.acting().await?;
    let mut envelope = Envelope::new(MessageType::Request, &args.to, &text_or_stdin(args.body)?);
    // With a key of its own the same send can be repeated, which goes on waiting.
    envelope.request_id = Some(fresh_name());
    envelope.reference = args.reference;
    let waiting = Stopwatch::start();
    loop {
        let left = args.wait.saturating_sub(waiting.elapsed());
        let terms = SendTerms { wait: (!left.is_zero()).then_some(left), ..SendTerms::default() };
        let sent = client.send(&envelope, &terms).await?;
        let Sent::One { message, response: None, .. } = &sent else { return send::show(&sent, cx) };
        if args.wait.is_zero() {
            return send::show(&sent, cx);
        }
        if left.is_zero() {
            let (ms, reference) = (milliseconds(args.wait), &message.reference);
            return Err(Failure::unavailable(format!("no answer to {} within {ms} ms", message.id)).hint(format!(
                "the work goes on: `lastword tree {reference}` shows it, and `lastword inbox` will have the answer"
            )));
        }
    }
}

struct Stopwatch(Instant);

#[expect(clippy::disallowed_methods, reason = "a person's patience is measured; nothing is decided by it")]
impl Stopwatch {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// A name that nobody has used: the moment and the process.
#[expect(clippy::disallowed_methods, reason = "it makes a name for a person to read; nothing is decided by it")]
fn fresh_name() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, milliseconds);
    let digits: String = rfc3339(Time(now)).chars().filter(char::is_ascii_digit).collect();
    format!("ask-{digits}-{}", std::process::id())
}
