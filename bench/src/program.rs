//! The shipped program, measured as its users run it: a server in its own process, and commands.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use lastword_client::{Client, Endpoint, Token};
use lastword_wire::NewAgent;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::clock::now;
use crate::failure::Failure;
use crate::setup::at_once;

/// Time for all agents of a measurement to connect, and the pause between two checks.
const ATTACH_MAX: Duration = Duration::from_secs(60);
const ATTACH_PACE: Duration = Duration::from_millis(20);

/// A server is idle when it uses at most [`IDLE_MS`] of processor time over this time.
const IDLE_OVER: Duration = Duration::from_millis(200);
const IDLE_MS: u64 = 10;
const IDLE_WITHIN: Duration = Duration::from_secs(300);

/// What an agent may use on a day.
pub(crate) struct Day {
    pub(crate) tokens: u64,
    pub(crate) bytes: u64,
}

/// The day of an agent that works at full speed for the whole of a measurement.
pub(crate) const WHOLE_DAY: Day = Day { tokens: 1_000_000_000_000, bytes: 0 };

/// The path of the `lastword` program.
#[derive(Debug)]
pub(crate) struct Program(PathBuf);

impl Program {
    /// Takes `path`, or else `lastword` in the folder of this program.
    pub(crate) fn find(path: Option<PathBuf>) -> Result<Self, Failure> {
        let path = match path {
            Some(path) => path,
            None => std::env::current_exe()?.with_file_name("lastword"),
        };
        if path.is_file() {
            return Ok(Self(path));
        }
        Err(Failure::usage(format!("program {} not found", path.display()))
            .hint("build it with `cargo build --release -p lastword-cli`, or name it with --program"))
    }

    /// Returns a command of the program.
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.0)
    }

    /// Starts a server on `data`, with queues for `room` agents or messages.
    pub(crate) async fn serve(&self, data: &Path, room: usize) -> Result<Served, Failure> {
        let room = room.max(1_000) * 2;
        self.serve_with(data, &format!("agents_max = {room}\ninbox_max = {room}\n")).await
    }

    /// Starts a server on `data` with these lines of `[limits]`.
    pub(crate) async fn serve_with(&self, data: &Path, limits: &str) -> Result<Served, Failure> {
        let config = data.with_extension("toml");
        let Day { tokens, bytes } = WHOLE_DAY;
        let day = format!("agent_day_tokens_max = {tokens}\nagent_day_bytes_max = {bytes}\n");
        std::fs::write(&config, format!("[limits]\n{day}{limits}")).map_err(Failure::unavailable)?;
        let mut serve = self.command();
        serve.arg("--config").arg(&config).arg("--data").arg(data);
        serve.args(["--json", "serve", "--listen", "127.0.0.1:0"]);
        serve.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = serve.spawn().map_err(Failure::unavailable)?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::bug("the server has no output"))?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).await.map_err(Failure::unavailable)?;
        let started: Value =
            serde_json::from_str(&line).map_err(|_| Failure::unavailable("the server did not start"))?;
        let url = started["listening"].as_str().ok_or_else(|| Failure::bug("the server doesn't report its address"))?;
        let file = started["operator_token_file"].as_str().unwrap_or_default();
        let token = std::fs::read_to_string(file).map_err(Failure::unavailable)?.trim().to_owned();
        let human = Client::new(&Endpoint::new(url), Some(Token::new(&token)?))?;
        Ok(Served { child, addr: url.trim_start_matches("http://").to_owned(), human, token })
    }
}

/// A server in its own process; killed when dropped.
pub(crate) struct Served {
    child: Child,
    /// The server's address as `HOST:PORT`.
    pub(crate) addr: String,
    /// A client with the operator's token.
    pub(crate) human: Client,
    /// The operator's token.
    pub(crate) token: String,
}

impl Served {
    /// Registers agents; returns their names and tokens.
    pub(crate) async fn agents(&self, count: usize) -> Result<Vec<(String, String)>, Failure> {
        let one = |n: usize| async move {
            let name = format!("agent-{n}");
            let agent: NewAgent = serde_json::from_value(json!({ "name": name })).map_err(Failure::bug)?;
            Ok((name, self.human.register(&agent).await?.token))
        };
        at_once((0..count).map(one)).await
    }

    /// Waits until `count` agents are connected.
    pub(crate) async fn attached(&self, count: usize) -> Result<(), Failure> {
        let begin = now();
        loop {
            let connected = self.human.agents().await?.items.iter().filter(|agent| agent.connected).count();
            if connected >= count {
                return Ok(());
            }
            if begin.elapsed() > ATTACH_MAX {
                return Err(Failure::unavailable(format!("only {connected} of {count} agents are connected")));
            }
            tokio::time::sleep(ATTACH_PACE).await;
        }
    }

    /// Waits until the server does nothing: it has indexed what the last measurement left.
    pub(crate) async fn idle(&self) -> Result<(), Failure> {
        let begin = now();
        let mut before = self.processor_ms()?;
        loop {
            tokio::time::sleep(IDLE_OVER).await;
            let used = self.processor_ms()?;
            if used.saturating_sub(before) <= IDLE_MS {
                return Ok(());
            }
            if begin.elapsed() > IDLE_WITHIN {
                return Err(Failure::unavailable("the server still works long after the load"));
            }
            before = used;
        }
    }

    /// Kills the server and waits for its end.
    pub(crate) async fn end(mut self) -> Result<(), Failure> {
        self.child.kill().await.map_err(Failure::unavailable)
    }

    fn status(&self, file: &str) -> Result<String, Failure> {
        let id = self.child.id().ok_or_else(|| Failure::unavailable("the server has ended"))?;
        std::fs::read_to_string(format!("/proc/{id}/{file}")).map_err(|error| {
            Failure::unavailable(error).hint("memory and processor time are read from /proc, as on Linux")
        })
    }

    /// Returns the server's resident memory, in bytes.
    pub(crate) fn resident(&self) -> Result<u64, Failure> {
        let status = self.status("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        Ok(kib.ok_or_else(|| Failure::bug("/proc has no VmRSS"))? * 1024)
    }

    /// Returns the server's processor time so far, in ms.
    pub(crate) fn processor_ms(&self) -> Result<u64, Failure> {
        let stat = self.status("stat")?;
        // After the name in brackets, user and system time are the 12th and 13th fields, in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let at = |n: usize| fields.get(n).and_then(|field| field.parse::<u64>().ok()).unwrap_or_default();
        Ok((at(11) + at(12)) * 10)
    }
}
