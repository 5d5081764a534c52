//! What a source file declares: functions, their parameters, and types.

use std::collections::BTreeMap;

use super::tree::{Finding, Shipped, after_visibility, word};

/// A function that has a body.
pub(super) struct Function {
    pub(super) name: String,
    /// From its signature to its closing brace.
    pub(super) lines: usize,
}

/// Names that a file may have of its own: those of a command, a configuration and an error.
const OWN: &[&str] = &["Args", "Config", "Error"];

/// Returns the functions of a file that have a body, by their indentation.
pub(super) fn functions(source: &Shipped<'_>) -> Vec<Function> {
    let lines = &source.lines;
    let of_line = |at: usize| {
        let Signature { indent, name } = Signature::read(lines[at])?;
        let ends = |line: &&str| line.trim_end().ends_with(['{', '}', ';']);
        let opened = lines[at..].iter().find(|line| ends(line)).unwrap_or(&lines[at]);
        if opened.trim_end().ends_with(';') {
            return None;
        }
        let closing = format!("{}}}", " ".repeat(indent));
        let length = lines[at..].iter().position(|line| line.starts_with(&closing)).unwrap_or_default();
        Some(Function { name: name.to_owned(), lines: length + 1 })
    };
    (0..lines.len()).filter_map(of_line).collect()
}

/// The start of a function's first line.
struct Signature<'a> {
    indent: usize,
    name: &'a str,
}

impl<'a> Signature<'a> {
    fn read(line: &'a str) -> Option<Self> {
        let text = line.trim_start_matches(' ');
        let rest = after_visibility(text);
        let rest = rest.strip_prefix("const ").unwrap_or(rest);
        let rest = rest.strip_prefix("async ").unwrap_or(rest);
        let name = word(rest.strip_prefix("fn ")?);
        (!name.is_empty()).then_some(Self { indent: line.len() - text.len(), name })
    }
}

/// Returns the functions with a parameter that is a tuple.
pub(super) fn tuples(source: &Shipped<'_>) -> Vec<Finding> {
    let text = source.lines.join("\n");
    let mut found = Vec::new();
    for (at, _) in text.match_indices("fn ").filter(|(at, _)| !text[..*at].ends_with(super::tree::is_of_word)) {
        let rest = &text[at + "fn ".len()..];
        let name = word(rest);
        if !name.is_empty() && parameters(&rest[name.len()..]).is_some_and(has_tuple) {
            found.push(source.place(text[..at].matches('\n').count(), name));
        }
    }
    found
}

/// Returns the text between the parentheses of a signature, which is given from the end of its name on.
fn parameters(text: &str) -> Option<&str> {
    let (generics, inside) = text.split_once('(')?;
    let complete = generics.is_empty() || generics.starts_with('<') && generics.ends_with('>');
    let mut depth = 1;
    let end = inside.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    end.filter(|_| complete).map(|end| &inside[..end])
}

/// Whether one of the parameters is a tuple or a reference to one.
fn has_tuple(parameters: &str) -> bool {
    parameters.split(':').skip(1).any(|of_type| {
        let of_type = of_type.trim_start();
        let of_type = of_type.strip_prefix('&').unwrap_or(of_type);
        let inside = of_type.strip_prefix("mut ").unwrap_or(of_type).strip_prefix('(');
        inside.is_some_and(|inside| ![")", "dyn ", "impl "].iter().any(|start| inside.starts_with(start)))
    })
}

/// Returns each type whose name four or more types have.
pub(super) fn shared_names(sources: &[Shipped<'_>]) -> BTreeMap<String, Vec<Finding>> {
    let mut places = BTreeMap::<String, Vec<Finding>>::new();
    for source in sources {
        for (at, line) in source.lines.iter().enumerate() {
            let rest = after_visibility(line);
            let kinds = ["struct ", "enum ", "trait ", "type "];
            let name = kinds.iter().find_map(|kind| rest.strip_prefix(kind)).map(word).unwrap_or_default();
            if !name.is_empty() && !OWN.contains(&name) {
                places.entry(name.to_owned()).or_default().push(source.place(at, name));
            }
        }
    }
    places.retain(|_, places| places.len() > 3);
    places
}
