//! Claude Code, and its ACP adapter.
//!
//! What stands here was seen with Claude Code 2.1.332 and claude-agent-acp 0.101.0.

mod configuration;
mod output;
mod session;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use agent_client_protocol_schema::v1::Meta;
use jsonc_parser::cst::CstInputValue;
use serde_json::{Value, json};

pub use self::session::arguments;
use crate::configuration::{File, Invocation, calls, members, server, started, stepped};
use crate::files::{jsonc, lists, main_worktree, read, set, set_or_home};
use crate::private::PrivateFolder;
use crate::program::{Acp, AcpUsage, AgentProgram, Command, Resume, SessionToken, Transcript};
use crate::settings::Settings;

/// Tools that reach other sessions, or start turns later.
const CHANNELS: [&str; 5] = ["ListAgents", "SendMessage", "CronCreate", "ScheduleWakeup", "Monitor"];
/// Tools that act. `permissions.ask` overrides a user's own `allow` rules.
const ACTS: [&str; 5] = ["Bash", "Edit", "NotebookEdit", "WebFetch", "Write"];
/// Tools that change nothing.
const READS: [&str; 7] = ["Glob", "Grep", "LS", "NotebookRead", "Read", "TodoWrite", "ToolSearch"];
/// The folder of settings in a home and in a project, and the variable that names another one than that of the home.
const FOLDER: &str = ".claude";
const CONFIG: &str = "CLAUDE_CONFIG_DIR";
/// The settings of one user in a folder.
const SETTINGS: &str = ".claude/settings.local.json";
/// The member of `.mcp.json` that holds the servers.
const SERVERS: &str = "mcpServers";
/// The hook that can answer in place of a dialog.
const DECIDES: &str = "PermissionRequest";
/// What a transcript has in the name of a user who broke the turn off.
const INTERRUPTED: &str = "[Request interrupted by user";

/// How the settings begin that a run as a command gets, with the hook that claims its edits.
pub(crate) const OWN_SETTINGS: &str = r#"--settings={"crossSessionInbound""#;

/// Claude Code, `claude`, and its adapter, `claude-agent-acp`.
pub static CLAUDE: AgentProgram = AgentProgram {
    name: "Claude Code",
    command: Command {
        names: &["claude", "claude-code"],
        package: "@anthropic-ai/claude-code",
        tried: "2.1.332",
        held: "with `--permission-prompt-tool`",
    },
    adapter: Some(Command {
        names: &["claude-agent-acp", "claude-code-acp"],
        package: "@agentclientprotocol/claude-agent-acp",
        tried: "0.101.0",
        held: "yes",
    }),
    variables: &["CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SESSION_ID"],
    start,
    flags: output::flags,
    output: |_model| Box::new(output::ClaudeOutput::default()),
    transcript: Some(Transcript { form: || Box::new(output::ClaudeOutput::default()), breaks_off }),
    acp: Acp {
        hold,
        session_meta,
        meta_tool: |meta| meta.get("claudeCode")?.get("toolName")?.as_str(),
        token: SessionToken::Variable,
        usage: AcpUsage::WithoutTitles,
        metered: false,
        ..Acp::UNKNOWN
    },
    files: &[
        File {
            path: ".mcp.json",
            change: |text, step| stepped(text, step, |root, step| server(root, SERVERS, step, lastword)),
            calls: |text| calls(text, SERVERS),
        },
        File {
            path: SETTINGS,
            change: |text, step| stepped(text, step, configuration::change),
            calls: configuration::hooks,
        },
    ],
    changes: ".mcp.json, and hooks and permissions in .claude/settings.local.json",
    earlier_file: || None,
    next: "run `claude` in this folder and approve the server `lastword` once",
    token: "LASTWORD_TOKEN_FILE=\"$PWD/NAME.token\"",
    open_channels,
    resume: Resume { last: &[&["--continue"], &["-c"]], id: &["--resume", "-r"] },
};

