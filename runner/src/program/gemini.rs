//! Gemini CLI: `gemini -o stream-json`, or `json`.

use serde_json::Value;

use super::{number, option, text};
use crate::usage::{Meter, Tokens};

pub(super) fn flags(args: &[String]) -> Option<&'static [&'static str]> {
    match option(args, &["--output-format", "-o"]) {
        None => Some(&["-o", "stream-json"]),
        Some("stream-json" | "json") => Some(&[]),
        Some(_) => None,
    }
}

#[derive(Debug, Default)]
pub(super) struct Gemini {
    meter: Meter,
    said: String,
    error: Option<String>,
}

impl Gemini {
    pub(super) fn event(&mut self, event: &Value) {
        match text(event, &["type"]) {
            Some("message") if text(event, &["role"]) == Some("assistant") => {
                self.said.push_str(text(event, &["content"]).unwrap_or_default());
            }
            Some("result") => {
                for (model, used) in event["stats"]["models"].as_object().into_iter().flatten() {
                    let of = |name| number(used, &[name]);
                    // Thoughts are a part of the total, and not always of the output.
                    let output = of("total_tokens").saturating_sub(of("input_tokens")).max(of("output_tokens"));
                    let tokens = Tokens::of_total(of("input_tokens"), of("cached"), 0, output);
                    self.meter.add(model, tokens, None);
                }
                self.error = text(event, &["error", "message"]).map(ToOwned::to_owned);
            }
            // `-o json` prints one object without a type.
            None => {
                for (model, used) in event["stats"]["models"].as_object().into_iter().flatten() {
                    let of = |name| number(&used["tokens"], &[name]);
                    let output = of("total").saturating_sub(of("prompt")).max(of("candidates"));
                    self.meter.add(model, Tokens::of_total(of("prompt"), of("cached"), 0, output), None);
                }
            }
            Some(_) => {}
        }
    }

    pub(super) fn answer(&self) -> String {
        self.said.clone()
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(super) const fn meter(&self) -> &Meter {
        &self.meter
    }
}
