//! Gemini CLI, which speaks ACP as `gemini --acp`.
//!
//! What stands here was seen with Gemini CLI 0.61.0.

mod held;
mod output;
mod session;

use std::path::PathBuf;

use agent_client_protocol_schema::v1::Meta;
use jsonc_parser::cst::{CstInputValue, CstNode, CstObject};
use lastword_client::wire::{ModelUsage, Usage};
use serde_json::Value;

pub use self::held::SETTINGS;
use self::held::{policy, system, trusted};
pub use self::session::{TOKEN, arguments, settings, with_latest};
use crate::configuration::{
    File, Identity, Invocation, Step, calls, list, members, object, remove_if_empty, server, started, stepped,
};
use crate::files::{jsonc, lists, read, set};
use crate::program::{Acp, AgentProgram, Command, Resume, SessionToken, Transcript};

/// The tool that starts sub-agents.
const CHANNEL: &str = "invoke_agent";
/// The file of settings in a home and in a project, and its member that holds the servers.
const FILE: &str = ".gemini/settings.json";
const SERVERS: &str = "mcpServers";
/// What a transcript has once the user broke the turn off.
const CANCELLED: &str = "Request cancelled.";

/// Gemini CLI, `gemini`.
pub static GEMINI: AgentProgram = AgentProgram {
    name: "Gemini CLI",
    command: Command {
        names: &["gemini", "gemini-cli"],
        package: "@google/gemini-cli",
        tried: "0.61.0",
        held: "over ACP",
    },
    adapter: None,
    variables: &["GEMINI_CLI"],
    start: |_, _| {},
    flags: output::flags,
    output: |_model| Box::new(output::GeminiOutput),
    transcript: Some(Transcript { form: || Box::new(output::Transcript::default()), breaks_off }),
    acp: Acp { hold: held::hold, meta_usage, token: SessionToken::Text, metered: false, ..Acp::UNKNOWN },
    files: &[File { path: FILE, change: |text, step| stepped(text, step, change), calls: |text| calls(text, SERVERS) }],
    changes: FILE,
    earlier_file: || None,
    next: "run `gemini` in this folder and trust it once",
    // The program passes only the variables to the server that its entry lists, and an unset one as empty.
    token: "LASTWORD_TOKEN=\"$(cat NAME.token)\"",
    open_channels,
    resume: Resume {
        last: &[&["--continue"], &["--resume=latest"], &["--resume", "latest"], &["-r", "latest"]],
        id: &["--resume", "-r"],
    },
};

fn meta_usage(meta: &Meta) -> Option<Usage> {
    let quota = meta.get("quota")?;
    let (input_tokens, output_tokens) = counted(quota)?;
    let part = |part: &Value| {
        let (input, output) = counted(part)?;
        let (model, tokens) = (part.get("model")?.as_str()?.to_owned(), input.saturating_add(output));
        Some(ModelUsage { model, tokens, ..ModelUsage::default() })
    };
    let models = quota.get("model_usage").and_then(Value::as_array).into_iter().flatten().filter_map(part);
    Some(Usage { input_tokens, output_tokens, models: models.collect(), ..Usage::default() })
}

fn breaks_off(line: &Value) -> Option<bool> {
    match line["type"].as_str()? {
        "gemini" => Some(false),
        "info" => (line["content"] == CANCELLED).then_some(true),
        _ => None,
    }
}

fn open_channels() -> Vec<String> {
    let user = set("HOME").map(|home| home.join(FILE));
    let found = read([PathBuf::from(FILE)].into_iter().chain(user), jsonc);
    let off = found.iter().any(|file| lists(&file["tools"]["exclude"], CHANNEL));
    if off { Vec::new() } else { vec![format!("sub-agents ({CHANNEL})")] }
}

/// Returns the tokens read and written that Gemini CLI counts, of a whole prompt or of one model.
fn counted(of: &Value) -> Option<(u64, u64)> {
    let count = of.get("token_count")?;
    let number = |name| count.get(name)?.as_u64();
    Some((number("input_tokens")?, number("output_tokens")?))
}

/// Changes the MCP server, and the exclusion of sub-agents.
fn change(root: &CstObject, step: Step<'_>) -> Result<(), String> {
    server(root, SERVERS, step, lastword)?;
    if step.removes() {
        remove_exclusion(root);
    }
    if step.team().is_some() {
        let exclude = list(&object(root, "tools")?, "exclude")?;
        if !exclude.elements().iter().any(is_channel) {
            exclude.append(CHANNEL.into());
        }
    }
    Ok(())
}

/// Returns the server of Lastword.
fn lastword(call: &Invocation) -> CstInputValue {
    let mut server = started(call);
    if call.identity == Identity::Session {
        // Variables with TOKEN in their name are hidden from MCP servers that don't list them.
        server.push(("env", members(vec![("LASTWORD_TOKEN", "$LASTWORD_TOKEN".into())])));
    }
    // Each decision with a human's token is asked for; an agent's tools need no confirmation.
    if !matches!(call.identity, Identity::Human(_)) {
        server.push(("trust", true.into()));
    }
    members(server)
}

fn remove_exclusion(root: &CstObject) {
    let Some(tools) = root.object_value("tools") else { return };
    let Some(exclude) = tools.array_value("exclude") else { return };
    // `init` adds at the end.
    if let Some(last) = exclude.elements().pop().filter(is_channel) {
        last.remove();
        remove_if_empty(&tools, "exclude");
        remove_if_empty(root, "tools");
    }
}

fn is_channel(node: &CstNode) -> bool {
    node.to_string() == format!("{CHANNEL:?}")
}
