//! What makes a program ask whatever its user or the project allowed it earlier: the strongest layer that it has.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::{Value, json};

use crate::private::PrivateFolder;
use crate::program::{CLAUDE_ACTS, CODEX_CONFIG, Program};
use crate::settings::{Driver, Settings};

/// The folder of Claude Code in a home and in a project, and its tools that change nothing.
const CLAUDE_FOLDER: &str = ".claude";
/// The variable that names another folder than that of the home.
const CLAUDE_CONFIG: &str = "CLAUDE_CONFIG_DIR";
/// The hook that can answer in place of a dialog.
const CLAUDE_DECIDES: &str = "PermissionRequest";
const CLAUDE_READS: [&str; 7] = ["Glob", "Grep", "LS", "NotebookRead", "Read", "TodoWrite", "ToolSearch"];
/// The variable that names Codex's own folder, and its name in the user's home.
pub const CODEX_HOME: &str = "CODEX_HOME";
const CODEX_FOLDER: &str = ".codex";
/// Codex's folder of the machine.
const CODEX_SYSTEM: &str = "/etc/codex";
/// Codex's file of settings in each of its folders.
const CODEX_SETTINGS: &str = "config.toml";
/// Settings of a server of tools, of one of its tools, and of an app, that let Codex call them unasked; the values that don't.
const CODEX_APPROVES: [&str; 2] = ["approval_mode", "default_tools_approval_mode"];
const CODEX_ASKS: [&str; 2] = ["auto", "prompt"];
/// What belongs to a running process of Codex, in the names of its files.
const CODEX_PROCESS: &str = "app-server-";
const PROCESS_FILES: [&str; 3] = ["lock", "pid", "sock"];
/// The folder of Codex with the commands that it runs unasked and outside of its sandbox.
const CODEX_RULES: &str = "rules";
/// The folder of Codex with what it keeps of its sessions.
const CODEX_SESSIONS: &str = "sessions";
/// Rules of Gemini CLI's highest tier, above those of the user, of extensions and of `tools.allowed`. What only reads, and
/// what stays inside the session, asks for nothing.
const GEMINI_POLICY: &str = r#"[[rule]]
toolName = "*"
decision = "ask_user"
priority = 800

[[rule]]
toolName = ["glob", "grep_search", "list_directory", "read_file", "read_many_files", "get_internal_docs", "write_todos", "update_topic", "complete_task", "tracker_add_dependency", "tracker_create_task", "tracker_get_task", "tracker_list_tasks", "tracker_update_task", "tracker_visualize"]
decision = "allow"
priority = 900

[[rule]]
toolName = "mcp_lastword_*"
decision = "allow"
priority = 900
"#;
/// The variables that name Gemini CLI's file of system settings, that of their defaults, and the folder of its user.
pub const GEMINI_SETTINGS: &str = "GEMINI_CLI_SYSTEM_SETTINGS_PATH";
const GEMINI_DEFAULTS: &str = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH";
const GEMINI_HOME: &str = "GEMINI_CLI_HOME";
/// The files that it takes otherwise, and its file in a home and in a project.
const GEMINI_SYSTEM: &str = "/etc/gemini-cli/settings.json";
const GEMINI_SYSTEM_DEFAULTS: &str = "system-defaults.json";
const GEMINI_FILE: &str = ".gemini/settings.json";
/// The folder of an administrator's rules, beside which Gemini CLI reads no others of that tier.
const GEMINI_ADMIN: &str = "/etc/gemini-cli/policies";

/// Adds to a program that runs held what overrides its user's and the project's allowances. Files that it needs are made in
/// `folder`.
///
/// # Errors
/// The program would run calls unasked, and nothing overrides that; or a file can't be made.
pub(crate) fn hold(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    if settings.unheld || settings.driver != Driver::Acp {
        return Ok(());
    }
    match Program::of(&settings.program, &settings.args) {
        Some(Program::Gemini) => gemini(settings, folder),
        Some(Program::CodexAcp) => codex(settings, folder),
        Some(Program::ClaudeAcp) => claude_asks(&settings.env, &settings.cwd)
            .map(drop)
            .map_err(|why| format!("{why}; take it out, or run it with --unheld")),
        Some(Program::ClaudeCode | Program::Codex | Program::Opencode) | None => Ok(()),
    }
}

