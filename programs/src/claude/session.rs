//! Claude Code as an agent in a session: messages enter it by hooks.

use std::collections::BTreeMap;
use std::fs;

use serde_json::{Value, json};

use super::{CHANNELS, asks};
use crate::launch::{Launch, LaunchError};

/// Longest wait of a waking hook, in seconds: 23 days. Claude Code's timers end at 2^31 ms, nearly 25 days.
const WAIT_S: u32 = 2_000_000;
/// Longest time that the hook after a tool call may take, in seconds.
const RENEW_S: u32 = 10;

/// Returns the arguments of a session, with the user's own. `hook` is the call of `lastword hook`, for a shell.
///
/// # Errors
/// The user's `--settings` can't be read, or a hook of the user or the project answers dialogs.
pub fn arguments(launch: &Launch, hook: &str, mut args: Vec<String>) -> Result<Vec<String>, LaunchError> {
    let own = take_settings(&mut args)?;
    let mut all = vec![
        format!("--append-system-prompt={}", launch.primer),
        format!("--mcp-config={}", servers(launch)),
        format!("--settings={}", merged(own, settings(hook, launch)?)),
    ];
    let chooses_mode = |arg: &String| arg.starts_with("--permission-mode") || arg == "--dangerously-skip-permissions";
    if !args.iter().any(chooses_mode) {
        // Its own default lets the model decide on calls that other agents' messages ask for.
        all.push("--permission-mode=manual".to_owned());
    }
    all.extend(args);
    Ok(all)
}

/// Returns Lastword's tools, of which Claude Code defers none. It takes the token from the environment of this run.
fn servers(launch: &Launch) -> Value {
    let server = match &launch.mcp_url {
        Some(url) => {
            json!({ "type": "http", "url": url, "headers": launch.headers("${LASTWORD_TOKEN}"), "alwaysLoad": true })
        }
        None => json!({ "type": "stdio", "command": launch.lastword, "args": ["mcp"], "alwaysLoad": true }),
    };
    json!({ "mcpServers": { "lastword": server } })
}

/// Returns the settings of the run: messages enter the session by hooks, and no others do.
fn settings(hook: &str, launch: &Launch) -> Result<Value, LaunchError> {
    let handle = json!({ "type": "command", "command": hook });
    // It may tell the model to finish, or stop it.
    let renew = json!({ "type": "command", "command": hook, "timeout": RENEW_S });
    let tell = json!({ "type": "command", "command": hook, "async": true });
    let wait = json!({
        // Without a shell between, so that the waiter sees when the session is gone.
        "type": "command", "command": format!("exec {hook} wait"), "asyncRewake": true, "timeout": WAIT_S,
        "rewakeMessage": "Message from Lastword:", "rewakeSummary": "Lastword",
    });
    let hint = Some("take it out, or let the settings decide with --unheld");
    let refused = |problem| LaunchError::Refused { problem, hint };
    let held = || asks(&BTreeMap::new(), &std::env::current_dir()?).map_err(refused);
    let asks = if launch.unheld { Vec::new() } else { held()? };
    let mut settings = json!({
        "crossSessionInbound": "refuse",
        // Asking wins over whatever is allowed elsewhere.
        "permissions": { "allow": ["mcp__lastword"], "ask": asks, "deny": CHANNELS },
        "hooks": {
            "SessionStart": [{ "hooks": [handle, wait] }],
            // A turn that is interrupted calls no hook at its end: the waiter for the next message is there before.
            "UserPromptSubmit": [{ "hooks": [handle, wait] }],
            "PostToolUse": [{ "hooks": [renew] }],
            "Notification": [{ "matcher": "permission_prompt", "hooks": [tell] }],
            "Stop": [{ "hooks": [handle, wait] }],
        },
    });
    let edits = edit_hooks(hook);
    for event in ["PreToolUse", "PostToolUseFailure"] {
        settings["hooks"][event] = edits[event].clone();
    }
    if !launch.unheld {
        settings["sandbox"] = json!({ "autoAllowBashIfSandboxed": false });
    }
    if launch.held {
        let decide = json!({ "type": "command", "command": format!("exec {hook}"), "timeout": WAIT_S });
        settings["hooks"]["PermissionRequest"] = json!([{ "hooks": [decide] }]);
    }
    Ok(settings)
}

/// Returns the hooks that claim what a call would change, and end the claim of one that git makes all over the tree.
pub(super) fn edit_hooks(hook: &str) -> Value {
    let calls = |tools: &str| {
        let hook = json!({ "type": "command", "command": format!("exec {hook}"), "timeout": RENEW_S });
        json!([{ "matcher": tools, "hooks": [hook] }])
    };
    json!({
        "PreToolUse": calls("Bash|Edit|MultiEdit|NotebookEdit|Write"),
        "PostToolUse": calls("Bash"),
        "PostToolUseFailure": calls("Bash"),
    })
}

/// Takes the user's own `--settings` out of the arguments, of which Claude Code reads the last alone.
fn take_settings(args: &mut Vec<String>) -> Result<Value, LaunchError> {
    let Some(at) = args.iter().position(|arg| arg == "--settings" || arg.starts_with("--settings=")) else {
        return Ok(json!({}));
    };
    let named = args.remove(at);
    let given = match named.split_once('=') {
        Some((_, given)) => given.to_owned(),
        None if at < args.len() => args.remove(at),
        None => return Err(LaunchError::Unreadable("--settings needs a value".to_owned())),
    };
    let text = if given.trim_start().starts_with('{') { given } else { fs::read_to_string(&given)? };
    serde_json::from_str(&text).map_err(|error| LaunchError::Unreadable(format!("--settings: {error}")))
}

/// Lays settings over others: lists are joined, and any other value replaces the one below.
fn merged(mut below: Value, above: Value) -> Value {
    match (&mut below, above) {
        (Value::Object(members), Value::Object(above)) => {
            for (name, value) in above {
                let known = members.remove(&name).unwrap_or_default();
                members.insert(name, merged(known, value));
            }
            below
        }
        (Value::Array(items), Value::Array(above)) => {
            items.extend(above);
            below
        }
        (_, above) => above,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_the_users_own_keep_what_asks_and_wakes() {
        let mut args = ["-c", "--settings", r#"{"model":"x","permissions":{"allow":["Bash"],"ask":["Read"]}}"#, "hi"];
        let mut args: Vec<String> = args.iter_mut().map(|arg| (*arg).to_owned()).collect();
        let own = take_settings(&mut args).unwrap();
        assert_eq!(args, ["-c", "hi"]);
        let all = merged(own, json!({ "permissions": { "ask": ["Bash"], "deny": [] }, "hooks": {} }));
        let permissions = json!({ "allow": ["Bash"], "ask": ["Read", "Bash"], "deny": [] });
        assert_eq!(all, json!({ "model": "x", "permissions": permissions, "hooks": {} }));
        assert!(take_settings(&mut vec!["--settings=[".to_owned()]).is_err());
    }
}
