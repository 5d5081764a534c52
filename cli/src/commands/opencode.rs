//! `lastword opencode`: opencode as an agent of the workspace, in this terminal and for this run alone.
//!
//! opencode's terminal interface serves HTTP. This process reads its events, and posts messages to the session that the
//! interface shows; what the user has typed so far stays in the interface.

use std::collections::{BTreeSet, VecDeque};
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::Duration;

use futures_util::StreamExt as _;
use lastword_client::plain_http;
use lastword_client::wire::text::mended;
use lastword_runner::{OPENCODE_AGENTS, PrivateFolder, Requests, opencode_config};
use lastword_server::edges::mcp::PRIMER;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

use super::Context;
use super::attend::{Asked, Happened, Order, Session, attend, connection};
use super::last_session::{LastSession, Options};
use super::launch::{CLIENT, Calls, Place, exit, this_program};
use crate::failure::Failure;

/// Pause between two attempts to reach the interface's server.
const RETRY: Duration = Duration::from_millis(200);
/// The most attempts to post one text: a minute, in which a slow interface has started.
const POSTS_MAX: u32 = 300;
/// Time limit of one call.
const CALL: Duration = Duration::from_secs(30);
/// Time limit of the head of a response.
const HEAD: Duration = Duration::from_secs(2);
/// Longest event that is read: a part of a message may hold a tool's whole result.
const EVENT_BYTES_MAX: usize = 8 << 20;
/// Times that a new session is shown, and the pause between two: an interface that is still starting misses it.
const SHOWN_MAX: u32 = 10;
const SHOW_AGAIN: Duration = Duration::from_secs(1);
/// Most events that wait to be interpreted.
const QUEUE_MAX: usize = 64;
/// The variable from which opencode reads a configuration that overrides those in files.
const CONFIG: &str = "OPENCODE_CONFIG_CONTENT";
/// Linux's table of IPv4 sockets, and the state in it of a socket that listens.
const SOCKETS: &str = "/proc/net/tcp";
const LISTENS: &str = "0A";
/// Why a turn failed whose user refused a call.
const REFUSED: &str = "the user of the session refused the call";
/// opencode's own name for the user of its server.
const USER: &str = "opencode";
pub(super) const OPTIONS: Options =
    Options { program: "opencode", last: &[&["--continue"], &["-c"]], id: &["--session", "-s"] };

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: opencode, or opencode-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Arguments for opencode.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let calls = args.calls;
    let place = Place::take("opencode", (args.name.as_deref(), &args.args, &OPTIONS), cx).await?;
    let (args, resumed) = place.resumed(&args.args, &OPTIONS)?;
    let password = secret()?;
    let port = free_port()?;
    let mut command = Command::new("opencode");
    command.args(["--port", &port.to_string()]).args(&args);
    command.env("OPENCODE_SERVER_PASSWORD", &password).env("OPENCODE_SERVER_USERNAME", USER);
    let before = std::env::var_os(CONFIG).and_then(|text| text.into_string().ok());
    command.env(CONFIG, with_tools(&opencode_config(before.as_deref(), !calls.unheld), &place)?);
    place.greet(calls);
    let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-")?;
    let client = place.client()?;
    let (session, attendant) = connection();
    let http = plain_http()?;
    let server = Server { http, port, password };
    let opened =
        resumed.map(|id| if args.iter().any(|arg| arg == "--fork") { Opened::Fork } else { Opened::Known(id) });
    let last = place.last.clone();
    let deliver = async {
        tokio::select! {
            failure = Joined::new(server, opened, last, calls).serve(session) => failure,
            failure = attend(attendant, &client, folder.path(), &place, Requests::of_opencode(), calls) => failure,
        }
    };
    let status = place.beside(command, deliver).await;
    drop(folder);
    exit(status?)
}

