//! Codex: `codex exec --json`.

use serde_json::Value;

use super::{has, number, text};
use crate::usage::{Meter, Tokens};

/// Returns the place of the subcommand.
pub(super) fn exec(args: &[String]) -> Option<usize> {
    args.iter().position(|arg| arg == "exec" || arg == "e")
}

pub(super) fn flags(args: &[String]) -> &'static [&'static str] {
    if has(args, &["--json", "--experimental-json"]) { &[] } else { &["--json"] }
}

#[derive(Debug, Default)]
pub(super) struct Codex {
    /// The output doesn't name the model.
    model: String,
    meter: Meter,
    said: String,
    error: Option<String>,
}

impl Codex {
    pub(super) fn new(model: Option<String>) -> Self {
        Self { model: model.unwrap_or_default(), ..Self::default() }
    }

    pub(super) fn event(&mut self, event: &Value) {
        match text(event, &["type"]) {
            Some("item.completed") if text(event, &["item", "type"]) == Some("agent_message") => {
                // Codex prints only the last message.
                text(event, &["item", "text"]).unwrap_or_default().clone_into(&mut self.said);
            }
            Some("turn.completed") => {
                let of = |name| number(event, &["usage", name]);
                let cached = (of("cached_input_tokens"), of("cache_write_input_tokens"));
                let tokens = Tokens::of_total(of("input_tokens"), cached.0, cached.1, of("output_tokens"));
                self.meter.add(&self.model, tokens, None);
            }
            Some("turn.failed") => self.error = text(event, &["error", "message"]).map(ToOwned::to_owned),
            Some("error") => self.error = text(event, &["message"]).map(ToOwned::to_owned),
            Some(_) | None => {}
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
