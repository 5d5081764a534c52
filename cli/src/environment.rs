//! The process's environment: what other programs and the user set for this one.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::agent_variables::agent_variables;

/// The process's environment. Read once, here, so that tests can supply their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// The value of `LASTWORD_TOKEN`; empty if it is set to nothing.
    pub(crate) token: Option<String>,
    /// The value of `LASTWORD_TOKEN_FILE`, if set and not empty.
    pub(crate) token_file: Option<PathBuf>,
    /// The first of `agent_variables` that is set.
    pub(crate) agent: Option<&'static str>,
    /// The agent that `LASTWORD_AGENT` names: in a run of `lastword run`, that run's.
    pub(crate) agent_name: Option<String>,
    /// Whether `lastword run` runs this program, by `LASTWORD_RUN` or the turn in `LASTWORD_TURN`.
    pub(crate) in_run: bool,
    /// The directory of the user's configuration, `XDG_CONFIG_HOME` or `.config` in the home directory.
    pub(crate) config_home: Option<PathBuf>,
    /// The folder of the team that the working directory belongs to, as a prefix of names; empty for the directory itself.
    pub(crate) team: PathBuf,
    /// Whether `NO_COLOR` is set, or the terminal has no colors (`TERM=dumb`).
    pub(crate) no_color: bool,
}

impl Environment {
    /// Reads the environment of the process.
    pub(crate) fn read() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            // Keeps an empty value: an empty token is a mistake, and must not fall back to the operator's.
            token: std::env::var_os("LASTWORD_TOKEN").and_then(|value| value.into_string().ok()),
            token_file: set("LASTWORD_TOKEN_FILE").map(PathBuf::from),
            agent: agent_variables().find(|name| set(name).is_some()),
            agent_name: variable("LASTWORD_AGENT"),
            in_run: set("LASTWORD_RUN").is_some() || set("LASTWORD_TURN").is_some(),
            config_home: set("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute()).or_else(|| {
                let home = PathBuf::from(set("HOME")?);
                Some(home.join(".config"))
            }),
            team: PathBuf::new(),
            no_color: set("NO_COLOR").is_some() || set("TERM").is_some_and(|term: OsString| term == "dumb"),
        }
    }
}

/// Returns an environment variable, if set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).filter(|value| !value.is_empty()).and_then(|value| value.into_string().ok())
}
