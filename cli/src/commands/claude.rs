//! `lastword claude`: Claude Code as an agent of the workspace, in this terminal and for this run alone.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use lastword_runner::{CLAUDE_CHANNELS, PrivateFolder, claude_asks};
use lastword_server::edges::mcp::PRIMER;
use serde_json::{Value, json};

use super::Context;
use super::last_session::{LastSession, Options};
use super::launch::{CLIENT, Calls, Place, exit, this_program};
use crate::failure::Failure;
use crate::out::quoted;

/// Longest wait of a waking hook, in seconds: 23 days. Claude Code's timers end at 2^31 ms, nearly 25 days.
const WAIT_S: u32 = 2_000_000;
/// Longest time that the hook after a tool call may take, in seconds.
const RENEW_S: u32 = 10;
pub(super) const OPTIONS: Options =
    Options { program: "Claude Code", last: &[&["--continue"], &["-c"]], id: &["--resume", "-r"] };

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: claude, or claude-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Arguments for Claude Code.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let place = Place::take("claude", (args.name.as_deref(), &args.args, &OPTIONS), cx).await?;
    let calls = args.calls;
    let (mut args, _) = place.resumed(&args.args, &OPTIONS)?;
    let own = take_settings(&mut args)?;
    let mut command = Command::new("claude");
    command.arg(format!("--append-system-prompt={PRIMER}"));
    command.arg(format!("--mcp-config={}", servers(&place)?));
    let state = PrivateFolder::make(&std::env::temp_dir(), "lastword-")?;
    command.arg(format!("--settings={}", merged(own, settings(&hook_command(state.path(), &place.last)?, calls)?)));
    let chooses_mode = |arg: &String| arg.starts_with("--permission-mode") || arg == "--dangerously-skip-permissions";
    if !args.iter().any(chooses_mode) {
        // Its own default lets the model decide on calls that other agents' messages ask for.
        command.arg("--permission-mode=manual");
    }
    command.args(&args);
    place.greet(calls);
    let status = place.beside(command, place.look_after(state.path(), true)).await;
    // `exit` runs no destructors.
    drop(state);
    exit(status?)
}

/// Returns Lastword's tools, of which Claude Code defers none. It takes the token from the environment of this run.
fn servers(place: &Place) -> Result<Value, Failure> {
    let server = match place.mcp_url() {
        Some(url) => {
            let headers = json!({ "Authorization": "Bearer ${LASTWORD_TOKEN}", "Lastword-Client": CLIENT });
            json!({ "type": "http", "url": url, "headers": headers, "alwaysLoad": true })
        }
        None => json!({ "type": "stdio", "command": this_program()?, "args": ["mcp"], "alwaysLoad": true }),
    };
    Ok(json!({ "mcpServers": { "lastword": server } }))
}

/// Returns the settings of the run: messages enter the session by hooks, and no others do.
fn settings(hook: &str, calls: Calls) -> Result<Value, Failure> {
    let handle = json!({ "type": "command", "command": hook });
    // It may tell the model to finish, or stop it.
    let renew = json!({ "type": "command", "command": hook, "timeout": RENEW_S });
    let tell = json!({ "type": "command", "command": hook, "async": true });
    let wait = json!({
        // Without a shell between, so that the waiter sees when the session is gone.
        "type": "command", "command": format!("exec {hook} wait"), "asyncRewake": true, "timeout": WAIT_S,
        "rewakeMessage": "Message from Lastword:", "rewakeSummary": "Lastword",
    });
    let asks = if calls.unheld {
        Vec::new()
    } else {
        claude_asks(&BTreeMap::new(), &std::env::current_dir()?)
            .map_err(|why| Failure::refused(why).hint("take it out, or let the settings decide with --unheld"))?
    };
    let mut settings = json!({
        "crossSessionInbound": "refuse",
        // Asking wins over whatever is allowed elsewhere.
        "permissions": { "allow": ["mcp__lastword"], "ask": asks, "deny": CLAUDE_CHANNELS },
        "hooks": {
            "SessionStart": [{ "hooks": [handle, wait] }],
            // A turn that is interrupted calls no hook at its end: the waiter for the next message is there before.
            "UserPromptSubmit": [{ "hooks": [handle, wait] }],
            "PostToolUse": [{ "hooks": [renew] }],
            "Notification": [{ "matcher": "permission_prompt", "hooks": [tell] }],
            "Stop": [{ "hooks": [handle, wait] }],
        },
    });
    if !calls.unheld {
        settings["sandbox"] = json!({ "autoAllowBashIfSandboxed": false });
    }
    if calls.held {
        let decide = json!({ "type": "command", "command": format!("exec {hook}"), "timeout": WAIT_S });
        settings["hooks"]["PermissionRequest"] = json!([{ "hooks": [decide] }]);
    }
    Ok(settings)
}

/// Takes the user's own `--settings` out of the arguments, of which Claude Code reads the last alone.
fn take_settings(args: &mut Vec<String>) -> Result<Value, Failure> {
    let Some(at) = args.iter().position(|arg| arg == "--settings" || arg.starts_with("--settings=")) else {
        return Ok(json!({}));
    };
    let named = args.remove(at);
    let given = match named.split_once('=') {
        Some((_, given)) => given.to_owned(),
        None if at < args.len() => args.remove(at),
        None => return Err(Failure::usage("--settings needs a value")),
    };
    let text = if given.trim_start().starts_with('{') { given } else { fs::read_to_string(&given)? };
    serde_json::from_str(&text).map_err(|error| Failure::usage(format!("--settings: {error}")))
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

/// Returns the call of this program's hook, for a shell.
fn hook_command(state: &Path, last: &LastSession) -> Result<String, Failure> {
    let [state, file, folder] =
        [state.to_string_lossy(), last.file.to_string_lossy(), last.folder.as_str().into()].map(|word| quoted(&word));
    Ok(format!("{} hook --state {state} --keep {file} {folder}", quoted(&this_program()?)))
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