/// Adds Lastword's tools to a configuration.
fn with_tools(config: &str, place: &Place) -> Result<String, Failure> {
    let mut config: Value = serde_json::from_str(config).map_err(Failure::usage)?;
    // Substitution of variables is for files; opencode has the token in its environment either way.
    let headers = json!({ "Authorization": format!("Bearer {}", place.token()), "Lastword-Client": CLIENT });
    let server = match place.mcp_url() {
        Some(url) => json!({ "type": "remote", "url": url, "headers": headers, "oauth": false }),
        None => json!({ "type": "local", "command": [this_program()?, "mcp".to_owned()], "enabled": true }),
    };
    if !config["mcp"].is_object() {
        config["mcp"] = json!({});
    }
    config["mcp"]["lastword"] = server;
    Ok(config.to_string())
}

/// Returns a password that no other process can guess.
fn secret() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns a port that was free a moment ago. opencode doesn't say which port it took by itself.
fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Checks that this user's process listens on the port: another user's could have taken it before opencode did, and
/// must not get the password. Only Linux says whose a socket is.
fn check_listener(port: u16) -> Result<(), String> {
    let Ok(sockets) = std::fs::read_to_string(SOCKETS) else { return Ok(()) };
    match listener(&sockets, port) {
        None => Err("opencode doesn't listen yet".to_owned()),
        Some(user) if user == rustix::process::getuid().as_raw() => Ok(()),
        Some(user) => Err(format!("a process of user {user} took port {port} before opencode did")),
    }
}

/// Returns the user whose process listens on the port of the loopback address or of all addresses.
fn listener(sockets: &str, port: u16) -> Option<u32> {
    let on =
        |address: &str| [format!("0100007F:{port:04X}"), format!("00000000:{port:04X}")].iter().any(|a| a == address);
    sockets.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let found = on(words.get(1)?) && *words.get(3)? == LISTENS;
        words.get(7).filter(|_| found)?.parse().ok()
    })
}

/// The interface's server.
#[derive(Clone)]
struct Server {
    http: reqwest::Client,
    port: u16,
    password: String,
}

impl Server {
    fn request(&self, method: Method, path: &str) -> Result<reqwest::RequestBuilder, String> {
        check_listener(self.port)?;
        let url = format!("http://{}:{}{path}", Ipv4Addr::LOCALHOST, self.port);
        Ok(self.http.request(method, url).basic_auth(USER, Some(&self.password)))
    }

    /// Makes a call and returns the JSON of its response; null if there is none.
    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, String> {
        let mut request = self.request(method, path)?.timeout(CALL);
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.and_then(reqwest::Response::error_for_status);
        let bytes = response.map_err(|error| error.to_string())?.bytes().await.map_err(|error| error.to_string())?;
        Ok(serde_json::from_str(&mended(&bytes)).unwrap_or(Value::Null))
    }

    /// Follows the events until the receiver is gone. Connects again after every loss.
    async fn follow(&self, events: Sender<Value>) {
        while !events.is_closed() {
            // While opencode starts, it takes requests that it never answers.
            if let Ok(request) = self.request(Method::GET, "/event")
                && let Ok(Ok(response)) = timeout(HEAD, request.send()).await
                && response.status().is_success()
            {
                let (mut stream, mut line) = (response.bytes_stream(), Vec::new());
                while let Some(Ok(bytes)) = stream.next().await {
                    for byte in bytes {
                        if byte != b'\n' {
                            line.push(byte);
                            line.truncate(EVENT_BYTES_MAX);
                            continue;
                        }
                        // An event that was cut isn't JSON, and is skipped.
                        let event =
                            line.strip_prefix(b"data: ").and_then(|data| serde_json::from_str(&mended(data)).ok());
                        line.clear();
                        if let Some(event) = event
                            && events.send(event).await.is_err()
                        {
                            return;
                        }
                    }
                }
            }
            sleep(RETRY).await;
        }
    }
}

