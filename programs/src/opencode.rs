//! opencode, which speaks ACP as `opencode acp`.
//!
//! What stands here was seen with opencode 1.18.33.

mod output;
mod server;
mod session;

use std::path::PathBuf;

use jsonc_parser::cst::{CstInputValue, CstObject};
use serde_json::{Value, json};

pub use self::server::Server;
pub use self::session::{Joined, configuration};
use crate::configuration::{
    File, Invocation, Step, calls, members, object as object_in, remove_if_empty, server, stepped, strings,
};
use crate::files::{inherited, jsonc, object, read, set_or_home};
use crate::program::{Acp, AcpUsage, AgentProgram, Command, Resume, SessionToken};
use crate::settings::Settings;

/// The agents that answer prompts, and are made to ask.
const AGENTS: [&str; 2] = ["build", "plan"];
/// The variable from which opencode reads a configuration that overrides those in files.
pub const CONFIG: &str = "OPENCODE_CONFIG_CONTENT";
/// The member of its configuration that holds the servers.
const SERVERS: &str = "mcp";

/// opencode, `opencode`.
pub static OPENCODE: AgentProgram = AgentProgram {
    name: "opencode",
    command: Command {
        names: &["opencode", "opencode-ai"],
        package: "opencode-ai",
        tried: "1.18.33",
        held: "over ACP",
    },
    adapter: None,
    variables: &["OPENCODE"],
    start: |settings, _| add_rules(settings, false),
    flags: output::flags,
    output: |model| Box::new(output::OpencodeOutput(model)),
    transcript: None,
    acp: Acp {
        start: |settings| add_rules(settings, !settings.unheld),
        token: SessionToken::Text,
        usage: AcpUsage::LastRequest,
        metered: false,
        asks_by_settings: true,
        ..Acp::UNKNOWN
    },
    files: &[File {
        path: "opencode.json",
        change: |text, step| stepped(text, step, change),
        calls: |text| calls(text, SERVERS),
    }],
    changes: "opencode.json",
    earlier_file: || None,
    next: "run `opencode` in this folder",
    token: "LASTWORD_TOKEN_FILE=\"$PWD/NAME.token\"",
    open_channels,
    resume: Resume { last: &[&["--continue"], &["-c"]], id: &["--session", "-s"] },
};

fn open_channels() -> Vec<String> {
    let user = set_or_home("XDG_CONFIG_HOME", ".config").map(|folder| folder.join("opencode/opencode.json"));
    let here = ["opencode.json", "opencode.jsonc"].map(PathBuf::from);
    let found = read(here.into_iter().chain(user), jsonc);
    let task = found.iter().map(|file| &file["permission"]["task"]).find(|rule| !rule.is_null());
    let off = task.is_some_and(|rule| *rule == "deny" || rule["*"] == "deny");
    if off { Vec::new() } else { vec!["sub-agents (permission.task)".to_owned()] }
}

fn add_rules(settings: &mut Settings, asks: bool) {
    let before = settings.env.get(CONFIG).cloned().or_else(|| inherited(CONFIG));
    settings.env.insert(CONFIG.to_owned(), with_rules(before.as_deref(), asks).to_string());
}

/// Adds rules to a configuration of opencode. Its last matching rule decides, and reading asks for nothing.
fn with_rules(before: Option<&str>, asks: bool) -> Value {
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
        for agent in AGENTS {
            if !config["agent"][agent].is_object() {
                config["agent"][agent] = json!({});
            }
            config["agent"][agent]["permission"] = rules.clone();
        }
    }
    config["permission"] = rules;
    config
}

/// Changes the MCP server, and the rule that turns sub-agents off.
fn change(root: &CstObject, step: Step<'_>) -> Result<(), String> {
    server(root, SERVERS, step, lastword)?;
    if step.removes() {
        remove_denial(root);
    }
    // One rule for all tools is the user's own.
    let has_rules =
        root.get("permission").is_none_or(|rules| rules.value().is_some_and(|rules| rules.as_object().is_some()));
    if step.team().is_some() && has_rules {
        let permission = object_in(root, "permission")?;
        if permission.get("task").is_none() {
            permission.append("task", members(vec![("*", "deny".into())]));
        }
    }
    Ok(())
}

/// Returns the server of Lastword.
fn lastword(call: &Invocation) -> CstInputValue {
    let command = strings([call.lastword.clone()].into_iter().chain(call.mcp.clone()));
    members(vec![("type", "local".into()), ("command", command), ("enabled", true.into())])
}

fn remove_denial(root: &CstObject) {
    let Some(permission) = root.object_value("permission") else { return };
    let without_spaces = |text: &str| text.split_whitespace().collect::<String>();
    // A user writes `"deny"`; this form is what `init` wrote.
    let ours = permission.get("task").filter(|task| without_spaces(&task.to_string()) == r#""task":{"*":"deny"}"#);
    if let Some(task) = ours {
        task.remove();
        remove_if_empty(root, "permission");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::testing::prepared;
    use crate::settings::Driver;

    #[test]
    fn a_program_under_run_gets_no_channel_past_the_broker_also_unheld() {
        for (driver, line) in [(Driver::Command, "opencode run"), (Driver::Acp, "opencode acp")] {
            let config = &prepared(driver, line).env[CONFIG];
            assert_eq!(serde_json::from_str::<Value>(config).unwrap()["permission"]["task"], "deny");
        }
    }

    #[test]
    fn an_opencode_configuration_keeps_what_the_user_set_beside_the_rules() {
        let config = with_rules(Some(r#"{"model":"a/b"}"#), true);
        assert_eq!((&config["model"], &config["permission"]["*"]), (&json!("a/b"), &json!("ask")));
        assert_eq!(config["agent"]["build"]["permission"]["bash"], "ask", "a project may allow it for this agent");
        let unheld = with_rules(Some(r#"{"permission":{"bash":"ask"}}"#), false).to_string();
        assert_eq!(unheld, r#"{"permission":{"bash":"ask","task":"deny"}}"#);
        assert!(with_rules(Some("no JSON"), true).to_string().contains("ask"));
    }
}
