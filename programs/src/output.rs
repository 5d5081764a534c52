//! Agent programs whose machine output the command driver understands.
//!
//! Where the user chose no output format, the runner asks for
//! the machine format and extracts the text that the program would have printed.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use lastword_client::wire::{Usage, text as wire_text};
use serde_json::Value;

use crate::program::{AgentProgram, Started};
use crate::usage::{Meter, Prices, Tokens};

/// Flags that ask a program for machine output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    /// Where they go among the program's own arguments.
    pub(crate) at: usize,
    /// The flags; none if the user asked for that output.
    pub(crate) words: &'static [&'static str],
}

/// The form of a program's machine output, with what has to be kept between two lines of it.
pub(crate) trait Format: fmt::Debug + Send {
    /// Returns a line as text. What isn't text is replaced.
    fn line<'a>(&self, line: &'a [u8]) -> Cow<'a, str> {
        wire_text::mended(line)
    }

    /// Adds what an event says to the outcome.
    fn event(&mut self, event: &Value, outcome: &mut ProgramOutput);
}

/// How to run a recognized program.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    program: &'static AgentProgram,
    /// With their place among all of the user's arguments.
    flags: Flags,
    /// The model that the arguments name.
    model: Option<String>,
}

impl Machine {
    /// Recognizes a program; `None` if it isn't known or the user chose a format without usage.
    pub(crate) fn recognize(program: &Path, args: &[String]) -> Option<Self> {
        let started = Started::of(program, args).filter(|started| started.prints())?;
        let own = args.get(started.at..)?;
        let flags = (started.program.flags)(own)?;
        let flags = Flags { at: started.at + flags.at, ..flags };
        let model = option(own, &["--model", "-m"]).map(ToOwned::to_owned);
        Some(Self { program: started.program, flags, model })
    }

    /// Adds the flags to the arguments.
    pub(crate) fn args(&self, mut args: Vec<String>) -> Vec<String> {
        let Flags { at, words } = self.flags;
        args.splice(at..at, words.iter().map(ToString::to_string));
        args
    }

    /// Whether the runner asked for machine output, so that the answer has to be extracted from it.
    pub(crate) const fn translates(&self) -> bool {
        !self.flags.words.is_empty()
    }

    pub(crate) fn reader(&self) -> Reader {
        Reader::of((self.program.output)(self.model.clone().unwrap_or_default()))
    }
}

/// Reads the machine output of one run, line by line.
#[derive(Debug)]
pub(crate) struct Reader {
    format: Box<dyn Format>,
    outcome: ProgramOutput,
    understood: bool,
}

/// Counts what the model requests of a session use, for a launcher that hears of each.
#[derive(Debug)]
pub struct Requests(Reader);

impl Requests {
    /// Counts for a program.
    #[must_use]
    pub fn of(program: &AgentProgram) -> Self {
        Self(Reader::of((program.output)(String::new())))
    }

    /// Adds a request, as the program's machine output reports it.
    pub fn add(&mut self, event: &Value) {
        self.0.event(event);
    }

    /// Forgets what was counted, and returns it; `None` if that is nothing.
    pub fn take(&mut self) -> Option<Usage> {
        let used = self.used();
        self.0.outcome = ProgramOutput::default();
        used
    }

    /// Returns what was counted so far; `None` if that is nothing.
    #[must_use]
    pub fn used(&self) -> Option<Usage> {
        self.0.usage(&Prices::default()).filter(|usage| usage.check().is_ok())
    }
}

/// What the lines said so far.
#[derive(Debug, Default)]
pub(crate) struct ProgramOutput {
    /// The text that the program would have printed.
    pub(crate) said: String,
    pub(crate) error: Option<String>,
    pub(crate) meter: Meter,
}

/// Most messages whose usage can still be repeated; the oldest ids are added up.
const MESSAGES_MAX: usize = 1024;

/// Counts messages that a program repeats while they grow.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    /// The usage of each message so far, with its model.
    messages: BTreeMap<String, (String, Tokens)>,
    /// The sum of the messages that are no longer in `messages`.
    earlier: Meter,
}

