//! The agent programs that the runner knows. Each is started so that it asks before it acts, and without its own
//! channels to other sessions: what agents tell each other there has no depth, no budget and no log.
//!
//! The flags were seen with Claude Code 2.1.332, claude-agent-acp 0.101.0, Codex 0.171.0, codex-acp 0.16.0 and opencode
//! 1.18.33.

use std::path::Path;

use serde_json::{Map, Value, json};

use crate::held::claude_asks;
use crate::settings::{Driver, Settings};

/// Tools of Claude Code that reach other sessions, or start turns later.
pub const CLAUDE_CHANNELS: [&str; 5] = ["ListAgents", "SendMessage", "CronCreate", "ScheduleWakeup", "Monitor"];
/// Features of Codex that reach other sessions, or start turns later.
pub const CODEX_CHANNELS: [&str; 3] = ["multi_agent", "multi_agent_v2", "goals"];
/// Tools of Claude Code that act. `permissions.ask` overrides a user's own `allow` rules.
pub(crate) const CLAUDE_ACTS: [&str; 5] = ["Bash", "Edit", "NotebookEdit", "WebFetch", "Write"];
/// Programs that start another one, which is named in their arguments.
const LAUNCHERS: [&str; 7] = ["bun", "bunx", "env", "node", "npx", "pnpm", "timeout"];
/// The variable from which `codex-acp` reads a configuration.
pub(crate) const CODEX_CONFIG: &str = "CODEX_CONFIG";
/// The variable from which opencode reads a configuration that overrides those in files.
const OPENCODE_CONFIG: &str = "OPENCODE_CONFIG_CONTENT";

/// The agents of opencode that answer prompts, and are made to ask.
pub const OPENCODE_AGENTS: [&str; 2] = ["build", "plan"];

/// An agent program that the runner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Claude Code, `claude`.
    ClaudeCode,
    /// Claude Code behind its ACP adapter, `claude-agent-acp`.
    ClaudeAcp,
    /// Codex, `codex`.
    Codex,
    /// Codex behind its ACP adapter, `codex-acp`.
    CodexAcp,
    /// opencode, `opencode`, also as `opencode acp`.
    Opencode,
    /// Gemini CLI, `gemini`, also as `gemini --acp`.
    Gemini,
}

/// How a program reports the tokens of a prompt over ACP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AcpUsage {
    /// Those of all its model requests, or none at all.
    Whole,
    /// Those of all its model requests but the ones for session titles: too few, by little.
    WithoutTitles,
    /// Those of its last model request.
    LastRequest,
}

/// How the MCP servers of an ACP session carry the agent's token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionToken {
    /// As it is: the program keeps its session's servers in its memory.
    Text,
    /// As `${LASTWORD_TOKEN}`, which the program replaces: it passes the servers on in arguments, which every user of
    /// the machine can read.
    Variable,
    /// By the name of a file: what the program does with its session's servers isn't known.
    File,
}

/// Returns how the servers of a session of this program carry the token.
pub(crate) const fn session_token(program: Option<Program>) -> SessionToken {
    match program {
        Some(Program::ClaudeCode | Program::ClaudeAcp) => SessionToken::Variable,
        Some(Program::Codex | Program::CodexAcp | Program::Opencode | Program::Gemini) => SessionToken::Text,
        None => SessionToken::File,
    }
}

impl Program {
    /// Recognizes a command by its file name, or by the package or script that a launcher such as `npx` gets. Returns
    /// the program, and where its own arguments begin.
    pub(crate) fn find(command: &Path, args: &[String]) -> Option<(Self, usize)> {
        let name = command.file_name()?.to_str()?;
        if !LAUNCHERS.contains(&name) {
            return Some((Self::named(name)?, 0));
        }
        let launched = args.iter().take(4).map(|arg| arg.split('/').find_map(Self::named));
        launched.enumerate().find_map(|(at, program)| Some((program?, at + 1)))
    }

    /// Returns the program that a command starts.
    pub(crate) fn of(command: &Path, args: &[String]) -> Option<Self> {
        Self::find(command, args).map(|(program, _)| program)
    }

    fn named(name: &str) -> Option<Self> {
        let name = name.split_once('@').map_or(name, |(name, _version)| name);
        match name {
            "claude" | "claude-code" => Some(Self::ClaudeCode),
            "claude-agent-acp" | "claude-code-acp" => Some(Self::ClaudeAcp),
            "codex" => Some(Self::Codex),
            "codex-acp" => Some(Self::CodexAcp),
            "opencode" | "opencode-ai" => Some(Self::Opencode),
            "gemini" | "gemini-cli" => Some(Self::Gemini),
            _ => None,
        }
    }

    /// Returns whether settings that [`prepare`] added make the program ask. Such a program reports no modes.
    pub(crate) const fn asks_by_settings(self) -> bool {
        matches!(self, Self::CodexAcp | Self::Opencode)
    }

