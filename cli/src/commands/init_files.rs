//! The files that `lastword init` changes: adds Lastword to each, or takes out what it added. Other content is kept.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstRootNode};
use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;

use super::init_clients::{Call, Identity, Program};
use super::init_denials::{
    add_claude_denials, add_denials, remove_claude_denials, remove_denials, remove_inbound, with_denial, without_denial,
};
use super::init_inline::in_line;
use super::init_write::Edit;
use crate::failure::Failure;
use crate::text_file;

/// The settings of Claude Code for one user in this folder.
const SETTINGS: &str = ".claude/settings.local.json";
/// The rule of Claude Code that allows Lastword's tools.
const ALLOWED: &str = "mcp__lastword";
/// The hooks of Claude Code that deliver messages.
const EVENTS: [&str; 3] = ["SessionStart", "UserPromptSubmit", "Stop"];
/// The variables that `lastword mcp` reads. Codex passes no others to an MCP server.
const VARIABLES: [&str; 5] =
    ["LASTWORD_AGENT", "LASTWORD_TOKEN", "LASTWORD_TOKEN_FILE", "LASTWORD_TURN", "LASTWORD_RUN"];
/// Seconds that a tool may take: `next_message` waits up to 5 min.
const TOOL_SECONDS: u64 = 330;

/// The change of one file.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) file: PathBuf,
    /// The changed lines as a diff; empty if there is nothing to change.
    pub(super) diff: String,
}

impl Change {
    pub(super) fn words(&self) -> String {
        if self.diff.is_empty() { format!("{}: nothing to add\n", self.file.display()) } else { self.diff.clone() }
    }
}

/// What happens to Lastword's part of the files.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step<'a> {
    /// Adds the call where none is.
    Add(&'a Call),
    /// Puts the call in place of another one.
    Replace(&'a Call),
    /// Takes out what `Add` added.
    Remove,
}

impl<'a> Step<'a> {
    const fn added(self) -> Option<&'a Call> {
        match self {
            Self::Add(call) | Self::Replace(call) => Some(call),
            Self::Remove => None,
        }
    }

    const fn removes(self) -> bool {
        matches!(self, Self::Replace(_) | Self::Remove)
    }
}

/// Returns the words of each hook of Lastword in Claude Code's settings of this folder.
pub(super) fn hooks() -> Result<Vec<Vec<String>>, String> {
    let text = match text_file::read(Path::new(SETTINGS)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(format!("{SETTINGS}: {error}")),
    };
    let value: Value =
        parse_to_serde_value(&text, &ParseOptions::default()).map_err(|error| format!("{SETTINGS}: {error}"))?;
    let entries = EVENTS.iter().filter_map(|event| value["hooks"][event].as_array()).flatten();
    let lines = entries.filter_map(|entry| entry["hooks"].as_array()).flatten();
    let lines = lines.filter_map(|hook| hook["command"].as_str()).filter(|line| is_hook_line(line));
    Ok(lines.map(words).collect())
}

/// Splits a command line that [`Call::hook`] wrote into its words.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => quoted = !quoted,
            '\\' if !quoted => word.extend(chars.next()),
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words
}

/// Plans the changes of a program's files.
pub(super) fn plan(program: Program, step: Step<'_>) -> Result<Vec<Edit>, Failure> {
    let file = program.file();
    let first = match program {
        Program::Codex => edit(file, |text| codex(text, step))?,
        Program::Claude | Program::Opencode | Program::Gemini => {
            edit(file, |text| stepped(text, step, &|root, step| server(root, program, step)))?
        }
    };
    let mut edits = vec![first];
    if program == Program::Claude {
        edits.push(edit(Path::new(SETTINGS), |text| stepped(text, step, &claude_settings))?);
    }
    Ok(edits)
}

/// Applies `change` to the text of a file. One that is left without content is to be removed.
fn edit(file: &Path, change: impl FnOnce(&str) -> Result<String, String>) -> Result<Edit, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::refused(format!("{}: {error}", file.display()));
    let bytes = match fs::read(file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&error)),
    };
    let old = text_file::decoded(bytes.clone().unwrap_or_default()).map_err(|problem| failed(&problem))?;
    let new = change(&old).map_err(|problem| failed(&problem).hint("fix the file, or edit Lastword's part by hand"))?;
    let name = file.display().to_string();
    let diff = TextDiff::from_lines(&old, &new).unified_diff().context_radius(2).header(&name, &name).to_string();
    Ok(Edit { change: Change { file: file.to_owned(), diff }, old: bytes, new: new.into_bytes() })
}