impl Repeated {
    /// Counts a message, in place of what was known of it, and returns the sum of all.
    pub(crate) fn count(&mut self, id: &str, model: &str, tokens: Tokens) -> Meter {
        if self.messages.len() >= MESSAGES_MAX
            && !self.messages.contains_key(id)
            && let Some((_, (model, tokens))) = self.messages.pop_first()
        {
            self.earlier.add(&model, tokens, None);
        }
        self.messages.insert(id.to_owned(), (model.to_owned(), tokens));
        let mut meter = self.earlier.clone();
        for (model, tokens) in self.messages.values() {
            meter.add(model, *tokens, None);
        }
        meter
    }
}

impl Reader {
    pub(crate) fn of(format: Box<dyn Format>) -> Self {
        Self { format, outcome: ProgramOutput::default(), understood: false }
    }

    /// Reads one line. A line that isn't a JSON object is ignored.
    pub(crate) fn line(&mut self, line: &[u8]) {
        if let Ok(event @ Value::Object(_)) = serde_json::from_str(&self.format.line(line)) {
            self.event(&event);
        }
    }

    fn event(&mut self, event: &Value) {
        self.understood |= event.get("type").or_else(|| event.get("stats")).is_some();
        self.format.event(event, &mut self.outcome);
    }

    /// Whether there was at least one line of the program's format.
    pub(crate) const fn understood(&self) -> bool {
        self.understood
    }

    /// Returns the text that the program would have printed, as far as it is known.
    pub(crate) fn answer(&self) -> String {
        let mut said = self.outcome.said.clone();
        wire_text::end(&mut said);
        said.trim_end().to_owned()
    }

    /// Returns the error that the program reported in its machine output.
    pub(crate) fn error(&self) -> Option<&str> {
        self.outcome.error.as_deref()
    }

    /// Returns the usage so far.
    pub(crate) fn usage(&self, prices: &Prices) -> Option<Usage> {
        self.outcome.meter.usage(prices)
    }
}

/// Returns the value of an option, given as `--name value` or `--name=value`.
pub(crate) fn option<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    args.iter().enumerate().find_map(|(i, arg)| {
        if names.contains(&arg.as_str()) {
            return args.get(i + 1).map(String::as_str);
        }
        arg.split_once('=').filter(|(name, _)| names.contains(name)).map(|(_, value)| value)
    })
}

pub(crate) fn has(args: &[String], names: &[&str]) -> bool {
    args.iter().any(|arg| names.contains(&arg.as_str()))
}

/// Returns the number at a path of members, 0 if there is none.
pub(crate) fn number(event: &Value, path: &[&str]) -> u64 {
    at(event, path).and_then(Value::as_u64).unwrap_or(0)
}

pub(crate) fn text<'a>(event: &'a Value, path: &[&str]) -> Option<&'a str> {
    at(event, path).and_then(Value::as_str)
}