    /// Returns how its ACP form reports the tokens of a prompt.
    pub(crate) const fn acp_usage(self) -> AcpUsage {
        match self {
            Self::ClaudeAcp => AcpUsage::WithoutTitles,
            Self::Opencode => AcpUsage::LastRequest,
            Self::ClaudeCode | Self::Codex | Self::CodexAcp | Self::Gemini => AcpUsage::Whole,
        }
    }

    /// Returns the `_meta` of a new or loaded session, which carries settings that no argument takes.
    ///
    /// # Errors
    /// Something in the user's settings or in the project's decides on calls that are to be held.
    pub(crate) fn session_meta(self, run: &Settings) -> Result<Option<Map<String, Value>>, String> {
        if self != Self::ClaudeAcp {
            return Ok(None);
        }
        let ask = if run.unheld { Vec::new() } else { claude_asks(&run.env, &run.cwd)? };
        let mut settings = json!({
            "crossSessionInbound": "refuse",
            "permissions": { "allow": ["mcp__lastword"], "ask": ask },
        });
        if !run.unheld {
            settings["sandbox"] = json!({ "autoAllowBashIfSandboxed": false });
        }
        // The adapter doesn't report the tokens of a suggested prompt, which the runner has no use for.
        let options = json!({ "disallowedTools": CLAUDE_CHANNELS, "promptSuggestions": false, "settings": settings });
        Ok(json!({ "claudeCode": { "options": options } }).as_object().cloned())
    }
}

