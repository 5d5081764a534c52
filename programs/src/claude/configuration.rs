//! The hooks and permissions that `lastword init` gives Claude Code.

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject};

use super::CHANNELS;
use crate::configuration::{Invocation, Step, list, members, object, remove_if_empty};
use crate::files::jsonc;

/// The rule that allows Lastword's tools.
const ALLOWED: &str = "mcp__lastword";
/// The hooks that deliver messages.
const EVENTS: [&str; 3] = ["SessionStart", "UserPromptSubmit", "Stop"];
/// The setting for messages from other sessions, and the value that refuses them.
const INBOUND: &str = "crossSessionInbound";
const REFUSED: &str = "refuse";
/// How many of the channels the first version turned off.
const CHANNELS_FIRST: usize = 4;

/// Returns the words of each hook of Lastword in the text of a file of settings.
pub(super) fn hooks(text: &str) -> Result<Vec<Vec<String>>, String> {
    let value = jsonc(text)?;
    let entries = EVENTS.iter().filter_map(|event| value["hooks"][event].as_array()).flatten();
    let lines = entries.filter_map(|entry| entry["hooks"].as_array()).flatten();
    let lines = lines.filter_map(|hook| hook["command"].as_str()).filter(|line| is_hook_line(line));
    Ok(lines.map(words).collect())
}

/// Splits a command line that [`Invocation::hook`] wrote into its words.
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

/// Changes the hooks and the permissions. A human's session has no deliveries, and each of its tool calls
/// is asked for.
pub(super) fn change(root: &CstObject, step: Step<'_>) -> Result<(), String> {
    if step.removes() {
        remove_inbound(root);
        remove_denials(root);
        remove_hooks(root);
        remove_allowed(root);
    }
    let Some(call) = step.team() else { return Ok(()) };
    add_allowed(root)?;
    add_hooks(root, call)?;
    add_denials(root)
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

fn add_hooks(root: &CstObject, call: &Invocation) -> Result<(), String> {
    let hooks = object(root, "hooks")?;
    for event in EVENTS {
        let entries = list(&hooks, event)?;
        // An existing hook with other arguments was set up on purpose.
        let there = entries.elements().iter().any(|entry| {
            let text = entry.to_string();
            text.contains("lastword") && text.contains(" hook\"")
        });
        if !there {
            let hook = vec![("type", "command".into()), ("command", call.hook.clone().into()), ("timeout", 30.into())];
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

/// Turns off the channels past the broker.
fn add_denials(root: &CstObject) -> Result<(), String> {
    let deny = list(&object(root, "permissions")?, "deny")?;
    // All of them in a row are `init`'s own; entries of the user stay beside them, and are left when `init` removes its
    // own.
    if own_denials(&deny).is_empty() {
        for tool in CHANNELS {
            deny.append(tool.into());
        }
    }
    if root.get(INBOUND).is_none() {
        root.append(INBOUND, REFUSED.into());
    }
    Ok(())
}

/// Takes out what [`add_denials`] added.
fn remove_denials(root: &CstObject) {
    let Some(permissions) = root.object_value("permissions") else { return };
    let Some(deny) = permissions.array_value("deny") else { return };
    let ours = own_denials(&deny);
    if ours.is_empty() {
        return;
    }
    ours.into_iter().for_each(CstNode::remove);
    remove_if_empty(&permissions, "deny");
    remove_if_empty(root, "permissions");
}

/// Takes out the refusal of other sessions' messages, which `init` adds behind the rules and the hooks, and behind which the
/// program may have added members since. A user's own elsewhere stays.
fn remove_inbound(root: &CstObject) {
    let refused = format!("\"{INBOUND}\":\"{REFUSED}\"");
    let members: Vec<String> = root.properties().iter().map(|member| without_spaces(&member.to_string())).collect();
    let at = members.iter().position(|member| *member == refused);
    let before =
        |name: &str| members.iter().take(at.unwrap_or(0)).any(|member| member.starts_with(&format!("{name:?}:")));
    if before("permissions")
        && before("hooks")
        && let Some(inbound) = root.get(INBOUND)
    {
        inbound.remove();
    }
}

/// Returns the last denials of all channels in a row.
fn own_denials(deny: &CstArray) -> Vec<CstNode> {
    let elements = deny.elements();
    let words: Vec<String> = elements.iter().map(ToString::to_string).collect();
    let wanted: Vec<String> = CHANNELS.iter().map(|tool| format!("{tool:?}")).collect();
    // Earlier versions denied fewer.
    let row = (CHANNELS_FIRST..=wanted.len()).rev().find_map(|count| {
        let at = words.windows(count).rposition(|row| *row == wanted[..count])?;
        Some((at, count))
    });
    row.map(|(at, count)| elements.into_iter().skip(at).take(count).collect()).unwrap_or_default()
}

fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::testing::call;
    use crate::configuration::{json, stepped};

    fn settings(text: &str, step: Step<'_>) -> Result<String, String> {
        json(text, |root| change(root, step))
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
        assert_eq!(value["permissions"]["deny"], serde_json::json!(CHANNELS), "{added}");
        let earlier = added.replace("\"Monitor\"", "\"Mine\"");
        assert!(settings(&earlier, Step::Remove).unwrap().contains("\"deny\""), "{earlier}");
        assert!(!settings(&earlier, Step::Remove).unwrap().contains("ScheduleWakeup"), "those of an earlier version");
        assert_eq!(settings(&added, Step::Add(&call)).unwrap(), added, "a second time adds nothing");
    }

    #[test]
    fn the_refusal_of_other_sessions_goes_also_where_the_program_has_added_members_since() {
        let call = call();
        let change = |text: &str, step| stepped(text, step, super::change).unwrap();
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
    fn what_was_added_is_taken_out_and_nothing_else() {
        let call = call();
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
