//! Splits the arguments of a held call into parts, for the humans who decide on it: first what the call acts on, each
//! part in its own form, then the rest. Nothing is left out, and no text can steer a terminal or hide.

use std::collections::BTreeMap;

use lastword_facts::visible::{escape, escape_json, escape_mixed};

use crate::Arguments;

/// The form in which a part of a call's arguments is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    /// A command for a shell.
    Command,
    /// The path of a file or folder.
    Path,
    /// The address of something on a network.
    Address,
    /// A database or search expression.
    Query,
    /// A text of several lines, such as the content of a file.
    Text,
    /// Everything that has no part of its own, as JSON.
    Rest,
}

/// The members that say what a call acts on, by the names that agents' tools use, in the order in which they are shown.
pub const SUBJECTS: [(&str, ArgumentKind); 8] = [
    ("command", ArgumentKind::Command),
    ("cmd", ArgumentKind::Command),
    ("file_path", ArgumentKind::Path),
    ("notebook_path", ArgumentKind::Path),
    ("path", ArgumentKind::Path),
    ("url", ArgumentKind::Address),
    ("sql", ArgumentKind::Query),
    ("query", ArgumentKind::Query),
];

/// The member in which the runner of an ACP agent puts the tool's own arguments.
pub const INPUT: &str = "input";

type Members = BTreeMap<String, Arguments>;

/// One part of a call's arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// The name of the member, such as `input.command` for one of the tool's own arguments; escaped, on one line.
    pub name: String,
    /// The form in which the part is shown.
    pub kind: ArgumentKind,
    /// The complete text, escaped; line ends and tabs stay.
    pub text: String,
}

impl Argument {
    /// Whether the call acts on this part.
    #[must_use]
    pub const fn is_subject(&self) -> bool {
        match self.kind {
            ArgumentKind::Command | ArgumentKind::Path | ArgumentKind::Address | ArgumentKind::Query => true,
            ArgumentKind::Text | ArgumentKind::Rest => false,
        }
    }
}

/// Splits a call's arguments into parts, in the order in which they are shown. Returns at least one.
#[must_use]
pub fn arguments(all: &Arguments) -> Vec<Argument> {
    let rest = |text: String| Argument { name: "arguments".to_owned(), kind: ArgumentKind::Rest, text };
    let Some(mut members) = all.members() else { return vec![rest(json(all))] };
    let mut parts = subjects(&mut members, "");
    if let Some(mut input) = members.get(INPUT).and_then(Arguments::members) {
        let inner = subjects(&mut input, "input.");
        if !inner.is_empty() && input.is_empty() {
            members.remove(INPUT);
        } else {
            members.insert(INPUT.to_owned(), Arguments::of(&input));
        }
        parts.extend(inner);
    }
    parts.extend(texts(&mut members));
    if parts.is_empty() || !members.is_empty() {
        parts.push(rest(json(&Arguments::of(&members))));
    }
    parts
}

/// Formats JSON on several lines with sorted members. Characters that can't be seen are written as JSON escapes.
#[must_use]
pub fn json(value: &Arguments) -> String {
    escape_json(&value.pretty())
}

fn subjects(members: &mut Members, within: &str) -> Vec<Argument> {
    let mut found = Vec::new();
    for (name, kind) in SUBJECTS {
        let Some(value) = members.remove(name) else { continue };
        let text = value.text().map_or_else(|| json(&value), |text| escape_mixed(&text));
        found.push(Argument { name: format!("{within}{name}"), kind, text });
    }
    found
}

/// Removes the texts of several lines and returns them as parts; as JSON they would be on one line.
fn texts(members: &mut Members) -> Vec<Argument> {
    let mut found = Vec::new();
    members.retain(|name, value| {
        let Some(text) = value.text().filter(|text| text.trim_end().contains('\n')) else { return true };
        let name = escape_mixed(name).replace('\n', "⏎");
        found.push(Argument { name, kind: ArgumentKind::Text, text: escape(&text) });
        false
    });
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shown(value: &Value) -> Vec<String> {
        let part = |part: Argument| format!("{} {:?} {}", part.name, part.kind, part.text);
        arguments(&value.into()).into_iter().map(part).collect()
    }

    #[test]
    fn what_a_call_is_about_comes_first_and_nothing_is_left_out() {
        let call =
            json!({"z": 1, "a": [true], "url": "https://b", "command": "ls\nrm", "content": "x\ny", "sql": "SELECT"});
        assert_eq!(
            shown(&call),
            [
                "command Command ls\nrm",
                "url Address https://b",
                "sql Query SELECT",
                "content Text x\ny",
                "arguments Rest {\n  \"a\": [\n    true\n  ],\n  \"z\": 1\n}",
            ]
        );
        let held = json!({"title": "a look", "input": {"command": "git push"}});
        assert_eq!(shown(&held), ["input.command Command git push", "arguments Rest {\n  \"title\": \"a look\"\n}"]);
        let both = json!({"path": "/a", "input": {"command": "ls", "n": 1}});
        assert_eq!(shown(&both)[..2], ["path Path /a", "input.command Command ls"]);
        assert!(shown(&both)[2].contains("\"n\": 1"));
        assert_eq!(shown(&json!({"command": ["ls", "-l"]})), ["command Command [\n  \"ls\",\n  \"-l\"\n]"]);
    }

    #[test]
    fn arguments_of_any_shape_have_a_part() {
        for value in [json!({}), json!([]), json!(null), json!("x\ny"), json!(7), json!({"input": {}})] {
            let [only] = arguments(&Arguments::from(&value)).try_into().unwrap();
            assert_eq!(Argument { kind: ArgumentKind::Rest, ..only.clone() }, only, "{value}");
        }
    }

    #[test]
    fn nothing_in_a_part_steers_hides_or_passes_for_something_else() {
        let hostile = json!({
            "command": "p\u{430}ypal\u{202e}", "con\u{200b}tent\n": "a\n\u{1b}[2J", "more": "\u{202e}", "url": [" \u{202e}"],
        });
        let all = shown(&hostile).join("\n");
        assert!(!all.contains(['\u{202e}', '\u{200b}', '\u{1b}', '\u{430}']), "{all}");
        assert!(all.contains("p\\u{430}ypal\\u{202e}") && all.contains("con\\u{200b}tent⏎"), "{all}");
    }
}
