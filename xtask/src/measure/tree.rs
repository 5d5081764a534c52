//! The files that are measured: those that Git has, and of a source file the part that ships.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failed;

/// A source file.
pub(super) struct SourceFile {
    /// Its path in the project.
    pub(super) path: PathBuf,
    /// All of its text.
    pub(super) text: String,
}

/// The lines of a source file that ship.
pub(super) struct Shipped<'a> {
    /// Its path in the project.
    pub(super) path: &'a Path,
    /// Its lines before the test module at its end.
    pub(super) lines: Vec<&'a str>,
}

/// A line that a list names.
#[derive(Clone)]
pub(super) struct Finding {
    pub(super) path: PathBuf,
    /// The number of the line.
    pub(super) line: usize,
    /// The finding itself.
    pub(super) text: String,
}

impl SourceFile {
    /// Reads the files of a pattern that Git has.
    pub(super) fn tracked(pattern: &str) -> Result<Vec<Self>, Failed> {
        let listed = Command::new("git").args(["ls-files", "-z", pattern]).output()?;
        let names = String::from_utf8(listed.stdout).map_err(|_| Failed::new("a file's name isn't UTF-8"))?;
        let read = |name: &str| Ok(Self { path: name.into(), text: std::fs::read_to_string(name)? });
        names.split_terminator('\0').map(read).collect()
    }

    /// Returns the lines that ship, or `None` for a file of tests.
    pub(super) fn shipped(&self) -> Option<Shipped<'_>> {
        let stem = self.path.file_stem()?.to_str()?;
        let of_tests = stem == "tests" || stem.ends_with("_tests");
        if of_tests || self.path.components().any(|part| part.as_os_str() == "tests") {
            return None;
        }
        let (code, _) = self.text.split_once("\n#[cfg(test)]\nmod tests {").unwrap_or((&self.text, ""));
        Some(Shipped { path: &self.path, lines: code.lines().collect() })
    }
}

impl Shipped<'_> {
    /// Returns the place of a line, which is counted from 0.
    pub(super) fn place(&self, at: usize, text: impl Into<String>) -> Finding {
        Finding { path: self.path.to_owned(), line: at + 1, text: text.into() }
    }
}

/// Returns the word at the start of a text: letters, digits and underscores.
pub(super) fn word(text: &str) -> &str {
    let end = text.find(|c: char| !is_of_word(c)).unwrap_or(text.len());
    &text[..end]
}

/// Whether a character is part of a word.
pub(super) fn is_of_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns what follows the visibility of an item.
pub(super) fn after_visibility(text: &str) -> &str {
    let Some(rest) = text.strip_prefix("pub") else { return text };
    let restricted = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let rest = restricted.filter(|(whom, _)| whom.bytes().all(|b| b.is_ascii_lowercase())).map_or(rest, |(_, r)| r);
    rest.strip_prefix(' ').unwrap_or(text)
}
