//! opencode as an agent in a session. Its terminal interface serves HTTP: the launcher reads its events, and posts messages to
//! the session that the interface shows; what the user has typed so far stays in the interface.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, channel};
use tokio::time::sleep;

use super::{AGENTS, CONFIG, Server, with_rules};
use crate::files::inherited;
use crate::launch::{Asked, Happened, INTERRUPTED, Keep, Launch, Order, REFUSED, Session};

/// Pause between two attempts to reach the interface's server.
pub(super) const RETRY: Duration = Duration::from_millis(200);
/// The most attempts to post one text: a minute, in which a slow interface has started.
const POSTS_MAX: u32 = 300;
/// Times that a new session is shown, and the pause between two: an interface that is still starting misses it.
const SHOWN_MAX: u32 = 10;
const SHOW_AGAIN: Duration = Duration::from_secs(1);
/// Most events that wait to be interpreted.
const QUEUE_MAX: usize = 64;

/// Returns the configuration of a session, with Lastword's tools.
#[must_use]
pub fn configuration(launch: &Launch) -> String {
    let mut config = with_rules(inherited(CONFIG).as_deref(), !launch.unheld);
    // Substitution of variables is for files; opencode has the token in its environment either way.
    let server = match &launch.mcp_url {
        Some(url) => {
            json!({ "type": "remote", "url": url, "headers": launch.headers(&launch.token), "oauth": false })
        }
        None => json!({ "type": "local", "command": [&launch.lastword, "mcp"], "enabled": true }),
    };
    if !config["mcp"].is_object() {
        config["mcp"] = json!({});
    }
    config["mcp"]["lastword"] = server;
    config.to_string()
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
pub struct Joined {
    server: Server,
    /// Whether the events are followed.
    connected: bool,
    opened: Option<Opened>,
    keep: Keep,
    primer: &'static str,
    unheld: bool,
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
    /// Returns the session of an interface that is started with these arguments, of which `resumed` is opened.
    #[must_use]
    pub fn new(server: Server, args: &[String], resumed: Option<String>, launch: &Launch, keep: Keep) -> Self {
        let forks = args.iter().any(|arg| arg == "--fork");
        Self {
            server,
            keep,
            primer: launch.primer,
            unheld: launch.unheld,
            connected: false,
            opened: resumed.map(|id| if forks { Opened::Fork } else { Opened::Known(id) }),
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
    pub async fn serve(mut self, session: Session) -> String {
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
        "nothing is delivered any more".to_owned()
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
                    INTERRUPTED.to_owned()
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
            self.session.iter().for_each(|session| (self.keep)(session));
            // An agent of the user's own may have rules that allow, which none of this run's come after.
            let agent = &info["agent"];
            let holds = self.unheld || AGENTS.iter().any(|held| agent == held);
            let agent = if holds { agent.clone() } else { json!(AGENTS[0]) };
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
        body["system"] = json!(self.primer);
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
