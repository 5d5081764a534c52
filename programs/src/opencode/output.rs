//! opencode: `opencode run --format json`.

use serde_json::Value;

use crate::output::{Flags, Format, ProgramOutput, has, number, option, text};
use crate::usage::Tokens;

pub(super) fn flags(args: &[String]) -> Option<Flags> {
    let subcommand = args.iter().position(|arg| arg == "run")?;
    let words: &[&str] = match option(args, &["--format"]) {
        // Without a title opencode asks a model for one, and reports those tokens nowhere.
        None if !has(args, &["--title", "--continue", "-c", "--session", "-s"]) => {
            &["--format", "json", "--title", "{ref}"]
        }
        None => &["--format", "json"],
        Some("json") => &[],
        Some(_) => return None,
    };
    Some(Flags { at: subcommand + 1, words })
}

/// The output, with the model that the arguments name, as `PROVIDER/MODEL`: it names none.
#[derive(Debug)]
pub(super) struct OpencodeOutput(pub(super) String);

impl Format for OpencodeOutput {
    fn event(&mut self, event: &Value, outcome: &mut ProgramOutput) {
        match text(event, &["type"]) {
            Some("text") => {
                if !outcome.said.is_empty() {
                    outcome.said.push('\n');
                }
                outcome.said.push_str(text(event, &["part", "text"]).unwrap_or_default());
            }
            Some("step_finish") => {
                let of = |path: &[&str]| number(&event["part"]["tokens"], path);
                let (input, cache_read, cache_write) =
                    (of(&["input"]), of(&["cache", "read"]), of(&["cache", "write"]));
                // Reasoning is a part of the total, and not always of the output.
                let rest = of(&["total"]).saturating_sub(input + cache_read + cache_write);
                let output = rest.max(of(&["output"]));
                let model = self.0.split_once('/').map_or(self.0.as_str(), |(_, name)| name);
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
}