fn start(settings: &mut Settings, at: usize) {
    // The list stands behind a `=` and first, because the flag takes every argument that follows it.
    let mut added = vec![format!("--disallowedTools={}", CHANNELS.join(","))];
    if !settings.args.iter().any(|arg| arg == "--settings" || arg.starts_with("--settings=")) {
        let lastword = settings.lastword.display().to_string().replace('\'', r"'\''");
        let hook = format!("'{lastword}' hook");
        let own = json!({ "crossSessionInbound": "refuse", "hooks": session::edit_hooks(&hook) });
        added.push(format!("--settings={own}"));
    }
    settings.args.splice(at..at, added);
}

fn hold(settings: &mut Settings, _folder: &PrivateFolder) -> Result<(), String> {
    asks(&settings.env, &settings.cwd).map(drop).map_err(|why| format!("{why}; take it out, or run it with --unheld"))
}

fn session_meta(settings: &Settings) -> Result<Option<Meta>, String> {
    let ask = if settings.unheld { Vec::new() } else { asks(&settings.env, &settings.cwd)? };
    let mut own = json!({
        "crossSessionInbound": "refuse",
        "permissions": { "allow": ["mcp__lastword"], "ask": ask },
    });
    if !settings.unheld {
        own["sandbox"] = json!({ "autoAllowBashIfSandboxed": false });
    }
    // The adapter doesn't report the tokens of a suggested prompt, which the runner has no use for.
    let options = json!({ "disallowedTools": CHANNELS, "promptSuggestions": false, "settings": own });
    Ok(json!({ "claudeCode": { "options": options } }).as_object().cloned())
}

fn breaks_off(line: &Value) -> Option<bool> {
    match line["type"].as_str()? {
        "assistant" => Some(false),
        "user" if line.get("message").is_some() => Some(line.to_string().contains(INTERRUPTED)),
        _ => None,
    }
}

fn open_channels() -> Vec<String> {
    let user = set_or_home(CONFIG, FOLDER).map(|folder| folder.join("settings.json"));
    let found = read([SETTINGS, ".claude/settings.json"].map(PathBuf::from).into_iter().chain(user), jsonc);
    let denied = |tool: &str| found.iter().any(|file| lists(&file["permissions"]["deny"], tool));
    let mut open: Vec<String> = CHANNELS.into_iter().filter(|tool| !denied(tool)).map(str::to_owned).collect();
    if !found.iter().any(|file| file["crossSessionInbound"] == "refuse") {
        open.push("messages from other sessions (crossSessionInbound)".to_owned());
    }
    open
}

/// Returns the server of Lastword.
fn lastword(call: &Invocation) -> CstInputValue {
    let mut server = started(call);
    // Otherwise no MCP tool is shown to the model until it has searched for it.
    server.push(("alwaysLoad", true.into()));
    members(server)
}

/// Returns the tools for which Claude Code asks in `cwd` whatever else the settings of its user, of the project and of the
/// folders above allow: those that act, and each that they allow by name. `env` goes before this process's environment.
///
/// # Errors
/// A hook in one of them decides in place of its dialogs.
fn asks(env: &BTreeMap<String, String>, cwd: &Path) -> Result<Vec<String>, String> {
    let set = |name: &str| env.get(name).map(PathBuf::from).or_else(|| set(name));
    let own = set(CONFIG).or_else(|| Some(set("HOME")?.join(FOLDER)));
    // In a linked worktree the program also reads the local settings of the main one.
    let main = main_worktree_of(cwd);
    let projects = cwd.ancestors().chain(main.as_deref());
    let folders = own.into_iter().chain(projects.map(|project| project.join(FOLDER)));
    let files = folders.flat_map(|folder| ["settings.json", "settings.local.json"].map(|file| folder.join(file)));
    let mut asks: Vec<String> = ACTS.map(str::to_owned).to_vec();
    for file in files {
        let settings: Value =
            fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        if settings["hooks"][DECIDES].as_array().is_some_and(|hooks| !hooks.is_empty()) {
            return Err(format!("the {DECIDES} hook in {} answers Claude Code's dialogs first", file.display()));
        }
        let allowed = settings["permissions"]["allow"].as_array().map(Vec::as_slice).unwrap_or_default();
        for rule in allowed.iter().filter_map(Value::as_str) {
            let tool = rule.split('(').next().unwrap_or(rule).trim();
            let reads = READS.contains(&tool) || tool.starts_with("mcp__lastword");
            if !reads && !asks.iter().any(|known| known == tool) {
                asks.push(tool.to_owned());
            }
        }
    }
    Ok(asks)
}

