//! `lastword send`: sends one message as the token's owner.

use std::ffi::OsString;
use std::time::Duration;

use lastword_client::wire::{Envelope, EscalationView, Finished, Outcome, StoredMessage, To};
use lastword_client::{Client, SendTerms, Sent};
use lastword_facts::{MessageType, Priority};
use serde::Deserialize as _;
use serde_json::Value;

use super::ask::{self, WaitTimes};
use super::{Context, answer_or_stdin, text_or_stdin};
use crate::failure::Failure;
use crate::out::{Out, Tone, escape};
use crate::quantity::{duration, milliseconds};
use crate::render;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Recipient: a name, `@group`, `#action`, `all` or `user`; comma-separated for several.
    #[arg(required_unless_present = "text")]
    to: Option<String>,
    /// Text of the message [default, or with `-`: standard input].
    #[arg(allow_hyphen_values = true)]
    body: Option<OsString>,
    /// Read the text form from standard input: `[FROM:…][TO:…][TYPE:…][REF:…][DEPTH:…] …`.
    #[arg(long, conflicts_with_all = ["to", "body"])]
    text: bool,
    /// Type: request, response, status, alert, info or broadcast.
    #[arg(long = "type", value_name = "TYPE", default_value = "request", value_parser = kind)]
    kind: MessageType,
    /// REF of the work item; optional inside a turn.
    #[arg(long = "ref", value_name = "REF", help_heading = "Message")]
    reference: Option<String>,
    /// Id of the request: the idempotency key of a retry, or the request being answered.
    #[arg(long, value_name = "ID", help_heading = "Delivery")]
    request_id: Option<String>,
    /// Action that the recipient must serve.
    #[arg(long, help_heading = "Message")]
    action: Option<String>,
    /// Structured content beside the text.
    #[arg(long, value_name = "JSON", value_parser = json, help_heading = "Message")]
    payload: Option<Value>,
    /// Priority: urgent, high, normal or low.
    #[arg(long, value_parser = priority, help_heading = "Message")]
    priority: Option<Priority>,
    /// Time that the recipient has to acknowledge the request.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Delivery")]
    timeout: Option<Duration>,
    /// Time until the whole request expires.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Delivery")]
    deadline: Option<Duration>,
    /// Message that this one answers.
    #[arg(long, value_name = "MESSAGE", help_heading = "Message")]
    in_reply_to: Option<String>,
    /// Wait for the answer up to this long.
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Delivery")]
    wait: Option<Duration>,
    /// Token of the turn that sends the message.
    #[arg(long, value_name = "TOKEN", env = "LASTWORD_TURN", hide_env_values = true, help_heading = "Delivery")]
    turn_token: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let turn = args.turn_token.clone();
    let client = in_turn(cx.acting().await?, turn.as_deref());
    if args.text {
        return show(&client.send_text(text_or_stdin(None)?).await?, cx);
    }
    let wait = args.wait.filter(|wait| !wait.is_zero());
    let envelope = envelope(args)?;
    match wait.filter(|_| envelope.kind == MessageType::Request) {
        // The broker knows from the first call on that it waits (Q8).
        Some(wait) => {
            ask::wait_for_answer(client, turn, &envelope, WaitTimes { first: Some(wait), most: wait }, cx).await
        }
        None => show(&client.send(&envelope, &SendTerms { idempotency_key: None, wait: None }).await?, cx),
    }
}

/// Returns the client, acting in the turn if one is named.
pub(super) fn in_turn(client: Client, token: Option<&str>) -> Client {
    token.map(|token| client.in_turn(token)).unwrap_or(client)
}

/// Prints the result of a send. Fails if its answer says that the work wasn't completed.
pub(super) fn show(sent: &Sent, cx: &Context) -> Result<(), Failure> {
    cx.out.show(sent.raw(), |_, out| words(sent, out))?;
    match sent {
        Sent::One { response, .. } => completed(response.as_deref()),
        Sent::Many { .. } | Sent::Other(_) => Ok(()),
    }
}

/// Fails if an answer says that the work wasn't completed.
pub(super) fn completed(answer: Option<&StoredMessage>) -> Result<(), Failure> {
    match answer.and_then(StoredMessage::outcome) {
        None | Some(Outcome::Completed) => Ok(()),
        Some(outcome) => {
            Err(Failure::not_completed(format!("the request was answered, and its outcome is {}", outcome.label())))
        }
    }
}

fn words(sent: &Sent, out: &Out) -> String {
    match sent {
        Sent::One { message, response, .. } => {
            let text = render::messages(std::iter::once(message.as_ref()).chain(response.as_deref()), out);
            warned(text, message.warning.as_ref(), out)
        }
        Sent::Many { messages, .. } => {
            let warning = messages.iter().find_map(|message| message.warning.as_ref());
            warned(render::messages(messages, out), warning, out)
        }
        Sent::Other(value) => other(value, out),
    }
}

/// Adds a warning to a text.
pub(super) fn warned(text: String, warning: Option<&String>, out: &Out) -> String {
    match warning {
        Some(warning) => format!("{text}\n{}", out.tone(Tone::Warn, &format!("warning: {}", escape(warning)))),
        None => text,
    }
}

/// Words a result that isn't a message: an escalation, or the end of a turn.
fn other(value: &Value, out: &Out) -> String {
    if let Ok(question) = EscalationView::deserialize(value) {
        let id = &question.id;
        let lifts = render::lifts(&question).iter().fold(String::new(), |text, line| format!("{text}\n  {line}"));
        return format!("{id} waits for a human: `lastword answer {id}`{lifts}");
    }
    match Finished::deserialize(value) {
        Ok(Finished { answer, open, warning, .. }) => {
            let text = match (answer, open) {
                (Some(answer), _) => format!("the task ended with {answer}"),
                (None, true) => "the task continues".to_owned(),
                (None, false) => "noted".to_owned(),
            };
            warned(text, warning.as_ref(), out)
        }
        Err(_) => crate::out::escape(&value.to_string()),
    }
}

fn envelope(args: Args) -> Result<Envelope, Failure> {
    let body = if args.kind == MessageType::Response { answer_or_stdin } else { text_or_stdin }(args.body)?;
    let mut envelope = Envelope::new(args.kind, "", &body);
    let to = args.to.unwrap_or_default();
    envelope.to = Some(match to.contains(',') {
        true => To::Many(to.split(',').map(|name| name.trim().to_owned()).collect()),
        false => To::One(to),
    });
    envelope.reference = args.reference;
    envelope.request_id = args.request_id;
    envelope.action = args.action;
    envelope.payload = args.payload;
    envelope.in_reply_to = args.in_reply_to;
    envelope.metadata.priority = args.priority;
    envelope.metadata.timeout_ms = args.timeout.map(milliseconds);
    envelope.metadata.deadline_ms = args.deadline.map(milliseconds);
    Ok(envelope)
}

fn kind(text: &str) -> Result<MessageType, String> {
    MessageType::from_word(&text.to_ascii_lowercase()).ok_or_else(|| one_of(MessageType::ALL))
}

fn priority(text: &str) -> Result<Priority, String> {
    Priority::from_word(text).ok_or_else(|| one_of(Priority::ALL))
}

pub(super) fn json(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("invalid JSON: {error}"))
}

/// Words an error that lists the accepted values.
pub(super) fn one_of<T: ToString>(words: &[T]) -> String {
    format!("expected one of {}", words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
}
