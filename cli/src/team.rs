//! Agents that this program runs: their configuration, registration and events.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lastword_client::wire::{AgentPatch, NewAgent};
use lastword_client::{Client, ClientError, Endpoint, Token};
use lastword_facts::Code;
use lastword_facts::fact::Kind;
use lastword_facts::names::AgentName;
use lastword_programs::{
    Driver, Event, EventSink, Input, Prices, Restart, Runner, RunnerError, Settings, Stopping, UsageSource,
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::json;
use tokio::task::JoinSet;

use crate::failure::Failure;
use crate::out::{Out, complain, escape};
use crate::quantity::duration;
use crate::text_file;

/// The folder in the data directory with the tokens of the agents that the server runs.
const FOLDER_TOKENS: &str = "agents";
/// Default longest run.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Default time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Default least time between two progress notes.
const PROGRESS: Duration = Duration::from_secs(10);
/// Default first pause before an agent's process is restarted.
const BACKOFF: Duration = Duration::from_secs(1);

/// The members of one `[[agent]]` of `lastword.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Member {
    /// The agent's name at the broker.
    pub(crate) name: String,
    /// The driver: `command` (default), `acp` or `a2a`.
    #[serde(default = "command", deserialize_with = "driver_word")]
    pub(crate) driver: Driver,
    /// The program: a path, or a name looked up in `PATH`. With `a2a`, the address of the agent.
    pub(crate) command: PathBuf,
    /// The program's arguments.
    #[serde(default)]
    pub(crate) args: Vec<String>,
    /// Standard input of a command: `message` (default) or `prompt`.
    #[serde(default = "message", deserialize_with = "input_word")]
    pub(crate) input: Input,
    /// Token figures of a command: `program` (default: those of a known program) or `text` (estimated).
    #[serde(default = "program", deserialize_with = "usage_word")]
    pub(crate) usage: UsageSource,
    /// Variables added to the server's environment.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    /// The agent's working directory; relative to the file.
    #[serde(default)]
    pub(crate) cwd: PathBuf,
    /// Actions that the agent serves.
    #[serde(default)]
    pub(crate) actions: Vec<String>,
    /// Groups that the agent belongs to.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    /// Per-agent limits in place of the workspace's, by name.
    #[serde(default)]
    pub(crate) limits: BTreeMap<String, u64>,
    /// Most open turns at once; default 1.
    #[serde(default = "one")]
    pub(crate) concurrency: u64,
    /// Longest run; a longer one fails.
    #[serde(default = "deadline", deserialize_with = "quantity")]
    pub(crate) deadline: Duration,
    /// Time between SIGTERM and SIGKILL.
    #[serde(default = "grace", deserialize_with = "quantity")]
    pub(crate) grace: Duration,
    /// Least time between two progress notes.
    #[serde(default = "progress", deserialize_with = "quantity")]
    pub(crate) progress: Duration,
    /// Tools of an ACP agent that need no approval.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    /// Whether an ACP agent may run in a mode in which it doesn't ask before it acts.
    #[serde(default)]
    pub(crate) unheld: bool,
    /// The file with the token for an agent elsewhere (`a2a`); relative to the file.
    #[serde(default)]
    pub(crate) remote_token_file: Option<PathBuf>,
    /// Whether an ACP agent's process is restarted when it ends; default true.
    #[serde(default = "yes")]
    pub(crate) restart: bool,
    /// First pause before a restart; doubled with each failure.
    #[serde(default = "backoff", deserialize_with = "quantity")]
    pub(crate) backoff: Duration,
}

const fn command() -> Driver {
    Driver::Command
}

const fn message() -> Input {
    Input::Message
}

const fn program() -> UsageSource {
    UsageSource::Program
}

const fn one() -> u64 {
    1
}

const fn yes() -> bool {
    true
}

const fn deadline() -> Duration {
    DEADLINE
}

const fn grace() -> Duration {
    GRACE
}

const fn progress() -> Duration {
    PROGRESS
}

const fn backoff() -> Duration {
    BACKOFF
}

/// Reads a driver's name, for clap.
pub(crate) fn driver(text: &str) -> Result<Driver, String> {
    Driver::from_word(text).ok_or_else(|| format!("{text:?} is none of command, acp and a2a"))
}

/// Reads what a command gets on standard input, for clap.
pub(crate) fn input(text: &str) -> Result<Input, String> {
    match text {
        "message" => Ok(Input::Message),
        "prompt" => Ok(Input::Prompt),
        _ => Err(format!("{text:?} is neither message nor prompt")),
    }
}

