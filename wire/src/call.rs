//! Splits the arguments of a held call into parts, for the humans who decide on it: first what the call acts on, each
//! part in its own form, then the rest. Nothing is left out, and no text can steer a terminal or hide.

use std::collections::BTreeMap;

use imara_diff::{Algorithm, Diff, InternedInput};
use lastword_facts::visible::{escape, escape_json_shown, escape_mixed};

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
    /// A text and what takes its place, line by line: what goes begins with `-`, what comes with `+`.
    Change,
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

/// The members of an edit: a text and what takes its place, by the names that agents' tools use.
const EDITS: [(&str, &str); 5] = [
    ("old_string", "new_string"),
    ("oldString", "newString"),
    ("old_str", "new_str"),
    ("old_text", "new_text"),
    ("oldText", "newText"),
];

/// The member that has several edits of one file.
const EDITS_MEMBER: &str = "edits";

/// The most lines whose differences are looked for; of more, all go and all come.
const COMPARED_LINES_MAX: usize = 1_000;

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
            ArgumentKind::Change | ArgumentKind::Text | ArgumentKind::Rest => false,
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
        let mut inner = subjects(&mut input, "input.");
        inner.extend(changes(&mut input, "input."));
        if !inner.is_empty() && input.is_empty() {
            members.remove(INPUT);
        } else {
            members.insert(INPUT.to_owned(), Arguments::of(&input));
        }
        parts.extend(inner);
    }
    parts.extend(changes(&mut members, ""));
    parts.extend(texts(&mut members));
    if parts.is_empty() || !members.is_empty() {
        parts.push(rest(json(&Arguments::of(&members))));
    }
    parts
}

/// Formats JSON on several lines with sorted members. Characters that can't be seen are written as JSON escapes.
#[must_use]
pub fn json(value: &Arguments) -> String {
    escape_json_shown(&value.pretty())
}

/// The names of what a query in an address keeps to itself, in whole or as the end of a name such as `access_token`.
const SECRETS: [&str; 8] = ["token", "secret", "password", "passwd", "key", "signature", "credential", "session"];
/// Those that many other words end with as well.
const SHORT_SECRETS: [&str; 4] = ["sig", "code", "auth", "pwd"];
/// The least length of a part of an address that is a secret by its looks.
const SECRET_CHARS_MIN: usize = 20;

/// Returns a text without what its addresses keep to themselves: a password or token before the host, the values of secrets
/// in the query, and parts of the path that look like one. For lists; a decision is made on the whole.
#[must_use]
pub fn without_secrets(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for part in text.split_inclusive("://") {
        let (head, rest) = if out.ends_with("://") { part.split_at(address_end(part)) } else { ("", part) };
        let authority = head.find(['/', '?', '#']).unwrap_or(head.len());
        let (authority, path) = head.split_at(authority);
        match authority.rfind('@').map(|at| authority.split_at(at)) {
            Some((user, host)) => match user.split_once(':') {
                Some((user, _)) => out.extend([user, ":•••", host]),
                None => out.extend([masked(user), host]),
            },
            None => out.push_str(authority),
        }
        for (index, part) in path.split_inclusive(['?', '#']).enumerate() {
            let signs = if index == 0 { ['/', '?', '#'] } else { ['&', '?', '#'] };
            for pair in part.split_inclusive(signs) {
                let (value, sign) = pair.split_at(pair.trim_end_matches(signs).len());
                match value.split_once('=').filter(|_| index > 0) {
                    Some((name, _)) if is_secret(name) => out.extend([name, "=•••", sign]),
                    Some((name, value)) => out.extend([name, "=", masked(value), sign]),
                    None => out.extend([masked(value), sign]),
                }
            }
        }
        out.push_str(rest);
    }
    out
}

