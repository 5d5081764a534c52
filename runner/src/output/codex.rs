//! Codex: `codex exec --json`.

use serde_json::Value;

use super::{Outcome, has, number, text};
use crate::usage::Tokens;

/// Returns the place of the subcommand.
pub(super) fn exec(args: &[String]) -> Option<usize> {
    args.iter().position(|arg| arg == "exec" || arg == "e")
}

pub(super) fn flags(args: &[String]) -> &'static [&'static str] {
    if has(args, &["--json", "--experimental-json"]) { &[] } else { &["--json"] }
}

pub(super) fn event(event: &Value, model: &str, outcome: &mut Outcome) {
    match text(event, &["type"]) {
        Some("item.completed") if text(event, &["item", "type"]) == Some("agent_message") => {
            // Codex prints only the last message.
            text(event, &["item", "text"]).unwrap_or_default().clone_into(&mut outcome.said);
        }
        Some("turn.completed") => {
            let of = |name| number(event, &["usage", name]);
            let cached = (of("cached_input_tokens"), of("cache_write_input_tokens"));
            let tokens = Tokens::of_total(of("input_tokens"), cached.0, cached.1, of("output_tokens"));
            outcome.meter.add(model, tokens, None);
        }
        Some("turn.failed") => outcome.error = text(event, &["error", "message"]).map(ToOwned::to_owned),
        Some("error") => outcome.error = text(event, &["message"]).map(ToOwned::to_owned),
        Some(_) | None => {}
    }
}