/// Reads where a command's usage comes from, for clap.
pub(crate) fn usage(text: &str) -> Result<UsageSource, String> {
    match text {
        "program" => Ok(UsageSource::Program),
        "text" => Ok(UsageSource::Text),
        _ => Err(format!("{text:?} is neither program nor text")),
    }
}

fn driver_word<'de, D: Deserializer<'de>>(from: D) -> Result<Driver, D::Error> {
    driver(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn input_word<'de, D: Deserializer<'de>>(from: D) -> Result<Input, D::Error> {
    input(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn usage_word<'de, D: Deserializer<'de>>(from: D) -> Result<UsageSource, D::Error> {
    usage(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn quantity<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    duration(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

impl Member {
    /// Returns the runner's settings for this agent.
    pub(crate) fn settings(&self, prices: &Prices) -> Result<Settings, Failure> {
        let cwd = std::env::current_dir()?.join(&self.cwd);
        Ok(Settings {
            driver: self.driver,
            program: self.command.clone(),
            args: self.args.clone(),
            env: self.env.clone(),
            cwd,
            input: self.input,
            usage: self.usage,
            prices: prices.clone(),
            concurrency: usize::try_from(self.concurrency).unwrap_or(usize::MAX),
            deadline: self.deadline,
            grace: self.grace,
            progress: self.progress,
            restart: if self.restart { Restart::Always } else { Restart::Never },
            backoff: self.backoff,
            allow: self.allow.clone(),
            unheld: self.unheld,
            remote_token: self.remote_token_file.clone(),
            lastword: std::env::current_exe()?,
        })
    }

    /// Returns an agent that sits in a session of its program, and is run by no one here.
    pub(crate) fn session(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            driver: Driver::Command,
            command: PathBuf::new(),
            args: Vec::new(),
            input: Input::Message,
            usage: UsageSource::Program,
            env: BTreeMap::new(),
            cwd: PathBuf::new(),
            actions: Vec::new(),
            groups: Vec::new(),
            limits: BTreeMap::new(),
            concurrency: 1,
            deadline: DEADLINE,
            grace: GRACE,
            progress: PROGRESS,
            allow: Vec::new(),
            unheld: false,
            remote_token_file: None,
            restart: true,
            backoff: BACKOFF,
        }
    }

    /// Registers the agent or updates its registration; returns its token: the one at hand if it is still valid, else a
    /// new one.
    pub(crate) async fn enrol(&self, human: &Client, at_hand: Option<String>) -> Result<String, Failure> {
        let known = match human.agent(&self.name).await {
            Ok(agent) => Some(agent),
            Err(ClientError::Refused(problem)) if problem.code == Code::UnknownRecipient => None,
            Err(error) => return Err(error.into()),
        };
        let Some(known) = known else {
            let new = NewAgent {
                name: self.name.clone(),
                actions: self.actions.clone(),
                groups: self.groups.clone(),
                kind: Kind::Agent,
                turns_max: self.concurrency,
                role: None,
                display_name: None,
                key: None,
            };
            let token = human.register(&new).await.map_err(of_a_human)?.token;
            if !self.limits.is_empty() {
                let patch = AgentPatch { limits: Some(self.limits.clone()), ..AgentPatch::default() };
                human.amend(&self.name, &patch).await.map_err(of_a_human)?;
            }
            return Ok(token);
        };
        if known.kind == Kind::Human {
            return Err(Failure::refused(format!("{} is a human, not an agent", self.name)));
        }
        let differs = |now: &[String], wanted: &[String]| !wanted.is_empty() && now != wanted;
        let patch = AgentPatch {
            actions: Some(self.actions.clone()).filter(|wanted| differs(&known.actions, wanted)),
            groups: Some(self.groups.clone()).filter(|wanted| differs(&known.groups, wanted)),
            // Only raised, never lowered: a human may have set more.
            turns_max: Some(self.concurrency).filter(|wanted| known.turns_max < *wanted),
            limits: Some(self.limits.clone())
                .filter(|wanted| wanted.iter().any(|(name, value)| known.limits.get(name).unwrap_or(&0) != value)),
            display_name: None,
        };
        let amends = patch.actions.is_some() || patch.groups.is_some() || patch.turns_max.is_some();
        if amends || patch.limits.is_some() {
            human.amend(&self.name, &patch).await.map_err(of_a_human)?;
        }
        // A new token would end every other client of the agent, so one that still works is kept.
        if let Some(token) = at_hand
            && Client::new(human.endpoint(), Some(Token::new(&token)?))?.limits().await.is_ok()
        {
            return Ok(token);
        }
        Ok(human.rekey(&self.name).await.map_err(of_a_human)?.token)
    }
}

fn of_a_human(error: ClientError) -> Failure {
    let forbidden = error.problem().is_some_and(|problem| problem.code == Code::Forbidden);
    let failure = Failure::from(error);
    if forbidden {
        failure.hint("only a human's token registers agents; an agent's own token needs no --as")
    } else {
        failure
    }
}

impl From<RunnerError> for Failure {
    fn from(error: RunnerError) -> Self {
        match error {
            RunnerError::Settings(error) => Self::usage(&error).hint(error.hint),
            RunnerError::Broker(error) => error.into(),
            RunnerError::Human => Self::usage(RunnerError::Human)
                .hint("pass an agent's token with --token-file, or the agent's name with --as NAME"),
            RunnerError::Folder(_) => Self::refused(&error).hint("TMPDIR names where it is made"),
            RunnerError::Agent(reason) => {
                Self::unavailable(reason).hint("run the command after -- by hand to see its error")
            }
        }
    }
}

/// Returns a sink that prints a runner's events: JSON lines, or text, with the agent's name if several run.
pub(crate) fn report(out: Out, name: Option<String>) -> EventSink {
    EventSink::new(move |event: &Event| print(out, name.as_deref(), event))
}

/// Prints an event of a runner or of the Discord bridge, with the agent's name if several share the terminal.
pub(crate) fn print(out: Out, name: Option<&str>, event: &(impl Serialize + fmt::Display)) {
    let printed = match (name, out.is_json()) {
        (None, true) => out.json(event),
        (None, false) => out.text(&escape(&event.to_string())),
        (Some(name), true) => match serde_json::to_value(event) {
            Ok(mut line) => {
                line["agent"] = json!(name);
                out.json(&line)
            }
            Err(_) => Ok(()),
        },
        (Some(name), false) => out.text(&escape(&format!("{name}: {event}"))),
    };
    // A closed terminal doesn't end the agent's work.
    drop(printed);
}

/// The agents of a configuration, while the server runs.
pub(crate) struct Team {
    runners: JoinSet<()>,
    stopping: Stopping,
}

impl Team {
    /// Registers every agent and starts its runner. An agent that can't be run is reported, and the others run.
    pub(crate) async fn start(
        members: &[Member],
        prices: &Prices,
        endpoint: &Endpoint,
        operator: &str,
        data: &Path,
        out: Out,
    ) -> Result<Self, Failure> {
        let (mut runners, stopping) = (JoinSet::new(), Stopping::default());
        for member in members {
            let human = Client::new(endpoint, Some(Token::new(operator)?))?;
            let token = kept_token(data, member, &human).await?;
            let (name, settings) = (member.name.clone(), member.settings(prices)?);
            let (endpoint, stopping) = (endpoint.clone(), stopping.clone());
            runners.spawn(async move {
                let report = report(out, Some(name.clone()));
                let ended = match Runner::start(settings, &endpoint, &token, &stopping, report).await {
                    Ok(runner) => runner.run().await,
                    Err(error) => Err(error),
                };
                if let Err(error) = ended {
                    let failure = Failure::from(error);
                    let message = escape(&format!("agent {name}: {}", failure.message));
                    // If standard error is closed, the report is lost: no other place remains.
                    let _told = complain(&message, failure.hint.as_deref());
                }
            });
        }
        Ok(Self { runners, stopping })
    }

    /// Lets open runs finish; a second call ends them at once.
    pub(crate) fn stop(&self) {
        self.stopping.stop();
    }

    /// Resolves once all runners have ended.
    pub(crate) async fn ended(&mut self) {
        while self.runners.join_next().await.is_some() {}
    }
}

/// Registers an agent whose token is kept in the data directory; returns the token.
pub(crate) async fn kept_token(data: &Path, member: &Member, human: &Client) -> Result<String, Failure> {
    let file = token_file(data, &member.name)?;
    let at_hand = text_file::read(&file).ok().map(|text| text.trim().to_owned());
    let token = member.enrol(human, at_hand).await?;
    keep(&file, token.trim())?;
    Ok(token)
}

fn token_file(data: &Path, name: &str) -> Result<PathBuf, Failure> {
    AgentName::new(name).map_err(|error| Failure::usage(format!("the agent {name:?} of the configuration {error}")))?;
    let folder = data.join(FOLDER_TOKENS);
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    Ok(folder.join(format!("{name}.token")))
}

/// Writes a token to a file that only its owner can read.
fn keep(path: &Path, token: &str) -> io::Result<()> {
    let draft = path.with_extension("token.new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    writeln!(file, "{token}")?;
    fs::rename(draft, path)
}
