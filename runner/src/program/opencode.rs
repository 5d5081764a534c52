//! opencode: `opencode run --format json`.

use serde_json::Value;

use super::{has, number, option, text};
use crate::usage::{Meter, Tokens};

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

#[derive(Debug, Default)]
pub(super) struct Opencode {
    /// The output doesn't name the model; the arguments name it as `PROVIDER/MODEL`.
    model: String,
    meter: Meter,
    said: Vec<String>,
    error: Option<String>,
}

impl Opencode {
    pub(super) fn new(model: Option<String>) -> Self {
        let model = model.unwrap_or_default();
        let name = model.split_once('/').map_or(model.as_str(), |(_, name)| name).to_owned();
        Self { model: name, ..Self::default() }
    }

    pub(super) fn event(&mut self, event: &Value) {
        match text(event, &["type"]) {
            Some("text") => self.said.extend(text(event, &["part", "text"]).map(ToOwned::to_owned)),
            Some("step_finish") => {
                let of = |path: &[&str]| number(&event["part"]["tokens"], path);
                let (input, cache_read, cache_write) =
                    (of(&["input"]), of(&["cache", "read"]), of(&["cache", "write"]));
                // Reasoning is a part of the total, and not always of the output.
                let rest = of(&["total"]).saturating_sub(input + cache_read + cache_write);
                let output = rest.max(of(&["output"]));
                let cost = event["part"]["cost"].as_f64();
                self.meter.add(&self.model, Tokens { input, cache_read, cache_write, output }, cost);
            }
            Some("error") => {
                let error = text(event, &["error", "data", "message"]).or_else(|| text(event, &["error", "name"]));
                self.error = error.map(ToOwned::to_owned);
            }
            Some(_) | None => {}
        }
    }

    pub(super) fn answer(&self) -> String {
        self.said.join("\n")
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(super) const fn meter(&self) -> &Meter {
        &self.meter
    }
}
