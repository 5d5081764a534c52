//! Channels of agent programs past the broker: which of them a configuration leaves on.
//!
//! What agents tell each other there has no depth, no budget and no log.

use std::fs;
use std::path::{Path, PathBuf};

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use lastword_runner::{CLAUDE_CHANNELS, CODEX_CHANNELS};
use serde_json::Value;

use super::init_clients::Program;

/// The tool of Gemini CLI that starts sub-agents.
pub(super) const GEMINI_CHANNEL: &str = "invoke_agent";

/// Returns the channels that the configuration of this folder and of the user's home leaves on.
pub(super) fn open(program: Program) -> Vec<String> {
    let files = files(program);
    let read: Vec<Value> = files.iter().filter_map(|file| parsed(program, file)).collect();
    match program {
        Program::Claude => claude(&read),
        Program::Codex => {
            // The nearest file that says something decides.
            let setting = |feature: &str| read.iter().find_map(|config| config["features"][feature].as_bool());
            let open = CODEX_CHANNELS.into_iter().filter(|feature| setting(feature) != Some(false));
            open.map(|feature| format!("features.{feature}")).collect()
        }
        Program::Opencode => {
            let task = read.iter().map(|config| &config["permission"]["task"]).find(|rule| !rule.is_null());
            let off = task.is_some_and(|rule| *rule == "deny" || rule["*"] == "deny");
            if off { Vec::new() } else { vec!["sub-agents (permission.task)".to_owned()] }
        }
        Program::Gemini => {
            let excludes = |config: &Value| listed(&config["tools"]["exclude"], GEMINI_CHANNEL);
            if read.iter().any(excludes) { Vec::new() } else { vec![format!("sub-agents ({GEMINI_CHANNEL})")] }
        }
    }
}

fn claude(read: &[Value]) -> Vec<String> {
    let denied = |tool: &str| read.iter().any(|config| listed(&config["permissions"]["deny"], tool));
    let mut open: Vec<String> = CLAUDE_CHANNELS.into_iter().filter(|tool| !denied(tool)).map(str::to_owned).collect();
    if !read.iter().any(|config| config["crossSessionInbound"] == "refuse") {
        open.push("messages from other sessions (crossSessionInbound)".to_owned());
    }
    open
}

fn listed(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|entry| entry == word))
}

/// Returns the files that a program reads, the nearest first.
fn files(program: Program) -> Vec<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = |path: &str| set("HOME").map(|home| home.join(path));
    let (here, global): (&[&str], Option<PathBuf>) = match program {
        Program::Claude => {
            let folder = set("CLAUDE_CONFIG_DIR").or_else(|| home(".claude"));
            (&[".claude/settings.local.json", ".claude/settings.json"], folder.map(|dir| dir.join("settings.json")))
        }
        Program::Codex => {
            let folder = set("CODEX_HOME").or_else(|| home(".codex"));
            (&[".codex/config.toml"], folder.map(|dir| dir.join("config.toml")))
        }
        Program::Opencode => {
            let folder = set("XDG_CONFIG_HOME").or_else(|| home(".config"));
            (&["opencode.json", "opencode.jsonc"], folder.map(|dir| dir.join("opencode/opencode.json")))
        }
        Program::Gemini => (&[".gemini/settings.json"], home(".gemini/settings.json")),
    };
    here.iter().map(PathBuf::from).chain(global).collect()
}

/// Returns the content of a file; `None` if it can't be read, which the check of the set-up reports.
fn parsed(program: Program, file: &Path) -> Option<Value> {
    let text = fs::read_to_string(file).ok()?;
    if program == Program::Codex {
        return toml::from_str(&text).ok();
    }
    parse_to_serde_value(&text, &ParseOptions::default()).ok()
}
