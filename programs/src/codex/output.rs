//! Codex: `codex exec --json`.

use serde_json::Value;

use crate::output::{Flags, Format, ProgramOutput, has, number, text};
use crate::usage::Tokens;

pub(super) fn flags(args: &[String]) -> Option<Flags> {
    let subcommand = args.iter().position(|arg| arg == "exec" || arg == "e")?;
    let words: &[&str] = if has(args, &["--json", "--experimental-json"]) { &[] } else { &["--json"] };
    Some(Flags { at: subcommand + 1, words })
}

/// The output, with the model that the arguments name: it names none.
#[derive(Debug)]
pub(super) struct CodexOutput(pub(super) String);

impl Format for CodexOutput {
    fn event(&mut self, event: &Value, outcome: &mut ProgramOutput) {
        match text(event, &["type"]) {
            Some("item.completed") if text(event, &["item", "type"]) == Some("agent_message") => {
                // Codex prints only the last message.
                text(event, &["item", "text"]).unwrap_or_default().clone_into(&mut outcome.said);
            }
            Some("turn.completed") => {
                let of = |name| number(event, &["usage", name]);
                let cached = (of("cached_input_tokens"), of("cache_write_input_tokens"));
                let tokens = Tokens::of_total(of("input_tokens"), cached.0, cached.1, of("output_tokens"));
                outcome.meter.add(&self.0, tokens, None);
            }
            Some("turn.failed") => outcome.error = text(event, &["error", "message"]).map(ToOwned::to_owned),
            Some("error") => outcome.error = text(event, &["message"]).map(ToOwned::to_owned),
            Some(_) | None => {}
        }
    }
}
