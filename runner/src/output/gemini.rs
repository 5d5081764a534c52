//! Gemini CLI: `gemini -o stream-json`, or `json`.

use lastword_client::wire::text::append;
use serde_json::Value;

use super::{Outcome, number, option, text};
use crate::usage::Tokens;

pub(super) fn flags(args: &[String]) -> Option<&'static [&'static str]> {
    match option(args, &["--output-format", "-o"]) {
        None => Some(&["-o", "stream-json"]),
        Some("stream-json" | "json") => Some(&[]),
        Some(_) => None,
    }
}

pub(super) fn event(event: &Value, outcome: &mut Outcome) {
    match text(event, &["type"]) {
        Some("message") if text(event, &["role"]) == Some("assistant") => {
            append(&mut outcome.said, text(event, &["content"]).unwrap_or_default());
        }
        Some("result") => {
            for (model, used) in event["stats"]["models"].as_object().into_iter().flatten() {
                let of = |name| number(used, &[name]);
                // Thoughts are a part of the total, and not always of the output.
                let output = of("total_tokens").saturating_sub(of("input_tokens")).max(of("output_tokens"));
                let tokens = Tokens::of_total(of("input_tokens"), of("cached"), 0, output);
                outcome.meter.add(model, tokens, None);
            }
            outcome.error = text(event, &["error", "message"]).map(ToOwned::to_owned);
        }
        // `-o json` prints one object without a type.
        None => {
            for (model, used) in event["stats"]["models"].as_object().into_iter().flatten() {
                let of = |name| number(&used["tokens"], &[name]);
                let output = of("total").saturating_sub(of("prompt")).max(of("candidates"));
                outcome.meter.add(model, Tokens::of_total(of("prompt"), of("cached"), 0, output), None);
            }
        }
        Some(_) => {}
    }
}
