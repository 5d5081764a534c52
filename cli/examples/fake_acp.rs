//! An ACP agent for tests, which does what the message says: deterministic, no model, no network.
//!
//! The body of a message is a script, a step a line:
//! `say TEXT` · `tool TITLE` · `permit TITLE` · `permit NAME by TITLE` · `need TITLE` (ends its turn when denied) · `ended ID` (of a call) · `usage IN OUT` · `context USED` · `env NAME` · `run COMMAND` · `fork FILE` · `stop REASON` ·
//! `chunk TEXT` (JSON escapes as they are) · `latin TEXT` (with a byte of Latin-1) · `block JSON` (content) · `halved TITLE` (a
//! call with half a character) · `sub TITLE` (a sub-agent's call) ·
//! `error TEXT` · `session` · `mode` · `switch MODE` (until the mode is set back) · `wait` · `crash` · `hang` · `stray`
//! (says something again and again once its turn has ended, until it is interrupted) · `stray deaf` (whatever happens).
//! Flags: `--load` offers `session/load`, `--http` takes MCP servers over HTTP, `--mute` never says who it is,
//! `--modes=CURRENT,OTHER` reports modes, `--sullen` says nothing about a denial.

use std::io::{BufRead as _, StdinLock, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

/// Whether a session works without a prompt.
static STRAYS: AtomicBool = AtomicBool::new(false);

fn main() {
    let flags: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let input = std::io::stdin().lock();
    let (load, http, sullen) = (has("--load"), has("--http"), has("--sullen"));
    let modes = flags.iter().find_map(|flag| flag.strip_prefix("--modes="));
    let modes: Vec<String> = modes.map_or_else(Vec::new, |list| list.split(',').map(ToOwned::to_owned).collect());
    let mode = modes.first().cloned().unwrap_or_default();
    let mut agent = Agent { input, sessions: 0, asked: 0, halves: false, load, http, sullen, mode, modes };
    while let Some(message) = agent.read() {
        if !has("--mute") {
            agent.serve(&message);
        }
    }
}

/// Reads the numbers of a `usage` step.
fn spent(numbers: &str) -> Value {
    let mut numbers = numbers.split(' ').filter_map(|n| n.parse::<u64>().ok());
    let (read, written) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    json!({ "inputTokens": read, "outputTokens": written, "totalTokens": read + written })
}

struct Agent {
    input: StdinLock<'static>,
    sessions: u64,
    asked: u64,
    /// The arguments of a call have half a character.
    halves: bool,
    load: bool,
    http: bool,
    sullen: bool,
    /// The current mode; empty for an agent without modes.
    mode: String,
    /// All modes.
    modes: Vec<String>,
}

impl Agent {
    fn read(&mut self) -> Option<Value> {
        let mut line = String::new();
        match self.input.read_line(&mut line) {
            Ok(0) | Err(_) => None,
            Ok(_) => serde_json::from_str(&line).ok(),
        }
    }

    fn write(&self, message: &Value) {
        let mut out = std::io::stdout().lock();
        writeln!(out, "{message}").and_then(|()| out.flush()).unwrap_or_else(|_| std::process::exit(0));
    }

    fn answer(&self, request: &Value, result: &Value) {
        self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }));
    }

    fn update(&self, session: &Value, update: &Value) {
        let params = json!({ "sessionId": session, "update": update });
        self.write(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }));
    }

    fn say(&self, session: &Value, text: &str) {
        self.show(session, &json!({ "type": "text", "text": text }));
    }

    /// Says what no JSON library writes: escapes as they are, and bytes that aren't UTF-8.
    fn chunk(&self, session: &Value, escaped: &str, bytes: &[u8]) {
        let content = json!({ "type": "text", "text": "CHUNK" });
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
        let params = json!({ "sessionId": session, "update": update });
        let line = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }).to_string();
        let (before, after) = line.split_once("CHUNK").unwrap_or_default();
        let line = [before.as_bytes(), escaped.as_bytes(), bytes, after.as_bytes(), b"\n"].concat();
        let mut out = std::io::stdout().lock();
        out.write_all(&line).and_then(|()| out.flush()).unwrap_or_else(|_| std::process::exit(0));
    }

    fn show(&self, session: &Value, content: &Value) {
        self.update(session, &json!({ "sessionUpdate": "agent_message_chunk", "content": content }));
    }

    /// The modes that a session reports: the first of `--modes` is the current one.
    fn modes(&self) -> Value {
        if self.modes.is_empty() {
            return Value::Null;
        }
        let known: Vec<Value> = self.modes.iter().map(|id| json!({ "id": id, "name": id })).collect();
        json!({ "currentModeId": self.mode, "availableModes": known })
    }

    fn serve(&mut self, message: &Value) {
        let params = &message["params"];
        match message["method"].as_str() {
            Some("initialize") => {
                let capabilities = json!({ "loadSession": self.load, "mcpCapabilities": { "http": self.http } });
                let info = json!({ "name": "fake", "version": "1" });
                let result = json!({ "protocolVersion": 1, "agentCapabilities": capabilities, "agentInfo": info });
                self.answer(message, &result);
            }
            Some("session/new") => {
                self.sessions += 1;
                let id = format!("{}-{}", std::process::id(), self.sessions);
                std::fs::write("mcp.json", params["mcpServers"].to_string()).ok();
                self.answer(message, &json!({ "sessionId": id, "modes": self.modes() }));
            }
            Some("session/load") => {
                // Agents replay the session's messages on load; none of it belongs to the answer.
                self.say(&params["sessionId"], "said before");
                self.answer(message, &json!({}));
            }
            Some("session/set_mode") => {
                params["modeId"].as_str().unwrap_or_default().clone_into(&mut self.mode);
                self.answer(message, &json!({}));
            }
            Some("session/prompt") => self.prompt(message),
            Some("session/cancel") => STRAYS.store(false, Ordering::Relaxed),
            Some(_) | None => {}
        }
    }

    /// Works on after the turn, as a goal or a monitor does.
    fn stray(&self, session: &Value, deaf: bool) {
        STRAYS.store(true, Ordering::Relaxed);
        let content = json!({ "type": "text", "text": "next" });
        let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
        let params = json!({ "sessionId": session, "update": update });
        let message = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
        let session = session.clone();
        std::thread::spawn(move || {
            let mut used = 1_000;
            while deaf || STRAYS.load(Ordering::Relaxed) {
                used += 100;
                let update = json!({ "sessionUpdate": "usage_update", "used": used, "size": 200_000 });
                let params = json!({ "sessionId": session, "update": update });
                let usage = json!({ "jsonrpc": "2.0", "method": "session/update", "params": params });
                let mut out = std::io::stdout().lock();
                writeln!(out, "{message}\n{usage}")
                    .and_then(|()| out.flush())
                    .unwrap_or_else(|_| std::process::exit(0));
                drop(out);
                std::thread::sleep(Duration::from_millis(50));
            }
            std::fs::write("interrupted", "").ok();
        });
    }

    /// Switches to a mode, and waits until the client sets another.
    fn switch(&mut self, session: &Value, mode: &str) {
        mode.clone_into(&mut self.mode);
        self.update(session, &json!({ "sessionUpdate": "current_mode_update", "currentModeId": mode }));
        while self.mode == mode {
            let Some(message) = self.read() else { return };
            self.serve(&message);
        }
    }

    /// Tells how full its context is.
    fn context(&self, session: &Value, used: &str) {
        let used: u64 = used.parse().unwrap_or(0);
        self.update(session, &json!({ "sessionUpdate": "usage_update", "used": used, "size": 200_000 }));
    }

    /// Takes a step that says something.
    fn speak(&self, session: &Value, step: &str, rest: &str) {
        match step {
            "say" => self.say(session, rest),
            "chunk" => self.chunk(session, rest, b""),
            "latin" => self.chunk(session, rest, b"\xe9"),
            "block" => self.show(session, &serde_json::from_str(rest).unwrap_or_default()),
            "env" => self.say(session, &std::env::var_os(rest).map_or_else(String::new, |v| format!("{v:?}"))),
            "mode" => self.say(session, &self.mode),
            "tool" => {
                self.update(session, &json!({ "sessionUpdate": "tool_call", "toolCallId": rest, "title": rest }));
            }
            "ended" => {
                let ended = json!({ "sessionUpdate": "tool_call_update", "toolCallId": rest, "status": "completed" });
                self.update(session, &ended);
            }
            "session" => self.say(session, session.as_str().unwrap_or_default()),
            _ => {}
        }
    }

    fn prompt(&mut self, request: &Value) {
        let session = request["params"]["sessionId"].clone();
        let text = request["params"]["prompt"][0]["text"].as_str().unwrap_or_default().to_owned();
        std::fs::write("prompt.txt", &text).ok();
        std::fs::write("meta.json", request["params"]["_meta"].to_string()).ok();
        if let Some(words) = told(&text) {
            if !self.sullen {
                self.say(&session, &format!("I was told: {words}"));
            }
            return self.answer(request, &json!({ "stopReason": "end_turn" }));
        }
        let mut usage = Value::Null;
        let mut reason = "end_turn".to_owned();
        for line in text.lines() {
            let (step, rest) = line.split_once(' ').unwrap_or((line, ""));
            match step {
                "switch" => self.switch(&session, rest),
                "usage" => usage = spent(rest),
                "context" => self.context(&session, rest),
                "permit" | "halved" | "sub" => {
                    // A sub-agent has a session of its own, which the client didn't open.
                    let asks = if step == "sub" { json!("sub-1") } else { session.clone() };
                    self.halves = step == "halved";
                    let outcome = self.permit(&asks, rest);
                    self.say(&session, &outcome);
                    if outcome == "cancelled" {
                        reason = "cancelled".to_owned();
                        break;
                    }
                }
                "need" if self.permit(&session, rest) != "allow_once" => break,
                "run" => {
                    // Simulates a call by one of the agent's tools.
                    let ran = Command::new("sh").args(["-c", rest]).stdin(Stdio::null()).output();
                    assert!(ran.as_ref().is_ok_and(|ran| ran.status.success()), "{ran:?}");
                }
                "fork" => fork(rest),
                "stop" => rest.clone_into(&mut reason),
                "error" => {
                    let error = json!({ "code": -32603, "message": rest });
                    return self.write(&json!({ "jsonrpc": "2.0", "id": request["id"], "error": error }));
                }
                "crash" => {
                    eprintln!("out of memory");
                    std::process::exit(3);
                }
                "hang" => {
                    // Ignores everything, like an agent whose tool never returns.
                    std::fs::write("hung", std::process::id().to_string()).ok();
                    loop {
                        std::thread::park();
                    }
                }
                "stray" => self.stray(&session, rest == "deaf"),
                "wait" => {
                    std::fs::write("waits", "").ok();
                    while let Some(message) = self.read() {
                        if message["method"] == "session/cancel" {
                            break;
                        }
                    }
                    std::fs::write("cancelled", "").ok();
                    reason = "cancelled".to_owned();
                    break;
                }
                _ => self.speak(&session, step, rest),
            }
        }
        self.answer(request, &json!({ "stopReason": reason, "usage": usage }));
    }

    /// Requests permission and waits; the client itself answers a cancel that arrives meanwhile.
    fn permit(&mut self, session: &Value, title: &str) -> String {
        self.asked += 1;
        let id = format!("ask-{}", self.asked);
        let name = title.split_once(" by ").map(|(name, _)| name);
        let call = json!({ "toolCallId": id, "title": title, "name": name, "kind": "execute", "rawInput": { "command": title } });
        let option = |id: &str| json!({ "optionId": id, "name": id, "kind": id });
        let options = json!([option("allow_always"), option("allow_once"), option("reject_once")]);
        let params = json!({ "sessionId": session, "toolCall": call, "options": options });
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": "session/request_permission", "params": params });
        let half = if self.halves { r#""command":"\ud83d "# } else { r#""command":""# };
        let mut out = std::io::stdout().lock();
        writeln!(out, "{}", request.to_string().replace(r#""command":""#, half))
            .unwrap_or_else(|_| std::process::exit(0));
        drop(out);
        while let Some(message) = self.read() {
            if message["id"] == id {
                let outcome = &message["result"]["outcome"];
                return outcome["optionId"].as_str().or(outcome["outcome"].as_str()).unwrap_or_default().to_owned();
            }
        }
        std::process::exit(0)
    }
}

/// Returns what a prompt says about a denied call; `None` if it isn't about one. Boundaries are left out.
fn told(prompt: &str) -> Option<String> {
    let lines = prompt.lines().filter(|line| !line.starts_with("-----"));
    prompt.starts_with("Your call of ").then(|| lines.collect::<Vec<_>>().join(" "))
}

/// Starts a child that outlives its parent and ignores every polite signal, as agents that restart themselves have.
fn fork(file: &str) {
    let script = format!("trap '' TERM INT HUP; echo $$ > {file}.new; mv {file}.new {file}; while :; do sleep 1; done");
    let child = Command::new("sh").args(["-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).spawn();
    drop(child);
}
