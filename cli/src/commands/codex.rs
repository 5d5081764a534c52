//! `lastword codex`: Codex as an agent of the workspace, in this terminal and for this run alone.
//!
//! Codex's terminal interface runs on an app-server that this process starts on a private socket. This process is the
//! app-server's second client: it hears of turns, and hands messages to the model without the prompt of the interface.

use std::collections::{BTreeMap, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use lastword_runner::{CODEX_HOME, PrivateFolder, Requests, codex_asks, codex_denials, codex_home, codex_server};
use lastword_server::edges::mcp::PRIMER;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{sleep, timeout};
use tokio_tungstenite::client_async;

use super::Context;
use super::attend::{Asked, Happened, Order, Session, attend, connection};
use super::last_session::{LastSession, Options};
use super::launch::{CLIENT, Calls, Place, exit, not_started, this_program};
use super::own_terminal::apart;
use crate::failure::Failure;

mod arguments;
mod wire;

use arguments::{chosen_mode, last_first, settings};
use wire::{Wire, last_words};

/// Time limit of the app-server's start, and the pause between two checks.
const START_MAX: Duration = Duration::from_secs(30);
const START_CHECK: Duration = Duration::from_millis(20);
/// Pause before a text that Codex refused is handed over again, and how often that happens.
const RETRY: Duration = Duration::from_secs(1);
const REFUSED_MAX: u32 = 10;
/// Time for the app-server to end.
const END: Duration = Duration::from_secs(5);
/// Starts a program that ends when this process is gone: the watcher reads from a pipe that nobody writes to, whose other
/// end closes with this process. It then kills the whole process group.
const WATCHED: &str = r#"exec 3<&0; "$@" </dev/null 3<&- & program=$!
(trap '' TERM; read -r _ <&3; kill 0; sleep 3; kill -9 0) & exec 3<&-; wait $program"#;

/// Settings with which a command that writes or uses the network needs its user's approval.
const ASKS: [&str; 4] = ["-c", r#"sandbox_mode="read-only""#, "-c", r#"approval_policy="on-request""#];

/// Members of a request for approval that name things of the session.
const SESSION_IDS: [&str; 5] = ["approvalId", "itemId", "startedAtMs", "threadId", "turnId"];

pub(super) const OPTIONS: Options = Options {
    program: "Codex",
    last: &[&["--continue"], &["resume", "--last"], &["fork", "--last"]],
    id: &["resume", "fork"],
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: codex, or codex-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Arguments for Codex.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let calls = args.calls;
    let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-")?;
    let held = if calls.unheld { Held::default() } else { held(&args.args, &folder)? };
    let place = Place::take("codex", (args.name.as_deref(), &args.args, &OPTIONS), cx).await?;
    let (args, _) = place.resumed(&last_first(args.args), &OPTIONS)?;
    let socket = folder.path().join("codex.sock");
    let log = folder.path().join("codex.log");
    let mut server = app_server(&place, &folder, &socket, &log, &args, calls, &held)?;
    let connected = connect(&socket, &log, &mut server).await;
    let status = match connected {
        Ok(wire) => interface(&place, wire, folder.path(), &socket, &args, calls).await,
        Err(failure) => Err(failure),
    };
    end(server).await;
    drop(folder);
    exit(status?)
}

async fn interface(
    place: &Place,
    wire: Wire,
    folder: &Path,
    socket: &Path,
    args: &[String],
    calls: Calls,
) -> Result<ExitStatus, Failure> {
    let mut command = Command::new("codex");
    command.arg("--remote").arg(address(socket));
    // A session that is resumed takes the settings of the app-server, and refuses others.
    if asks(args, calls) && !args.iter().any(|arg| OPTIONS.id.contains(&arg.as_str())) {
        command.args(ASKS);
    }
    command.args(args);
    place.greet(calls);
    let client = place.client()?;
    let (session, attendant) = connection();
    let deliver = async {
        tokio::select! {
            failure = Joined::new(wire, place.last.clone()).serve(session) => failure,
            failure = attend(attendant, &client, folder, place, Requests::of_codex(), calls) => failure,
        }
    };
    place.beside(command, deliver).await
}

/// What makes the app-server ask before it acts, whatever its user and the project allow.
#[derive(Default)]
struct Held {
    /// The folder in the place of the user's.
    home: Option<PathBuf>,
    settings: Vec<String>,
}

fn held(args: &[String], folder: &PrivateFolder) -> Result<Held, Failure> {
    // A profile is below the settings of this run.
    if let Some(mode) = chosen_mode(args).filter(|arg| !["-p", "--profile"].iter().any(|name| arg.starts_with(name))) {
        return Err(Failure::refused(format!("{mode} lets Codex decide what runs unasked"))
            .hint("leave it out, or let its settings decide with --unheld"));
    }
    let cwd = std::env::current_dir()?;
    let asks = codex_asks(&cwd).map_err(Failure::refused)?;
    let settings = asks.into_iter().flat_map(|(path, value)| ["-c".to_owned(), format!("{path}={value}")]).collect();
    Ok(Held { home: codex_home(None, &cwd, folder).map_err(Failure::refused)?, settings })
}

/// Returns whether the app-server asks before a command that writes or uses the network.
fn asks(args: &[String], calls: Calls) -> bool {
    !calls.unheld || chosen_mode(args).is_none()
}

fn address(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

/// Starts the app-server, with Lastword's tools and without its own channels.
fn app_server(
    place: &Place,
    folder: &PrivateFolder,
    socket: &Path,
    log: &Path,
    args: &[String],
    calls: Calls,
    held: &Held,
) -> Result<Child, Failure> {
    let mut command = apart("/bin/sh")?;
    command.args(["-c", WATCHED, "sh", "codex", "app-server", "--listen"]).arg(address(socket));
    if asks(args, calls) {
        command.args(ASKS);
    }
    command.args(settings(args)).args(&held.settings);
    command.envs(held.home.as_ref().map(|home| (CODEX_HOME, home)));
    command.args(codex_denials()).args(["-c", r#"mcp_servers.codex_tui={command="true",enabled=false}"#]);
    command.arg("-c").arg(format!(
        "mcp_servers.lastword={{{},enabled=true,default_tools_approval_mode=\"approve\",tool_timeout_sec=330}}",
        tools(place, folder)?
    ));
    place.equip(&mut command);
    let mut command = tokio::process::Command::from(command);
    // It leads a session, and so a group, of its own.
    command.kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(log)?);
    command.spawn().map_err(|error| not_started("codex", &error))
}

/// Returns how Codex reaches Lastword's tools. Its settings add up, so these have the form of the project's and the user's.
fn tools(place: &Place, folder: &PrivateFolder) -> Result<String, Failure> {
    let known = codex_server(&std::env::current_dir()?);
    match (place.mcp_url(), known) {
        (None, Some((file, false))) => Err(Failure::refused(format!(
            "Codex verifies no certificate like the broker's, and {} has an address for its server lastword",
            file.display()
        ))
        .hint("take mcp_servers.lastword out of that file")),
        (Some(url), None | Some((_, false))) => Ok(format!(
            "url={},bearer_token_env_var=\"LASTWORD_TOKEN\",http_headers={{Lastword-Client={CLIENT:?}}}",
            toml::Value::from(url)
        )),
        (_, None | Some((_, true))) => {
            // The project's variables may name another token.
            let token = folder.write("token", place.token())?.display().to_string();
            let token = ["--token-file".to_owned(), token, "mcp".to_owned()];
            let args: Vec<String> = place.endpoint.flags().into_iter().chain(token).collect();
            let (program, args) = (toml::Value::from(this_program()?), toml::Value::from(args));
            // Codex passes no other variables to an MCP server.
            Ok(format!("command={program},args={args},env_vars=[\"LASTWORD_AGENT\",\"LASTWORD_CLIENT\"]"))
        }
    }
}

async fn connect(socket: &Path, log: &Path, server: &mut Child) -> Result<Wire, Failure> {
    for _ in 0..START_MAX.as_millis() / START_CHECK.as_millis() {
        if let Ok(stream) = UnixStream::connect(socket).await
            && let Ok((stream, _)) = client_async("ws://localhost/", stream).await
        {
            let mut wire = Wire::new(stream);
            let client = json!({ "name": "lastword", "version": env!("CARGO_PKG_VERSION") });
            let hello = json!({ "clientInfo": client, "capabilities": { "experimentalApi": true } });
            wire.call("initialize", hello).await.map_err(Failure::unavailable)?;
            wire.send(&json!({ "method": "initialized" })).await.map_err(Failure::unavailable)?;
            return Ok(wire);
        }
        if server.try_wait()?.is_some() {
            break;
        }
        sleep(START_CHECK).await;
    }
    let said = fs::read(log).map(|said| last_words(&String::from_utf8_lossy(&said))).unwrap_or_default();
    let said = if said.is_empty() { "it said nothing".to_owned() } else { said };
    Err(Failure::unavailable(format!("`codex app-server` did not start: {said}"))
        .hint("correct what it names; `codex doctor` checks Codex's installation and settings"))
}

/// Ends the app-server: the pipe's end tells its watcher.
async fn end(mut server: Child) {
    drop(server.stdin.take());
    // Dropping the child kills what is left.
    let _ended = timeout(END, server.wait()).await;
}

/// The thread of the interface, as this process follows it.
struct Joined {
    wire: Wire,
    last: LastSession,
    thread: Option<String>,
    /// The running turn.
    turn: Option<String>,
    /// The turn that this process started last.
    started: Option<String>,
    /// The attendant knows of the running turn.
    known: bool,
    /// The model's last text in the running turn.
    said: String,
    /// The changes of files in the running turn, by their id: a dialog about one doesn't repeat them.
    changes: BTreeMap<String, Value>,
    /// The requests behind the open dialogs, by their id in text, and the member of their answers.
    dialogs: BTreeMap<String, (Value, &'static str)>,
    /// Texts for the model that wait for a thread.
    waiting: VecDeque<String>,
    /// How often Codex refused the oldest of them.
    refused: u32,
    /// Texts that this process put into the thread, which come back as the user's.
    own: VecDeque<String>,
}

impl Joined {
    const fn new(wire: Wire, last: LastSession) -> Self {
        Self {
            wire,
            last,
            thread: None,
            turn: None,
            started: None,
            known: false,
            said: String::new(),
            changes: BTreeMap::new(),
            dialogs: BTreeMap::new(),
            waiting: VecDeque::new(),
            refused: 0,
            own: VecDeque::new(),
        }
    }

    /// Reports what happens in the session, and passes texts on to the model, until the app-server is gone.
    async fn serve(mut self, session: Session) -> Failure {
        let Session { happened, mut orders } = session;
        loop {
            let heard = if let Some(heard) = self.wire.heard.pop_front() {
                Ok(Some(heard))
            } else {
                tokio::select! {
                    heard = self.wire.next() => heard.map(Some),
                    order = orders.recv() => match order {
                        None => return Failure::unavailable("nothing is delivered any more"),
                        Some(Order::Say(text)) => {
                            self.waiting.push_back(text);
                            Ok(None)
                        }
                        Some(Order::Interrupt) => {
                            let waited = std::mem::take(&mut self.waiting);
                            self.interrupt().await;
                            // What waits is stopped, too, and no turn will end with it.
                            let stopped = self.turn.is_none() && !waited.is_empty();
                            if stopped && happened.send(Happened::BrokeOff("it was stopped".to_owned())).await.is_err() {
                                return Failure::unavailable("nothing is delivered any more");
                            }
                            Ok(None)
                        }
                        Some(Order::Decide(id, answer)) => {
                            self.decide(&id, answer).await;
                            Ok(None)
                        }
                    },
                    () = sleep(RETRY), if self.thread.is_some() && !self.waiting.is_empty() => Ok(None),
                }
            };
            let event = match heard {
                Ok(Some(heard)) => self.heard(&heard).await,
                Ok(None) => Ok(None),
                Err(problem) => return Failure::unavailable(problem),
            };
            if let Ok(Some(event)) = event
                && happened.send(event).await.is_err()
            {
                return Failure::unavailable("nothing is delivered any more");
            }
            if let Some(event) = self.pass_on().await
                && happened.send(event).await.is_err()
            {
                return Failure::unavailable("nothing is delivered any more");
            }
        }
    }

    /// Hands the oldest text that waits to the thread. A text that Codex refuses again and again breaks its turn off.
    async fn pass_on(&mut self) -> Option<Happened> {
        self.thread.as_ref()?;
        let text = self.waiting.pop_front()?;
        match self.hand(&text).await {
            Ok(()) => self.refused = 0,
            Err(problem) if self.refused >= REFUSED_MAX => {
                self.refused = 0;
                return Some(Happened::BrokeOff(format!("Codex did not take the message: {problem}")));
            }
            Err(_) => {
                self.refused += 1;
                self.waiting.push_front(text);
            }
        }
        None
    }

    /// Interprets a notification, or a request to the interface, such as one for approval.
    async fn heard(&mut self, heard: &Value) -> Result<Option<Happened>, String> {
        let (method, params) = (heard["method"].as_str().unwrap_or_default(), &heard["params"]);
        match method {
            "thread/started" => return self.adopt(&params["thread"]).await,
            "thread/status/changed" if self.thread.as_deref() != params["threadId"].as_str() => {
                let found = self.wire.call("thread/read", json!({ "threadId": params["threadId"] })).await?;
                return self.adopt(&found["thread"]).await;
            }
            _ => {}
        }
        if self.thread.as_deref() != params["threadId"].as_str() {
            return Ok(None);
        }
        let item = &params["item"];
        match method {
            "turn/started" => {
                // Without it `--continue` takes the session before.
                let _kept = self.thread.as_ref().map(|thread| self.last.keep(thread));
                self.turn = params["turn"]["id"].as_str().map(str::to_owned);
                self.said.clear();
                self.changes.clear();
                self.known = self.turn == self.started;
            }
            "item/completed" if item["type"] == "agentMessage" => {
                item["text"].as_str().unwrap_or_default().clone_into(&mut self.said);
            }
            "item/completed" if item["type"] == "userMessage" => return Ok(self.typed(item)),
            "mcpServer/elicitation/request" => return Ok(Some(self.asked_by_server(&heard["id"], params))),
            // Neither is answered by yes or no.
            "item/permissions/requestApproval" | "item/tool/requestUserInput" => {
                return Ok(Some(self.dialog(&heard["id"], "", "question".to_owned(), None)));
            }
            _ if method.starts_with("item/") && method.ends_with("/requestApproval") => {
                return Ok(Some(self.asked(&heard["id"], params)));
            }
            "serverRequest/resolved" => {
                let id = params["requestId"].to_string();
                return Ok(self.dialogs.remove(&id).map(|_| Happened::Settled(id)));
            }
            "item/started" if item["type"] == "fileChange" && self.known => {
                self.changes.insert(item["id"].as_str().unwrap_or_default().to_owned(), item["changes"].clone());
            }
            // A goal of the program, or a command of its interface.
            "item/started" if item["type"] != "userMessage" && self.turn.is_some() && !self.known => {
                self.known = true;
                return Ok(Some(Happened::Prompted(String::new())));
            }
            "thread/tokenUsage/updated" => return Ok(Some(used(&params["tokenUsage"]["last"]))),
            "turn/completed" => {
                self.turn = None;
                self.dialogs.clear();
                return Ok(Some(self.ended(&params["turn"])));
            }
            _ => {}
        }
        Ok(None)
    }

    fn asked(&mut self, request: &Value, params: &Value) -> Happened {
        let mut arguments = params.clone();
        let changes = params["itemId"].as_str().and_then(|item| self.changes.get(item));
        let tool = if changes.is_some() { "fileChange" } else { "commandExecution" };
        if let Some(arguments) = arguments.as_object_mut() {
            // What the program counts for itself says nothing about the call.
            arguments.retain(|name, value| !SESSION_IDS.contains(&name.as_str()) && !value.is_null());
            arguments.extend(changes.map(|changes| ("changes".to_owned(), changes.clone())));
        }
        self.dialog(request, "decision", tool.to_owned(), Some(arguments))
    }

    /// A server of tools asks, or Codex asks before it calls one of its tools.
    fn asked_by_server(&mut self, request: &Value, params: &Value) -> Happened {
        let (server, call) = (params["serverName"].as_str().unwrap_or_default(), &params["_meta"]);
        match call["tool_name"].as_str().filter(|_| call["codex_approval_kind"] == "mcp_tool_call") {
            Some(tool) => {
                self.dialog(request, "action", format!("mcp__{server}__{tool}"), Some(call["tool_params"].clone()))
            }
            None => self.dialog(request, "action", format!("mcp__{server}"), None),
        }
    }

    /// A dialog opened whose answer has this member.
    fn dialog(&mut self, request: &Value, answer: &'static str, tool: String, arguments: Option<Value>) -> Happened {
        let id = request.to_string();
        self.dialogs.insert(id.clone(), (request.clone(), answer));
        Happened::Asked(Asked { id, tool, arguments })
    }

    /// Answers a dialog in place of the interface, which closes it.
    async fn decide(&mut self, id: &str, allowed: Result<(), String>) {
        if let Some((request, answer)) = self.dialogs.remove(id) {
            let decision = if allowed.is_ok() { "accept" } else { "decline" };
            if let Err(why) = allowed {
                // While the dialog is open it joins the turn for sure. An app-server that is gone is noticed where its
                // messages are read.
                let _steered = self.hand(&why).await;
            }
            let _sent = self.wire.send(&json!({ "id": request, "result": { answer: decision } })).await;
        }
    }

    fn typed(&mut self, item: &Value) -> Option<Happened> {
        let parts = item["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        if let Some(at) = self.own.iter().position(|own| *own == text) {
            self.own.remove(at);
            return None;
        }
        self.known = true;
        Some(Happened::Prompted(text))
    }

    fn ended(&mut self, turn: &Value) -> Happened {
        match turn["status"].as_str() {
            Some("completed") => Happened::Answered(std::mem::take(&mut self.said)),
            Some("interrupted") => Happened::BrokeOff("the user of the session interrupted the turn".to_owned()),
            _ => Happened::BrokeOff(turn["error"]["message"].as_str().unwrap_or("the turn failed").to_owned()),
        }
    }

    /// Follows a thread that the interface started or resumed. Sub-agents' threads and hidden ones aren't the user's.
    async fn adopt(&mut self, thread: &Value) -> Result<Option<Happened>, String> {
        let Some(id) = thread["id"].as_str() else { return Ok(None) };
        if !thread["parentThreadId"].is_null() || thread["ephemeral"] == true {
            return Ok(None);
        }
        let params = json!({ "threadId": id, "excludeTurns": true });
        // A thread can be followed only once something was said in it.
        self.inject(id, PRIMER).await?;
        self.wire.call("thread/resume", params).await?;
        (self.thread, self.turn) = (Some(id.to_owned()), None);
        Ok(Some(Happened::Began))
    }

    /// Adds a text to the thread as the program's developer, which is shown to the model alone.
    async fn inject(&mut self, thread: &str, text: &str) -> Result<Value, String> {
        let content = json!([{ "type": "input_text", "text": text }]);
        let items = json!([{ "type": "message", "role": "developer", "content": content }]);
        self.wire.call("thread/inject_items", json!({ "threadId": thread, "items": items })).await
    }

    /// Gives a text to the model, where the user sees it: with the next result of a tool if a turn runs, else in a new turn.
    async fn hand(&mut self, text: &str) -> Result<(), String> {
        let Some(thread) = self.thread.clone() else { return Ok(()) };
        let input = json!([{ "type": "text", "text": text }]);
        self.own.push_back(text.to_owned());
        if let Some(turn) = self.turn.clone() {
            let params = json!({ "threadId": thread, "expectedTurnId": turn, "input": input });
            if self.wire.call("turn/steer", params).await.is_ok() {
                return Ok(());
            }
            // The turn has just ended.
        }
        let started = self.wire.call("turn/start", json!({ "threadId": thread, "input": input })).await;
        let started = started.inspect_err(|_| drop(self.own.pop_back()))?;
        self.turn = started["turn"]["id"].as_str().map(str::to_owned);
        self.started.clone_from(&self.turn);
        Ok(())
    }

    async fn interrupt(&mut self) {
        if let (Some(thread), Some(turn)) = (&self.thread, &self.turn) {
            // A turn that has just ended can't be interrupted.
            let _interrupted = self.wire.call("turn/interrupt", json!({ "threadId": thread, "turnId": turn })).await;
        }
    }
}

/// Returns what a model request used, as `codex exec --json` reports it.
fn used(last: &Value) -> Happened {
    Happened::Used(json!({ "type": "turn.completed", "usage": {
        "input_tokens": last["inputTokens"],
        "cached_input_tokens": last["cachedInputTokens"],
        "cache_write_input_tokens": last["cacheWriteInputTokens"],
        "output_tokens": last["outputTokens"],
    } }))
}
