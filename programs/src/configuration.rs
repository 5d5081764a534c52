//! What `lastword init` writes into the configuration of agent programs: adds Lastword, or takes out what it added. Other
//! content is kept.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::{CstArray, CstInputValue, CstObject, CstRootNode};
use serde_json::Value;

use crate::files::jsonc;
use crate::in_line::in_line;

/// A file of a program's configuration.
#[derive(Debug)]
pub struct File {
    /// Its path in the working directory.
    pub path: &'static str,
    /// Changes its text.
    pub change: fn(&str, Step<'_>) -> Result<String, String>,
    /// Returns the words of each call of Lastword in its text; a server that isn't started by a command has none.
    pub calls: fn(&str) -> Result<Vec<Vec<String>>, String>,
}

/// Whose token a configuration uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The agent's whose token this file holds.
    Agent(String),
    /// The human's whose token this file holds, for tools that read and decide.
    Human(String),
    /// That of each session, in `LASTWORD_TOKEN` or `LASTWORD_TOKEN_FILE`.
    Session,
}

impl Identity {
    /// Reads the identity from the words of a configured call.
    #[must_use]
    pub fn of(words: &[String]) -> Self {
        let at = words.iter().position(|word| word == "--token-file");
        match at.and_then(|at| words.get(at + 1)) {
            Some(file) if words.iter().any(|word| word == "--as-human") => Self::Human(file.clone()),
            Some(file) => Self::Agent(file.clone()),
            None => Self::Session,
        }
    }
}

/// The call of Lastword that a configuration contains.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// The path of the program `lastword`.
    pub lastword: String,
    /// Whose token it uses.
    pub identity: Identity,
    /// Its arguments as an MCP server.
    pub mcp: Vec<String>,
    /// Its command line as a hook, for a shell.
    pub hook: String,
}

/// What happens to Lastword's part of the files.
#[derive(Clone, Copy, Debug)]
pub enum Step<'a> {
    /// Adds the call where none is.
    Add(&'a Invocation),
    /// Puts the call in place of another one.
    Replace(&'a Invocation),
    /// Takes out what `Add` added.
    Remove,
}

impl<'a> Step<'a> {
    pub(crate) const fn added(self) -> Option<&'a Invocation> {
        match self {
            Self::Add(call) | Self::Replace(call) => Some(call),
            Self::Remove => None,
        }
    }

    /// Returns the call that makes the program an agent, whose channels past the broker are turned off.
    pub(crate) fn team(self) -> Option<&'a Invocation> {
        self.added().filter(|call| !matches!(call.identity, Identity::Human(_)))
    }

    pub(crate) const fn removes(self) -> bool {
        matches!(self, Self::Replace(_) | Self::Remove)
    }
}

