//! The settings of a runner and its agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_client::wire::Delivery;

use crate::usage::Prices;
use crate::wording;

/// Prefix of the variables that the runner sets; those of its own environment never reach an agent.
pub(crate) const OWN_VARIABLES: &str = "LASTWORD_";
/// Placeholders in arguments, filled in from the delivery.
pub(crate) const PLACEHOLDERS: [&str; 5] = ["{message}", PROMPT, "{ref}", "{from}", "{request_id}"];
const PROMPT: &str = "{prompt}";
/// Programs that could run a filled-in message as commands.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "ash"];

/// How the runner runs the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// One process per delivery: text in, text out.
    Command,
    /// One long-lived process that speaks the Agent Client Protocol, with a session per conversation.
    Acp,
    /// An agent elsewhere that speaks A2A; the program is its address.
    A2a,
}

impl Driver {
    /// Returns the driver with this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Command, Self::Acp, Self::A2a].into_iter().find(|driver| driver.word() == word)
    }

    /// Returns the driver's name in settings and events: `command`, `acp` or `a2a`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Acp => "acp",
            Self::A2a => "a2a",
        }
    }
}

/// What a command reads from standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The message's body, unchanged.
    Message,
    /// The delivery as a prompt for a model: rules of conduct, header, body and notices.
    Prompt,
}

/// Where the tokens and the cost of a command's run come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UsageSource {
    /// The program's own figures, if it is known: Claude Code, Codex, opencode or Gemini CLI.
    Program,
    /// The length of the text: the broker estimates.
    Text,
}

/// What to do when the process of an ACP agent ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Restart it, after a pause that doubles up to 60 s.
    Always,
    /// End the runner, too.
    Never,
}

/// The settings of a runner and its agent.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How the runner runs the agent.
    pub driver: Driver,
    /// The program: a path, or a name looked up in `PATH`. Of an agent elsewhere, its address.
    pub program: PathBuf,
    /// The program's arguments; with the command driver they may hold placeholders.
    pub args: Vec<String>,
    /// Variables added to the runner's own environment; none may begin with `LASTWORD_`.
    pub env: BTreeMap<String, String>,
    /// The agent's working directory, absolute.
    pub cwd: PathBuf,
    /// What a command reads from standard input if no argument takes the message.
    pub input: Input,
    /// Where a command's usage comes from.
    pub usage: UsageSource,
    /// The prices of models, for programs that report tokens but no money.
    pub prices: Prices,
    /// Most open turns at once; at least 1, and the broker's limit for the agent applies, too.
    pub concurrency: usize,
    /// Longest run; a longer one is ended and fails.
    pub deadline: Duration,
    /// Time between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Least time between two progress notes of one turn.
    pub progress: Duration,
    /// What to do when the agent's process ends.
    pub restart: Restart,
    /// First pause before a restart of the agent's process; doubled with each failure.
    pub backoff: Duration,
    /// Tools of an ACP agent that need no approval, by the name that the agent reports; a trailing `*` matches any
    /// rest.
    pub allow: Vec<String>,
    /// Whether an ACP agent may run in a mode in which it doesn't ask before it acts.
    pub unheld: bool,
    /// The file with the token for an agent elsewhere.
    pub remote_token: Option<PathBuf>,
    /// The `lastword` program, which serves MCP over standard input and output to agents that don't support HTTP.
    pub lastword: PathBuf,
}

/// A setting that can't work.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    /// The fault, as a sentence part.
    pub message: String,
    /// What to change.
    pub hint: &'static str,
}

