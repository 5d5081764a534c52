//! The canonical form of a held call, over which its digest is computed (H2).

use lastword_proto::fact::Digest;
use lastword_proto::wire::call::{ArgumentKind, INPUT, SUBJECTS};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Formats a JSON value with sorted keys and without spaces.
pub(crate) fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            list(out, '{', '}', sorted, |(key, value), out| {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, out);
            });
        }
        Value::Array(items) => list(out, '[', ']', items, write),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

fn list<T>(
    out: &mut String,
    open: char,
    close: char,
    items: impl IntoIterator<Item = T>,
    mut one: impl FnMut(T, &mut String),
) {
    out.push(open);
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        one(item, out);
    }
    out.push(close);
}

/// Returns the subjects of a call: its command, file or address, the only values that a policy's argument patterns
/// match. A runner of ACP agents sends the agent's own description of the call, with the tool's arguments in its
/// `input`.
pub(crate) fn subjects(arguments: &Value) -> Vec<Box<str>> {
    let places = [Some(arguments), arguments.get(INPUT)].into_iter().flatten();
    let names = || SUBJECTS.iter().filter(|(_, kind)| *kind != ArgumentKind::Query);
    let named = places.flat_map(|place| names().filter_map(|(name, _)| place.get(name)));
    let found = named.filter_map(|value| match value {
        Value::String(text) => Some(text.as_str().into()),
        // A command given as a list of words matches the same patterns as one given as text.
        Value::Array(words) => Some(words.iter().map_while(Value::as_str).collect::<Vec<_>>().join(" ").into()),
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    });
    found.collect()
}

/// Returns the digest of a call: its tool and arguments, its agent and its task. An approval can therefore not be used
/// by another agent or in another task.
pub(crate) fn digest(tool: &str, arguments: &Value, agent: &str, task: Option<&str>) -> Digest {
    let call = serde_json::json!({ "tool": tool, "arguments": arguments, "agent": agent, "task": task });
    Sha256::digest(canonical(&call).as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_sorted_at_every_level() {
        let value: Value = serde_json::from_str(r#"{"b":[{"z":1,"a":"é\n"}],"a":null}"#).unwrap();
        assert_eq!(canonical(&value), r#"{"a":null,"b":[{"a":"é\n","z":1}]}"#);
    }

    #[test]
    fn a_call_is_about_its_command_its_file_or_its_address() {
        let about = |arguments: Value| subjects(&arguments).join("|");
        assert_eq!(about(serde_json::json!({"command": "ls", "description": "x"})), "ls");
        assert_eq!(about(serde_json::json!({"command": ["git", "log"]})), "git log");
        assert_eq!(about(serde_json::json!({"file_path": "/a", "content": "x", "command": 1})), "/a");
        assert_eq!(about(serde_json::json!({"path": "/a", "url": "b"})), "/a|b");
        assert_eq!(about(serde_json::json!([])), "");
        let held = serde_json::json!({"title": "x", "kind": "execute", "input": {"command": "git push"}});
        assert_eq!(about(held), "git push", "as an ACP agent's runner holds it");
        assert_eq!(about(serde_json::json!({"path": "/a", "input": {"command": "ls"}})), "/a|ls", "two things");
        assert_eq!(about(serde_json::json!({"input": "git push"})), "");
    }

    #[test]
    fn a_digest_covers_every_part_of_the_call() {
        let arguments = serde_json::json!({"env": "prod"});
        let base = digest("deploy", &arguments, "a", Some("task-1"));
        assert_eq!(base, digest("deploy", &arguments, "a", Some("task-1")));
        for other in [
            digest("destroy", &arguments, "a", Some("task-1")),
            digest("deploy", &serde_json::json!({"env": "dr"}), "a", Some("task-1")),
            digest("deploy", &arguments, "b", Some("task-1")),
            digest("deploy", &arguments, "a", None),
        ] {
            assert_ne!(base, other);
        }
    }
}
