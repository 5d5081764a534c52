//! A broker on a temporary data directory and a free port, with seven agents as child processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token};
use lastword_facts::Limits;
use lastword_facts::limits::Observed;
use lastword_server::{Config, Server, WorkspaceSettings};
use lastword_wire::NewAgent;
use serde_json::json;
use tokio::process::{Child, Command};

use super::cast::AGENTS;
use crate::failure::Failure;

/// The human of the demo.
pub(crate) const HUMAN: &str = "operator";
/// Waking messages after which a conversation without guards is cut: a grant's totals always hold.
pub(crate) const OBSERVED_MESSAGES: u64 = 60;

/// Whether the guards are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Guards record what they would have refused.
    Observe,
    /// Guards refuse, as by default.
    Enforce,
}

impl Mode {
    fn limits(self) -> Limits {
        let defaults = Limits::default();
        match self {
            Self::Enforce => defaults,
            Self::Observe => Limits {
                observed: Observed::all(),
                grant_messages_max: OBSERVED_MESSAGES,
                grant_turns_max: 10_000,
                grant_tokens_max: 10_000_000,
                ..defaults
            },
        }
    }
}

/// A running broker with its agents, which end when it is dropped.
pub(crate) struct Stage {
    pub(crate) mode: Mode,
    pub(crate) human: Client,
    pub(crate) endpoint: Endpoint,
    pub(crate) server: Server,
    agents: Vec<Child>,
    tokens: Vec<(&'static str, String)>,
}

impl Stage {
    /// Starts the broker in `data` and the agents as children of this process. If it is kept, humans get a day to
    /// decide on held calls.
    pub(crate) async fn open(mode: Mode, data: &Path, keep: bool) -> Result<Self, Failure> {
        let mut limits = mode.limits();
        if keep {
            limits.approval_ms = limits.grant_age_ms;
        }
        let settings = WorkspaceSettings { limits, ..WorkspaceSettings::default() };
        let server = Server::start(Config {
            settings,
            mounts: vec![lastword_mcp::mount()],
            pages: lastword_console::pages(),
            ..Config::local(data)
        })
        .await?;
        let endpoint = Endpoint::new(&server.url());
        let token = std::fs::read_to_string(server.operator_token_file()).map_err(Failure::unavailable)?;
        let human = Client::new(&endpoint, Some(Token::new(&token)?))?;
        let program = std::env::current_exe().map_err(Failure::unavailable)?;
        let (mut agents, mut tokens) = (Vec::new(), Vec::new());
        for name in AGENTS {
            let new = json!({ "name": name });
            let new: NewAgent = serde_json::from_value(new).map_err(Failure::bug)?;
            let token = human.register(&new).await?.token;
            agents.push(agent(&program, endpoint.url(), name, &token)?);
            tokens.push((name, token));
        }
        Ok(Self { mode, human, endpoint, server, agents, tokens })
    }

    /// Returns a client that acts as one of the agents.
    pub(crate) fn as_agent(&self, name: &str) -> Result<Client, Failure> {
        let token = self.tokens.iter().find(|(known, _)| *known == name).map(|(_, token)| token.as_str());
        Ok(Client::new(&self.endpoint, Some(Token::new(token.unwrap_or_default())?))?)
    }

    /// Waits until every agent has an open connection.
    pub(crate) async fn assembled(&self) -> Result<(), Failure> {
        for _ in 0..600 {
            let agents = self.human.agents().await?;
            if agents.items.iter().filter(|a| a.connected).count() >= AGENTS.len() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Err(Failure::unavailable("the agents didn't come up within 30 s"))
    }

    /// Returns the console's address with a one-time sign-in code.
    pub(crate) fn console(&self) -> Result<String, Failure> {
        let code = self.server.sign_in_code().map_err(Failure::unavailable)?;
        Ok(format!("{}/sign-in#{}", self.endpoint.url(), code.reveal()))
    }

    /// Ends the agents and the broker.
    pub(crate) async fn close(mut self) {
        for agent in &mut self.agents {
            // The agent may already have ended.
            drop(agent.kill().await);
        }
        self.server.shutdown().await;
    }
}

fn agent(program: &PathBuf, url: &str, name: &str, token: &str) -> Result<Child, Failure> {
    Command::new(program)
        .args(["demo-agent", name])
        .env("LASTWORD_URL", url)
        .env_remove("LASTWORD_TLS_PIN")
        .env_remove("LASTWORD_TLS_CA")
        .env("LASTWORD_TOKEN", token)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(Failure::unavailable)
}
