//! Claude Code: `claude -p --output-format stream-json --verbose`, or `json`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Outcome, has, number, option, text};
use crate::usage::{Meter, Tokens};

pub(super) fn flags(args: &[String]) -> Option<&'static [&'static str]> {
    if !has(args, &["-p", "--print"]) {
        return None;
    }
    match option(args, &["--output-format"]) {
        None => Some(&["--output-format", "stream-json", "--verbose"]),
        Some("stream-json" | "json") => Some(&[]),
        Some(_) => None,
    }
}

/// Most messages whose usage can still be repeated; the oldest ids are added up.
const MESSAGES_MAX: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Claude {
    /// The usage of each message so far, with its model; a message is repeated for each block of its content.
    messages: BTreeMap<String, (String, Tokens)>,
    /// The sum of the messages that are no longer in `messages`.
    earlier: Meter,
    /// Whether the process has printed its totals, sub-agents included.
    totalled: bool,
}

impl Claude {
    pub(super) fn event(&mut self, event: &Value, outcome: &mut Outcome) {
        match text(event, &["type"]) {
            Some("assistant") => self.message(event, outcome),
            // A session of Gemini CLI, whose transcript has the same form: a message is repeated for each change.
            Some("gemini") => self.of_gemini(event, outcome),
            Some("result") => self.result(event, outcome),
            Some(_) | None => {}
        }
    }

    /// Counts a message, in place of what was known of it.
    fn count(&mut self, id: &str, model: &str, tokens: Tokens, outcome: &mut Outcome) {
        if self.messages.len() >= MESSAGES_MAX
            && !self.messages.contains_key(id)
            && let Some((_, (model, tokens))) = self.messages.pop_first()
        {
            self.earlier.add(&model, tokens, None);
        }
        self.messages.insert(id.to_owned(), (model.to_owned(), tokens));
        if !self.totalled {
            outcome.meter = self.sum();
        }
    }

    fn of_gemini(&mut self, event: &Value, outcome: &mut Outcome) {
        let (Some(id), of) = (text(event, &["id"]), |name| number(event, &["tokens", name])) else { return };
        let output = of("total").saturating_sub(of("input")).max(of("output"));
        let tokens = Tokens::of_total(of("input"), of("cached"), 0, output);
        self.count(id, text(event, &["model"]).unwrap_or_default(), tokens, outcome);
    }

    fn message(&mut self, event: &Value, outcome: &mut Outcome) {
        let Some(id) = text(event, &["message", "id"]) else { return };
        let model = text(event, &["message", "model"]).unwrap_or_default();
        self.count(id, model, of_message(event, &["message", "usage"]), outcome);
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

    fn result(&mut self, event: &Value, outcome: &mut Outcome) {
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

    /// Adds up the messages, while there is no total.
    fn sum(&self) -> Meter {
        let mut meter = self.earlier.clone();
        for (model, tokens) in self.messages.values() {
            meter.add(model, *tokens, None);
        }
        meter
    }
}

fn of_message(event: &Value, path: &[&str]) -> Tokens {
    let of = |name: &str| super::at(event, path).map_or(0, |usage| number(usage, &[name]));
    Tokens {
        input: of("input_tokens"),
        cache_read: of("cache_read_input_tokens"),
        cache_write: of("cache_creation_input_tokens"),
        output: of("output_tokens"),
    }
}
