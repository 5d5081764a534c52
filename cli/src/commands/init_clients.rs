//! `lastword init --claude`, `--codex`, `--opencode`, `--gemini`: the agent programs, what starts Lastword in each, and
//! whose token that is.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use lastword_client::{Client, Endpoint, Token};
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use lastword_server::edges::mcp::Selection;
use serde_json::Value;

use super::Context;
use crate::config::TokenSource;
use crate::failure::Failure;
use crate::out::quoted;
use crate::session::{no_human_for_a_model, read_token};
use crate::text_file;

/// An agent program that can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Claude,
    Codex,
    Opencode,
    Gemini,
}

impl Program {
    pub(super) const ALL: [Self; 4] = [Self::Claude, Self::Codex, Self::Opencode, Self::Gemini];

    /// Returns the program's name, its command, and the flag that configures it.
    pub(super) const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Claude => ("Claude Code", "claude", "--claude"),
            Self::Codex => ("Codex", "codex", "--codex"),
            Self::Opencode => ("opencode", "opencode", "--opencode"),
            Self::Gemini => ("Gemini CLI", "gemini", "--gemini"),
        }
    }

    /// Returns the file in the working directory that lists the program's MCP servers.
    pub(super) fn file(self) -> &'static Path {
        Path::new(match self {
            Self::Claude => ".mcp.json",
            Self::Codex => ".codex/config.toml",
            Self::Opencode => "opencode.json",
            Self::Gemini => ".gemini/settings.json",
        })
    }

    /// Returns the member of that file that holds the servers.
    pub(super) const fn servers(self) -> &'static str {
        match self {
            Self::Claude | Self::Gemini => "mcpServers",
            Self::Codex => "mcp_servers",
            Self::Opencode => "mcp",
        }
    }

    /// Returns what the user does next, once the files are written.
    pub(super) const fn next(self) -> &'static str {
        match self {
            Self::Claude => "run `claude` in this folder and approve the server `lastword` once",
            Self::Codex => {
                "run `codex` in this folder and trust it once: it reads .codex/config.toml of trusted folders only"
            }
            Self::Opencode => "run `opencode` in this folder",
            Self::Gemini => "run `gemini` in this folder and trust it once",
        }
    }

    /// Returns the assignment by which a user gives one session of the program an agent's token.
    pub(super) const fn token(self) -> &'static str {
        match self {
            Self::Claude | Self::Codex | Self::Opencode => "LASTWORD_TOKEN_FILE=\"$PWD/NAME.token\"",
            // The program passes only the variables to the server that its entry lists, and an unset one as empty.
            Self::Gemini => "LASTWORD_TOKEN=\"$(cat NAME.token)\"",
        }
    }

    /// Returns the words of the call in the program's configuration here; `None` if it has none.
    pub(super) fn configured(self) -> Result<Option<Vec<String>>, String> {
        let here = self.configured_here()?;
        match self {
            // Earlier versions of this program wrote the configuration of the whole machine.
            Self::Codex if here.is_none() => codex_home().map_or(Ok(None), |file| self.configured_in(&file)),
            Self::Claude | Self::Codex | Self::Opencode | Self::Gemini => Ok(here),
        }
    }

    /// Returns the words of the call in the configuration of this folder; empty if the entry isn't a command.
    pub(super) fn configured_here(self) -> Result<Option<Vec<String>>, String> {
        self.configured_in(self.file())
    }

    fn configured_in(self, file: &Path) -> Result<Option<Vec<String>>, String> {
        let failed = |problem: &dyn std::fmt::Display| format!("{}: {problem}", file.display());
        let text = match text_file::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        self.configured_by(&text).map_err(|problem| failed(&problem))
    }

    /// Returns the words of the call in this text of [`Program::file`].
    fn configured_by(self, text: &str) -> Result<Option<Vec<String>>, String> {
        let value: Value = if self == Self::Codex {
            toml::from_str(text).map_err(|error| error.to_string())?
        } else {
            parse_to_serde_value(text, &ParseOptions::default()).map_err(|error| error.to_string())?
        };
        let Some(server) = value.get(self.servers()).and_then(|servers| servers.get("lastword")) else {
            return Ok(None);
        };
        let program = server["command"].as_str().map(str::to_owned);
        let lists = [&server["command"], &server["args"]].into_iter().filter_map(Value::as_array).flatten();
        Ok(Some(program.into_iter().chain(lists.filter_map(Value::as_str).map(str::to_owned)).collect()))
    }
}