/// Returns the main worktree of the repository in which a folder lies, if that is a linked worktree.
fn main_worktree_of(here: &Path) -> Option<PathBuf> {
    main_worktree(here.ancestors().find(|folder| folder.join(".git").exists())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program;
    use crate::program::testing::{prepared, settings};
    use crate::settings::Driver;

    #[test]
    fn a_program_under_run_gets_no_channel_past_the_broker_also_unheld() {
        let claude = prepared(Driver::Command, "npx claude -p").args;
        let denied = "--disallowedTools=ListAgents,SendMessage,CronCreate,ScheduleWakeup,Monitor";
        assert_eq!([&claude[0], &claude[1], &claude[3]], ["claude", denied, "-p"]);
        let own: Value = serde_json::from_str(claude[2].strip_prefix("--settings=").unwrap()).unwrap();
        assert_eq!(own["crossSessionInbound"], "refuse");
        assert_eq!(own["hooks"]["PreToolUse"][0]["hooks"][0]["command"], "exec 'lastword' hook");
        let meta = session_meta(&settings(Driver::Acp, "claude-agent-acp")).unwrap().unwrap();
        let options = &meta["claudeCode"]["options"];
        assert_eq!(options["disallowedTools"], json!(CHANNELS));
        assert_eq!(options["settings"]["crossSessionInbound"], "refuse");
    }

    #[test]
    fn claude_over_acp_asks_for_what_settings_allow_by_name_and_a_hook_that_decides_is_refused() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (home, work) = (folder.path().join("home"), folder.path().join("repo/deep"));
        let settings_file = |above: &Path| above.join(FOLDER).join("settings.json");
        for above in [&home, &folder.path().join("repo")] {
            fs::create_dir_all(above.join(FOLDER)).unwrap();
        }
        let allows = |tool: &str| json!({ "permissions": { "allow": [tool] } }).to_string();
        fs::write(settings_file(&home), allows("mcp__files__push(x)")).unwrap();
        fs::write(settings_file(&folder.path().join("repo")), allows("WebSearch")).unwrap();
        let mut held = settings(Driver::Acp, "claude-agent-acp");
        (held.cwd, held.unheld) = (work, false);
        held.env.insert("HOME".to_owned(), home.display().to_string());
        held.env.insert(CONFIG.to_owned(), home.join(FOLDER).display().to_string());
        let asks = |held: &Settings| {
            let meta = session_meta(held).unwrap().unwrap();
            meta["claudeCode"]["options"]["settings"]["permissions"]["ask"].clone()
        };
        let all: Vec<&str> = ACTS.into_iter().chain(["mcp__files__push", "WebSearch"]).collect();
        assert_eq!(asks(&held), json!(all));
        program::hold(&mut held.clone(), &folder).unwrap();
        let hook = json!({ "hooks": { DECIDES: [{ "hooks": [] }] } }).to_string();
        fs::write(settings_file(&home), hook).unwrap();
        let refused = program::hold(&mut held.clone(), &folder).unwrap_err();
        assert!(
            refused.contains(&settings_file(&home).display().to_string()) && refused.contains("--unheld"),
            "{refused}"
        );
        session_meta(&held).unwrap_err();
        held.unheld = true;
        program::hold(&mut held, &folder).unwrap();
        assert_eq!(asks(&held), json!([]));
    }
}
