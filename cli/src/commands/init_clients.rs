//! `lastword init --claude`, `--codex`, `--opencode`: adds Lastword to an agent program's configuration. Existing
//! entries are kept, and every added line is shown.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstInputValue, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::Context;
use crate::config::TokenSource;
use crate::failure::Failure;

/// An agent program that can be configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Claude,
    Codex,
    Opencode,
}

impl Program {
    pub(super) const ALL: [Self; 3] = [Self::Claude, Self::Codex, Self::Opencode];

    /// Returns the program's name, its command, and the flag that configures it.
    pub(super) const fn names(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::Claude => ("Claude Code", "claude", "--claude"),
            Self::Codex => ("Codex", "codex", "--codex"),
            Self::Opencode => ("opencode", "opencode", "--opencode"),
        }
    }

    /// Returns the words of the call in the program's configuration here; `None` if it has none.
    pub(super) fn configured(self) -> Result<Option<Vec<String>>, String> {
        let (file, servers) = match self {
            Self::Claude => (PathBuf::from(".mcp.json"), "mcpServers"),
            Self::Codex => (codex_file().map_err(|failure| failure.message)?, "mcp_servers"),
            Self::Opencode => (PathBuf::from("opencode.json"), "mcp"),
        };
        let told = |problem: &dyn std::fmt::Display| format!("{}: {problem}", file.display());
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(told(&error)),
        };
        let value: Value = if self == Self::Codex {
            toml::from_str(&text).map_err(|error| told(&error))?
        } else {
            parse_to_serde_value(&text, &ParseOptions::default()).map_err(|error| told(&error))?
        };
        let Some(server) = value.get(servers).and_then(|servers| servers.get("lastword")) else { return Ok(None) };
        let lists = [&server["command"], &server["args"]].into_iter().filter_map(Value::as_array).flatten();
        Ok(Some(lists.filter_map(Value::as_str).map(str::to_owned).collect()))
    }
}

/// The change of one file.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    file: PathBuf,
    /// The added lines as a diff; empty if the file already has them.
    diff: String,
}

impl Change {
    pub(super) fn words(&self) -> String {
        if self.diff.is_empty() { format!("{}: nothing to add\n", self.file.display()) } else { self.diff.clone() }
    }
}

/// The call of this program from a configuration.
struct Call {
    program: String,
    arguments: Vec<String>,
}

impl Call {
    /// Builds the call from this executable, the server's address and the agent's token file, which must be named.
    fn of(cx: &Context) -> Result<Self, Failure> {
        let TokenSource::File(token) = &cx.settings.token else {
            return Err(Failure::usage("no token file given").hint(
                "create one with `lastword agent add NAME > NAME.token`, then run lastword --token-file NAME.token init …",
            ));
        };
        let token = fs::canonicalize(token).map_err(|error| {
            Failure::usage(format!("{}: {error}", token.display()))
                .hint("`lastword agent add NAME > NAME.token` creates one")
        })?;
        let program = std::env::current_exe()?;
        let text = |path: &Path| path.to_str().map(str::to_owned).ok_or_else(|| Failure::usage("a path is not UTF-8"));
        let arguments = vec!["--url".to_owned(), cx.server_url(), "--token-file".to_owned(), text(&token)?];
        Ok(Self { program: text(&program)?, arguments })
    }

    fn arguments(&self, verb: &str) -> Vec<CstInputValue> {
        self.arguments.iter().cloned().chain([verb.to_owned()]).map(CstInputValue::from).collect()
    }

    /// Formats the call for a shell.
    fn shell(&self, verb: &str) -> String {
        let quoted = |text: &str| format!("'{}'", text.replace('\'', r"'\''"));
        let words = [self.program.as_str()].into_iter().chain(self.arguments.iter().map(String::as_str));
        let mut line: Vec<String> = words.map(quoted).collect();
        line.push(verb.to_owned());
        line.join(" ")
    }
}