fn gemini(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    if let Some((server, (file, _))) = gemini_trusted(&settings.cwd).first_key_value() {
        return Err(format!(
            "mcpServers.{server}.trust in {} lets Gemini CLI call tools unasked; take it out, or run it with --unheld",
            file.display()
        ));
    }
    let policy = gemini_policy(folder)?;
    settings.args.extend(["--admin-policy".to_owned(), policy.display().to_string()]);
    Ok(())
}

/// Writes the rules for `gemini --admin-policy` that make it ask, and returns their file.
///
/// # Errors
/// An administrator's rules stand in their place, or the file can't be made.
pub fn gemini_policy(folder: &PrivateFolder) -> Result<PathBuf, String> {
    if let Some(file) = named(Path::new(GEMINI_ADMIN), "toml").next() {
        return Err(format!(
            "Gemini CLI reads no other rules beside an administrator's {}, which may let it run calls unasked; --unheld \
             runs it as it is",
            file.display()
        ));
    }
    folder.write("policy.toml", GEMINI_POLICY).map_err(|error| unmade("Gemini CLI's rules", &error))
}

/// Returns the servers whose tools Gemini CLI calls unasked in the project of `cwd`, by their names: the file of settings
/// that counts, and what it says of the server but `trust`. No rule of a policy overrides that.
#[must_use]
pub fn gemini_trusted(cwd: &Path) -> BTreeMap<String, (PathBuf, Value)> {
    let home = set(GEMINI_HOME).or_else(|| set("HOME"));
    let system = gemini_system();
    let defaults = set(GEMINI_DEFAULTS).unwrap_or_else(|| system.with_file_name(GEMINI_SYSTEM_DEFAULTS));
    let user = home.map(|home| home.join(GEMINI_FILE));
    let mut servers = BTreeMap::new();
    // A server's settings replace those of the same name in a file before.
    for file in [defaults].into_iter().chain(user).chain([cwd.join(GEMINI_FILE), system]) {
        // Gemini CLI itself names a file that it can't read.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let settings: Value = parse_to_serde_value(&text, &ParseOptions::default()).unwrap_or_default();
        for (name, server) in settings["mcpServers"].as_object().into_iter().flatten() {
            servers.insert(name.clone(), (file.clone(), server.clone()));
        }
    }
    let trusts = |server: &mut Value| server.as_object_mut().and_then(|server| server.remove("trust"));
    servers.retain(|_, (_, server)| trusts(server).is_some_and(|trust| !trust.is_null() && trust != false));
    servers
}

/// Returns Gemini CLI's file of system settings.
#[must_use]
pub fn gemini_system() -> PathBuf {
    set(GEMINI_SETTINGS).unwrap_or_else(|| PathBuf::from(GEMINI_SYSTEM))
}

fn codex(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    let own = settings.env.get(CODEX_HOME);
    let user = users_codex(own);
    let is_users = |file: &Path| user.as_ref().is_some_and(|user| file.starts_with(user));
    // The servers of an ACP session replace what its adapter says of others.
    if let Some((file, path)) = codex_allows(own, &settings.cwd).into_iter().find(|(file, _)| !is_users(file)) {
        return Err(calls_unasked(&file, &path));
    }
    let home = codex_home(own, &settings.cwd, folder)?;
    if let Some(home) = &home {
        ask_in_copy(&home.join(CODEX_SETTINGS)).map_err(|error| unmade("Codex's settings", &error))?;
    }
    let before = settings.env.get(CODEX_CONFIG).and_then(|text| serde_json::from_str(text).ok());
    let mut config: Value = before.filter(Value::is_object).unwrap_or_else(|| json!({}));
    for (path, value) in codex_always() {
        settings.args.extend(["-c".to_owned(), format!("{path}={value}")]);
        // Since version 2 the adapter reads no arguments.
        match path.split_once('.') {
            Some((table, key)) => config[table][key] = value,
            None => config[path] = value,
        }
    }
    settings.env.insert(CODEX_CONFIG.to_owned(), config.to_string());
    settings.env.extend(home.map(|home| (CODEX_HOME.to_owned(), home.display().to_string())));
    Ok(())
}

