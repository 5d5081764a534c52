//! `lastword gemini`: Gemini CLI as an agent of the workspace, in this terminal and for this run alone.
//!
//! Gemini CLI reads a file of system settings that an environment variable names. Nothing wakes an idle session but a
//! hook that holds the end of a turn open, which its user sees; so that is an option.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use lastword_runner::{GEMINI_SETTINGS, PrivateFolder, gemini_policy, gemini_system, gemini_trusted};
use serde_json::{Map, Value, json};

use super::Context;
use super::channels::GEMINI_CHANNEL;
use super::hook::state_folder;
use super::last_session::Options;
use super::launch::{CLIENT, Calls, Place, exit, this_program};
use crate::failure::Failure;
use crate::out::quoted;

/// Longest call of a tool and longest run of a hook, in ms: `next_message` waits up to 5 min.
const TOOL_MS: u32 = 330_000;
const HOOK_MS: u32 = 30_000;
/// Longest wait of the waking hook, in ms.
const WAIT_MS: u32 = 86_400_000;
/// Permission of others than the owner to write.
const OTHERS_WRITE: u32 = 0o022;
pub(super) const OPTIONS: Options = Options {
    program: "Gemini CLI",
    last: &[&["--continue"], &["--resume=latest"], &["--resume", "latest"], &["-r", "latest"]],
    id: &["--resume", "-r"],
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: gemini, or gemini-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Wake the idle session: each turn's end waits for a message, and Esc frees the session for its user.
    #[arg(long)]
    wake: bool,
    /// Arguments for Gemini CLI.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    if args.calls.held {
        return Err(Failure::refused("Gemini CLI lets no other program answer its dialogs").hint(
            "leave --held out, so that it asks you, or use `lastword run --driver acp --as NAME -- gemini --acp`",
        ));
    }
    let place = Place::take("gemini", (args.name.as_deref(), &args.args, &OPTIONS), cx).await?;
    let (calls, wake) = (args.calls, args.wake);
    let args = place.resumed(&with_latest(&args.args), &OPTIONS)?.0;
    let parent = private_parent(cx)?;
    let folder = PrivateFolder::make(&parent, "gemini-")?;
    folder.write("token", place.token())?;
    let file = folder.write("settings.json", &settings(&place, folder.path(), calls, wake)?.to_string())?;
    let mut command = Command::new("gemini");
    if !calls.unheld {
        command.arg("--admin-policy").arg(gemini_policy(&folder).map_err(Failure::refused)?);
    }
    let modes = ["--approval-mode", "--yolo", "-y"];
    let chooses_mode = |arg: &String| modes.contains(&arg.as_str()) || arg.starts_with("--approval-mode=");
    if !args.iter().any(chooses_mode) {
        command.arg("--approval-mode=default");
    }
    command.args(&args).env(GEMINI_SETTINGS, &file);
    place.greet(calls);
    if !wake {
        eprintln!(
            "messages come with your prompts and after your turns; an idle session isn't woken. `--wake` wakes it, and \
             `lastword run --driver acp --as NAME -- gemini --acp` serves messages unattended"
        );
    }
    let status = place.beside(command, place.look_after(folder.path(), false)).await;
    drop(folder);
    exit(status?)
}

/// Names the session that `--resume` without a value means.
fn with_latest(args: &[String]) -> Vec<String> {
    let bare = |at: usize| {
        OPTIONS.id.contains(&args[at].as_str()) && args.get(at + 1).is_none_or(|next| next.starts_with('-'))
    };
    (0..args.len()).map(|at| if bare(at) { "--resume=latest".to_owned() } else { args[at].clone() }).collect()
}

/// Returns a folder for the settings: Gemini CLI skips a file below a folder to which others may write.
fn private_parent(cx: &Context) -> Result<PathBuf, Failure> {
    let candidates = [state_folder(), Some(cx.settings.data.join("sessions"))];
    for folder in candidates.into_iter().flatten() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let folder = folder.canonicalize()?;
        let open = |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & OTHERS_WRITE != 0);
        if !folder.ancestors().any(open) {
            return Ok(folder);
        }
    }
    Err(Failure::refused("Gemini CLI reads no settings below a folder to which others may write")
        .hint("name a data directory with --data whose folders only you may write to"))
}

/// Returns the settings of the run, on top of those of the system.
fn settings(place: &Place, folder: &Path, calls: Calls, wake: bool) -> Result<Value, Failure> {
    let system = gemini_system();
    let mut settings = match fs::read_to_string(&system) {
        Ok(text) => parse_to_serde_value::<Value>(&text, &ParseOptions::default())
            .map_err(|error| Failure::usage(format!("{}: {error}", system.display())))?,
        Err(_) => Value::Null,
    };
    if !settings.is_object() {
        settings = json!({});
    }
    let headers = json!({ "Authorization": format!("Bearer {}", place.token()), "Lastword-Client": CLIENT });
    let server = match place.mcp_url() {
        Some(url) => json!({ "httpUrl": url, "headers": headers, "trust": true, "timeout": TOOL_MS }),
        None => {
            // Gemini CLI hides variables with TOKEN in their name from MCP servers.
            let token = folder.join("token").display().to_string();
            let token = ["--token-file".to_owned(), token, "mcp".to_owned()];
            let args: Vec<String> = place.endpoint.flags().into_iter().chain(token).collect();
            json!({ "command": this_program()?, "args": args, "trust": true, "timeout": TOOL_MS })
        }
    };
    let servers = object(&mut settings, "mcpServers");
    if !calls.unheld {
        let trusted = gemini_trusted(&std::env::current_dir()?);
        servers.extend(trusted.into_iter().map(|(name, (_, server))| (name, server)));
    }
    servers.insert("lastword".to_owned(), server);
    append(object(&mut settings, "tools"), "exclude", json!(GEMINI_CHANNEL));
    let line = hook_line(place, folder)?;
    let hooks = object(&mut settings, "hooks");
    let hook = |line: String, ms: u32| json!({ "hooks": [{ "type": "command", "command": line, "timeout": ms }] });
    for event in ["SessionStart", "BeforeAgent", "AfterTool", "Notification"] {
        append(hooks, event, hook(line.clone(), HOOK_MS));
    }
    let end = if wake { hook(format!("exec {line} wait"), WAIT_MS) } else { hook(line, HOOK_MS) };
    append(hooks, "AfterAgent", end);
    Ok(settings)
}

/// Returns the call of this program's hook, for a shell. Gemini CLI may hide a token in the environment from it.
fn hook_line(place: &Place, folder: &Path) -> Result<String, Failure> {
    let (program, server) = (std::env::current_exe()?, place.endpoint.flags());
    let (token, state) = (folder.join("token"), folder);
    let (last, at) = (&place.last.file, Path::new(&place.last.folder));
    let hook = ["--state", "--keep"].map(Path::new);
    let rest = [Path::new("--token-file"), &token, Path::new("hook"), hook[0], state, hook[1], last, at];
    let words = [program.as_path()].into_iter().chain(server.iter().map(Path::new)).chain(rest);
    let mut line = Vec::new();
    for word in words {
        let word = word.to_str().ok_or_else(|| Failure::usage(format!("{}: the path isn't UTF-8", word.display())))?;
        line.push(quoted(word));
    }
    Ok(line.join(" "))
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
