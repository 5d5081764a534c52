//! Codex as an agent in a session. Its terminal interface runs on an app-server that the launcher starts on a private socket.
//! The launcher is the app-server's second client: it hears of turns, and hands messages to the model without the prompt of
//! the interface.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::arguments::{chosen_mode, settings};
use super::held::{asked, home, known_server};
use super::wire::Wire;
use super::{CODEX, denials};
use crate::launch::{Asked, CLIENT, Happened, INTERRUPTED, Keep, Launch, LaunchError, Order, Session};
use crate::private::PrivateFolder;

/// Pause before a text that Codex refused is handed over again, and how often that happens.
const RETRY: Duration = Duration::from_secs(1);
const REFUSED_MAX: u32 = 10;
/// Why a session is no longer served.
const DELIVERED: &str = "nothing is delivered any more";
/// Starts a program that ends when this process is gone: the watcher reads from a pipe that nobody writes to, whose other
/// end closes with this process. It then kills the whole process group.
const WATCHED: &str = r#"exec 3<&0; "$@" </dev/null 3<&- & program=$!
(trap '' TERM; read -r _ <&3; kill 0; sleep 3; kill -9 0) & exec 3<&-; wait $program"#;

/// Settings with which a command that writes or uses the network needs its user's approval.
const ASKS: [&str; 4] = ["-c", r#"sandbox_mode="read-only""#, "-c", r#"approval_policy="on-request""#];

/// Members of a request for approval that name things of the session.
const SESSION_IDS: [&str; 5] = ["approvalId", "itemId", "startedAtMs", "threadId", "turnId"];

/// Returns the arguments of a shell that runs the app-server, with Lastword's tools and without its own channels. `args` are
/// the user's own.
///
/// # Errors
/// The user's settings have another form of Lastword's server, or a file can't be made.
pub fn server_arguments(
    launch: &Launch,
    held: &Held,
    folder: &PrivateFolder,
    socket: &Path,
    args: &[String],
) -> Result<Vec<String>, LaunchError> {
    let mut all = ["-c", WATCHED, "sh", "codex", "app-server", "--listen"].map(str::to_owned).to_vec();
    all.push(address(socket));
    if asks(args, launch.unheld) {
        all.extend(ASKS.map(str::to_owned));
    }
    all.extend(settings(args).into_iter().chain(held.settings.iter().cloned()).chain(denials()));
    let tools = tools(launch, folder)?;
    all.extend([
        "-c".to_owned(),
        r#"mcp_servers.codex_tui={command="true",enabled=false}"#.to_owned(),
        "-c".to_owned(),
    ]);
    all.push(format!(
        "mcp_servers.lastword={{{tools},enabled=true,default_tools_approval_mode=\"approve\",tool_timeout_sec=330}}"
    ));
    Ok(all)
}

/// Returns the arguments of the interface, with the user's own.
#[must_use]
pub fn interface_arguments(socket: &Path, args: &[String], unheld: bool) -> Vec<String> {
    let mut all = vec!["--remote".to_owned(), address(socket)];
    // A session that is resumed takes the settings of the app-server, and refuses others.
    if asks(args, unheld) && !args.iter().any(|arg| CODEX.resume.id.contains(&arg.as_str())) {
        all.extend(ASKS.map(str::to_owned));
    }
    all.extend_from_slice(args);
    all
}

/// What makes the app-server ask before it acts, whatever its user and the project allow.
#[derive(Debug, Default)]
pub struct Held {
    /// The folder in the place of the user's.
    pub home: Option<PathBuf>,
    settings: Vec<String>,
}

impl Held {
    /// Returns what holds a session with these arguments of the user. Files that it needs are made in `folder`.
    ///
    /// # Errors
    /// Something of the user's or the project's lets it act unasked, and nothing overrides that; or a file can't be made.
    pub fn of(args: &[String], folder: &PrivateFolder) -> Result<Self, LaunchError> {
        // A profile is below the settings of this run.
        if let Some(mode) =
            chosen_mode(args).filter(|arg| !["-p", "--profile"].iter().any(|name| arg.starts_with(name)))
        {
            let problem = format!("{mode} lets Codex decide what runs unasked");
            return Err(LaunchError::Refused {
                problem,
                hint: Some("leave it out, or let its settings decide with --unheld"),
            });
        }
        let cwd = std::env::current_dir()?;
        let refused = |problem| LaunchError::Refused { problem, hint: None };
        let asks = asked(None, &cwd).map_err(refused)?;
        let settings =
            asks.into_iter().flat_map(|(path, value)| ["-c".to_owned(), format!("{path}={value}")]).collect();
        Ok(Self { home: home(None, &cwd, folder).map_err(refused)?, settings })
    }
}

/// Returns whether the app-server asks before a command that writes or uses the network.
fn asks(args: &[String], unheld: bool) -> bool {
    !unheld || chosen_mode(args).is_none()
}

fn address(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

/// Returns how Codex reaches Lastword's tools. Its settings add up, so these have the form of the project's and the user's.
fn tools(launch: &Launch, folder: &PrivateFolder) -> Result<String, LaunchError> {
    let known = known_server(&std::env::current_dir()?);
    match (&launch.mcp_url, known) {
        (None, Some((file, false))) => Err(LaunchError::Refused {
            problem: format!(
                "Codex verifies no certificate like the broker's, and {} has an address for its server lastword",
                file.display()
            ),
            hint: Some("take mcp_servers.lastword out of that file"),
        }),
        (Some(url), None | Some((_, false))) => Ok(format!(
            "url={},bearer_token_env_var=\"LASTWORD_TOKEN\",http_headers={{Lastword-Client={CLIENT:?}}}",
            toml::Value::from(url.as_str())
        )),
        (_, None | Some((_, true))) => {
            // The project's variables may name another token.
            let args = launch.mcp(&folder.write("token", &launch.token)?);
            let (program, args) = (toml::Value::from(launch.lastword.as_str()), toml::Value::from(args));
            // Codex passes no other variables to an MCP server.
            Ok(format!("command={program},args={args},env_vars=[\"LASTWORD_AGENT\",\"LASTWORD_CLIENT\"]"))
        }
    }
}

/// The thread of the interface, as this process follows it.
pub struct Joined {
    wire: Wire,
    keep: Keep,
    primer: &'static str,
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
    /// Returns the interface's session at the app-server.
    #[must_use]
    pub fn new(wire: Wire, launch: &Launch, keep: Keep) -> Self {
        Self {
            wire,
            keep,
            primer: launch.primer,
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
    pub async fn serve(mut self, session: Session) -> String {
        let Session { happened, mut orders } = session;
        loop {
            let heard = if let Some(heard) = self.wire.heard.pop_front() {
                Ok(Some(heard))
            } else {
                tokio::select! {
                    heard = self.wire.next() => heard.map(Some),
                    order = orders.recv() => match order {
                        None => return DELIVERED.to_owned(),
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
                                return DELIVERED.to_owned();
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
                Err(problem) => return problem,
            };
            if let Ok(Some(event)) = event
                && happened.send(event).await.is_err()
            {
                return DELIVERED.to_owned();
            }
            if let Some(event) = self.pass_on().await
                && happened.send(event).await.is_err()
            {
                return DELIVERED.to_owned();
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
                self.thread.iter().for_each(|thread| (self.keep)(thread));
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
            Some("interrupted") => Happened::BrokeOff(INTERRUPTED.to_owned()),
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
        self.inject(id, self.primer).await?;
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
