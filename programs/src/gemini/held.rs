//! What makes Gemini CLI ask whatever its user or the project allowed it earlier.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::FILE;
use crate::files::{jsonc, named, set, unmade};
use crate::private::PrivateFolder;
use crate::settings::Settings;

/// Rules of Gemini CLI's highest tier, above those of the user, of extensions and of `tools.allowed`. What only reads, and
/// what stays inside the session, asks for nothing.
const POLICY: &str = r#"[[rule]]
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
pub const SETTINGS: &str = "GEMINI_CLI_SYSTEM_SETTINGS_PATH";
const DEFAULTS: &str = "GEMINI_CLI_SYSTEM_DEFAULTS_PATH";
const HOME: &str = "GEMINI_CLI_HOME";
/// The files that it takes otherwise.
const SYSTEM: &str = "/etc/gemini-cli/settings.json";
const SYSTEM_DEFAULTS: &str = "system-defaults.json";
/// The folder of an administrator's rules, beside which Gemini CLI reads no others of that tier.
const ADMIN: &str = "/etc/gemini-cli/policies";

/// Makes a held run over ACP ask.
pub(super) fn hold(settings: &mut Settings, folder: &PrivateFolder) -> Result<(), String> {
    if let Some((server, (file, _))) = trusted(&settings.cwd).first_key_value() {
        return Err(format!(
            "mcpServers.{server}.trust in {} lets Gemini CLI call tools unasked; take it out, or run it with --unheld",
            file.display()
        ));
    }
    let policy = policy(folder)?;
    settings.args.extend(["--admin-policy".to_owned(), policy.display().to_string()]);
    Ok(())
}

/// Writes the rules for `gemini --admin-policy` that make it ask, and returns their file.
///
/// # Errors
/// An administrator's rules stand in their place, or the file can't be made.
pub(super) fn policy(folder: &PrivateFolder) -> Result<PathBuf, String> {
    if let Some(file) = named(Path::new(ADMIN), "toml").next() {
        return Err(format!(
            "Gemini CLI reads no other rules beside an administrator's {}, which may let it run calls unasked; --unheld \
             runs it as it is",
            file.display()
        ));
    }
    folder.write("policy.toml", POLICY).map_err(|error| unmade("Gemini CLI's rules", &error))
}

/// Returns the servers whose tools Gemini CLI calls unasked in the project of `cwd`, by their names: the file of settings
/// that counts, and what it says of the server but `trust`. No rule of a policy overrides that.
pub(super) fn trusted(cwd: &Path) -> BTreeMap<String, (PathBuf, Value)> {
    let home = set(HOME).or_else(|| set("HOME"));
    let system = system();
    let defaults = set(DEFAULTS).unwrap_or_else(|| system.with_file_name(SYSTEM_DEFAULTS));
    let user = home.map(|home| home.join(FILE));
    let mut servers = BTreeMap::new();
    // A server's settings replace those of the same name in a file before.
    for file in [defaults].into_iter().chain(user).chain([cwd.join(FILE), system]) {
        // Gemini CLI itself names a file that it can't read.
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let settings = jsonc(&text).unwrap_or_default();
        for (name, server) in settings["mcpServers"].as_object().into_iter().flatten() {
            servers.insert(name.clone(), (file.clone(), server.clone()));
        }
    }
    let trusts = |server: &mut Value| server.as_object_mut().and_then(|server| server.remove("trust"));
    servers.retain(|_, (_, server)| trusts(server).is_some_and(|trust| !trust.is_null() && trust != false));
    servers
}

/// Returns Gemini CLI's file of system settings.
pub(super) fn system() -> PathBuf {
    set(SETTINGS).unwrap_or_else(|| PathBuf::from(SYSTEM))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::program;
    use crate::program::testing::settings;
    use crate::settings::Driver;

    #[test]
    fn a_server_that_gemini_cli_trusts_stops_a_held_run_by_name() {
        let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-held-").unwrap();
        let mut held = settings(Driver::Acp, "gemini");
        (held.cwd, held.unheld) = (folder.path().to_owned(), false);
        fs::create_dir(folder.path().join(".gemini")).unwrap();
        let file = folder.path().join(FILE);
        let trusts = |trust: &str| {
            let text = format!("{{\"mcpServers\": {{\"files\": {{\"command\": \"x\", \"trust\": {trust}}}}}}} // mine");
            fs::write(&file, text).unwrap();
            program::hold(&mut held.clone(), &PrivateFolder::make(folder.path(), "b").unwrap())
        };
        trusts("false").unwrap();
        let refused = trusts("true").unwrap_err();
        assert!(refused.starts_with("mcpServers.files.trust in ") && refused.contains("--unheld"), "{refused}");
        let found = trusted(folder.path());
        assert_eq!(found["files"], (file.clone(), json!({ "command": "x" })), "without the trust");
    }
}