/// Adds what `program` needs to its files; with `dry`, only reports it.
pub(super) fn set_up(program: Program, dry: bool, cx: &Context) -> Result<Vec<Change>, Failure> {
    let call = Call::of(cx)?;
    match program {
        Program::Claude => Ok(vec![
            edit(Path::new(".mcp.json"), dry, |text| json(text, |root| claude_server(root, &call)))?,
            edit(Path::new(".claude/settings.local.json"), dry, |text| json(text, |root| claude_hooks(root, &call)))?,
        ]),
        Program::Codex => Ok(vec![edit(&codex_file()?, dry, |text| codex(text, &call))?]),
        Program::Opencode => {
            Ok(vec![edit(Path::new("opencode.json"), dry, |text| json(text, |root| opencode(root, &call)))?])
        }
    }
}

fn codex_file() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("CODEX_HOME").or_else(|| Some(set("HOME")?.join(".codex")));
    let home = home.ok_or_else(|| Failure::usage("Codex's directory is unknown").hint("set CODEX_HOME or HOME"))?;
    Ok(home.join("config.toml"))
}

/// Applies `change` to the text of a file, and writes the file if the text differs.
fn edit(file: &Path, dry: bool, change: impl FnOnce(&str) -> Result<String, String>) -> Result<Change, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::refused(format!("{}: {error}", file.display()));
    let old = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(&error)),
    };
    let new = change(&old).map_err(|problem| failed(&problem).hint("fix the file, or add Lastword to it by hand"))?;
    let name = file.display().to_string();
    let diff = TextDiff::from_lines(&old, &new).unified_diff().context_radius(2).header(&name, &name).to_string();
    if old != new && !dry {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder).map_err(|error| failed(&error))?;
        }
        fs::write(file, new).map_err(|error| failed(&error))?;
    }
    Ok(Change { file: file.to_owned(), diff })
}

/// Changes a JSON text and keeps its comments; an empty text is an empty object.
fn json(text: &str, change: impl FnOnce(&CstObject) -> Result<(), String>) -> Result<String, String> {
    let text = if text.trim().is_empty() { "{\n}\n" } else { text };
    let root = CstRootNode::parse(text, &ParseOptions::default()).map_err(|error| error.to_string())?;
    let object = root.value().and_then(|value| value.as_object()).ok_or("expected a JSON object")?;
    change(&object)?;
    Ok(root.to_string())
}

/// Returns the object called `name`, created if it is missing.
fn object(parent: &CstObject, name: &str) -> Result<CstObject, String> {
    parent.object_value_or_create(name).ok_or_else(|| format!("{name:?} exists and isn't an object"))
}

