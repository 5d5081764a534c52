//! Gemini CLI: `gemini -o stream-json`, or `json`.

use std::borrow::Cow;

use lastword_client::wire::text::{append, mended_part};
use serde_json::Value;

use crate::output::{Flags, Format, ProgramOutput, Repeated, number, option, text};
use crate::usage::Tokens;

pub(super) fn flags(args: &[String]) -> Option<Flags> {
    match option(args, &["--output-format", "-o"]) {
        None => Some(Flags { at: 0, words: &["-o", "stream-json"] }),
        Some("stream-json" | "json") => Some(Flags { at: 0, words: &[] }),
        Some(_) => None,
    }
}

/// The transcript of a session, in which a message is repeated for each change.
#[derive(Debug, Default)]
pub(super) struct Transcript(Repeated);

impl Format for Transcript {
    fn event(&mut self, event: &Value, outcome: &mut ProgramOutput) {
        let (Some("gemini"), Some(id)) = (text(event, &["type"]), text(event, &["id"])) else { return };
        let of = |name| number(event, &["tokens", name]);
        let output = of("total").saturating_sub(of("input")).max(of("output"));
        let tokens = Tokens::of_total(of("input"), of("cached"), 0, output);
        outcome.meter = self.0.count(id, text(event, &["model"]).unwrap_or_default(), tokens);
    }
}

/// The output of a run.
#[derive(Debug)]
pub(super) struct GeminiOutput;

impl Format for GeminiOutput {
    // It prints a text in parts.
    fn line<'a>(&self, line: &'a [u8]) -> Cow<'a, str> {
        mended_part(line)
    }

    fn event(&mut self, event: &Value, outcome: &mut ProgramOutput) {
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
}
