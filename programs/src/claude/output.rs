//! Claude Code: `claude -p --output-format stream-json --verbose`, or `json`.

use serde_json::Value;

use crate::output::{Flags, Format, ProgramOutput, Repeated, at, has, number, option, text};
use crate::usage::{Meter, Tokens};

pub(super) fn flags(args: &[String]) -> Option<Flags> {
    if !has(args, &["-p", "--print"]) {
        return None;
    }
    match option(args, &["--output-format"]) {
        None => Some(Flags { at: 0, words: &["--output-format", "stream-json", "--verbose"] }),
        Some("stream-json" | "json") => Some(Flags { at: 0, words: &[] }),
        Some(_) => None,
    }
}

/// The output of a run, and the transcript of a session: both have each message.
#[derive(Debug, Default)]
pub(super) struct ClaudeOutput {
    /// A message is repeated for each block of its content.
    messages: Repeated,
    /// Whether the process has printed its totals, sub-agents included.
    totalled: bool,
}

impl Format for ClaudeOutput {
    fn event(&mut self, event: &Value, outcome: &mut ProgramOutput) {
        match text(event, &["type"]) {
            Some("assistant") => self.message(event, outcome),
            Some("result") => self.result(event, outcome),
            Some(_) | None => {}
        }
    }
}

impl ClaudeOutput {
    fn message(&mut self, event: &Value, outcome: &mut ProgramOutput) {
        let Some(id) = text(event, &["message", "id"]) else { return };
        let model = text(event, &["message", "model"]).unwrap_or_default();
        let sum = self.messages.count(id, model, of_message(event, &["message", "usage"]));
        if !self.totalled {
            outcome.meter = sum;
        }
        // A sub-agent's text isn't part of the answer.
        if text(event, &["parent_tool_use_id"]).is_some() {
            return;
        }
        let blocks = event["message"]["content"].as_array().into_iter().flatten();
        let said: Vec<&str> = blocks.filter_map(|block| text(block, &["text"])).collect();
        if !said.is_empty() {
            outcome.said = said.concat();
        }
    }

    fn result(&mut self, event: &Value, outcome: &mut ProgramOutput) {
        if let Some(said) = text(event, &["result"]) {
            said.clone_into(&mut outcome.said);
        }
        if event["is_error"].as_bool() == Some(true) {
            outcome.error = text(event, &["result"]).or_else(|| text(event, &["subtype"])).map(ToOwned::to_owned);
        }
        // `usage` leaves sub-agents out; `modelUsage` has them and is the total of the process so far.
        let mut meter = Meter::default();
        for (model, used) in event["modelUsage"].as_object().into_iter().flatten() {
            let tokens = Tokens {
                input: number(used, &["inputTokens"]),
                cache_read: number(used, &["cacheReadInputTokens"]),
                cache_write: number(used, &["cacheCreationInputTokens"]),
                output: number(used, &["outputTokens"]),
            };
            meter.add(model, tokens, used["costUSD"].as_f64());
        }
        if event["modelUsage"].as_object().is_none_or(serde_json::Map::is_empty) {
            meter.add("", of_message(event, &["usage"]), event["total_cost_usd"].as_f64());
        }
        self.totalled = true;
        outcome.meter = meter;
    }
}

fn of_message(event: &Value, path: &[&str]) -> Tokens {
    let of = |name: &str| at(event, path).map_or(0, |usage| number(usage, &[name]));
    Tokens {
        input: of("input_tokens"),
        cache_read: of("cache_read_input_tokens"),
        cache_write: of("cache_creation_input_tokens"),
        output: of("output_tokens"),
    }
}