/// Returns where an address ends that a text begins with.
fn address_end(text: &str) -> usize {
    text.find(|c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`' | '<' | '>')).unwrap_or(text.len())
}

pub(crate) fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_word = |before: &str| before.is_empty() || before.ends_with(['_', '-']);
    SECRETS.iter().any(|secret| name.ends_with(secret))
        || SHORT_SECRETS.iter().any(|secret| name.strip_suffix(secret).is_some_and(is_word))
}

/// Returns a part of an address, masked if it looks like a secret: long, of letters of both cases and digits.
pub(crate) fn masked(part: &str) -> &str {
    let has = |wanted: fn(&u8) -> bool| part.as_bytes().iter().any(wanted);
    let is_one_word = part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b':'));
    let looks = is_one_word
        && part.len() >= SECRET_CHARS_MIN
        && has(u8::is_ascii_digit)
        && has(u8::is_ascii_lowercase)
        && has(u8::is_ascii_uppercase);
    if looks { "•••" } else { part }
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

/// Removes each text with what takes its place and returns both as one part; of an edit, nothing else is removed.
fn changes(members: &mut Members, within: &str) -> Vec<Argument> {
    let mut found: Vec<Argument> = change(members, within).into_iter().collect();
    let Some(edits) = members.get(EDITS_MEMBER).and_then(Arguments::items) else { return found };
    let mut rests = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        let mut rest = edit.members();
        let part = rest.as_mut().and_then(|rest| change(rest, &format!("{within}{EDITS_MEMBER}.{}.", index + 1)));
        let Some(part) = part else { return found };
        found.push(part);
        rests.push(Arguments::of(&rest.unwrap_or_default()));
    }
    if rests.iter().all(|rest| rest.as_str() == "{}") && !rests.is_empty() {
        members.remove(EDITS_MEMBER);
    } else {
        members.insert(EDITS_MEMBER.to_owned(), Arguments::list(&rests));
    }
    found
}

fn change(members: &mut Members, within: &str) -> Option<Argument> {
    let (old, new) = EDITS.into_iter().find(|(old, new)| {
        let is_text = |name: &str| members.get(name).is_some_and(|value| value.text().is_some());
        is_text(old) && is_text(new)
    })?;
    let text = |value: Option<Arguments>| escape(&value.and_then(|value| value.text()).unwrap_or_default());
    let (before, after) = (text(members.remove(old)), text(members.remove(new)));
    Some(Argument {
        name: format!("{within}{old} → {new}"),
        kind: ArgumentKind::Change,
        text: difference(&before, &after),
    })
}

/// Returns the lines of two texts, with `-` before what only the first has, and `+` before what only the second has.
#[must_use]
pub fn difference(before: &str, after: &str) -> String {
    let is_whole = |text: &str| text.is_empty() || text.ends_with('\n');
    // Said where it differs: such lines look alike otherwise.
    let ends_differ = is_whole(before) != is_whole(after);
    let mut lines = String::new();
    let mut put = |sign: char, line: &str| {
        lines.push(sign);
        lines.push_str(line.trim_end_matches('\n'));
        lines.push_str(if ends_differ && sign != ' ' && !line.ends_with('\n') { " (no line end)\n" } else { "\n" });
    };
    if before.lines().count() + after.lines().count() > COMPARED_LINES_MAX {
        before.split_inclusive('\n').for_each(|line| put('-', line));
        after.split_inclusive('\n').for_each(|line| put('+', line));
        return lines;
    }
    let input = InternedInput::new(before, after);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let (mut gone, mut come) = ((0..).zip(&input.before).peekable(), (0..).zip(&input.after).peekable());
    loop {
        while let Some((_, line)) = gone.next_if(|(at, _)| diff.is_removed(*at)) {
            put('-', input.interner[*line]);
        }
        while let Some((_, line)) = come.next_if(|(at, _)| diff.is_added(*at)) {
            put('+', input.interner[*line]);
        }
        come.next();
        let Some((_, line)) = gone.next() else { break };
        put(' ', input.interner[*line]);
    }
    lines
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
    fn an_edit_is_shown_as_the_change_that_it_makes_old_before_new() {
        let edit =
            json!({"file_path": "/a", "old_string": "one\ntwo\n", "new_string": "one\n2\n", "replace_all": true});
        assert_eq!(
            shown(&edit),
            [
                "file_path Path /a",
                "old_string → new_string Change  one\n-two\n+2\n",
                "arguments Rest {\n  \"replace_all\": true\n}",
            ]
        );
        let many = json!({"edits": [
            {"old_string": "a", "new_string": "b"}, {"old_string": "c", "new_string": "\u{202e}", "replace_all": true},
        ]});
        assert_eq!(
            shown(&many),
            [
                "edits.1.old_string → new_string Change -a\n+b\n",
                "edits.2.old_string → new_string Change -c\n+\\u{202e}\n",
                "arguments Rest {\n  \"edits\": [\n    {},\n    {\n      \"replace_all\": true\n    }\n  ]\n}",
            ]
        );
        let held = json!({"input": {"path": "/a", "oldText": "a\n", "newText": "a"}});
        assert_eq!(shown(&held)[1], "input.oldText → newText Change -a\n+a (no line end)\n");
        // What is no edit stays as it is.
        for other in
            [json!({"old_string": 1, "new_string": "b"}), json!({"edits": [{"old_string": "a"}]}), json!({"edits": []})]
        {
            let [only] = arguments(&Arguments::from(&other)).try_into().unwrap();
            assert_eq!(only, Argument { text: super::json(&Arguments::from(&other)), ..only.clone() }, "{other}");
        }
    }

    #[test]
    fn a_list_shows_no_secret_of_an_address() {
        for (text, shown) in [
            (
                "curl -d x 'https://a.example/p?access_token=s3cr3t&n=1' -v",
                "curl -d x 'https://a.example/p?access_token=•••&n=1' -v",
            ),
            ("https://ann:pw@a.example:8/x?apikey=1#key=2", "https://ann:•••@a.example:8/x?apikey=•••#key=•••"),
            ("ftp://h/?sig=a b://c?token=d", "ftp://h/?sig=••• b://c?token=•••"),
            ("https://ann@a.example/?monkeys=1&encode=2", "https://ann@a.example/?monkeys=1&encode=2"),
            ("token=abc", "token=abc"),
            (
                "https://a.example/x?accessToken=1&X-Amz-Credential=2&sig=a/b==",
                "https://a.example/x?accessToken=•••&X-Amz-Credential=•••&sig=•••",
            ),
            (
                "git clone https://ghp_16C7e42F292c6912E7710c838347Ae178B4a@a.example/o/r",
                "git clone https://•••@a.example/o/r",
            ),
            (
                "https://hooks.example/services/T00000000/B0/xXyYzZ0123456789xXyYzZ01?wait=1",
                "https://hooks.example/services/T00000000/B0/•••?wait=1",
            ),
            ("https://a.example/bot110201543:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw/send", "https://a.example/•••/send"),
            (
                "https://a.example/commit/5fcec8fb0f1b4d2c9b1a7e6d5c4b3a2f1e0d9c8b/a-long-name-of-2026.html",
                "https://a.example/commit/5fcec8fb0f1b4d2c9b1a7e6d5c4b3a2f1e0d9c8b/a-long-name-of-2026.html",
            ),
            ("", ""),
        ] {
            assert_eq!(without_secrets(text), shown);
        }
    }

    #[test]
    fn of_two_long_texts_all_goes_and_all_comes() {
        let (before, after) = ("a\n".repeat(600), "a\n".repeat(500));
        let lines = difference(&before, &after);
        assert_eq!((lines.matches("-a\n").count(), lines.matches("+a\n").count()), (600, 500));
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
