//! The digest of a held call, and what the policy's rules see of it (H2).

use lastword_facts::fact::Digest;
use lastword_facts::policy::{Subjects, UNREAD};
use lastword_wire::Arguments;
use lastword_wire::call::{ArgumentKind, INPUT, SUBJECTS};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::shell::Commands;

/// Members that ask for more than the program usually allows itself. A rule that allows a pattern doesn't allow these.
const ESCALATIONS: [&str; 3] = ["dangerouslyDisableSandbox", "sandbox_permissions", "with_escalated_permissions"];
/// The members in which a tool has the words behind its command.
const WORDS: [&str; 3] = ["args", "argv", "arguments"];

/// Returns what a call acts on: its command, file or address, the only values that a policy's argument patterns match. A
/// runner of ACP agents sends the agent's own description of the call, with the tool's arguments in its `input`.
pub(crate) fn subjects(arguments: &Arguments) -> Subjects {
    let value = arguments.value();
    let (mut written, mut commands) = (Vec::new(), Commands::default());
    for place in [Some(&value), value.get(INPUT)].into_iter().flatten() {
        for (name, kind) in SUBJECTS {
            if let Some(subject) = place.get(name) {
                let more = WORDS.iter().find_map(|words| place.get(words)).filter(|_| kind == ArgumentKind::Command);
                match kind {
                    ArgumentKind::Command => written.push(command(subject, more, &mut commands)),
                    ArgumentKind::Path | ArgumentKind::Address => written.push(named(subject)),
                    ArgumentKind::Query | ArgumentKind::Change | ArgumentKind::Text | ArgumentKind::Rest => {}
                }
            }
        }
        let escalates = |name: &&&str| place.get(**name).is_some_and(|value| *value != Value::Bool(false));
        written.extend(ESCALATIONS.iter().filter(escalates).map(|name| (*name).into()));
    }
    if written.is_empty() && !matches!(arguments.as_str(), "{}" | "null" | "[]") {
        commands.add_unread();
    }
    let plain = written.iter().map(|text| plain(text).into()).collect::<Vec<_>>();
    let mut subjects = commands.into_subjects(Sha256::digest(arguments.as_str().as_bytes()).into(), written);
    subjects.spelled.extend(plain);
    subjects
}

/// Returns a file or address as it was written.
fn named(subject: &Value) -> Box<str> {
    subject.as_str().map_or_else(|| UNREAD.to_string().into(), Into::into)
}

/// Reads a command, given as text or word by word, and returns it as one text.
fn command(subject: &Value, more: Option<&Value>, commands: &mut Commands) -> Box<str> {
    let word = |value: &Value| value.as_str().map_or_else(|| UNREAD.to_string(), str::to_owned);
    let list =
        |value: &Value| value.as_array().map_or_else(|| vec![word(value)], |words| words.iter().map(word).collect());
    let mut words = list(subject);
    if let Value::String(text) = subject {
        commands.read_script(text);
    }
    words.extend(more.into_iter().flat_map(list));
    commands.read_words(&words);
    words.join(" ").into()
}

