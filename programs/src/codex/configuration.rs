//! What `lastword init` writes into Codex's file, which is TOML.

use super::CHANNELS;
use crate::configuration::{Identity, Invocation, Step};

/// The variables that `lastword mcp` reads. Codex passes no others to an MCP server.
const VARIABLES: [&str; 5] =
    ["LASTWORD_AGENT", "LASTWORD_TOKEN", "LASTWORD_TOKEN_FILE", "LASTWORD_TURN", "LASTWORD_RUN"];
/// Seconds that a tool may take: `next_message` waits up to 5 min.
const TOOL_SECONDS: u64 = 330;
/// The comment by which `init` knows its own lines.
const MARK: &str = " # by lastword init";

/// Changes the MCP server and the denials of the channels.
pub(super) fn change(text: &str, step: Step<'_>) -> Result<String, String> {
    let rest = if step.removes() { without_table(&without_denials(text))? } else { text.to_owned() };
    let Some(call) = step.added() else { return Ok(rest) };
    let known: toml::Table = rest.parse().map_err(|error: toml::de::Error| error.to_string())?;
    let there = known.get("mcp_servers").and_then(|servers| servers.get("lastword")).is_some();
    let with = if there { rest } else { appended(&rest, &table(call)) };
    Ok(if step.team().is_some() { with_denials(&with, &known) } else { with })
}

/// Appends a table: TOML allows one after any other.
fn appended(text: &str, table: &str) -> String {
    let gap = if text.is_empty() { "" } else { "\n" };
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{text}{end}{gap}{table}")
}

fn table(call: &Invocation) -> String {
    let string = |text: &str| toml::Value::from(text).to_string();
    let list = |words: &[&str]| words.iter().map(|word| string(word)).collect::<Vec<_>>().join(", ");
    let arguments = list(&call.mcp.iter().map(String::as_str).collect::<Vec<_>>());
    let (program, variables) = (string(&call.lastword), list(&VARIABLES));
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

/// Returns the line that turns off a feature.
fn denial(feature: &str) -> String {
    format!("{feature} = false{MARK}\n")
}

/// Turns off the channels about which the file says nothing.
fn with_denials(text: &str, known: &toml::Table) -> String {
    let features = known.get("features");
    let unset = CHANNELS.iter().filter(|name| features.is_none_or(|features| features.get(name).is_none()));
    let denials: String = unset.map(|name| denial(name)).collect();
    if features.is_none() {
        return appended(text, &format!("[features]{MARK}\n{denials}"));
    }
    let is_header = |line: &&str| line.split('#').next().is_some_and(|line| line.trim() == "[features]");
    match text.split_inclusive('\n').find(is_header) {
        Some(header) if header.ends_with('\n') => text.replacen(header, &format!("{header}{denials}"), 1),
        // Features without a table of their own are the user's to change.
        Some(_) | None => text.to_owned(),
    }
}

/// Takes out what [`with_denials`] added.
fn without_denials(text: &str) -> String {
    let ours = |line: &&str| CHANNELS.iter().any(|name| **line == denial(name));
    let left: String = text.split_inclusive('\n').filter(|line| !ours(line)).collect();
    let header = format!("[features]{MARK}\n");
    for added in [format!("\n{header}"), header] {
        // A user may have added features of their own below it.
        if let Some((before, after)) = left.split_once(&added)
            && (after.is_empty() || after.starts_with(['\n', '[']))
        {
            return format!("{before}{after}");
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::testing::call;

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
            let added = change(text, Step::Add(&call)).unwrap();
            let table: toml::Table = added.parse().unwrap();
            for channel in CHANNELS {
                assert_eq!(table["features"][channel].as_bool(), Some(false), "{added}");
            }
            let server = &table["mcp_servers"]["lastword"];
            assert_eq!(server["args"][3].as_str(), Some("/x y/kilo.token"));
            assert_eq!(server["default_tools_approval_mode"].as_str(), Some("approve"));
            assert_eq!(change(&added, Step::Add(&call)).unwrap(), added, "a second time adds nothing");
            assert_eq!(change(&added, Step::Remove).unwrap(), text, "{added}");
            assert_eq!(change(text, Step::Remove).unwrap(), text, "there is nothing to remove");
        }
        assert!(change("model = ", Step::Add(&call)).is_err());
        assert!(change("mcp_servers.lastword = { url = \"mine\" }\n", Step::Remove).is_err(), "an inline table");
    }

    #[test]
    fn denials_of_the_user_stay_when_those_of_init_go() {
        let call = call();
        let own = "[features]\nmulti_agent = true\n";
        let added = change(own, Step::Add(&call)).unwrap();
        let features = &added.parse::<toml::Table>().unwrap()["features"];
        assert!(
            features["multi_agent"].as_bool() == Some(true) && features["goals"].as_bool() == Some(false),
            "{added}"
        );
        assert_eq!(change(&added, Step::Remove).unwrap(), own);
    }
}