/// Changes a JSON text by a step, and keeps its lines.
pub(crate) fn stepped(
    text: &str,
    step: Step<'_>,
    change: fn(&CstObject, Step<'_>) -> Result<(), String>,
) -> Result<String, String> {
    match step {
        Step::Add(_) => Ok(in_line(text, json(text, |root| change(root, step))?)),
        Step::Replace(call) => stepped(&stepped(text, Step::Remove, change)?, Step::Add(call), change),
        Step::Remove => json(text, |root| change(root, step)),
    }
}

/// Changes a JSON text and keeps its comments. An empty text is an empty object, and the other way round.
pub(crate) fn json(text: &str, change: impl FnOnce(&CstObject) -> Result<(), String>) -> Result<String, String> {
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
pub(crate) fn object(parent: &CstObject, name: &str) -> Result<CstObject, String> {
    parent.object_value_or_create(name).ok_or_else(|| format!("{name:?} exists and isn't an object"))
}

/// Returns the list called `name`, created if it is missing.
pub(crate) fn list(parent: &CstObject, name: &str) -> Result<CstArray, String> {
    parent.array_value_or_create(name).ok_or_else(|| format!("{name:?} exists and isn't a list"))
}

pub(crate) fn members(members: Vec<(&str, CstInputValue)>) -> CstInputValue {
    CstInputValue::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

pub(crate) fn strings(words: impl IntoIterator<Item = String>) -> CstInputValue {
    CstInputValue::Array(words.into_iter().map(CstInputValue::from).collect())
}

/// Removes a member of an object, and then the object if nothing else is in it.
pub(crate) fn remove_member(parent: &CstObject, group: &str, name: &str) {
    let Some(object) = parent.object_value(group) else { return };
    if let Some(member) = object.get(name) {
        member.remove();
        remove_if_empty(parent, group);
    }
}

/// Removes an object or a list that holds nothing.
pub(crate) fn remove_if_empty(parent: &CstObject, name: &str) {
    let empty = parent.object_value(name).is_some_and(|object| object.properties().is_empty())
        || parent.array_value(name).is_some_and(|list| list.elements().is_empty());
    if empty && let Some(member) = parent.get(name) {
        member.remove();
    }
}

/// Changes the MCP server in the object called `servers`.
pub(crate) fn server(
    root: &CstObject,
    servers: &str,
    step: Step<'_>,
    made: impl FnOnce(&Invocation) -> CstInputValue,
) -> Result<(), String> {
    if step.removes() {
        remove_member(root, servers, "lastword");
    }
    let Some(call) = step.added() else { return Ok(()) };
    let servers = object(root, servers)?;
    if servers.get("lastword").is_none() {
        servers.append("lastword", made(call));
    }
    Ok(())
}

/// Returns the members of a server that a command starts.
pub(crate) fn started(call: &Invocation) -> Vec<(&'static str, CstInputValue)> {
    vec![("command", call.lastword.clone().into()), ("args", strings(call.mcp.clone()))]
}

/// Returns the words of the call in the servers of a JSON text.
pub(crate) fn calls(text: &str, servers: &str) -> Result<Vec<Vec<String>>, String> {
    Ok(call(&jsonc(text)?, servers).into_iter().collect())
}

/// Returns the words of the call in the servers of a configuration; none if the server isn't started by a command.
pub(crate) fn call(configuration: &Value, servers: &str) -> Option<Vec<String>> {
    let server = configuration.get(servers)?.get("lastword")?;
    let program = server["command"].as_str().map(str::to_owned);
    let lists = [&server["command"], &server["args"]].into_iter().filter_map(Value::as_array).flatten();
    Some(program.into_iter().chain(lists.filter_map(Value::as_str).map(str::to_owned)).collect())
}

/// A call for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::{Identity, Invocation};

    /// Returns the call with an agent's token.
    pub(crate) fn call() -> Invocation {
        let words = ["--url", "http://127.0.0.1:7171", "--token-file", "/x y/kilo.token", "mcp"];
        Invocation {
            lastword: "/bin/lastword".into(),
            identity: Identity::Agent("/x y/kilo.token".into()),
            mcp: words.map(str::to_owned).to_vec(),
            hook: "'/bin/lastword' '--url' 'http://127.0.0.1:7171' '--token-file' '/x y/kilo.token' hook".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::call;
    use super::*;
    use crate::claude::CLAUDE;
    use crate::gemini::GEMINI;
    use crate::opencode::OPENCODE;
    use crate::program::{ALL, AgentProgram};

    /// Changes the file with the program's servers.
    fn changed(program: &AgentProgram, text: &str, step: Step<'_>) -> Result<String, String> {
        (program.files[0].change)(text, step)
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        let call = call();
        let add = Step::Add(&call);
        let text = "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n";
        let added = changed(&CLAUDE, text, add).unwrap();
        assert!(
            added.starts_with("{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }"),
            "{added}"
        );
        assert!(added.contains("\"lastword\""), "{added}");
        assert_eq!(changed(&CLAUDE, &added, add).unwrap(), added, "a second time adds nothing");
        let taken = "{ \"mcpServers\": { \"lastword\": { \"url\": \"mine\" } } }";
        assert_eq!(changed(&CLAUDE, taken, add).unwrap(), taken);
        assert!(changed(&CLAUDE, "{ \"mcpServers\": 1 }", add).unwrap_err().contains("mcpServers"));
        assert!(changed(&CLAUDE, "[]", add).is_err());
        assert!(changed(&CLAUDE, "{", add).is_err());
    }

    #[test]
    fn other_programs_get_a_local_server() {
        let call = call();
        let value = |program: &AgentProgram| -> Value {
            serde_json::from_str(&changed(program, "", Step::Add(&call)).unwrap()).unwrap()
        };
        let opencode = value(&OPENCODE);
        assert_eq!(opencode["mcp"]["lastword"]["command"][0], "/bin/lastword");
        assert_eq!(opencode["mcp"]["lastword"]["command"][5], "mcp");
        assert_eq!(value(&GEMINI)["mcpServers"]["lastword"]["trust"], true);
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
        let json = ALL.into_iter().flat_map(|program| program.files);
        for file in json.filter(|file| file.path.ends_with(".json")) {
            for text in files {
                let change = |text: &str, step| (file.change)(text, step).unwrap();
                let added = change(text, Step::Add(&call));
                assert!(added.contains("lastword"), "{added}");
                assert_eq!(change(&added, Step::Add(&call)), added, "a second time adds nothing");
                assert_eq!(change(&added, Step::Remove), text, "{added}");
                assert_eq!(change(&change(&added, Step::Replace(&call)), Step::Remove), text, "{added}");
            }
        }
    }

    #[test]
    fn denials_of_the_user_stay_when_those_of_init_go() {
        let call = call();
        let user = [
            (&OPENCODE, "{\n  \"permission\": { \"task\": \"deny\" }\n}\n"),
            (&OPENCODE, "{\n  \"permission\": \"ask\"\n}\n"),
            (&OPENCODE, "{\n  \"permission\": {\n    \"bash\": \"ask\"\n  }\n}\n"),
            (&GEMINI, "{\n  \"tools\": {\n    \"exclude\": [\n      \"x\"\n    ]\n  }\n}\n"),
        ];
        for (program, text) in user {
            let added = changed(program, text, Step::Add(&call)).unwrap();
            assert_eq!(changed(program, &added, Step::Remove).unwrap(), text, "{added}");
        }
    }

    #[test]
    fn what_was_added_is_taken_out_and_nothing_else() {
        let call = call();
        let servers = "{\n  // mine\n  \"mcpServers\": {\n    \"other\": { \"command\": \"x\" }\n  }\n}\n";
        for text in ["", servers] {
            let added = changed(&CLAUDE, text, Step::Add(&call)).unwrap();
            assert_eq!(changed(&CLAUDE, &added, Step::Remove).unwrap(), text, "{added}");
        }
    }
}
