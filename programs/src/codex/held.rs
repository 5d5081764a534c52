//! What makes Codex ask whatever its user or the project allowed it earlier.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{CONFIG, FOLDER, HOME, SETTINGS, users};
use crate::files::{named, object, unmade};
use crate::private::PrivateFolder;
use crate::settings::Settings;

/// Codex's folder of the machine.
const SYSTEM: &str = "/etc/codex";
/// Settings of a server of tools, of one of its tools, and of an app, that let Codex call them unasked; the values that don't.
const APPROVES: [&str; 2] = ["approval_mode", "default_tools_approval_mode"];
const ASKS: [&str; 2] = ["auto", "prompt"];
/// What belongs to a running process of Codex, in the names of its files.
const PROCESS: &str = "app-server-";
const PROCESS_FILES: [&str; 3] = ["lock", "pid", "sock"];
/// The folder of Codex with the commands that it runs unasked and outside of its sandbox.
const RULES: &str = "rules";
/// The folder of Codex with what it keeps of its sessions.
const SESSIONS: &str = "sessions";

/// Makes a held run over ACP ask.
pub(super) fn hold(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    let own = settings.env.get(HOME);
    let user = users(own);
    let is_users = |file: &Path| user.as_ref().is_some_and(|user| file.starts_with(user));
    // The servers of an ACP session replace what its adapter says of others.
    if let Some((file, path)) = allowed(own, &settings.cwd).into_iter().find(|(file, _)| !is_users(file)) {
        return Err(calls_unasked(&file, &path));
    }
    let home = home(own, &settings.cwd, folder)?;
    if let Some(home) = &home {
        ask_in_copy(&home.join(SETTINGS)).map_err(|error| unmade("Codex's settings", &error))?;
    }
    let mut config = object(settings.env.get(CONFIG).map(String::as_str));
    for (path, value) in always() {
        settings.args.extend(["-c".to_owned(), format!("{path}={value}")]);
        // Since version 2 the adapter reads no arguments.
        match path.split_once('.') {
            Some((table, key)) => config[table][key] = value,
            None => config[path] = value,
        }
    }
    settings.env.insert(CONFIG.to_owned(), config.to_string());
    settings.env.extend(home.map(|home| (HOME.to_owned(), home.display().to_string())));
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
pub(super) fn home(own: Option<&String>, cwd: &Path, folder: &PrivateFolder) -> Result<Option<PathBuf>, String> {
    let above = cwd.ancestors().map(|above| above.join(FOLDER)).chain([PathBuf::from(SYSTEM)]);
    let project = above.flat_map(|layer| named(&layer.join(RULES), "rules"));
    let user = users(own);
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
        fs::create_dir_all(user.join(SESSIONS))?;
        for entry in fs::read_dir(&user)? {
            let entry = entry?;
            if entry.file_name() == SETTINGS {
                // What is always allowed in a dialog is allowed in this run.
                private_file(&home.join(SETTINGS))?.write_all(&fs::read(entry.path())?)?;
            } else if entry.file_name() != RULES && !is_of_process(&entry)? {
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
    Ok(suffix || !regular || name.to_string_lossy().starts_with(PROCESS))
}

/// Returns the settings that make Codex ask for what its user or the project in `cwd` lets run unasked: paths of keys, and
/// their values.
///
/// # Errors
/// A setting that lets it call tools unasked has a name that nothing overrides.
pub(super) fn asked(own: Option<&String>, cwd: &Path) -> Result<Vec<(String, Value)>, String> {
    let plain = |key: &String| key.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter));
    let mut asks: Vec<_> = always().map(|(path, value)| (path.to_owned(), value)).into();
    for (file, path) in allowed(own, cwd) {
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
fn always() -> [(&'static str, Value); 2] {
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
fn allowed(own: Option<&String>, cwd: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let mut all = Vec::new();
    for (file, settings) in all_settings(own, cwd) {
        let mut found = Vec::new();
        approvals(&settings, &[], &mut found);
        all.extend(found.into_iter().map(|path| (file.clone(), path)));
    }
    all.retain(|(_, path)| !(path.len() > 1 && path[..2] == ["mcp_servers", "lastword"]));
    all
}

/// Returns the nearest file with settings of Codex for a server called `lastword`, and whether it starts a program.
pub(super) fn known_server(cwd: &Path) -> Option<(PathBuf, bool)> {
    all_settings(None, cwd).find_map(|(file, settings)| {
        let server = settings.get("mcp_servers")?.get("lastword")?;
        Some((file, server.get("command").is_some()))
    })
}

/// Returns Codex's settings in the project's folders, the user's and the machine's, with their files.
fn all_settings(own: Option<&String>, cwd: &Path) -> impl Iterator<Item = (PathBuf, toml::Table)> {
    let project = cwd.ancestors().map(|above| above.join(FOLDER)).collect::<Vec<_>>();
    project.into_iter().chain(users(own)).chain([PathBuf::from(SYSTEM)]).filter_map(|folder| {
        let file = folder.join(SETTINGS);
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
        } else if APPROVES.contains(&key.as_str()) && !ASKS.iter().any(|mode| value.as_str() == Some(mode)) {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::program;
    use crate::program::testing::settings;
    use crate::settings::Driver;

    #[test]
    fn codex_asks_for_each_call_that_a_server_may_make_unasked() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (user, work) = (folder.path().join("user"), folder.path().join("work/deep"));
        fs::create_dir_all(&user).unwrap();
        fs::create_dir_all(work.join(".codex")).unwrap();
        fs::create_dir_all(folder.path().join("work/.codex")).unwrap();
        let own = user.display().to_string();
        let asks = || -> Result<Vec<String>, String> {
            Ok(super::asked(Some(&own), &work)?.into_iter().map(|(path, value)| format!("{path}={value}")).collect())
        };
        let always = ["features.hooks=false", "approvals_reviewer=\"user\""];
        assert_eq!(asks().unwrap(), always);
        assert_eq!(known_server(&work), None);
        let server = "[mcp_servers.files]\ncommand = \"x\"\ndefault_tools_approval_mode = \"approve\"\n\
                      tools.read.approval_mode = \"prompt\"\ntools.list.approval_mode = \"auto\"\n\
                      tools.push.approval_mode = \"writes\"\n";
        fs::write(user.join(SETTINGS), server).unwrap();
        let lastword = "[mcp_servers.lastword]\ncommand = \"lastword\"\ndefault_tools_approval_mode = \"approve\"\n";
        let project = folder.path().join("work/.codex/config.toml");
        fs::write(&project, format!("{lastword}[mcp_servers.web]\ntools.get.approval_mode = \"approve\"\n")).unwrap();
        let servers =
            ["web.tools.get.approval_mode", "files.default_tools_approval_mode", "files.tools.push.approval_mode"];
        let servers = servers.map(|name| format!("mcp_servers.{name}=\"prompt\""));
        assert_eq!(asks().unwrap(), [&always.map(str::to_owned)[..], &servers].concat(), "and no other");
        assert_eq!(known_server(&work), Some((project, true)));
        let nearest = work.join(".codex/config.toml");
        fs::write(&nearest, "mcp_servers.lastword.url = \"http://127.0.0.1:1/mcp\"").unwrap();
        assert_eq!(known_server(&work), Some((nearest.clone(), false)));
        let mut held = settings(Driver::Acp, "codex-acp");
        (held.cwd, held.unheld) = (work.clone(), false);
        held.env.insert(HOME.to_owned(), own.clone());
        held.env.insert(CONFIG.to_owned(), r#"{"features":{"goals":false}}"#.to_owned());
        let refused = program::hold(&mut held.clone(), &folder).unwrap_err();
        assert!(refused.contains("web.tools.get.approval_mode in "), "an adapter overrides no project's: {refused}");
        fs::remove_file(folder.path().join("work/.codex/config.toml")).unwrap();
        program::hold(&mut held, &folder).unwrap();
        assert!(held.args.iter().any(|arg| arg == always[0]), "{:?}", held.args);
        assert_eq!(
            serde_json::from_str::<Value>(&held.env[CONFIG]).unwrap(),
            json!({ "approvals_reviewer": "user", "features": { "goals": false, "hooks": false } })
        );
        let copy = fs::read_to_string(Path::new(&held.env[HOME]).join(SETTINGS)).unwrap();
        let copy: toml::Table = copy.parse().unwrap();
        let found = &copy["mcp_servers"]["files"];
        assert_eq!(found["command"].as_str(), Some("x"));
        assert_eq!(found["default_tools_approval_mode"].as_str(), Some("prompt"));
        assert_eq!(found["tools"]["push"]["approval_mode"].as_str(), Some("prompt"));
        assert_eq!(found["tools"]["list"]["approval_mode"].as_str(), Some("auto"));
        assert_eq!(fs::read_to_string(user.join(SETTINGS)).unwrap(), server, "the user's own stays");
        fs::write(&nearest, "[mcp_servers.\"a.b\"]\ndefault_tools_approval_mode = \"approve\"\n").unwrap();
        let refused = asks().unwrap_err();
        assert!(refused.contains("mcp_servers.a.b") && refused.contains(&nearest.display().to_string()), "{refused}");
        assert!(refused.contains("--unheld"), "{refused}");
    }

    #[test]
    fn codex_gets_the_users_folder_without_the_rules_and_a_projects_rules_are_refused_by_name() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (user, work) = (folder.path().join("user"), folder.path().join("work"));
        fs::create_dir_all(user.join(RULES)).unwrap();
        fs::create_dir_all(work.join(".codex/rules")).unwrap();
        fs::write(user.join("auth.json"), "old").unwrap();
        fs::write(user.join(SETTINGS), "model = \"x\"").unwrap();
        let of_process = ["app-server-control", "app-server-startup.lock", "ipc.sock", "daemon.pid"];
        fs::create_dir(user.join(of_process[0])).unwrap();
        fs::write(user.join(of_process[1]), "").unwrap();
        let _socket = UnixListener::bind(user.join("ipc")).unwrap();
        let _other = UnixListener::bind(user.join(of_process[2])).unwrap();
        fs::write(user.join(of_process[3]), "1").unwrap();
        fs::write(user.join("rules/default.rules"), "prefix_rule(pattern=[\"touch\"], decision=\"allow\")").unwrap();
        let mut settings = settings(Driver::Acp, "codex-acp");
        (settings.cwd, settings.unheld) = (work.clone(), false);
        settings.env.insert(HOME.to_owned(), user.display().to_string());
        let mut held = settings.clone();
        program::hold(&mut held, &folder).unwrap();
        let home = PathBuf::from(&held.env[HOME]);
        assert!(!home.join(RULES).exists() && home.join(SESSIONS).is_dir());
        let linked = |name: &str| fs::symlink_metadata(home.join(name)).is_ok();
        assert!(!of_process.into_iter().chain(["ipc"]).any(linked), "of a process that runs");
        fs::write(home.join("auth.json"), "renewed").unwrap();
        assert_eq!(fs::read_to_string(user.join("auth.json")).unwrap(), "renewed", "a login that Codex renews is kept");
        assert_eq!(fs::read_to_string(home.join(SETTINGS)).unwrap(), "model = \"x\"");
        fs::write(home.join(SETTINGS), "allowed").unwrap();
        assert_eq!(fs::read_to_string(user.join(SETTINGS)).unwrap(), "model = \"x\"", "what dialogs allow is not");
        let rules = work.join(".codex/rules/mine.rules");
        fs::write(&rules, "prefix_rule(pattern=[\"rm\"], decision=\"forbidden\")").unwrap();
        program::hold(&mut settings.clone(), &PrivateFolder::make(folder.path(), "b").unwrap()).unwrap();
        fs::write(&rules, "prefix_rule(pattern=[\"rm\"], decision=\"allow\")").unwrap();
        let refused = program::hold(&mut settings.clone(), &folder).unwrap_err();
        assert!(refused.starts_with(&rules.display().to_string()) && refused.contains("--unheld"), "{refused}");
        settings.unheld = true;
        program::hold(&mut settings, &folder).unwrap();
    }
}