/// Returns Codex's configuration for the whole machine.
fn codex_home() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("CODEX_HOME").or_else(|| Some(set("HOME")?.join(".codex")))?;
    Some(home.join("config.toml"))
}

/// Whose token a configuration uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Identity {
    /// The agent's whose token this file holds.
    Agent(String),
    /// The human's whose token this file holds, for tools that read and decide.
    Human(String),
    /// That of each session, in `LASTWORD_TOKEN` or `LASTWORD_TOKEN_FILE`.
    Session,
}

impl Identity {
    /// Reads the identity from the words of a configured call.
    pub(super) fn of(words: &[String]) -> Self {
        let at = words.iter().position(|word| word == "--token-file");
        match at.and_then(|at| words.get(at + 1)) {
            Some(file) if words.iter().any(|word| word == "--as-human") => Self::Human(file.clone()),
            Some(file) => Self::Agent(file.clone()),
            None => Self::Session,
        }
    }

    /// Names the token's owner if the server knows the token, else names the file.
    pub(super) async fn name(&self, endpoint: &Endpoint) -> String {
        let file = match self {
            Self::Session => return "the token of each session".to_owned(),
            Self::Agent(file) | Self::Human(file) => file,
        };
        match owner(Path::new(file), endpoint).await {
            Ok((name, _)) => name,
            Err(_) => format!("the owner of {file}"),
        }
    }
}

async fn owner(file: &Path, endpoint: &Endpoint) -> Result<(String, Kind), Failure> {
    let me = Client::new(endpoint, Some(Token::new(&read_token(file)?)?))?.agent(OWN_NAME).await?;
    Ok((me.name, me.kind))
}

/// The call of this program that a configuration contains.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) program: String,
    pub(super) endpoint: Endpoint,
    pub(super) identity: Identity,
    /// The tools that are listed; `None` for the default.
    pub(super) tools: Option<Selection>,
}

impl Call {
    /// Builds the call from this executable, the server's address and the token file, which must be named. Returns it
    /// with its owner's name.
    pub(super) async fn of(as_human: bool, cx: &Context) -> Result<(Self, String), Failure> {
        let TokenSource::File(file) = &cx.settings.token else {
            return Err(Failure::usage("no token file given").hint(
                "create one with `lastword agent add NAME > NAME.token`, then run lastword --token-file NAME.token init …",
            ));
        };
        let file = fs::canonicalize(file).map_err(|error| {
            Failure::usage(format!("{}: {error}", file.display()))
                .hint("`lastword agent add NAME > NAME.token` creates one")
        })?;
        let (name, kind) = owner(&file, &cx.endpoint()?).await?;
        let file = text(&file)?;
        let identity = match (kind, as_human) {
            (Kind::Agent, false) => Identity::Agent(file),
            (Kind::Human, true) => Identity::Human(file),
            (Kind::Human, false) => return Err(no_human_for_a_model(&name)),
            (Kind::Agent, true) => {
                return Err(Failure::usage(format!("--as-human needs a human's token, and {file} is {name}'s"))
                    .hint("leave out --as-human, or name a human's token with --token-file"));
            }
        };
        Ok((Self::with(identity, cx)?, name))
    }

    /// Builds a call with this identity.
    pub(super) fn with(identity: Identity, cx: &Context) -> Result<Self, Failure> {
        Ok(Self { program: text(&std::env::current_exe()?)?, endpoint: cx.endpoint()?, identity, tools: None })
    }

    /// Returns the arguments of `lastword mcp`.
    pub(super) fn mcp(&self) -> Vec<String> {
        let human = matches!(self.identity, Identity::Human(_)).then(|| "--as-human".to_owned());
        let tools = self.tools.iter().flat_map(|tools| ["--tools".to_owned(), tools.to_string()]);
        self.before().into_iter().chain(["mcp".to_owned()]).chain(human).chain(tools).collect()
    }

    /// Returns the command line of `lastword hook`, for a shell.
    pub(super) fn hook(&self) -> String {
        let words = [self.program.clone()].into_iter().chain(self.before());
        let mut line: Vec<String> = words.map(|word| quoted(&word)).collect();
        line.push("hook".to_owned());
        line.join(" ")
    }

    fn before(&self) -> Vec<String> {
        let mut words = self.endpoint.flags();
        match &self.identity {
            Identity::Agent(file) | Identity::Human(file) => words.extend(["--token-file".to_owned(), file.clone()]),
            Identity::Session => {}
        }
        words
    }
}

fn text(path: &Path) -> Result<String, Failure> {
    path.to_str().map(str::to_owned).ok_or_else(|| Failure::usage(format!("{}: the path isn't UTF-8", path.display())))
}
