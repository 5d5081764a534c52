//! Gemini CLI as an agent in a session. It reads a file of system settings that an environment variable names. Nothing wakes
//! an idle session but a hook that holds the end of a turn open, which its user sees; so that is an option.

use std::fs;

use serde_json::{Map, Value, json};

use super::{CHANNEL, GEMINI, policy, system, trusted};
use crate::files::jsonc;
use crate::launch::{Launch, LaunchError};
use crate::private::PrivateFolder;

/// The file with the agent's token in the folder of a session.
pub const TOKEN: &str = "token";
/// Longest call of a tool and longest run of a hook, in ms: `next_message` waits up to 5 min.
const TOOL_MS: u32 = 330_000;
const HOOK_MS: u32 = 30_000;
/// Longest wait of the waking hook, in ms.
const WAIT_MS: u32 = 86_400_000;

/// Returns the arguments of a session, with the user's own.
///
/// # Errors
/// An administrator's rules stand in the place of those that make it ask, or a file can't be made.
pub fn arguments(launch: &Launch, folder: &PrivateFolder, args: Vec<String>) -> Result<Vec<String>, LaunchError> {
    let mut all = Vec::new();
    if !launch.unheld {
        let policy = policy(folder).map_err(|problem| LaunchError::Refused { problem, hint: None })?;
        all.extend(["--admin-policy".to_owned(), policy.display().to_string()]);
    }
    let modes = ["--approval-mode", "--yolo", "-y"];
    let chooses_mode = |arg: &String| modes.contains(&arg.as_str()) || arg.starts_with("--approval-mode=");
    if !args.iter().any(chooses_mode) {
        all.push("--approval-mode=default".to_owned());
    }
    all.extend(args);
    Ok(all)
}

/// Names the session that `--resume` without a value means.
#[must_use]
pub fn with_latest(args: &[String]) -> Vec<String> {
    let bare = |at: usize| {
        GEMINI.resume.id.contains(&args[at].as_str()) && args.get(at + 1).is_none_or(|next| next.starts_with('-'))
    };
    (0..args.len()).map(|at| if bare(at) { "--resume=latest".to_owned() } else { args[at].clone() }).collect()
}

/// Returns the settings of the run, on top of those of the system.
///
/// # Errors
/// The system's settings can't be read.
pub fn settings(launch: &Launch, folder: &PrivateFolder, hook: &str, wake: bool) -> Result<Value, LaunchError> {
    let system = system();
    let mut settings = match fs::read_to_string(&system) {
        Ok(text) => jsonc(&text).map_err(|error| LaunchError::Unreadable(format!("{}: {error}", system.display())))?,
        Err(_) => Value::Null,
    };
    if !settings.is_object() {
        settings = json!({});
    }
    let headers = launch.headers(&launch.token);
    let server = match &launch.mcp_url {
        Some(url) => json!({ "httpUrl": url, "headers": headers, "trust": true, "timeout": TOOL_MS }),
        None => {
            // Gemini CLI hides variables with TOKEN in their name from MCP servers.
            let args = launch.mcp(&folder.path().join(TOKEN));
            json!({ "command": launch.lastword, "args": args, "trust": true, "timeout": TOOL_MS })
        }
    };
    let servers = object(&mut settings, "mcpServers");
    if !launch.unheld {
        let trusted = trusted(&std::env::current_dir()?);
        servers.extend(trusted.into_iter().map(|(name, (_, server))| (name, server)));
    }
    servers.insert("lastword".to_owned(), server);
    append(object(&mut settings, "tools"), "exclude", json!(CHANNEL));
    let hooks = object(&mut settings, "hooks");
    let handle = |line: String, ms: u32| json!({ "hooks": [{ "type": "command", "command": line, "timeout": ms }] });
    for event in ["SessionStart", "BeforeAgent", "AfterTool", "Notification"] {
        append(hooks, event, handle(hook.to_owned(), HOOK_MS));
    }
    let mut claim = handle(hook.to_owned(), HOOK_MS);
    claim["matcher"] = json!("replace|run_shell_command|write_file");
    append(hooks, "BeforeTool", claim);
    let end = if wake { handle(format!("exec {hook} wait"), WAIT_MS) } else { handle(hook.to_owned(), HOOK_MS) };
    append(hooks, "AfterAgent", end);
    Ok(settings)
}

/// Returns the object called `name`, in place of anything else there.
fn object<'a>(parent: &'a mut Value, name: &str) -> &'a mut Map<String, Value> {
    if !parent[name].is_object() {
        parent[name] = json!({});
    }
    match &mut parent[name] {
        Value::Object(members) => members,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => unreachable!(),
    }
}

fn append(parent: &mut Map<String, Value>, name: &str, entry: Value) {
    match parent.get_mut(name) {
        Some(Value::Array(list)) => list.push(entry),
        Some(_) | None => {
            parent.insert(name.to_owned(), json!([entry]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::with_latest;

    #[test]
    fn a_resume_without_a_session_is_of_the_latest() {
        let named = |args: &str| with_latest(&args.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ");
        assert_eq!(named("--resume"), "--resume=latest");
        assert_eq!(named("-r --debug"), "--resume=latest --debug");
        assert_eq!(named("-r 3 --debug"), "-r 3 --debug");
    }
}