fn members<const N: usize>(members: [(&str, CstInputValue); N]) -> CstInputValue {
    CstInputValue::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn claude_server(root: &CstObject, call: &Call) -> Result<(), String> {
    let servers = object(root, "mcpServers")?;
    if servers.get("lastword").is_none() {
        let arguments = CstInputValue::Array(call.arguments("mcp"));
        servers.append("lastword", members([("command", call.program.clone().into()), ("args", arguments)]));
    }
    Ok(())
}

fn claude_hooks(root: &CstObject, call: &Call) -> Result<(), String> {
    let hooks = object(root, "hooks")?;
    for event in ["SessionStart", "UserPromptSubmit", "Stop"] {
        let entries = hooks.array_value_or_create(event).ok_or_else(|| format!("{event:?} exists and isn't a list"))?;
        let command = call.shell("hook");
        // An existing hook with other arguments was set up on purpose.
        let ours = entries.elements().iter().any(|entry| {
            let text = entry.to_string();
            text.contains("lastword") && text.contains(" hook\"")
        });
        if !ours {
            let hook = [("type", "command".into()), ("command", command.into()), ("timeout", 30.into())];
            entries.append(members([("hooks", CstInputValue::Array(vec![members(hook)]))]));
        }
    }
    Ok(())
}

fn opencode(root: &CstObject, call: &Call) -> Result<(), String> {
    let servers = object(root, "mcp")?;
    if servers.get("lastword").is_none() {
        let mut command = vec![CstInputValue::from(call.program.clone())];
        command.extend(call.arguments("mcp"));
        let command = CstInputValue::Array(command);
        let server = [("type", "local".into()), ("command", command), ("enabled", true.into())];
        servers.append("lastword", members(server));
    }
    Ok(())
}

/// Appends a table to the file, which TOML allows after any other table.
fn codex(text: &str, call: &Call) -> Result<String, String> {
    let known: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let there = known.get("mcp_servers").and_then(|servers| servers.get("lastword")).is_some();
    if there {
        return Ok(text.to_owned());
    }
    let string = |text: &str| toml::Value::from(text).to_string();
    let arguments = call.arguments.iter().map(String::as_str).chain(["mcp"]).map(string);
    let arguments = arguments.collect::<Vec<_>>().join(", ");
    let gap = if text.is_empty() { "" } else { "\n" };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    let program = string(&call.program);
    Ok(format!("{text}{end}{gap}[mcp_servers.lastword]\ncommand = {program}\nargs = [{arguments}]\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call { program: "/bin/lastword".into(), arguments: vec!["--token-file".into(), "/x y/kilo.token".into()] }
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let text = "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n";
        let added = json(text, |root| claude_server(root, &call())).unwrap();
        assert!(
            added.starts_with("{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }"),
            "{added}"
        );
        assert!(added.contains("\"lastword\""), "{added}");
        assert_eq!(json(&added, |root| claude_server(root, &call())).unwrap(), added, "a second time adds nothing");
        let taken = "{ \"mcpServers\": { \"lastword\": { \"url\": \"mine\" } } }";
        assert_eq!(json(taken, |root| claude_server(root, &call())).unwrap(), taken);
        assert!(json("{ \"mcpServers\": 1 }", |root| claude_server(root, &call())).unwrap_err().contains("mcpServers"));
        assert!(json("[]", |root| claude_server(root, &call())).is_err());
        assert!(json("{", |root| claude_server(root, &call())).is_err());
    }

    #[test]
    fn hooks_join_those_that_are_there() {
        let text = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}]}}";
        let added = json(text, |root| claude_hooks(root, &call())).unwrap();
        let value: serde_json::Value = serde_json::from_str(&added).unwrap();
        assert_eq!(value["hooks"]["Stop"].as_array().unwrap().len(), 2, "{added}");
        assert_eq!(
            value["hooks"]["SessionStart"][0]["hooks"][0]["command"],
            "'/bin/lastword' '--token-file' '/x y/kilo.token' hook"
        );
        assert_eq!(json(&added, |root| claude_hooks(root, &call())).unwrap(), added, "a second time adds nothing");
    }

    #[test]
    fn a_toml_file_gets_a_table_at_its_end() {
        for text in ["", "model = \"x\"", "[mcp_servers.other]\ncommand = \"y\"\n"] {
            let added = codex(text, &call()).unwrap();
            assert!(added.starts_with(text), "{added}");
            let table: toml::Table = added.parse().unwrap();
            assert_eq!(table["mcp_servers"]["lastword"]["args"][1].as_str(), Some("/x y/kilo.token"));
            assert_eq!(codex(&added, &call()).unwrap(), added, "a second time adds nothing");
        }
        assert!(codex("model = ", &call()).is_err());
    }

    #[test]
    fn opencode_gets_a_local_server() {
        let added = json("", |root| opencode(root, &call())).unwrap();
        let value: serde_json::Value = serde_json::from_str(&added).unwrap();
        assert_eq!(value["mcp"]["lastword"]["command"][0], "/bin/lastword");
        assert_eq!(value["mcp"]["lastword"]["command"][3], "mcp");
    }
}
