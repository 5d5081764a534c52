//! How an agent is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Variables of this beginning are ours: what the parent has of them never reaches an agent.
pub(crate) const OWN_VARIABLES: &str = "LASTWORD_";
/// What an argument may hold, and a delivery fills in.
pub(crate) const PLACEHOLDERS: [&str; 5] = ["{message}", PROMPT, "{ref}", "{from}", "{request_id}"];
const PROMPT: &str = "{prompt}";
/// Programs that would take a filled-in message for commands.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "ash"];

/// What runs the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// A command per delivery: text in, text out.
    Command,
    /// A process that speaks the Agent Client Protocol, with a session per conversation.
    Acp,
}

impl Driver {
    /// The driver of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Command, Self::Acp].into_iter().find(|driver| driver.word() == word)
    }

    /// Its name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Acp => "acp",
        }
    }
}

/// What a command gets on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The message as it was written.
    Message,
    /// The delivery worded for a model: who asks, the message, and what there is to know.
    Prompt,
}

/// What follows the end of an agent's process that should have stayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// It is started again, after a pause that grows.
    Always,
    /// The runner ends, too.
    Never,
}

/// How an agent is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What runs it.
    pub driver: Driver,
    /// The program.
    pub program: PathBuf,
    /// Its arguments; for the command driver with placeholders.
    pub args: Vec<String>,
    /// Variables besides those of the runner's own environment.
    pub env: BTreeMap<String, String>,
    /// Its working directory, absolute.
    pub cwd: PathBuf,
    /// What a command gets on standard input, where no argument takes the message.
    pub input: Input,
    /// Open turns at once.
    pub concurrency: usize,
    /// Longest run.
    pub deadline: Duration,
    /// Time to end after being asked to, before it is killed.
    pub grace: Duration,
    /// Least time between two notes of progress of one turn.
    pub progress: Duration,
    /// What follows the end of the agent's process.
    pub restart: Restart,
    /// Least pause before the agent's process is started again; doubled from one failure to the next.
    pub backoff: Duration,
    /// Tools of an ACP agent that need no approval, by the name that the agent gives them; `*` at the end stands for
    /// any rest.
    pub allow: Vec<String>,
    /// The program `lastword`, for agents that take MCP servers over standard input and output alone.
    pub lastword: PathBuf,
}

/// What is wrong with the settings.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct SettingsError {
    /// What.
    pub message: String,
    /// What to do instead.
    pub hint: &'static str,
}

impl Settings {
    /// Looks for what can't work.
    ///
    /// # Errors
    /// Something can't.
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
            (Driver::Command, _) | (Driver::Acp, None) => {}
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

    /// Whether the tool of this name needs no approval.
    pub(crate) fn allows(&self, tool: &str) -> bool {
        self.allow.iter().any(|allowed| match allowed.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => tool == allowed,
        })
    }

    /// Whether an argument takes the message, so that standard input is left empty.
    pub(crate) fn message_in_args(&self) -> bool {
        self.args.iter().any(|arg| arg.contains("{message}") || arg.contains(PROMPT))
    }

    /// Whether the command gets the message worded for a model.
    pub(crate) fn wants_prompt(&self) -> bool {
        let in_args = self.args.iter().any(|arg| arg.contains(PROMPT));
        in_args || (self.input == Input::Prompt && !self.message_in_args())
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
            concurrency: 1,
            deadline: Duration::from_secs(1),
            grace: Duration::from_secs(1),
            progress: Duration::from_secs(1),
            restart: Restart::Always,
            backoff: Duration::from_secs(1),
            allow: vec!["read".into(), "mcp__lastword__*".into()],
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