/// Returns a call about which the interface asks, as far as opencode tells of it.
fn asked(properties: &Value) -> Happened {
    let text = |name: &str| properties[name].as_str().unwrap_or_default().to_owned();
    let arguments = json!({ "patterns": properties["patterns"], "metadata": properties["metadata"] });
    Happened::Asked(Asked { id: text("id"), tool: text("permission"), arguments: Some(arguments) })
}

/// An earlier session that the interface opens at its start.
#[derive(Debug)]
enum Opened {
    Known(String),
    /// A copy of it, which is the newest session.
    Fork,
}

/// The session that the interface shows, as this process follows it.
struct Joined {
    server: Server,
    /// Whether the events are followed.
    connected: bool,
    opened: Option<Opened>,
    last: LastSession,
    calls: Calls,
    session: Option<String>,
    /// How often the session is still shown: this process made it, and the user has typed nothing in it yet.
    shows: u32,
    /// Sessions of sub-agents.
    children: BTreeSet<String>,
    works: bool,
    /// The model requests that were counted.
    counted: BTreeSet<String>,
    /// Why the running turn has failed.
    failed: Option<String>,
    /// The newest message of the user whose text is still to come.
    asked: Option<String>,
    /// The agent and model of the user's newest message, in which messages are answered as well.
    mode: Value,
    /// The model's newest message, and its texts by part.
    said: (String, Vec<(String, String)>),
    /// Texts that this process posted, which come back as the user's.
    own: VecDeque<String>,
}

impl Joined {
    fn new(server: Server, opened: Option<Opened>, last: LastSession, calls: Calls) -> Self {
        Self {
            server,
            connected: false,
            opened,
            last,
            calls,
            session: None,
            shows: 0,
            children: BTreeSet::new(),
            works: false,
            counted: BTreeSet::new(),
            failed: None,
            asked: None,
            mode: json!({}),
            said: (String::new(), Vec::new()),
            own: VecDeque::new(),
        }
    }

    /// Reports what happens in the session, and posts texts to it, until the attendant is gone.
    async fn serve(mut self, session: Session) -> Failure {
        let Session { happened, mut orders } = session;
        let (sender, mut events) = channel(QUEUE_MAX);
        let server = self.server.clone();
        let follow = server.follow(sender);
        let work = async {
            loop {
                if let Some(event) = self.step(&mut events, &mut orders).await?
                    && happened.send(event).await.is_err()
                {
                    return None::<()>;
                }
            }
        };
        tokio::select! {
            () = follow => {}
            _ = work => {}
        }
        Failure::unavailable("nothing is delivered any more")
    }

    /// Takes one event or order; returns `None` once there are no more.
    async fn step(&mut self, events: &mut Receiver<Value>, orders: &mut Receiver<Order>) -> Option<Option<Happened>> {
        tokio::select! {
            // A text is posted only when what came before it was interpreted.
            biased;
            event = events.recv() => event.map(|event| self.heard(&event)),
            // A text that is posted before could end its turn unseen.
            order = orders.recv(), if self.connected => Some(match order? {
                Order::Say(text) => self.hand(&text).await,
                Order::Interrupt => {
                    self.interrupt().await;
                    None
                }
                Order::Decide(id, answer) => {
                    self.decide(&id, answer).await;
                    None
                }
            }),
            () = sleep(SHOW_AGAIN), if self.shows > 0 => {
                self.show().await;
                Some(None)
            }
        }
    }

