//! The lines by which `lastword init` turns off the channels of agent programs past the broker. `--remove` takes out what
//! was added, and leaves the same rules of the user.

use jsonc_parser::cst::{CstArray, CstInputValue, CstNode, CstObject, CstObjectProp};
use lastword_runner::{CLAUDE_CHANNELS, CODEX_CHANNELS};

use super::channels::GEMINI_CHANNEL;
use super::init_clients::Program;
use super::init_files::{appended, list, members, object, remove_if_empty};

/// The setting of Claude Code for messages from other sessions, and the value that refuses them.
const INBOUND: &str = "crossSessionInbound";
const REFUSED: &str = "refuse";
/// How many of Claude Code's channels the first version turned off.
const CLAUDE_CHANNELS_FIRST: usize = 4;
/// The comment by which `init` knows its own lines of Codex's file.
const CODEX_MARK: &str = " # by lastword init";
/// Turns off a program's channels past the broker, in the file that lists its servers.
pub(super) fn add_denials(root: &CstObject, program: Program) -> Result<(), String> {
    match program {
        Program::Opencode if root.get("permission").is_none_or(|member| is_object(&member)) => {
            let permission = object(root, "permission")?;
            if permission.get("task").is_none() {
                permission.append("task", task_denied());
            }
        }
        Program::Gemini => {
            let exclude = list(&object(root, "tools")?, "exclude")?;
            if !exclude.elements().iter().any(is_gemini_channel) {
                exclude.append(GEMINI_CHANNEL.into());
            }
        }
        // One rule for all of opencode's tools is the user's own; Claude Code's rules are in another file.
        Program::Opencode | Program::Claude | Program::Codex => {}
    }
    Ok(())
}

/// Takes out what [`add_denials`] added.
pub(super) fn remove_denials(root: &CstObject, program: Program) {
    match program {
        Program::Opencode => {
            let Some(permission) = root.object_value("permission") else { return };
            // A user writes `"deny"`; this form is what `init` wrote.
            let ours = permission.get("task").filter(|task| compact(&task.to_string()) == r#""task":{"*":"deny"}"#);
            if let Some(task) = ours {
                task.remove();
                remove_if_empty(root, "permission");
            }
        }
        Program::Gemini => {
            let Some(tools) = root.object_value("tools") else { return };
            let Some(exclude) = tools.array_value("exclude") else { return };
            // `init` adds at the end.
            if let Some(last) = exclude.elements().pop().filter(is_gemini_channel) {
                last.remove();
                remove_if_empty(&tools, "exclude");
                remove_if_empty(root, "tools");
            }
        }
        Program::Claude | Program::Codex => {}
    }
}

fn task_denied() -> CstInputValue {
    members(vec![("*", "deny".into())])
}

fn is_gemini_channel(node: &CstNode) -> bool {
    node.to_string() == format!("{GEMINI_CHANNEL:?}")
}

fn is_object(member: &CstObjectProp) -> bool {
    member.value().is_some_and(|value| value.as_object().is_some())
}

fn compact(text: &str) -> String {
    text.split_whitespace().collect()
}

/// Turns off Claude Code's channels past the broker.
pub(super) fn add_claude_denials(root: &CstObject) -> Result<(), String> {
    let deny = list(&object(root, "permissions")?, "deny")?;
    // All of them in a row are `init`'s own; entries of the user stay beside them, and are left when `init` removes its
    // own.
    if own_denials(&deny).is_empty() {
        for tool in CLAUDE_CHANNELS {
            deny.append(tool.into());
        }
    }
    if root.get(INBOUND).is_none() {
        root.append(INBOUND, REFUSED.into());
    }
    Ok(())
}

/// Takes out what [`add_claude_denials`] added.
pub(super) fn remove_claude_denials(root: &CstObject) {
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
pub(super) fn remove_inbound(root: &CstObject) {
    let refused = format!("\"{INBOUND}\":\"{REFUSED}\"");
    let members: Vec<String> = root.properties().iter().map(|member| compact(&member.to_string())).collect();
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

/// Returns the last denials of all of Claude Code's channels in a row.
fn own_denials(deny: &CstArray) -> Vec<CstNode> {
    let elements = deny.elements();
    let words: Vec<String> = elements.iter().map(ToString::to_string).collect();
    let wanted: Vec<String> = CLAUDE_CHANNELS.iter().map(|tool| format!("{tool:?}")).collect();
    // Earlier versions denied fewer.
    let row = (CLAUDE_CHANNELS_FIRST..=wanted.len()).rev().find_map(|count| {
        let at = words.windows(count).rposition(|row| *row == wanted[..count])?;
        Some((at, count))
    });
    row.map(|(at, count)| elements.into_iter().skip(at).take(count).collect()).unwrap_or_default()
}

/// Returns the line that turns off a feature of Codex.
fn denial(feature: &str) -> String {
    format!("{feature} = false{CODEX_MARK}\n")
}

/// Turns off Codex's channels about which the file says nothing.
pub(super) fn with_denial(text: &str, known: &toml::Table) -> String {
    let features = known.get("features");
    let unset = CODEX_CHANNELS.iter().filter(|name| features.is_none_or(|features| features.get(name).is_none()));
    let denials: String = unset.map(|name| denial(name)).collect();
    if features.is_none() {
        return appended(text, &format!("[features]{CODEX_MARK}\n{denials}"));
    }
    let is_header = |line: &&str| line.split('#').next().is_some_and(|line| line.trim() == "[features]");
    match text.split_inclusive('\n').find(is_header) {
        Some(header) if header.ends_with('\n') => text.replacen(header, &format!("{header}{denials}"), 1),
        // Features without a table of their own are the user's to change.
        Some(_) | None => text.to_owned(),
    }
}

/// Takes out what [`with_denial`] added.
pub(super) fn without_denial(text: &str) -> String {
    let ours = |line: &&str| CODEX_CHANNELS.iter().any(|name| **line == denial(name));
    let left: String = text.split_inclusive('\n').filter(|line| !ours(line)).collect();
    let header = format!("[features]{CODEX_MARK}\n");
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
