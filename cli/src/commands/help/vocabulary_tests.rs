//! Tests of the words that the help and the OpenAPI document use.

use std::collections::BTreeSet;

use super::command;
use super::tests::shown;

/// A row of `docs/words.md`.
struct Term {
    names: Vec<String>,
    shown: bool,
    not: Vec<String>,
}

fn document(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn terms() -> Vec<Term> {
    let text = document("words.md");
    let list = |cell: &str| cell.split(", ").map(|word| word.trim().to_lowercase()).collect();
    let rows = text.lines().filter(|line| line.starts_with("| "));
    let rows = rows.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>());
    rows.filter(|cells| cells[0] != "term")
        .map(|cells| {
            assert!(cells.len() == 4 && matches!(cells[2], "yes" | "no"), "{cells:?}");
            Term { names: list(cells[0]), shown: cells[2] == "yes", not: list(cells[3]) }
        })
        .collect()
}

/// Returns the words of a text outside its code spans, each between spaces.
fn plain(text: &str) -> String {
    let outside: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let is_word = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    let words = outside.split(|c: char| !is_word(c)).filter(|word| !word.is_empty());
    words.fold(" ".to_owned(), |text, word| text + &word.to_lowercase() + " ")
}

fn uses(text: &str, word: &str) -> bool {
    ["", "s", "es"].iter().any(|end| text.contains(&format!(" {word}{end} ")))
}

/// Collects the summaries and descriptions of the OpenAPI document, with their places.
fn described(value: &serde_json::Value, at: &str, into: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(members) => {
            for (name, member) in members {
                match member.as_str() {
                    Some(text) if name == "summary" || name == "description" => {
                        into.push((at.to_owned(), plain(text)));
                    }
                    _ => described(member, &format!("{at}/{name}"), into),
                }
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| described(item, at, into)),
        serde_json::Value::Null
        | serde_json::Value::Bool(_)
        | serde_json::Value::Number(_)
        | serde_json::Value::String(_) => {}
    }
}

#[test]
fn the_help_and_the_openapi_document_use_the_words_of_the_vocabulary() {
    let root = command();
    let mut commands = vec![(String::new(), root.clone())];
    shown(&root, "", &mut commands);
    let mut texts: Vec<(String, String)> = commands
        .into_iter()
        .map(|(path, mut command)| {
            let help = command.render_long_help().to_string();
            // Examples are commands, not prose.
            let prose = help.lines().filter(|line| !line.starts_with("  lastword ")).collect::<Vec<_>>().join("\n");
            (format!("lastword {path} --help"), plain(&prose))
        })
        .collect();
    let openapi = serde_json::from_str(&document("openapi.json")).unwrap();
    described(&openapi, "docs/openapi.json", &mut texts);
    let terms = terms();
    assert!(terms.len() > 50 && texts.len() > 500, "{} terms, {} texts", terms.len(), texts.len());
    let mut wrong = vec![];
    for word in terms.iter().flat_map(|term| &term.not) {
        wrong.extend(texts.iter().filter(|(_, text)| uses(text, word)).map(|(at, _)| format!("{at}: {word}")));
    }
    for name in terms.iter().filter(|term| term.shown).flat_map(|term| &term.names) {
        if !texts.iter().any(|(_, text)| uses(text, name)) {
            wrong.push(format!("{name} is in no help and no description"));
        }
    }
    assert!(wrong.is_empty(), "docs/words.md has other words:\n{}", wrong.join("\n"));
    assert!(uses(&plain("The asker's queries."), "asker") && !uses(&plain("`asker`, in_reply_to"), "reply"));
}

#[test]
fn the_vocabulary_has_each_term_once_and_no_term_is_a_word_to_avoid() {
    let terms = terms();
    let mut seen = BTreeSet::new();
    for name in terms.iter().flat_map(|term| &term.names) {
        assert!(seen.insert(name), "{name} is there twice");
    }
    for word in terms.iter().flat_map(|term| &term.not) {
        assert!(seen.insert(word), "{word} is there twice");
    }
}