    fn heard(&mut self, event: &Value) -> Option<Happened> {
        let (kind, properties) = (event["type"].as_str().unwrap_or_default(), &event["properties"]);
        let session = properties["sessionID"].as_str().unwrap_or_default();
        self.connected |= kind == "server.connected";
        if kind == "session.created" && properties["info"]["parentID"].is_string() {
            self.children.insert(session.to_owned());
        }
        if session.is_empty() || self.children.contains(session) {
            return None;
        }
        let info = &properties["info"];
        let shown = matches!(kind, "session.created" | "tui.session.select")
            || (kind == "message.updated" && info["role"] == "user");
        if shown && self.session.as_deref() != Some(session) {
            self.session = Some(session.to_owned());
            (self.works, self.failed) = (false, None);
            return (kind != "message.updated").then_some(Happened::Began).or_else(|| self.message(info));
        }
        if self.session.as_deref() != Some(session) {
            return None;
        }
        match kind {
            "message.updated" => return self.message(info),
            "message.part.updated" => return self.part(&properties["part"]),
            "permission.asked" => return Some(asked(properties)),
            "question.asked" => {
                let id = properties["id"].as_str().unwrap_or_default().to_owned();
                return Some(Happened::Asked(Asked { id, tool: "question".to_owned(), arguments: None }));
            }
            "permission.replied" | "question.replied" | "question.rejected" => {
                if properties["reply"] == "reject" || kind == "question.rejected" {
                    // This ends the turn, unless the model is given the reason and continues.
                    self.failed.get_or_insert_with(|| REFUSED.to_owned());
                }
                return Some(Happened::Settled(properties["requestID"].as_str().unwrap_or_default().to_owned()));
            }
            "session.status" if properties["status"]["type"] == "busy" => self.works = true,
            "session.error" => {
                let error = &properties["error"];
                self.failed = Some(if error["name"] == "MessageAbortedError" {
                    "the user of the session interrupted the turn".to_owned()
                } else {
                    error["data"]["message"].as_str().unwrap_or("the turn failed").to_owned()
                });
            }
            "session.idle" if std::mem::take(&mut self.works) => {
                return Some(match self.failed.take() {
                    Some(reason) => Happened::BrokeOff(reason),
                    None => Happened::Answered(self.said.1.iter().map(|(_, text)| text.as_str()).collect()),
                });
            }
            _ => {}
        }
        None
    }

    fn message(&mut self, info: &Value) -> Option<Happened> {
        let id = info["id"].as_str().unwrap_or_default();
        if info["role"] == "assistant" && self.said.0 != id {
            (self.said, self.failed) = ((id.to_owned(), Vec::new()), None);
        } else if info["role"] == "user" && info["summary"].is_null() {
            // A message with a summary is an old one that was annotated.
            self.asked = Some(id.to_owned());
            // Without it `--continue` takes the session before.
            let _kept = self.session.as_ref().map(|session| self.last.keep(session));
            // An agent of the user's own may have rules that allow, which none of this run's come after.
            let agent = &info["agent"];
            let holds = self.calls.unheld || OPENCODE_AGENTS.iter().any(|held| agent == held);
            let agent = if holds { agent.clone() } else { json!(OPENCODE_AGENTS[0]) };
            self.mode = json!({ "agent": agent, "model": info["model"] });
        }
        None
    }

    fn part(&mut self, part: &Value) -> Option<Happened> {
        if part["type"] == "step-finish" {
            let new = self.counted.insert(part["id"].as_str()?.to_owned());
            return new.then(|| Happened::Used(json!({ "type": "step_finish", "part": part })));
        }
        let (message, text) = (part["messageID"].as_str()?, part["text"].as_str()?);
        if part["type"] != "text" {
            return None;
        }
        if self.asked.as_deref() == Some(message) && part["synthetic"] != true {
            self.asked = None;
            if let Some(at) = self.own.iter().position(|own| own == text) {
                self.own.remove(at);
                return None;
            }
            self.shows = 0;
            return Some(Happened::Prompted(text.to_owned()));
        }
        if self.said.0 == message {
            let id = part["id"].as_str().unwrap_or_default();
            match self.said.1.iter_mut().find(|(known, _)| known == id) {
                Some((_, said)) => text.clone_into(said),
                None => self.said.1.push((id.to_owned(), text.to_owned())),
            }
        }
        None
    }