/// Returns a path without `.`, `..` and empty parts, or an address with its host in lower case.
fn plain(text: &str) -> String {
    if let Some((scheme, rest)) = text.split_once("://") {
        let (host, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        return format!("{}://{}{path}", scheme.to_lowercase(), host.to_lowercase());
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("{}{}", if text.starts_with('/') { "/" } else { "" }, parts.join("/"))
}

/// Returns the digest of a call: its tool and arguments, its agent and its task. An approval can therefore not be used
/// by another agent or in another task.
pub(crate) fn digest(tool: &str, arguments: &Arguments, agent: &str, task: Option<&str>) -> Digest {
    let text = |text: &str| Value::from(text).to_string();
    let (agent, task, tool) = (text(agent), task.map_or_else(|| "null".to_owned(), text), text(tool));
    // As canonical JSON.
    let call = format!(r#"{{"agent":{agent},"arguments":{arguments},"task":{task},"tool":{tool}}}"#);
    Sha256::digest(call.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_about_its_command_its_file_or_its_address() {
        let about = |arguments: Value| subjects(&arguments.into()).written.join("|");
        assert_eq!(about(serde_json::json!({"command": "ls", "description": "x"})), "ls");
        assert_eq!(about(serde_json::json!({"command": ["git", "log"]})), "git log");
        assert_eq!(about(serde_json::json!({"command": "git", "args": ["push"]})), "git push");
        assert_eq!(about(serde_json::json!({"command": ["git", 1, "push"]})), "git \0 push", "to its end");
        assert_eq!(about(serde_json::json!({"file_path": "/a", "content": "x", "command": {}})), "\0|/a");
        assert_eq!(about(serde_json::json!({"path": "/a", "url": "b"})), "/a|b");
        assert_eq!(about(serde_json::json!([])), "");
        let held = serde_json::json!({"title": "x", "kind": "execute", "input": {"command": "git push"}});
        assert_eq!(about(held), "git push", "as an ACP agent's runner holds it");
        assert_eq!(about(serde_json::json!({"path": "/a", "input": {"command": "ls"}})), "/a|ls", "two things");
        assert_eq!(about(serde_json::json!({"input": "git push"})), "");
        let beyond = serde_json::json!({"command": "ls", "dangerouslyDisableSandbox": true});
        assert_eq!(about(beyond), "ls|dangerouslyDisableSandbox");
        assert_eq!(about(serde_json::json!({"command": "ls", "dangerouslyDisableSandbox": false})), "ls");
    }

    #[test]
    fn a_file_or_address_is_the_same_in_other_spellings() {
        for (text, wanted) in [
            ("./src//a/../b", "src/b"),
            ("/etc/./shadow", "/etc/shadow"),
            ("../x", "../x"),
            ("HTTP://Example.COM/A", "http://example.com/A"),
        ] {
            let known = subjects(&serde_json::json!({ "path": text }).into());
            assert_eq!(known.spelled, [Box::from(wanted)], "{text}");
        }
        let other = serde_json::json!({ "script": "git push" });
        assert_eq!(subjects(&other.into()).spelled, [Box::from("\0")], "no member that is known");
        assert_eq!(subjects(&serde_json::json!({}).into()).spelled, []);
    }

    #[test]
    fn a_digest_has_every_digit_of_a_number() {
        let of = |text: &str| digest("pay", &Arguments::parse(text).unwrap(), "a", None);
        assert_ne!(of(r#"{"id":1234567890123456789012}"#), of(r#"{"id":1234567890123456789099}"#));
        assert_eq!(of(r#"{"b":1,"a":2}"#), of(r#" {"a": 2, "b": 1} "#));
        let known =
            serde_json::json!({ "tool": "pay", "arguments": {"x": "\""}, "agent": "a", "task": null }).to_string();
        let arguments = Arguments::parse(r#"{"x":"\""}"#).unwrap();
        let sorted = Arguments::parse(&known).unwrap();
        assert_eq!(digest("pay", &arguments, "a", None), <[u8; 32]>::from(Sha256::digest(sorted.as_str().as_bytes())));
    }

    #[test]
    fn a_digest_covers_every_part_of_the_call() {
        let arguments = serde_json::json!({"env": "prod"}).into();
        let base = digest("deploy", &arguments, "a", Some("task-1"));
        assert_eq!(base, digest("deploy", &arguments, "a", Some("task-1")));
        for other in [
            digest("destroy", &arguments, "a", Some("task-1")),
            digest("deploy", &serde_json::json!({"env": "dr"}).into(), "a", Some("task-1")),
            digest("deploy", &arguments, "b", Some("task-1")),
            digest("deploy", &arguments, "a", None),
        ] {
            assert_ne!(base, other);
        }
    }
}