/// Changes a copy of Codex's settings so that no server's tools are called unasked.
fn ask_in_copy(copy: &Path) -> io::Result<()> {
    let Ok(mut settings) = fs::read_to_string(copy).unwrap_or_default().parse::<toml::Table>() else { return Ok(()) };
    let mut found = Vec::new();
    approvals(&settings, &[], &mut found);
    if found.is_empty() {
        return Ok(());
    }
    for path in found {
        let (key, tables) = path.split_last().map_or((None, &[][..]), |(key, tables)| (Some(key), tables));
        let mut at = Some(&mut settings);
        for table in tables {
            at = at.and_then(|at| at.get_mut(table)?.as_table_mut());
        }
        if let (Some(at), Some(key)) = (at, key) {
            at.insert(key.clone(), "prompt".into());
        }
    }
    fs::remove_file(copy)?;
    private_file(copy)?.write_all(settings.to_string().as_bytes())
}

/// Makes a file for its user alone.
fn private_file(path: &Path) -> io::Result<fs::File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Makes a folder for Codex that has all of the user's but the rules, and returns its path; `None` if the user has none.
/// What Codex writes there goes through to the user's, which is `own` or else the one that Codex itself would take.
///
/// # Errors
/// Rules of the project in `cwd` or of the machine allow commands, or the folder can't be made.
pub fn codex_home(own: Option<&String>, cwd: &Path, folder: &PrivateFolder) -> Result<Option<PathBuf>, String> {
    let above = cwd.ancestors().map(|above| above.join(CODEX_FOLDER)).chain([PathBuf::from(CODEX_SYSTEM)]);
    let project = above.flat_map(|layer| named(&layer.join(CODEX_RULES), "rules"));
    let user = users_codex(own);
    let is_users = |file: &PathBuf| user.as_ref().is_some_and(|user| file.starts_with(user));
    let allows = |file: &PathBuf| fs::read_to_string(file).is_ok_and(|text| text.contains("allow"));
    if let Some(file) = project.filter(|file| !is_users(file)).find(allows) {
        return Err(format!(
            "{} lets Codex run commands unasked and outside of its sandbox; take the rule out, or run it with --unheld",
            file.display()
        ));
    }
    let Some(user) = user.filter(|user| user.is_dir()) else { return Ok(None) };
    let home = folder.path().join("codex");
    let made = || -> io::Result<()> {
        fs::create_dir(&home)?;
        // Sessions outlive this run.
        fs::create_dir_all(user.join(CODEX_SESSIONS))?;
        for entry in fs::read_dir(&user)? {
            let entry = entry?;
            if entry.file_name() == CODEX_SETTINGS {
                // What is always allowed in a dialog is allowed in this run.
                private_file(&home.join(CODEX_SETTINGS))?.write_all(&fs::read(entry.path())?)?;
            } else if entry.file_name() != CODEX_RULES && !is_of_process(&entry)? {
                symlink(entry.path(), home.join(entry.file_name()))?;
            }
        }
        Ok(())
    };
    made().map_err(|error| unmade("Codex's folder", &error))?;
    Ok(Some(home))
}

/// Returns whether an entry of Codex's folder belongs to a running process: the next one makes its own, and takes no link.
fn is_of_process(entry: &fs::DirEntry) -> io::Result<bool> {
    let (name, kind) = (PathBuf::from(entry.file_name()), entry.file_type()?);
    let suffix = name.extension().is_some_and(|found| PROCESS_FILES.iter().any(|suffix| found == *suffix));
    let regular = kind.is_file() || kind.is_dir() || kind.is_symlink();
    Ok(suffix || !regular || name.to_string_lossy().starts_with(CODEX_PROCESS))
}

/// Returns the settings that make Codex ask for what its user or the project in `cwd` lets run unasked: paths of keys, and
/// their values.
///
/// # Errors
/// A setting that lets it call tools unasked has a name that nothing overrides.
pub fn codex_asks(cwd: &Path) -> Result<Vec<(String, Value)>, String> {
    asks(None, cwd)
}

