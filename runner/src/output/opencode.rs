//! opencode: `opencode run --format json`.

use serde_json::Value;

use super::{Outcome, has, number, option, text};
use crate::usage::Tokens;

/// Returns the place of the subcommand.
pub(super) fn run(args: &[String]) -> Option<usize> {
    args.iter().position(|arg| arg == "run")
}

pub(super) fn flags(args: &[String]) -> Option<&'static [&'static str]> {
    match option(args, &["--format"]) {
        // Without a title opencode asks a model for one, and reports those tokens nowhere.
        None if !has(args, &["--title", "--continue", "-c", "--session", "-s"]) => {
            Some(&["--format", "json", "--title", "{ref}"])
        }
        None => Some(&["--format", "json"]),
        Some("json") => Some(&[]),
        Some(_) => None,
    }
}

/// The output doesn't name the model; the arguments name it as `PROVIDER/MODEL`.
pub(super) fn event(event: &Value, model: &str, outcome: &mut Outcome) {
    match text(event, &["type"]) {
        Some("text") => {
            if !outcome.said.is_empty() {
                outcome.said.push('\n');
            }
            outcome.said.push_str(text(event, &["part", "text"]).unwrap_or_default());
        }
        Some("step_finish") => {
            let of = |path: &[&str]| number(&event["part"]["tokens"], path);
            let (input, cache_read, cache_write) = (of(&["input"]), of(&["cache", "read"]), of(&["cache", "write"]));
            // Reasoning is a part of the total, and not always of the output.
            let rest = of(&["total"]).saturating_sub(input + cache_read + cache_write);
            let output = rest.max(of(&["output"]));
            let model = model.split_once('/').map_or(model, |(_, name)| name);
            let cost = event["part"]["cost"].as_f64();
            outcome.meter.add(model, Tokens { input, cache_read, cache_write, output }, cost);
        }
        Some("error") => {
            let error = text(event, &["error", "data", "message"]).or_else(|| text(event, &["error", "name"]));
            outcome.error = error.map(ToOwned::to_owned);
        }
        Some(_) | None => {}
    }
}