    /// Posts a text to the session; opencode shows it to the model at once, or with the next result of a tool. A text
    /// that opencode refuses again and again breaks its turn off.
    async fn hand(&mut self, text: &str) -> Option<Happened> {
        self.own.push_back(text.to_owned());
        let mut problem = String::new();
        for n in 0..POSTS_MAX {
            match self.post(text).await {
                Ok(()) => return None,
                Err(error) => problem = error,
            }
            // The interface may still be starting, or its user has deleted the session.
            if n == POSTS_MAX / 2 {
                self.session = None;
            }
            sleep(RETRY).await;
        }
        self.own.pop_back();
        Some(Happened::BrokeOff(format!("opencode did not take the message: {problem}")))
    }

    /// Answers a dialog in place of the interface, which closes it. A model that is given the reason of a refusal continues.
    async fn decide(&mut self, id: &str, allowed: Result<(), String>) {
        let answer = match &allowed {
            Ok(()) => json!({ "reply": "once" }),
            Err(why) => json!({ "reply": "reject", "message": why }),
        };
        // The session's user may have been first.
        let told = self.server.call(Method::POST, &format!("/permission/{id}/reply"), Some(&answer)).await;
        if let (Ok(_), Err(why)) = (told, allowed) {
            self.failed = Some(why.split_whitespace().collect::<Vec<_>>().join(" "));
        }
    }

    async fn interrupt(&self) {
        if let Some(session) = &self.session {
            // A session that is idle by now has nothing to interrupt.
            let _interrupted = self.server.call(Method::POST, &format!("/session/{session}/abort"), None).await;
        }
    }

    async fn post(&mut self, text: &str) -> Result<(), String> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self.open().await?,
        };
        let mut body = self.mode.clone();
        body["system"] = json!(PRIMER);
        body["parts"] = json!([{ "type": "text", "text": text }]);
        self.server.call(Method::POST, &format!("/session/{session}/prompt_async"), Some(&body)).await?;
        self.session = Some(session);
        Ok(())
    }

    /// Returns the session that the interface has opened, or shows a new one there.
    async fn open(&mut self) -> Result<String, String> {
        match self.opened.take() {
            Some(Opened::Known(id)) => return Ok(id),
            Some(Opened::Fork) => {
                let known = self.server.call(Method::GET, "/session", None).await?;
                let roots = known.as_array().map(Vec::as_slice).unwrap_or_default().iter();
                let newest = roots
                    .filter(|session| session["parentID"].is_null())
                    .max_by_key(|session| session["time"]["created"].as_u64());
                if let Some(id) = newest.and_then(|session| session["id"].as_str()) {
                    return Ok(id.to_owned());
                }
            }
            None => {}
        }
        let made = self.server.call(Method::POST, "/session", Some(&json!({}))).await?;
        let id = made["id"].as_str().ok_or("opencode made no session")?.to_owned();
        (self.session, self.shows) = (Some(id.clone()), SHOWN_MAX);
        self.show().await;
        Ok(id)
    }

    /// Shows the session that this process made, in which a call may wait for the user.
    async fn show(&mut self) {
        self.shows = self.shows.saturating_sub(1);
        if let Some(session) = &self.session {
            let shown = json!({ "sessionID": session });
            // Without it the session is still in opencode's list.
            let _shown = self.server.call(Method::POST, "/tui/select-session", Some(&shown)).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_user_who_listens_on_a_port_is_known() {
        let line = |address: &str, state: &str, user: u32| {
            format!(
                "   0: {address} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000  {user}        0 12 1\n"
            )
        };
        let sockets = [line("0100007F:1F90", "01", 7), line("0100007F:1F90", "0A", 8), line("00000000:1F91", "0A", 9)];
        let sockets = sockets.concat();
        assert_eq!([0x1f90, 0x1f91, 0x1f92].map(|port| listener(&sockets, port)), [Some(8), Some(9), None]);
    }

    #[test]
    fn this_process_is_known_as_the_one_that_listens() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert_eq!(check_listener(port), Ok(()));
    }
}