pub(crate) fn at<'a>(event: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(event, |value, name| value.get(name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn recognized(command: &str) -> Option<String> {
        let mut words = command.split(' ').map(ToOwned::to_owned);
        let program = words.next().unwrap();
        let args: Vec<String> = words.collect();
        Machine::recognize(Path::new(&program), &args).map(|machine| machine.args(args).join(" "))
    }

    #[test]
    fn a_program_is_asked_for_machine_output_unless_the_user_chose_a_format() {
        for (command, runs) in [
            ("/opt/claude -p hi", Some("--output-format stream-json --verbose -p hi")),
            ("claude --print --verbose hi", Some("--output-format stream-json --verbose --print --verbose hi")),
            ("claude -p hi --output-format stream-json --verbose", Some("-p hi --output-format stream-json --verbose")),
            ("claude -p hi --output-format=json", Some("-p hi --output-format=json")),
            ("claude -p hi --output-format text", None),
            ("claude hi", None),
            ("codex -m gpt-5 exec --skip-git-repo-check", Some("-m gpt-5 exec --json --skip-git-repo-check")),
            ("codex exec --json hi", Some("exec --json hi")),
            ("codex login", None),
            ("opencode run hi", Some("run --format json --title {ref} hi")),
            ("opencode run -s ses_1 hi", Some("run --format json -s ses_1 hi")),
            ("opencode run --format default hi", None),
            ("opencode serve", None),
            ("gemini -p hi", Some("-o stream-json -p hi")),
            ("gemini -p hi -o json", Some("-p hi -o json")),
            ("gemini --output-format=text", None),
            ("sh -c claude", None),
            (
                "npx -y @anthropic-ai/claude-code -p hi",
                Some("-y @anthropic-ai/claude-code --output-format stream-json --verbose -p hi"),
            ),
            ("npx @openai/codex exec hi", Some("@openai/codex exec --json hi")),
            ("claude-agent-acp", None),
        ] {
            assert_eq!(recognized(command).as_deref(), runs, "{command}");
        }
    }

    /// Returns the models of what a program printed, with their tokens, and its whole tokens.
    fn models(command: &str, lines: &[serde_json::Value]) -> (Vec<(String, u64, Option<f64>)>, u64) {
        let mut words = command.split(' ').map(ToOwned::to_owned);
        let program = words.next().unwrap();
        let mut reader = Machine::recognize(Path::new(&program), &words.collect::<Vec<_>>()).unwrap().reader();
        lines.iter().for_each(|line| reader.line(line.to_string().as_bytes()));
        let usage = reader.usage(&Prices::default()).unwrap();
        let parts = usage.models.iter().map(|part| (part.model.clone(), part.tokens, part.cost_usd));
        (parts.collect(), usage.input_tokens + usage.output_tokens)
    }

    #[test]
    fn the_models_are_those_that_the_program_or_its_arguments_name() {
        let message = |id: &str, model: &str, parent: Option<&str>| {
            let message = json!({ "id": id, "model": model, "usage": { "input_tokens": 90, "output_tokens": 10 } });
            json!({ "type": "assistant", "message": message, "parent_tool_use_id": parent })
        };
        let during = [message("m1", "claude-opus-4-5", None), message("m2", "claude-haiku-4-5", Some("t1"))];
        let (parts, whole) = models("claude -p", &during);
        let each = [("claude-haiku-4-5".to_owned(), 100, None), ("claude-opus-4-5".to_owned(), 100, None)];
        assert_eq!((parts, whole), (each.to_vec(), 200), "while it runs");
        let of = |input: u64, cost: f64| json!({ "inputTokens": input, "cacheReadInputTokens": 100, "outputTokens": 10, "costUSD": cost });
        let used = json!({ "claude-opus-4-5": of(1_000, 0.5), "claude-haiku-4-5": of(200, 0.01) });
        let total = json!({ "type": "result", "result": "done", "modelUsage": used });
        let (parts, whole) = models("claude -p", &[&during[..], &[total]].concat());
        let opus = ("claude-opus-4-5".to_owned(), 1_110, Some(0.5));
        assert_eq!((parts, whole), (vec![opus, ("claude-haiku-4-5".to_owned(), 310, Some(0.01))], 1_420), "at the end");

        let counts = json!({ "input_tokens": 90, "output_tokens": 10, "total_tokens": 100 });
        let stats = json!({ "models": { "gemini-3-pro": counts, "gemini-3-flash": counts } });
        let (parts, whole) = models("gemini -y", &[json!({ "type": "result", "stats": stats })]);
        let names: Vec<&str> = parts.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!((names, whole), (vec!["gemini-3-flash", "gemini-3-pro"], 200));

        let codex = [json!({ "type": "turn.completed", "usage": { "input_tokens": 90, "output_tokens": 10 } })];
        assert_eq!(models("codex exec -m o9", &codex), (vec![("o9".to_owned(), 100, None)], 100));
        assert_eq!(models("codex exec", &codex), (Vec::new(), 100), "nothing is guessed");
        let step = json!({ "tokens": { "total": 100, "input": 90, "output": 10 }, "cost": 0.25 });
        let opencode = [json!({ "type": "step_finish", "part": step })];
        let (parts, _) = models("opencode run -m zen/grok-9 hi", &opencode);
        assert_eq!(parts, [("grok-9".to_owned(), 100, Some(0.25))]);
    }

    #[test]
    fn other_output_of_a_program_is_left_alone() {
        let args = ["exec".to_owned()];
        let mut reader = Machine::recognize(Path::new("codex"), &args).unwrap().reader();
        for line in [b"plain text".as_slice(), b"[1]", b"{\"a\":1}", b"\xff"] {
            reader.line(line);
        }
        assert!(!reader.understood() && reader.usage(&Prices::default()).is_none());
    }
}