/// Adds what a known program needs to its arguments and environment.
pub(crate) fn prepare(settings: &mut Settings) {
    let Some((program, at)) = Program::find(&settings.program, &settings.args) else { return };
    let held = !settings.unheld;
    match (program, settings.driver) {
        (Program::ClaudeCode, Driver::Command) => {
            // The list stands behind a `=` and first, because the flag takes every argument that follows it.
            let mut added = vec![format!("--disallowedTools={}", CLAUDE_CHANNELS.join(","))];
            if !settings.args.iter().any(|arg| arg == "--settings" || arg.starts_with("--settings=")) {
                added.push(r#"--settings={"crossSessionInbound":"refuse"}"#.to_owned());
            }
            settings.args.splice(at..at, added);
        }
        (Program::Codex, Driver::Command) => {
            settings.args.splice(at..at, codex_denials());
        }
        (Program::CodexAcp, Driver::Acp) => {
            settings.args.extend(codex_denials());
            // Since version 2 the adapter reads no arguments.
            let before = settings.env.get(CODEX_CONFIG).cloned().or_else(|| inherited(CODEX_CONFIG));
            settings.env.insert(CODEX_CONFIG.to_owned(), codex_config(before.as_deref()));
            if held {
                settings.args.extend(["-c".to_owned(), r#"approval_policy="untrusted""#.to_owned()]);
            }
        }
        (Program::Opencode, driver) => {
            let before = settings.env.get(OPENCODE_CONFIG).cloned().or_else(|| inherited(OPENCODE_CONFIG));
            let asks = held && driver == Driver::Acp;
            settings.env.insert(OPENCODE_CONFIG.to_owned(), opencode_config(before.as_deref(), asks));
        }
        (Program::ClaudeCode | Program::Codex, Driver::Acp)
        | (Program::ClaudeAcp | Program::Gemini, _)
        | (Program::CodexAcp, Driver::Command) => {}
    }
}

/// Returns the arguments that turn off Codex's channels, whatever a configuration file says.
pub fn codex_denials() -> impl Iterator<Item = String> {
    CODEX_CHANNELS.iter().flat_map(|feature| ["-c".to_owned(), format!("features.{feature}=false")])
}

#[expect(clippy::disallowed_methods, reason = "the agent's own configuration, which it would read itself")]
fn inherited(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Turns off Codex's channels in a configuration of `codex-acp`.
fn codex_config(before: Option<&str>) -> String {
    let mut config = object(before);
    let features = &mut config["features"];
    if !features.is_object() {
        *features = json!({});
    }
    for feature in CODEX_CHANNELS {
        features[feature] = json!(false);
    }
    config.to_string()
}

/// Returns the JSON object in a text; an empty one if it has none.
fn object(text: Option<&str>) -> Value {
    let found: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
    found.filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// Adds rules to a configuration of opencode. Its last matching rule decides, and reading asks for nothing.
#[must_use]
pub fn opencode_config(before: Option<&str>, asks: bool) -> String {
    let mut config = object(before);
    let rules = if asks {
        json!({
            "*": "ask", "read": { "*": "allow", "*.env": "ask", "*.env.*": "ask" }, "glob": "allow", "grep": "allow",
            "list": "allow", "todowrite": "allow", "todoread": "allow", "lastword_*": "allow", "task": "deny",
            // By name, too: a user's or project's rule of the same name keeps its place, which may be behind `*`.
            "bash": "ask", "edit": "ask", "webfetch": "ask", "websearch": "ask", "codesearch": "ask", "skill": "ask",
            "external_directory": "ask", "lsp": "ask",
        })
    } else {
        let mut rules = config["permission"].as_object().cloned().unwrap_or_default();
        rules.insert("task".to_owned(), json!("deny"));
        Value::Object(rules)
    };
    if asks {
        // The rules of an agent come after those of all, and ACP starts with the default one.
        config["default_agent"] = json!("build");
        if !config["agent"].is_object() {
            config["agent"] = json!({});
        }
        for agent in OPENCODE_AGENTS {
            if !config["agent"][agent].is_object() {
                config["agent"][agent] = json!({});
            }
            config["agent"][agent]["permission"] = rules.clone();
        }
    }
    config["permission"] = rules;
    config.to_string()
}

/// Settings for tests.
#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::settings::{Driver, Input, Restart, Settings, UsageSource};
    use crate::usage::Prices;

    /// Returns the settings for a command line.
    pub(crate) fn settings(driver: Driver, line: &str) -> Settings {
        let mut words = line.split(' ').map(ToOwned::to_owned);
        Settings {
            driver,
            program: words.next().unwrap().into(),
            args: words.collect(),
            env: BTreeMap::new(),
            cwd: ".".into(),
            input: Input::Prompt,
            usage: UsageSource::Program,
            prices: Prices::default(),
            concurrency: 1,
            deadline: Duration::ZERO,
            grace: Duration::ZERO,
            progress: Duration::ZERO,
            restart: Restart::Never,
            backoff: Duration::ZERO,
            allow: Vec::new(),
            unheld: true,
            lastword: "lastword".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<(Program, usize)> {
        let mut words = line.split(' ').map(ToOwned::to_owned);
        let command = words.next().unwrap();
        Program::find(Path::new(&command), &words.collect::<Vec<_>>())
    }

    #[test]
    fn a_program_is_known_by_its_name_also_behind_a_launcher() {
        assert_eq!(of("/usr/bin/claude -p"), Some((Program::ClaudeCode, 0)));
        assert_eq!(of("npx -y @agentclientprotocol/claude-agent-acp@0.101.0"), Some((Program::ClaudeAcp, 2)));
        assert_eq!(of("node /x/node_modules/@zed-industries/codex-acp/bin/codex-acp.js"), Some((Program::CodexAcp, 1)));
        assert_eq!(of("opencode acp"), Some((Program::Opencode, 0)));
        assert_eq!(of("my-agent claude"), None, "a word among the arguments of another program is no launch");
    }

    fn prepared(driver: Driver, line: &str) -> Settings {
        let mut settings = super::testing::settings(driver, line);
        prepare(&mut settings);
        settings
    }

    #[test]
    fn a_program_under_run_gets_no_channel_past_the_broker_also_unheld() {
        let claude = prepared(Driver::Command, "npx claude -p").args;
        let denied = "--disallowedTools=ListAgents,SendMessage,CronCreate,ScheduleWakeup,Monitor";
        assert_eq!(claude, ["claude", denied, r#"--settings={"crossSessionInbound":"refuse"}"#, "-p"]);
        let acp = super::testing::settings(Driver::Acp, "claude-agent-acp");
        let meta = Program::ClaudeAcp.session_meta(&acp).unwrap().unwrap();
        let options = &meta["claudeCode"]["options"];
        assert_eq!(options["disallowedTools"], json!(CLAUDE_CHANNELS));
        assert_eq!(options["settings"]["crossSessionInbound"], "refuse");
        let denied =
            ["-c", "features.multi_agent=false", "-c", "features.multi_agent_v2=false", "-c", "features.goals=false"];
        assert_eq!(prepared(Driver::Command, "codex exec").args, [&denied[..], &["exec"]].concat());
        let codex = prepared(Driver::Acp, "codex-acp");
        assert_eq!(codex.args, denied);
        let config: Value = serde_json::from_str(&codex.env[CODEX_CONFIG]).unwrap();
        let off = json!({ "multi_agent": false, "multi_agent_v2": false, "goals": false });
        assert_eq!(config, json!({ "features": off }));
        assert!(codex_config(Some(r#"{"model":"x","features":{"goals":true}}"#)).contains(r#""model":"x""#));
        for (driver, line) in [(Driver::Command, "opencode run"), (Driver::Acp, "opencode acp")] {
            let config = &prepared(driver, line).env[OPENCODE_CONFIG];
            assert_eq!(serde_json::from_str::<Value>(config).unwrap()["permission"]["task"], "deny");
        }
    }

    #[test]
    fn an_opencode_configuration_keeps_what_the_user_set_beside_the_rules() {
        let config: Value = serde_json::from_str(&opencode_config(Some(r#"{"model":"a/b"}"#), true)).unwrap();
        assert_eq!((&config["model"], &config["permission"]["*"]), (&json!("a/b"), &json!("ask")));
        assert_eq!(config["agent"]["build"]["permission"]["bash"], "ask", "a project may allow it for this agent");
        let unheld = opencode_config(Some(r#"{"permission":{"bash":"ask"}}"#), false);
        assert_eq!(unheld, r#"{"permission":{"bash":"ask","task":"deny"}}"#);
        assert!(opencode_config(Some("no JSON"), true).contains("ask"));
    }
}
