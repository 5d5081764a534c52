//! What makes a program ask whatever its user or the project allowed it earlier: the strongest layer that it has.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::private::PrivateFolder;
use crate::program::{CLAUDE_ACTS, Program};
use crate::settings::{Driver, Settings};

/// The folder of Claude Code in a home and in a project, and its tools that change nothing.
const CLAUDE_FOLDER: &str = ".claude";
/// The hook that can answer in place of a dialog.
const CLAUDE_DECIDES: &str = "PermissionRequest";
const CLAUDE_READS: [&str; 7] = ["Glob", "Grep", "LS", "NotebookRead", "Read", "TodoWrite", "ToolSearch"];
/// The variable that names Codex's own folder, and its name in the user's home.
pub const CODEX_HOME: &str = "CODEX_HOME";
const CODEX_FOLDER: &str = ".codex";
/// Codex's folder of the machine.
const CODEX_SYSTEM: &str = "/etc/codex";
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
        Some(Program::ClaudeCode | Program::ClaudeAcp | Program::Codex | Program::Opencode) | None => Ok(()),
    }
}

fn gemini(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
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

fn codex(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    if let Some(home) = codex_home(settings.env.get(CODEX_HOME), &settings.cwd, folder)? {
        settings.env.insert(CODEX_HOME.to_owned(), home.display().to_string());
    }
    Ok(())
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
            if entry.file_name() != CODEX_RULES {
                symlink(entry.path(), home.join(entry.file_name()))?;
            }
        }
        Ok(())
    };
    made().map_err(|error| unmade("Codex's folder", &error))?;
    Ok(Some(home))
}

fn users_codex(own: Option<&String>) -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let user = own
        .map(PathBuf::from)
        .or_else(|| set(CODEX_HOME))
        .or_else(|| set("HOME").map(|home| home.join(CODEX_FOLDER)))?;
    // The links to it are elsewhere.
    Some(user.canonicalize().unwrap_or(user))
}

/// Returns the tools for which Claude Code asks whatever else its settings in `home` and in the `projects`' folders allow:
/// those that act, and each that they allow by name.
///
/// # Errors
/// A hook in one of them decides in place of its dialogs.
pub fn claude_asks<'a>(
    home: Option<&Path>,
    projects: impl IntoIterator<Item = &'a Path>,
) -> Result<Vec<String>, String> {
    let own = std::env::var_os("CLAUDE_CONFIG_DIR").map(PathBuf::from).or_else(|| Some(home?.join(CLAUDE_FOLDER)));
    let folders = own.into_iter().chain(projects.into_iter().map(|project| project.join(CLAUDE_FOLDER)));
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
    use super::*;
    use crate::program::testing::settings;

    #[test]
    fn codex_gets_the_users_folder_without_the_rules_and_a_projects_rules_are_refused_by_name() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let (user, work) = (folder.path().join("user"), folder.path().join("work"));
        fs::create_dir_all(user.join(CODEX_RULES)).unwrap();
        fs::create_dir_all(work.join(".codex/rules")).unwrap();
        fs::write(user.join("auth.json"), "old").unwrap();
        fs::write(user.join("rules/default.rules"), "prefix_rule(pattern=[\"touch\"], decision=\"allow\")").unwrap();
        let mut settings = settings(Driver::Acp, "codex-acp");
        (settings.cwd, settings.unheld) = (work.clone(), false);
        settings.env.insert(CODEX_HOME.to_owned(), user.display().to_string());
        let mut held = settings.clone();
        hold(&mut held, &folder).unwrap();
        let home = PathBuf::from(&held.env[CODEX_HOME]);
        assert!(!home.join(CODEX_RULES).exists() && home.join(CODEX_SESSIONS).is_dir());
        fs::write(home.join("auth.json"), "renewed").unwrap();
        assert_eq!(fs::read_to_string(user.join("auth.json")).unwrap(), "renewed", "a login that Codex renews is kept");
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