fn asks(own: Option<&String>, cwd: &Path) -> Result<Vec<(String, Value)>, String> {
    let plain = |key: &String| key.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
    let mut asks: Vec<_> = codex_always().map(|(path, value)| (path.to_owned(), value)).into();
    for (file, path) in codex_allows(own, cwd) {
        if !path.iter().all(plain) {
            return Err(calls_unasked(&file, &path));
        }
        let setting = (path.join("."), json!("prompt"));
        if !asks.contains(&setting) {
            asks.push(setting);
        }
    }
    Ok(asks)
}

/// Returns the settings with which nothing answers in the place of Codex's user: no hook, and no model that reviews.
fn codex_always() -> [(&'static str, Value); 2] {
    [("features.hooks", json!(false)), ("approvals_reviewer", json!("user"))]
}

fn calls_unasked(file: &Path, path: &[String]) -> String {
    format!(
        "{} in {} lets Codex call tools unasked, and nothing overrides it; take it out, or run it with --unheld",
        path.join("."),
        file.display()
    )
}

/// Returns the settings that let Codex call tools of servers other than Lastword unasked: files, and paths of keys.
fn codex_allows(own: Option<&String>, cwd: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let mut all = Vec::new();
    for (file, settings) in codex_settings(own, cwd) {
        let mut found = Vec::new();
        approvals(&settings, &[], &mut found);
        all.extend(found.into_iter().map(|path| (file.clone(), path)));
    }
    all.retain(|(_, path)| !(path.len() > 1 && path[..2] == ["mcp_servers", "lastword"]));
    all
}

/// Returns the nearest file with settings of Codex for a server called `lastword`, and whether it starts a program.
pub fn codex_server(cwd: &Path) -> Option<(PathBuf, bool)> {
    codex_settings(None, cwd).find_map(|(file, settings)| {
        let server = settings.get("mcp_servers")?.get("lastword")?;
        Some((file, server.get("command").is_some()))
    })
}

/// Returns Codex's settings in the project's folders, the user's and the machine's, with their files.
fn codex_settings(own: Option<&String>, cwd: &Path) -> impl Iterator<Item = (PathBuf, toml::Table)> {
    let project = cwd.ancestors().map(|above| above.join(CODEX_FOLDER)).collect::<Vec<_>>();
    project.into_iter().chain(users_codex(own)).chain([PathBuf::from(CODEX_SYSTEM)]).filter_map(|folder| {
        let file = folder.join(CODEX_SETTINGS);
        // Codex itself names a file that it can't read.
        let settings = fs::read_to_string(&file).ok()?.parse().ok()?;
        Some((file, settings))
    })
}

/// Finds the paths of the settings that let Codex call tools unasked.
fn approvals(table: &toml::Table, above: &[String], found: &mut Vec<Vec<String>>) {
    for (key, value) in table {
        let path = [above, std::slice::from_ref(key)].concat();
        if let toml::Value::Table(inner) = value {
            approvals(inner, &path, found);
        } else if CODEX_APPROVES.contains(&key.as_str()) && !CODEX_ASKS.iter().any(|mode| value.as_str() == Some(mode))
        {
            found.push(path);
        }
    }
}

fn users_codex(own: Option<&String>) -> Option<PathBuf> {
    let user = own
        .map(PathBuf::from)
        .or_else(|| set(CODEX_HOME))
        .or_else(|| set("HOME").map(|home| home.join(CODEX_FOLDER)))?;
    // The links to it are elsewhere.
    Some(user.canonicalize().unwrap_or(user))
}

/// Returns the tools for which Claude Code asks in `cwd` whatever else the settings of its user, of the project and of the
/// folders above allow: those that act, and each that they allow by name. `env` goes before this process's environment.
///
/// # Errors
/// A hook in one of them decides in place of its dialogs.
pub fn claude_asks(env: &BTreeMap<String, String>, cwd: &Path) -> Result<Vec<String>, String> {
    let set = |name: &str| env.get(name).map(PathBuf::from).or_else(|| set(name));
    let own = set(CLAUDE_CONFIG).or_else(|| Some(set("HOME")?.join(CLAUDE_FOLDER)));
    // In a linked worktree the program also reads the local settings of the main one.
    let main = main_worktree_of(cwd);
    let projects = cwd.ancestors().chain(main.as_deref());
    let folders = own.into_iter().chain(projects.map(|project| project.join(CLAUDE_FOLDER)));
    let files = folders.flat_map(|folder| ["settings.json", "settings.local.json"].map(|file| folder.join(file)));
    let mut asks: Vec<String> = CLAUDE_ACTS.map(str::to_owned).to_vec();
    for file in files {
        let settings: Value =
            fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
        if settings["hooks"][CLAUDE_DECIDES].as_array().is_some_and(|hooks| !hooks.is_empty()) {
            return Err(format!("the {CLAUDE_DECIDES} hook in {} answers Claude Code's dialogs first", file.display()));
        }
        let allowed = settings["permissions"]["allow"].as_array().map(Vec::as_slice).unwrap_or_default();
        for rule in allowed.iter().filter_map(Value::as_str) {
            let tool = rule.split('(').next().unwrap_or(rule).trim();
            let reads = CLAUDE_READS.contains(&tool) || tool.starts_with("mcp__lastword");
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

/// Returns the main worktree of a linked one, whose `.git` is a file that names a folder in the shared repository.
#[must_use]
pub fn main_worktree(top: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(top.join(".git")).ok()?;
    let folder = top.join(text.strip_prefix("gitdir:")?.trim());
    let common = folder.join(fs::read_to_string(folder.join("commondir")).ok()?.trim()).canonicalize().ok()?;
    // A bare repository has no main worktree.
    (common.file_name()? == ".git").then(|| common.parent().map(Path::to_owned))?
}

/// Returns the path in a variable; `None` if it is unset or empty.
fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the files of a folder with this extension.
fn named(folder: &Path, extension: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(move |file| file.extension().is_some_and(|found| found == extension))
}

fn unmade(what: &str, error: &io::Error) -> String {
    format!("{what} for a held run can't be made: {error}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::program::testing::settings;

    #[test]
    fn claude_over_acp_asks_for_what_settings_allow_by_name_and_a_hook_that_decides_is_refused() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (home, work) = (folder.path().join("home"), folder.path().join("repo/deep"));
        let settings_file = |above: &Path| above.join(CLAUDE_FOLDER).join("settings.json");
        for above in [&home, &folder.path().join("repo")] {
            fs::create_dir_all(above.join(CLAUDE_FOLDER)).unwrap();
        }
        let allows = |tool: &str| json!({ "permissions": { "allow": [tool] } }).to_string();
        fs::write(settings_file(&home), allows("mcp__files__push(x)")).unwrap();
        fs::write(settings_file(&folder.path().join("repo")), allows("WebSearch")).unwrap();
        let mut held = settings(Driver::Acp, "claude-agent-acp");
        (held.cwd, held.unheld) = (work, false);
        held.env.insert("HOME".to_owned(), home.display().to_string());
        held.env.insert(CLAUDE_CONFIG.to_owned(), home.join(CLAUDE_FOLDER).display().to_string());
        let asks = |held: &Settings| {
            let meta = Program::ClaudeAcp.session_meta(held).unwrap().unwrap();
            meta["claudeCode"]["options"]["settings"]["permissions"]["ask"].clone()
        };
        let all: Vec<&str> = CLAUDE_ACTS.into_iter().chain(["mcp__files__push", "WebSearch"]).collect();
        assert_eq!(asks(&held), json!(all));
        hold(&mut held.clone(), &folder).unwrap();
        let hook = json!({ "hooks": { CLAUDE_DECIDES: [{ "hooks": [] }] } }).to_string();
        fs::write(settings_file(&home), hook).unwrap();
        let refused = hold(&mut held.clone(), &folder).unwrap_err();
        assert!(
            refused.contains(&settings_file(&home).display().to_string()) && refused.contains("--unheld"),
            "{refused}"
        );
        Program::ClaudeAcp.session_meta(&held).unwrap_err();
        held.unheld = true;
        hold(&mut held, &folder).unwrap();
        assert_eq!(asks(&held), json!([]));
    }

    #[test]
    fn codex_asks_for_each_call_that_a_server_may_make_unasked() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (user, work) = (folder.path().join("user"), folder.path().join("work/deep"));
        fs::create_dir_all(&user).unwrap();
        fs::create_dir_all(work.join(".codex")).unwrap();
        fs::create_dir_all(folder.path().join("work/.codex")).unwrap();
        let own = user.display().to_string();
        let asks = || -> Result<Vec<String>, String> {
            Ok(super::asks(Some(&own), &work)?.into_iter().map(|(path, value)| format!("{path}={value}")).collect())
        };
        let always = ["features.hooks=false", "approvals_reviewer=\"user\""];
        assert_eq!(asks().unwrap(), always);
        assert_eq!(codex_server(&work), None);
        let server = "[mcp_servers.files]\ncommand = \"x\"\ndefault_tools_approval_mode = \"approve\"\n\
                      tools.read.approval_mode = \"prompt\"\ntools.list.approval_mode = \"auto\"\n\
                      tools.push.approval_mode = \"writes\"\n";
        fs::write(user.join(CODEX_SETTINGS), server).unwrap();
        let lastword = "[mcp_servers.lastword]\ncommand = \"lastword\"\ndefault_tools_approval_mode = \"approve\"\n";
        let project = folder.path().join("work/.codex/config.toml");
        fs::write(&project, format!("{lastword}[mcp_servers.web]\ntools.get.approval_mode = \"approve\"\n")).unwrap();
        let servers =
            ["web.tools.get.approval_mode", "files.default_tools_approval_mode", "files.tools.push.approval_mode"];
        let servers = servers.map(|name| format!("mcp_servers.{name}=\"prompt\""));
        assert_eq!(asks().unwrap(), [&always.map(str::to_owned)[..], &servers].concat(), "and no other");
        assert_eq!(codex_server(&work), Some((project, true)));
        let nearest = work.join(".codex/config.toml");
        fs::write(&nearest, "mcp_servers.lastword.url = \"http://127.0.0.1:1/mcp\"").unwrap();
        assert_eq!(codex_server(&work), Some((nearest.clone(), false)));
        let mut held = settings(Driver::Acp, "codex-acp");
        (held.cwd, held.unheld) = (work.clone(), false);
        held.env.insert(CODEX_HOME.to_owned(), own.clone());
        held.env.insert(CODEX_CONFIG.to_owned(), r#"{"features":{"goals":false}}"#.to_owned());
        let refused = hold(&mut held.clone(), &folder).unwrap_err();
        assert!(refused.contains("web.tools.get.approval_mode in "), "an adapter overrides no project's: {refused}");
        fs::remove_file(folder.path().join("work/.codex/config.toml")).unwrap();
        hold(&mut held, &folder).unwrap();
        assert!(held.args.iter().any(|arg| arg == always[0]), "{:?}", held.args);
        assert_eq!(
            serde_json::from_str::<Value>(&held.env[CODEX_CONFIG]).unwrap(),
            json!({ "approvals_reviewer": "user", "features": { "goals": false, "hooks": false } })
        );
        let copy = fs::read_to_string(Path::new(&held.env[CODEX_HOME]).join(CODEX_SETTINGS)).unwrap();
        let copy: toml::Table = copy.parse().unwrap();
        let found = &copy["mcp_servers"]["files"];
        assert_eq!(found["command"].as_str(), Some("x"));
        assert_eq!(found["default_tools_approval_mode"].as_str(), Some("prompt"));
        assert_eq!(found["tools"]["push"]["approval_mode"].as_str(), Some("prompt"));
        assert_eq!(found["tools"]["list"]["approval_mode"].as_str(), Some("auto"));
        assert_eq!(fs::read_to_string(user.join(CODEX_SETTINGS)).unwrap(), server, "the user's own stays");
        fs::write(&nearest, "[mcp_servers.\"a.b\"]\ndefault_tools_approval_mode = \"approve\"\n").unwrap();
        let refused = asks().unwrap_err();
        assert!(refused.contains("mcp_servers.a.b") && refused.contains(&nearest.display().to_string()), "{refused}");
        assert!(refused.contains("--unheld"), "{refused}");
    }

    #[test]
    fn a_server_that_gemini_cli_trusts_stops_a_held_run_by_name() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let mut held = settings(Driver::Acp, "gemini");
        (held.cwd, held.unheld) = (folder.path().to_owned(), false);
        fs::create_dir(folder.path().join(".gemini")).unwrap();
        let file = folder.path().join(GEMINI_FILE);
        let trusts = |trust: &str| {
            let text = format!("{{\"mcpServers\": {{\"files\": {{\"command\": \"x\", \"trust\": {trust}}}}}}} // mine");
            fs::write(&file, text).unwrap();
            hold(&mut held.clone(), &PrivateFolder::make(folder.path(), "b").unwrap())
        };
        trusts("false").unwrap();
        let refused = trusts("true").unwrap_err();
        assert!(refused.starts_with("mcpServers.files.trust in ") && refused.contains("--unheld"), "{refused}");
        let found = gemini_trusted(folder.path());
        assert_eq!(found["files"], (file.clone(), json!({ "command": "x" })), "without the trust");
    }

    #[test]
    fn codex_gets_the_users_folder_without_the_rules_and_a_projects_rules_are_refused_by_name() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (user, work) = (folder.path().join("user"), folder.path().join("work"));
        fs::create_dir_all(user.join(CODEX_RULES)).unwrap();
        fs::create_dir_all(work.join(".codex/rules")).unwrap();
        fs::write(user.join("auth.json"), "old").unwrap();
        fs::write(user.join(CODEX_SETTINGS), "model = \"x\"").unwrap();
        let of_process = ["app-server-control", "app-server-startup.lock", "ipc.sock", "daemon.pid"];
        fs::create_dir(user.join(of_process[0])).unwrap();
        fs::write(user.join(of_process[1]), "").unwrap();
        let _socket = UnixListener::bind(user.join("ipc")).unwrap();
        let _other = UnixListener::bind(user.join(of_process[2])).unwrap();
        fs::write(user.join(of_process[3]), "1").unwrap();
        fs::write(user.join("rules/default.rules"), "prefix_rule(pattern=[\"touch\"], decision=\"allow\")").unwrap();
        let mut settings = settings(Driver::Acp, "codex-acp");
        (settings.cwd, settings.unheld) = (work.clone(), false);
        settings.env.insert(CODEX_HOME.to_owned(), user.display().to_string());
        let mut held = settings.clone();
        hold(&mut held, &folder).unwrap();
        let home = PathBuf::from(&held.env[CODEX_HOME]);
        assert!(!home.join(CODEX_RULES).exists() && home.join(CODEX_SESSIONS).is_dir());
        let linked = |name: &str| fs::symlink_metadata(home.join(name)).is_ok();
        assert!(!of_process.into_iter().chain(["ipc"]).any(linked), "of a process that runs");
        fs::write(home.join("auth.json"), "renewed").unwrap();
        assert_eq!(fs::read_to_string(user.join("auth.json")).unwrap(), "renewed", "a login that Codex renews is kept");
        assert_eq!(fs::read_to_string(home.join(CODEX_SETTINGS)).unwrap(), "model = \"x\"");
        fs::write(home.join(CODEX_SETTINGS), "allowed").unwrap();
        assert_eq!(
            fs::read_to_string(user.join(CODEX_SETTINGS)).unwrap(),
            "model = \"x\"",
            "what dialogs allow is not"
        );
        let rules = work.join(".codex/rules/mine.rules");
        fs::write(&rules, "prefix_rule(pattern=[\"rm\"], decision=\"forbidden\")").unwrap();
        hold(&mut settings.clone(), &PrivateFolder::make(folder.path(), "b").unwrap()).unwrap();
        fs::write(&rules, "prefix_rule(pattern=[\"rm\"], decision=\"allow\")").unwrap();
        let refused = hold(&mut settings.clone(), &folder).unwrap_err();
        assert!(refused.starts_with(&rules.display().to_string()) && refused.contains("--unheld"), "{refused}");
        settings.unheld = true;
        hold(&mut settings, &folder).unwrap();
    }
}
