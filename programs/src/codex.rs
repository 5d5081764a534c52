//! Codex, and its ACP adapter.
//!
//! What stands here was seen with Codex 0.171.0 and codex-acp 0.16.0.

mod arguments;
mod configuration;
mod held;
mod output;
mod session;
mod wire;

use std::path::PathBuf;

use serde_json::{Value, json};

pub use self::arguments::last_first;
pub use self::session::{Held, Joined, interface_arguments, server_arguments};
pub use self::wire::{Wire, connect};
use crate::configuration::{File, call};
use crate::files::{inherited, object, read, set_or_home};
use crate::program::{Acp, AgentProgram, Command, Resume, SessionToken};
use crate::settings::Settings;

/// Features that reach other sessions, or start turns later.
const CHANNELS: [&str; 3] = ["multi_agent", "multi_agent_v2", "goals"];
/// The variable that names Codex's own folder, and its name in the user's home and in a project.
pub const HOME: &str = "CODEX_HOME";
const FOLDER: &str = ".codex";
/// The file of settings in each of its folders.
const SETTINGS: &str = "config.toml";
/// The variable from which the adapter reads a configuration.
const CONFIG: &str = "CODEX_CONFIG";

/// Codex, `codex`, and its adapter, `codex-acp`.
pub static CODEX: AgentProgram = AgentProgram {
    name: "Codex",
    command: Command { names: &["codex"], package: "@openai/codex", tried: "0.171.0", held: "no: its own sandbox" },
    adapter: Some(Command {
        names: &["codex-acp"],
        package: "@zed-industries/codex-acp",
        tried: "0.16.0",
        held: "yes",
    }),
    variables: &["CODEX_CI", "CODEX_SANDBOX", "CODEX_SANDBOX_NETWORK_DISABLED", "CODEX_THREAD_ID"],
    start: |settings, at| drop(settings.args.splice(at..at, denials())),
    flags: output::flags,
    output: |model| Box::new(output::CodexOutput(model)),
    transcript: None,
    acp: Acp { start: start_acp, hold: held::hold, token: SessionToken::Text, asks_by_settings: true, ..Acp::UNKNOWN },
    files: &[File { path: ".codex/config.toml", change: configuration::change, calls }],
    changes: ".codex/config.toml, which Codex reads once the folder is trusted",
    earlier_file: users_settings,
    next: "run `codex` in this folder and trust it once: it reads .codex/config.toml of trusted folders only",
    token: "LASTWORD_TOKEN_FILE=\"$PWD/NAME.token\"",
    open_channels,
    resume: Resume { last: &[&["--continue"], &["resume", "--last"], &["fork", "--last"]], id: &["resume", "fork"] },
};

fn start_acp(settings: &mut Settings) {
    settings.args.extend(denials());
    // Since version 2 the adapter reads no arguments.
    let before = settings.env.get(CONFIG).cloned().or_else(|| inherited(CONFIG));
    settings.env.insert(CONFIG.to_owned(), with_channels_off(before.as_deref()));
    if !settings.unheld {
        settings.args.extend(["-c".to_owned(), r#"approval_policy="untrusted""#.to_owned()]);
    }
}

fn open_channels() -> Vec<String> {
    let found = read([PathBuf::from(CODEX.files[0].path)].into_iter().chain(users_settings()), toml);
    // The nearest file that says something decides.
    let setting = |feature: &str| found.iter().find_map(|file| file["features"][feature].as_bool());
    let open = CHANNELS.into_iter().filter(|feature| setting(feature) != Some(false));
    open.map(|feature| format!("features.{feature}")).collect()
}

fn users_settings() -> Option<PathBuf> {
    Some(set_or_home(HOME, FOLDER)?.join(SETTINGS))
}

/// Returns the arguments that turn off the channels, whatever a configuration file says.
fn denials() -> impl Iterator<Item = String> {
    CHANNELS.iter().flat_map(|feature| ["-c".to_owned(), format!("features.{feature}=false")])
}

/// Turns off the channels in a configuration of the adapter.
fn with_channels_off(before: Option<&str>) -> String {
    let mut config = object(before);
    let features = &mut config["features"];
    if !features.is_object() {
        *features = json!({});
    }
    for feature in CHANNELS {
        features[feature] = json!(false);
    }
    config.to_string()
}

fn toml(text: &str) -> Result<Value, String> {
    toml::from_str(text).map_err(|error| error.to_string())
}

fn calls(text: &str) -> Result<Vec<Vec<String>>, String> {
    Ok(call(&toml(text)?, "mcp_servers").into_iter().collect())
}

/// Returns Codex's folder of the user: `own`, or else the one that Codex itself would take.
fn users(own: Option<&String>) -> Option<PathBuf> {
    let user = own.map(PathBuf::from).or_else(|| set_or_home(HOME, FOLDER))?;
    // The links to it are elsewhere.
    Some(user.canonicalize().unwrap_or(user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::testing::prepared;
    use crate::settings::Driver;

    #[test]
    fn a_program_under_run_gets_no_channel_past_the_broker_also_unheld() {
        let denied =
            ["-c", "features.multi_agent=false", "-c", "features.multi_agent_v2=false", "-c", "features.goals=false"];
        assert_eq!(prepared(Driver::Command, "codex exec").args, [&denied[..], &["exec"]].concat());
        let codex = prepared(Driver::Acp, "codex-acp");
        assert_eq!(codex.args, denied);
        let config: Value = serde_json::from_str(&codex.env[CONFIG]).unwrap();
        let off = json!({ "multi_agent": false, "multi_agent_v2": false, "goals": false });
        assert_eq!(config, json!({ "features": off }));
        assert!(with_channels_off(Some(r#"{"model":"x","features":{"goals":true}}"#)).contains(r#""model":"x""#));
    }
}
