//! `lastword finish`: sends the final answer of a turn.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use lastword_client::wire::text::mended;
use lastword_client::wire::{Finish, Finished};
use lastword_facts::FinishStatus;
use serde_json::Value;

use super::send::{in_turn, json, one_of, warned};
use super::{Context, answer_or_stdin};
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Turn to end, as `lastword inbox` printed it: turn-3.
    turn: String,
    /// Final answer [default, or with `-`: standard input].
    #[arg(allow_hyphen_values = true)]
    answer: Option<OsString>,
    /// Outcome: completed, partial, rejected, failed or waiting [default: waiting while requests are in flight, else completed].
    #[arg(long, value_parser = status)]
    status: Option<FinishStatus>,
    /// Reason for the outcome.
    #[arg(long, value_parser = lossy(), allow_hyphen_values = true)]
    reason: Option<String>,
    /// Part that is done; repeatable.
    #[arg(long, value_name = "PART", value_parser = lossy(), allow_hyphen_values = true)]
    completed: Vec<String>,
    /// Part that failed; repeatable.
    #[arg(long, value_name = "PART", value_parser = lossy(), allow_hyphen_values = true)]
    failed: Vec<String>,
    /// Structured content of the answer.
    #[arg(long, value_name = "JSON", value_parser = lossy().try_map(|text| json(&mended(text.as_bytes()))))]
    payload: Option<Value>,
    /// Token of the turn.
    #[arg(long, value_name = "TOKEN", env = "LASTWORD_TURN", hide_env_values = true)]
    turn_token: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = in_turn(cx.client(Authority::Act)?, args.turn_token.as_deref());
    let finish = Finish {
        answer: answer_or_stdin(args.answer)?,
        status: args.status,
        payload: args.payload,
        completed: args.completed,
        failed: args.failed,
        reason: args.reason,
        usage: None,
    };
    let finished = client.finish(&args.turn, &finish).await?;
    cx.out.show(&finished, |finished, out| warned(words(finished, &args.turn), finished.warning.as_ref(), out))
}

fn words(finished: &Finished, turn: &str) -> String {
    match (&finished.answer, finished.open) {
        (Some(answer), _) => format!("{turn} ended with {answer}"),
        (None, true) => format!("{turn} ended; its task continues"),
        (None, false) => format!("{turn} ended"),
    }
}

/// Parses a part of an answer. U+FFFD takes the place of what isn't UTF-8 (F6).
fn lossy() -> impl TypedValueParser<Value = String> {
    OsStringValueParser::new().map(|text| text.to_string_lossy().into_owned())
}

fn status(text: &str) -> Result<FinishStatus, String> {
    FinishStatus::from_word(text).ok_or_else(|| one_of(FinishStatus::ALL))
}
