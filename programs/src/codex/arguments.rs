//! What the user's arguments for Codex say.

use super::CODEX;

/// Moves `--last` behind the command that it belongs to.
#[must_use]
pub fn last_first(mut args: Vec<String>) -> Vec<String> {
    let command = args.iter().position(|arg| CODEX.resume.id.contains(&arg.as_str()));
    if let (Some(command), Some(last)) = (command, args.iter().position(|arg| arg == "--last"))
        && command < last
    {
        args[command + 1..=last].rotate_right(1);
    }
    args
}

/// Returns the argument by which the user chose a mode.
pub(super) fn chosen_mode(args: &[String]) -> Option<&str> {
    let before = |arg: &str| matches!(arg, "-c" | "--config");
    let mut last = "";
    for arg in args.iter().map(String::as_str).take_while(|arg| *arg != "--") {
        if chooses_mode(arg) || (before(last) && sets_mode(arg)) {
            return Some(arg);
        }
        last = arg;
    }
    None
}

fn chooses_mode(arg: &str) -> bool {
    let names = ["-s", "-a", "--sandbox", "--ask-for-approval", "-p", "--profile", "--approve-for-me", "--yolo"];
    names.iter().any(|name| arg == *name || (name.len() == 2 && arg.starts_with(name)))
        || names.iter().any(|name| arg.strip_prefix(name).is_some_and(|rest| rest.starts_with('=')))
        || arg.starts_with("--dangerously-bypass-approvals")
        || ["-c", "--config="].iter().any(|name| arg.strip_prefix(name).is_some_and(sets_mode))
}

/// Returns whether a setting, `KEY=VALUE`, chooses a mode: of Codex, or of a server's tools.
fn sets_mode(setting: &str) -> bool {
    ["approval_policy", "approval_mode", "approvals_reviewer", "sandbox_mode"].iter().any(|key| setting.contains(key))
}

/// Returns the user's settings among the arguments, which the app-server needs as well.
pub(super) fn settings(args: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let long = ["--config=", "--enable=", "--disable="].iter().any(|name| arg.starts_with(name));
        if long {
            found.push(arg.clone());
        } else if ["-c", "--config", "--enable", "--disable"].contains(&arg.as_str()) {
            found.extend([arg.clone()].into_iter().chain(args.next().cloned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{last_first, sets_mode};

    #[test]
    fn a_setting_of_a_servers_tools_chooses_a_mode() {
        assert!(sets_mode("mcp_servers.files.default_tools_approval_mode=\"approve\""));
        assert!(sets_mode("mcp_servers.files={command=\"x\",default_tools_approval_mode=\"approve\"}"));
        assert!(!sets_mode("mcp_servers.files.command=\"x\""));
    }

    #[test]
    fn last_stands_behind_its_command() {
        let moved = |args: &str| last_first(args.split(' ').map(str::to_owned).collect()).join(" ");
        assert_eq!(moved("-c a=b resume --all --last hi"), "-c a=b resume --last --all hi");
        assert_eq!(moved("fork --last"), "fork --last");
        assert_eq!(moved("hi --last"), "hi --last");
    }
}
