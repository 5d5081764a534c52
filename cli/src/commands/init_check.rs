//! `lastword init --check`: starts what a configuration starts, as the agent program would, and asks the program itself.

use std::io::ErrorKind;
use std::process::{Output, Stdio};
use std::time::Duration;

use lastword_facts::names::OWN_NAME;
use lastword_programs::{AgentProgram, Identity};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use super::Context;
use super::init_clients::{configured, owner_name};
use crate::failure::Failure;
use crate::session::Authority;

/// Time for the handshake and the list of tools.
const HANDSHAKE: Duration = Duration::from_secs(15);
/// Time for the program's own list, which starts all of its servers.
const LIST: Duration = Duration::from_secs(60);
/// Most bytes read of an answer or of standard error.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

/// Tests the configuration of this folder; returns what was found.
pub(super) async fn check(program: &AgentProgram, cx: &Context) -> Result<Vec<String>, Failure> {
    let (name, command, flag) = (program.name, program.command.names[0], program.option());
    let words = configured(program).map_err(Failure::refused)?;
    let words = words.filter(|words| !words.is_empty()).ok_or_else(|| {
        Failure::refused(format!("{name} has no command that starts Lastword here"))
            .hint(format!("`lastword --token-file NAME.token init {flag}` adds one"))
    })?;
    let tools = match timeout(HANDSHAKE, handshake(&words)).await {
        Ok(tools) => tools,
        Err(_) => Err(format!("no answer within {} s", HANDSHAKE.as_secs())),
    };
    let tools = tools.map_err(|problem| {
        Failure::refused(format!("{name}: the configured command fails: {problem}")).hint(words.join(" "))
    })?;
    let owner = match Identity::of(&words) {
        Identity::Session => {
            format!("{}, by the token of this environment", cx.client(Authority::Act)?.agent(OWN_NAME).await?.name)
        }
        named @ (Identity::Agent(_) | Identity::Human(_)) => owner_name(&named, &cx.endpoint()?).await,
    };
    let mut found = vec![format!("{name} starts Lastword as {owner}: {} tools", tools.len())];
    let open = (program.open_channels)();
    found.push(if open.is_empty() {
        "its channels past the broker are off".to_owned()
    } else {
        format!("its channels past the broker are on: {}; `lastword init {flag}` turns them off", open.join(", "))
    });
    if let Some(line) = listed(command).await? {
        found.push(format!("`{command} mcp list`: {line}"));
    }
    Ok(found)
}

/// Starts the command and lists its tools over MCP.
async fn handshake(words: &[String]) -> Result<Vec<String>, String> {
    let Some((program, args)) = words.split_first() else { return Err("no command".to_owned()) };
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("{program}: {error}"))?;
    let (Some(mut stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err("it has no input and output".to_owned());
    };
    let client = json!({ "name": "lastword-init", "version": env!("CARGO_PKG_VERSION") });
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let mut lines = BufReader::new(stdout.take(ANSWER_BYTES_MAX));
    let asked = [
        vec![json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })],
        vec![
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }),
        ],
    ];
    let mut answer = Value::Null;
    for messages in asked {
        for message in messages {
            // A command that refused has closed its input; its standard error says why.
            let _closed = stdin.write_all(format!("{message}\n").as_bytes()).await;
        }
        let mut line = String::new();
        let read = lines.read_line(&mut line).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err(said(stderr).await);
        }
        answer = serde_json::from_str(&line).map_err(|error| format!("its answer isn't JSON: {error}"))?;
    }
    let tools = answer["result"]["tools"].as_array().ok_or_else(|| format!("it lists no tools: {answer}"))?;
    if tools.is_empty() {
        drop(stdin);
        return Err(said(stderr).await);
    }
    Ok(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect())
}

/// Returns what a command wrote to standard error.
async fn said(stderr: impl AsyncRead + Unpin) -> String {
    let mut text = String::new();
    // A broken pipe or text that isn't UTF-8 leaves the part that was read.
    let _partial = stderr.take(ANSWER_BYTES_MAX).read_to_string(&mut text).await;
    let line = text.lines().filter(|line| !line.trim().is_empty()).collect::<Vec<_>>().join("; ");
    if line.is_empty() { "it ended without a word".to_owned() } else { line }
}

/// Returns what the program itself reports of Lastword; `None` if it isn't installed.
async fn listed(command: &str) -> Result<Option<String>, Failure> {
    let list = Command::new(command).args(["mcp", "list"]).stdin(Stdio::null()).kill_on_drop(true).output();
    let output: Output = match timeout(LIST, list).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Ok(Err(error)) => return Ok(Some(error.to_string())),
        Err(_) => return Ok(Some(format!("no answer within {} s", LIST.as_secs()))),
    };
    let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    let line = text.lines().find(|line| line.contains("lastword"));
    Ok(Some(line.map_or_else(
        || "it doesn't list the server `lastword`; trust this folder in the program first".to_owned(),
        |line| plain(line).trim().to_owned(),
    )))
}

/// Returns the text without escape sequences, which some programs print without a terminal, too.
fn plain(line: &str) -> String {
    let (mut text, mut inside) = (String::new(), false);
    for c in line.chars() {
        match c {
            '\u{1b}' => inside = true,
            c if inside => inside = !c.is_ascii_alphabetic(),
            c => text.push(c),
        }
    }
    text
}