impl Settings {
    /// Checks the settings without starting anything.
    ///
    /// # Errors
    /// A variable begins with `LASTWORD_`, a placeholder is used with ACP or in a shell's arguments, the concurrency is
    /// 0, or the working directory is missing.
    pub fn check(&self) -> Result<(), SettingsError> {
        let wrong = |message: String, hint| Err(SettingsError { message, hint });
        if let Some(name) = self.env.keys().find(|name| name.starts_with(OWN_VARIABLES)) {
            return wrong(format!("the variable {name} is set by the runner itself"), "leave it out");
        }
        let filled = self.args.iter().find(|arg| PLACEHOLDERS.iter().any(|p| arg.contains(p)));
        match (self.driver, filled) {
            (Driver::Acp, Some(arg)) => {
                let hint = "an ACP agent gets each message as a prompt of its session; leave the placeholder out";
                return wrong(format!("the argument {arg:?} has a placeholder"), hint);
            }
            (Driver::Command, Some(arg)) if is_shell(&self.program) => {
                let hint = "take it from standard input, or from $LASTWORD_REF and its like: in a script another \
                            agent's text would be run as commands";
                return wrong(format!("the shell's argument {arg:?} has a placeholder"), hint);
            }
            (Driver::A2a, _) if !self.args.is_empty() => {
                return wrong(
                    format!("the address of an agent elsewhere takes no argument such as {:?}", self.args[0]),
                    "name its address alone, after --",
                );
            }
            (Driver::Command | Driver::A2a, _) | (Driver::Acp, None) => {}
        }
        if self.concurrency == 0 {
            return wrong("a runner with no open turn at all takes nothing".to_owned(), "--concurrency 1, or more");
        }
        if !self.cwd.is_dir() {
            let message = format!("{} isn't a directory", self.cwd.display());
            return wrong(message, "name the directory in which the agent works with --cwd");
        }
        Ok(())
    }

    /// Returns whether the tool with this name needs no approval.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.allow.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => tool == allowed,
        })
    }

    /// Returns whether an argument takes the message, so that standard input stays empty.
    pub(crate) fn message_in_args(&self) -> bool {
        self.args.iter().any(|arg| arg.contains("{message}") || arg.contains(PROMPT))
    }

    /// Returns whether the command gets this delivery as a prompt for a model. The word of a human or of the broker in the
    /// middle of a task means nothing without the task.
    pub(crate) fn wants_prompt(&self, delivery: &Delivery) -> bool {
        let in_args = self.args.iter().any(|arg| arg.contains(PROMPT));
        wording::goes_on(delivery) || in_args || (self.input == Input::Prompt && !self.message_in_args())
    }
}

fn is_shell(program: &Path) -> bool {
    program.file_name().and_then(|name| name.to_str()).is_some_and(|name| SHELLS.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(driver: Driver, program: &str, args: &[&str]) -> Settings {
        Settings {
            driver,
            program: program.into(),
            args: args.iter().map(ToString::to_string).collect(),
            env: BTreeMap::new(),
            cwd: "/".into(),
            input: Input::Message,
            usage: UsageSource::Program,
            prices: Prices::default(),
            concurrency: 1,
            deadline: Duration::from_secs(1),
            grace: Duration::from_secs(1),
            progress: Duration::from_secs(1),
            restart: Restart::Always,
            backoff: Duration::from_secs(1),
            allow: vec!["read".into(), "mcp__lastword__*".into()],
            unheld: false,
            remote_token: None,
            lastword: "lastword".into(),
        }
    }

    #[test]
    fn a_message_is_never_put_into_a_shells_script() {
        assert!(settings(Driver::Command, "/bin/sh", &["-c", "echo {message}"]).check().is_err());
        assert!(settings(Driver::Command, "bash", &["-c", "cat", "{ref}"]).check().is_err());
        assert!(settings(Driver::Command, "/bin/sh", &["-c", "cat"]).check().is_ok());
        assert!(settings(Driver::Command, "agent", &["--prompt", "{message}"]).check().is_ok());
        assert!(settings(Driver::Acp, "agent", &["{message}"]).check().is_err());
    }

    #[test]
    fn what_the_runner_sets_itself_is_not_to_be_set() {
        let mut settings = settings(Driver::Command, "cat", &[]);
        settings.env.insert("LASTWORD_TOKEN".to_owned(), "x".to_owned());
        assert!(settings.check().unwrap_err().message.contains("LASTWORD_TOKEN"));
    }

    #[test]
    fn a_tool_is_allowed_by_its_whole_name_or_its_beginning() {
        let settings = settings(Driver::Acp, "agent", &[]);
        assert!(settings.allows("read") && settings.allows("mcp__lastword__send_agent_message"));
        assert!(!settings.allows("read_secret") && !settings.allows("mcp__other__x") && !settings.allows(""));
    }
}