/// Changes a JSON text by a step, and keeps its lines.
fn stepped(
    text: &str,
    step: Step<'_>,
    change: &dyn Fn(&CstObject, Step<'_>) -> Result<(), String>,
) -> Result<String, String> {
    match step {
        Step::Add(_) => Ok(in_line(text, json(text, |root| change(root, step))?)),
        Step::Replace(call) => stepped(&stepped(text, Step::Remove, change)?, Step::Add(call), change),
        Step::Remove => json(text, |root| change(root, step)),
    }
}

/// Changes a JSON text and keeps its comments. An empty text is an empty object, and the other way round.
fn json(text: &str, change: impl FnOnce(&CstObject) -> Result<(), String>) -> Result<String, String> {
    let start = if text.trim().is_empty() { "{\n}\n" } else { text };
    let root = CstRootNode::parse(start, &ParseOptions::default()).map_err(|error| error.to_string())?;
    let object = root.value().and_then(|value| value.as_object()).ok_or("expected a JSON object")?;
    change(&object)?;
    let new = root.to_string();
    // `init` created a file that holds nothing else; one that was empty before stays.
    let bare = new.split_whitespace().collect::<String>() == "{}";
    let untouched = start.split_whitespace().collect::<String>() == "{}" && !text.is_empty();
    Ok(if bare && !untouched { String::new() } else { new })
}

/// Returns the object called `name`, created if it is missing.
pub(super) fn object(parent: &CstObject, name: &str) -> Result<CstObject, String> {
    parent.object_value_or_create(name).ok_or_else(|| format!("{name:?} exists and isn't an object"))
}

/// Returns the list called `name`, created if it is missing.
pub(super) fn list(parent: &CstObject, name: &str) -> Result<CstArray, String> {
    parent.array_value_or_create(name).ok_or_else(|| format!("{name:?} exists and isn't a list"))
}

pub(super) fn members(members: Vec<(&str, CstInputValue)>) -> CstInputValue {
    CstInputValue::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

fn strings(words: impl IntoIterator<Item = String>) -> CstInputValue {
    CstInputValue::Array(words.into_iter().map(CstInputValue::from).collect())
}

/// Removes a member of an object, and then the object if nothing else is in it.
fn remove_member(parent: &CstObject, group: &str, name: &str) {
    let Some(object) = parent.object_value(group) else { return };
    if let Some(member) = object.get(name) {
        member.remove();
        remove_if_empty(parent, group);
    }
}

/// Removes an object or a list that holds nothing.
pub(super) fn remove_if_empty(parent: &CstObject, name: &str) {
    let empty = parent.object_value(name).is_some_and(|object| object.properties().is_empty())
        || parent.array_value(name).is_some_and(|list| list.elements().is_empty());
    if empty && let Some(member) = parent.get(name) {
        member.remove();
    }
}

/// Changes the MCP server in a JSON file.
fn server(root: &CstObject, program: Program, step: Step<'_>) -> Result<(), String> {
    if step.removes() {
        remove_member(root, program.servers(), "lastword");
    }
    if step.removes() {
        remove_denials(root, program);
    }
    let Some(call) = step.added() else { return Ok(()) };
    let servers = object(root, program.servers())?;
    if servers.get("lastword").is_none() {
        servers.append("lastword", server_of(program, call));
    }
    if is_team(call) { add_denials(root, program) } else { Ok(()) }
}

/// Returns whether the call makes the program an agent, whose channels past the broker are turned off.
const fn is_team(call: &Call) -> bool {
    !matches!(call.identity, Identity::Human(_))
}

fn server_of(program: Program, call: &Call) -> CstInputValue {
    if program == Program::Opencode {
        let command = strings([call.program.clone()].into_iter().chain(call.mcp()));
        return members(vec![("type", "local".into()), ("command", command), ("enabled", true.into())]);
    }
    let mut server = vec![("command", call.program.clone().into()), ("args", strings(call.mcp()))];
    if program == Program::Claude {
        // Claude Code otherwise shows no MCP tool to its model until the model has searched for it.
        server.push(("alwaysLoad", true.into()));
    }
    if program == Program::Gemini && call.identity == Identity::Session {
        // Gemini CLI hides variables with TOKEN in their name from MCP servers that don't list them.
        server.push(("env", members(vec![("LASTWORD_TOKEN", "$LASTWORD_TOKEN".into())])));
    }
    // Each decision with a human's token is asked for; an agent's tools need no confirmation.
    if program == Program::Gemini && !matches!(call.identity, Identity::Human(_)) {
        server.push(("trust", true.into()));
    }
    members(server)
}

/// Changes the hooks and the permissions of Claude Code. A human's session has no deliveries, and each of its tool calls
/// is asked for.
fn claude_settings(root: &CstObject, step: Step<'_>) -> Result<(), String> {
    if step.removes() {
        remove_inbound(root);
        remove_claude_denials(root);
        remove_hooks(root);
        remove_allowed(root);
    }
    match step.added() {
        Some(call) if is_team(call) => {
            add_allowed(root)?;
            add_hooks(root, call)?;
            add_claude_denials(root)
        }
        Some(_) | None => Ok(()),
    }
}

fn add_allowed(root: &CstObject) -> Result<(), String> {
    let allow = list(&object(root, "permissions")?, "allow")?;
    if !allow.elements().iter().any(is_allowed) {
        allow.append(ALLOWED.into());
    }
    Ok(())
}

fn remove_allowed(root: &CstObject) {
    let Some(permissions) = root.object_value("permissions") else { return };
    let Some(allow) = permissions.array_value("allow") else { return };
    let ours: Vec<CstNode> = allow.elements().into_iter().filter(is_allowed).collect();
    if ours.is_empty() {
        return;
    }
    ours.into_iter().for_each(CstNode::remove);
    remove_if_empty(&permissions, "allow");
    remove_if_empty(root, "permissions");
}

fn is_allowed(node: &CstNode) -> bool {
    node.to_string() == format!("{ALLOWED:?}")
}

fn add_hooks(root: &CstObject, call: &Call) -> Result<(), String> {
    let hooks = object(root, "hooks")?;
    for event in EVENTS {
        let entries = list(&hooks, event)?;
        // An existing hook with other arguments was set up on purpose.
        let there = entries.elements().iter().any(|entry| {
            let text = entry.to_string();
            text.contains("lastword") && text.contains(" hook\"")
        });
        if !there {
            let hook = vec![("type", "command".into()), ("command", call.hook().into()), ("timeout", 30.into())];
            entries.append(members(vec![("hooks", CstInputValue::Array(vec![members(hook)]))]));
        }
    }
    Ok(())
}

fn remove_hooks(root: &CstObject) {
    let Some(hooks) = root.object_value("hooks") else { return };
    let mut removed = false;
    for event in EVENTS {
        let Some(entries) = hooks.array_value(event) else { continue };
        for entry in entries.elements() {
            let Some(list) = entry.as_object().and_then(|entry| entry.array_value("hooks")) else { continue };
            let ours: Vec<CstNode> = list.elements().into_iter().filter(is_hook).collect();
            removed |= !ours.is_empty();
            let last = ours.len() == list.elements().len() && !ours.is_empty();
            if last {
                entry.remove();
            } else {
                ours.into_iter().for_each(CstNode::remove);
            }
        }
        if removed {
            remove_if_empty(&hooks, event);
        }
    }
    if removed {
        remove_if_empty(root, "hooks");
    }
}

/// Returns whether `init` wrote this hook.
fn is_hook(node: &CstNode) -> bool {
    let Some(hook) = node.as_object() else { return false };
    let command = hook.get("command").and_then(|command| command.value()).and_then(|value| value.as_string_lit());
    command.and_then(|line| line.decoded_value().ok()).is_some_and(|line| is_hook_line(&line))
}

fn is_hook_line(line: &str) -> bool {
    line.contains("lastword") && line.ends_with("' hook")
}

/// Changes the MCP server in Codex's file.
fn codex(text: &str, step: Step<'_>) -> Result<String, String> {
    let rest = if step.removes() { without_table(&without_denial(text))? } else { text.to_owned() };
    let Some(call) = step.added() else { return Ok(rest) };
    let known: toml::Table = rest.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let there = known.get("mcp_servers").and_then(|servers| servers.get("lastword")).is_some();
    let with = if there { rest } else { appended(&rest, &table(call)) };
    Ok(if is_team(call) { with_denial(&with, &known) } else { with })
}

/// Appends a table: TOML allows one after any other.
pub(super) fn appended(text: &str, table: &str) -> String {
    let gap = if text.is_empty() { "" } else { "\n" };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{gap}{table}")
}

fn table(call: &Call) -> String {
    let string = |text: &str| toml::Value::from(text).to_string();
    let list = |words: &[&str]| words.iter().map(|word| string(word)).collect::<Vec<_>>().join(", ");
    let mcp = call.mcp();
    let arguments = list(&mcp.iter().map(String::as_str).collect::<Vec<_>>());
    let (program, variables) = (string(&call.program), list(&VARIABLES));
    // `codex exec` can't ask its user, and cancels a call that needs a confirmation.
    let approved =
        if matches!(call.identity, Identity::Human(_)) { "" } else { "default_tools_approval_mode = \"approve\"\n" };
    format!(
        "[mcp_servers.lastword]\ncommand = {program}\nargs = [{arguments}]\nenv_vars = [{variables}]\n\
         {approved}tool_timeout_sec = {TOOL_SECONDS}\n"
    )
}

/// Returns the text without the table of Lastword's server and its sub-tables.
fn without_table(text: &str) -> Result<String, String> {
    let mut expected: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let Some(servers) = expected.get_mut("mcp_servers").and_then(toml::Value::as_table_mut) else {
        return Ok(text.to_owned());
    };
    if servers.remove("lastword").is_none() {
        return Ok(text.to_owned());
    }
    if servers.is_empty() {
        expected.remove("mcp_servers");
    }
    let (mut rest, mut ours) = (String::new(), false);
    for line in text.split_inclusive('\n') {
        let header = line.trim_start();
        if header.starts_with('[') {
            ours = header.starts_with("[mcp_servers.lastword]") || header.starts_with("[mcp_servers.lastword.");
        }
        if ours {
            continue;
        }
        rest.push_str(line);
    }
    // The empty line that `init` put before its table.
    if rest.ends_with("\n\n") {
        rest.pop();
    }
    let left: toml::Table = rest.parse().map_err(|error: toml::de::Error| error.to_string())?;
    if left == expected { Ok(rest) } else { Err("mcp_servers.lastword isn't a table that `init` wrote".to_owned()) }
}

#[cfg(test)]
mod tests {
    use lastword_client::Endpoint;

    use super::*;

    fn call() -> Call {
        let identity = Identity::Agent("/x y/kilo.token".into());
        Call {
            program: "/bin/lastword".into(),
            endpoint: Endpoint::new("http://127.0.0.1:7171"),
            identity,
            tools: None,
        }
    }

    fn claude(text: &str, step: Step<'_>) -> Result<String, String> {
        json(text, |root| server(root, Program::Claude, step))
    }

    fn settings(text: &str, step: Step<'_>) -> Result<String, String> {
        json(text, |root| claude_settings(root, step))
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let call = call();
        let add = Step::Add(&call);
        let text = "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n";
        let added = claude(text, add).unwrap();
        assert!(
            added.starts_with("{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }"),
            "{added}"
        );
        assert!(added.contains("\"lastword\""), "{added}");
        assert_eq!(claude(&added, add).unwrap(), added, "a second time adds nothing");
        let taken = "{ \"mcpServers\": { \"lastword\": { \"url\": \"mine\" } } }";
        assert_eq!(claude(taken, add).unwrap(), taken);
        assert!(claude("{ \"mcpServers\": 1 }", add).unwrap_err().contains("mcpServers"));
        assert!(claude("[]", add).is_err());
        assert!(claude("{", add).is_err());
    }

    #[test]
    fn hooks_join_those_that_are_there() {
        let call = call();
        let text = "{\"hooks\": {\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"say done\"}]}]}}";
        let added = settings(text, Step::Add(&call)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&added).unwrap();
        assert_eq!(value["hooks"]["Stop"].as_array().unwrap().len(), 2, "{added}");
        assert_eq!(
            value["hooks"]["SessionStart"][0]["hooks"][0]["command"],
            "'/bin/lastword' '--url' 'http://127.0.0.1:7171' '--token-file' '/x y/kilo.token' hook"
        );
        assert_eq!(value["permissions"]["allow"], serde_json::json!(["mcp__lastword"]));
        assert_eq!(value["crossSessionInbound"], "refuse", "{added}");
        assert_eq!(value["permissions"]["deny"], serde_json::json!(lastword_runner::CLAUDE_CHANNELS), "{added}");
        let earlier = added.replace("\"Monitor\"", "\"Mine\"");
        assert!(settings(&earlier, Step::Remove).unwrap().contains("\"deny\""), "{earlier}");
        assert!(!settings(&earlier, Step::Remove).unwrap().contains("ScheduleWakeup"), "those of an earlier version");
        assert_eq!(settings(&added, Step::Add(&call)).unwrap(), added, "a second time adds nothing");
    }

    #[test]
    fn a_toml_file_gets_a_table_at_its_end_and_loses_it_again() {
        let call = call();
        for text in [
            "",
            "model = \"x\"\n",
            "[features]\nweb = true\n\n[b]\n",
            "[mcp_servers.other]\ncommand = \"y\"\n",
            "# mine\n\n[a]\nb = 1\n",
        ] {
            let added = codex(text, Step::Add(&call)).unwrap();
            let table: toml::Table = added.parse().unwrap();
            for channel in lastword_runner::CODEX_CHANNELS {
                assert_eq!(table["features"][channel].as_bool(), Some(false), "{added}");
            }
            let server = &table["mcp_servers"]["lastword"];
            assert_eq!(server["args"][3].as_str(), Some("/x y/kilo.token"));
            assert_eq!(server["default_tools_approval_mode"].as_str(), Some("approve"));
            assert_eq!(codex(&added, Step::Add(&call)).unwrap(), added, "a second time adds nothing");
            assert_eq!(codex(&added, Step::Remove).unwrap(), text, "{added}");
            assert_eq!(codex(text, Step::Remove).unwrap(), text, "there is nothing to remove");
        }
        assert!(codex("model = ", Step::Add(&call)).is_err());
        assert!(codex("mcp_servers.lastword = { url = \"mine\" }\n", Step::Remove).is_err(), "an inline table");
    }

    #[test]
    fn other_programs_get_a_local_server() {
        let call = call();
        let added = json("", |root| server(root, Program::Opencode, Step::Add(&call))).unwrap();
        let value: serde_json::Value = serde_json::from_str(&added).unwrap();
        assert_eq!(value["mcp"]["lastword"]["command"][0], "/bin/lastword");
        assert_eq!(value["mcp"]["lastword"]["command"][5], "mcp");
        let added = json("", |root| server(root, Program::Gemini, Step::Add(&call))).unwrap();
        let value: serde_json::Value = serde_json::from_str(&added).unwrap();
        assert_eq!(value["mcpServers"]["lastword"]["trust"], true);
    }

    #[test]
    fn a_file_is_byte_for_byte_the_same_once_what_init_added_is_taken_out() {
        let call = call();
        let files = [
            "{\"permission\": {\"bash\": \"ask\"}, \"model\": \"x\"}\n",
            "{ \"permission\": { \"bash\": \"ask\" } }",
            "{\n  // mine\n  \"mcp\": {\"other\": {\"type\": \"remote\", \"url\": \"x\"}},\n  \"permission\": {\"bash\": \"ask\"}\n}\n",
            "{\n\t\"tools\": {\"exclude\": [\"x\"]},\n\t\"mcpServers\": {\"other\": {\"command\": \"x\"}}\n}\n",
            "{\"permissions\": {\"allow\": [\"Bash\"], \"deny\": [\"Read\"]}, \"hooks\": {\"Stop\": [{\"hooks\": []}]}}\n",
        ];
        for text in files {
            for program in [Program::Opencode, Program::Gemini, Program::Claude] {
                let change = |text: &str, step| stepped(text, step, &|root, step| server(root, program, step)).unwrap();
                let added = change(text, Step::Add(&call));
                assert!(added.contains("lastword"), "{added}");
                assert_eq!(change(&added, Step::Remove), text, "{added}");
                assert_eq!(change(&change(&added, Step::Replace(&call)), Step::Remove), text, "{added}");
            }
            let change = |text: &str, step| stepped(text, step, &claude_settings).unwrap();
            let added = change(text, Step::Add(&call));
            assert_eq!(change(&added, Step::Add(&call)), added, "a second time adds nothing");
            assert_eq!(change(&added, Step::Remove), text, "{added}");
        }
    }

    #[test]
    fn the_refusal_of_other_sessions_goes_also_where_the_program_has_added_members_since() {
        let call = call();
        let change = |text: &str, step| stepped(text, step, &claude_settings).unwrap();
        let added = change("{\n  \"model\": \"opus\"\n}\n", Step::Add(&call));
        let later =
            added.replace("\"refuse\"\n", "\"refuse\",\n  \"enabledMcpjsonServers\": [\n    \"lastword\"\n  ]\n");
        assert_ne!(later, added);
        let left: serde_json::Value = serde_json::from_str(&change(&later, Step::Remove)).unwrap();
        assert_eq!(left, serde_json::json!({ "model": "opus", "enabledMcpjsonServers": ["lastword"] }));
        let own = "{\n  \"crossSessionInbound\": \"refuse\"\n}\n";
        assert_eq!(change(&change(own, Step::Add(&call)), Step::Remove), own, "a user's own");
    }

    #[test]
    fn denials_of_the_user_stay_when_those_of_init_go() {
        let call = call();
        let user = [
            (Program::Opencode, "{\n  \"permission\": { \"task\": \"deny\" }\n}\n"),
            (Program::Opencode, "{\n  \"permission\": \"ask\"\n}\n"),
            (Program::Opencode, "{\n  \"permission\": {\n    \"bash\": \"ask\"\n  }\n}\n"),
            (Program::Gemini, "{\n  \"tools\": {\n    \"exclude\": [\n      \"x\"\n    ]\n  }\n}\n"),
        ];
        for (program, text) in user {
            let change = |text: &str, step| json(text, |root| server(root, program, step)).unwrap();
            let added = change(text, Step::Add(&call));
            assert_eq!(change(&added, Step::Remove), text, "{added}");
        }
        let own = "[features]\nmulti_agent = true\n";
        let added = codex(own, Step::Add(&call)).unwrap();
        let features = &added.parse::<toml::Table>().unwrap()["features"];
        assert!(
            features["multi_agent"].as_bool() == Some(true) && features["goals"].as_bool() == Some(false),
            "{added}"
        );
        assert_eq!(codex(&added, Step::Remove).unwrap(), own);
    }

    #[test]
    fn what_was_added_is_taken_out_and_nothing_else() {
        let call = call();
        let servers = "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n";
        for text in ["", servers] {
            let added = claude(text, Step::Add(&call)).unwrap();
            assert_eq!(claude(&added, Step::Remove).unwrap(), text, "{added}");
        }
        let mine = "{\n  \"permissions\": {\n    \"deny\": [\"SendMessage\"],\n    \"allow\": [\"Bash(ls)\"]\n  },\n  \"hooks\": {\n    \"Stop\": [\n      \
                    { \"hooks\": [{ \"type\": \"command\", \"command\": \"say done\" }] }\n    ]\n  }\n}\n";
        for text in ["", "{\n  \"model\": \"opus\"\n}\n", mine] {
            let added = settings(text, Step::Add(&call)).unwrap();
            let left = settings(&added, Step::Remove).unwrap();
            let values = [text, &left].map(|text| {
                if text.is_empty() { None } else { Some(serde_json::from_str::<serde_json::Value>(text).unwrap()) }
            });
            assert_eq!(values[0], values[1], "{left}");
            assert_eq!(settings(text, Step::Remove).unwrap(), text, "there is nothing to remove");
        }
    }
}
