//! The words of documents and comments, and how many lines each has.

use super::tree::{Finding, Shipped, SourceFile, is_of_word};

/// Phrases that make a sentence loose, each in its forms; plain prose says it with the standard term. `*s` is any word
/// that ends so.
pub(super) const PHRASES: &[Phrase] = &[
    Phrase { name: "whoever / who does", forms: &["whoever", "whom ever", "who *s"] },
    Phrase { name: "somebody / nobody", forms: &["somebody", "nobody", "anybody"] },
    Phrase { name: "told", forms: &["told"] },
    Phrase { name: "by itself", forms: &["by itself", "by themself", "by themselves", "by oneself"] },
    Phrase { name: "is no", forms: &["is no"] },
    Phrase {
        name: "what is / was",
        forms: &[
            "what is",
            "what was",
            "what are",
            "what were",
            "what comes",
            "what goes",
            "what stands",
            "what waits",
            "what runs",
        ],
    },
    Phrase { name: "stands", forms: &["stand", "stands"] },
];

/// A phrase that is counted.
pub(super) struct Phrase {
    pub(super) name: &'static str,
    /// One word or two.
    forms: &'static [&'static str],
}

impl Phrase {
    /// Returns the lines with the phrase, one as often as it has it.
    pub(super) fn places(&self, sources: &[SourceFile]) -> Vec<Finding> {
        let mut found = Vec::new();
        for source in sources {
            for (at, line) in prose(source).enumerate() {
                let place = Finding { path: source.path.clone(), line: at + 1, text: line.trim().to_owned() };
                found.extend(std::iter::repeat_n(place, self.count(line)));
            }
        }
        found
    }

    fn count(&self, line: &str) -> usize {
        let line = line.to_lowercase();
        let starts = line.char_indices().filter(|(at, c)| is_of_word(*c) && !line[..*at].ends_with(is_of_word));
        starts.filter(|(at, _)| self.forms.iter().any(|form| begins(&line[*at..], form))).count()
    }
}

/// Whether a text begins with a form, and a word ends there.
fn begins(text: &str, form: &str) -> bool {
    let rest = match form.strip_suffix("*s") {
        None => text.strip_prefix(form),
        Some(before) => text.strip_prefix(before).and_then(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
            (end > 1 && rest[..end].ends_with('s')).then_some(&rest[end..])
        }),
    };
    rest.is_some_and(|rest| !rest.starts_with(is_of_word))
}

/// Returns the lines of a document, and of a source file what follows `//` in each.
pub(super) fn prose(source: &SourceFile) -> impl Iterator<Item = &str> {
    let document = source.path.extension().is_some_and(|end| end == "md");
    source.text.lines().map(move |line| match line.split_once("//") {
        _ if document => line,
        Some((_, comment)) => comment,
        None => "",
    })
}

/// How many lines of each kind the shipped code has.
#[derive(Default)]
pub(super) struct Kinds {
    pub(super) code: usize,
    pub(super) docs: usize,
    pub(super) comments: usize,
    /// Documentation of one or two words.
    pub(super) brief: Vec<Finding>,
}

impl Kinds {
    /// Counts a file.
    pub(super) fn add(&mut self, source: &Shipped<'_>) {
        let is_doc = |line: &&str| line.trim_start().starts_with("///") || line.trim_start().starts_with("//!");
        for (at, line) in source.lines.iter().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let text = line.trim();
            if is_doc(line) {
                self.docs += 1;
                let before = at.checked_sub(1).and_then(|at| source.lines.get(at)).is_some_and(is_doc);
                let alone = !before && !source.lines.get(at + 1).is_some_and(is_doc);
                if alone && text[3..].split_whitespace().count() <= 2 {
                    self.brief.push(source.place(at, text));
                }
            } else if text.starts_with("//") {
                self.comments += 1;
            } else {
                self.code += 1;
            }
        }
    }
}
