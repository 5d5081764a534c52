//! Tests that read the decision records: what they name exists, and the index lists them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;

use crate::tidy::{check, read, root, sources};

const FOLDER: &str = "docs/adr";

/// Returns every file of the project.
fn files(folder: PathBuf) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            let skipped = ["target", ".git", "node_modules"].iter().any(|name| path.ends_with(name));
            match path.is_dir() {
                true if !skipped => folders.push(path),
                true => {}
                false => found.push(path),
            }
        }
    }
    found
}

/// A decision record.
struct Record {
    file: String,
    text: String,
}

impl Record {
    fn all() -> Vec<Self> {
        let mut files: Vec<String> = std::fs::read_dir(root().join(FOLDER))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|file| file != "README.md")
            .collect();
        files.sort();
        files.into_iter().map(|file| Self { text: read(&format!("{FOLDER}/{file}")), file }).collect()
    }

    /// Returns its number, title, date and status.
    fn head(&self) -> (u32, &str, &str, &str) {
        let wrong =
            || -> ! { panic!("{}: `# 1. Title`, then `**Date:** 2026-01-01. **Status:** accepted.`", self.file) };
        let (title, rest) = self.text.split_once("\n\n").unwrap_or_else(|| wrong());
        let (number, title) = title.strip_prefix("# ").and_then(|t| t.split_once(". ")).unwrap_or_else(|| wrong());
        let (line, _) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let dated = line.strip_prefix("**Date:** ").and_then(|line| line.split_once(". **Status:** "));
        let (date, status) = dated.unwrap_or_else(|| wrong());
        let parts: Vec<usize> = date.split('-').map(str::len).collect();
        assert_eq!(parts, [4, 2, 2], "{}: {date}", self.file);
        (number.parse().unwrap_or_else(|_| wrong()), title, date, status)
    }

    /// Returns what stands between backticks in a line.
    fn named(&self) -> impl Iterator<Item = &str> {
        self.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
    }
}

#[test]
fn every_decision_has_its_number_a_date_and_a_status_and_stands_in_the_index() {
    let mut index = String::from(
        "# Decisions\n\nWhat was decided for good, and why.\n\n| | decision | date | status |\n|---|---|---|---|\n",
    );
    for (at, record) in Record::all().iter().enumerate() {
        let (number, title, date, status) = record.head();
        assert_eq!(number as usize, at + 1, "{}", record.file);
        assert!(record.file.starts_with(&format!("{number:04}-")), "{}", record.file);
        assert!(status.starts_with("accepted") || status.starts_with("superseded by ["), "{}: {status}", record.file);
        let status = status.trim_end_matches('.').replace('\n', " ");
        writeln!(index, "| {number} | [{title}]({}) | {date} | {status} |", record.file).unwrap();
    }
    check(&format!("{FOLDER}/README.md"), &index);
}

#[test]
fn a_decision_names_only_files_crates_types_and_tests_that_exist() {
    let (files, sources) = (files(root()), sources());
    let words: BTreeSet<&str> =
        sources.iter().flat_map(|source| source.split(|c: char| c != '_' && !c.is_alphanumeric())).collect();
    let file = |name: &str| files.iter().any(|file| file.ends_with(name));
    // Files of users, and names in programs and libraries of others.
    let foreign = ["lastword.toml", "PreToolUse", "signed_note", "rand_core", "tlog_tiles", "toml_edit"];
    let is_path = |name: &str| {
        name.rsplit_once('.').is_some_and(|(_, end)| ["rs", "py", "mjs", "js", "md"].contains(&end))
            && !name.contains(' ')
    };
    let is_name = |name: &str| {
        name.contains('_') && name.chars().all(|c| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    let is_type = |name: &str| {
        name.starts_with(char::is_uppercase)
            && name.contains(char::is_lowercase)
            && name.matches(char::is_uppercase).count() > 1
            && name.chars().all(|c| c == ':' || c.is_alphanumeric())
    };
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for record in Record::all() {
        for name in record.named() {
            let exists = if is_path(name) {
                file(name) || foreign.contains(&name)
            } else if is_name(name) || is_type(name) {
                name.split("::").all(|part| words.contains(part)) || foreign.contains(&name)
            } else {
                continue;
            };
            seen += 1;
            wrong.extend((!exists).then(|| format!("{}: {name}", record.file)));
        }
        for (at, word) in record.text.match_indices("crate") {
            let rest = record.text[at + word.len()..].trim_start_matches('s');
            let Some(name) = rest.strip_prefix(" `").and_then(|rest| rest.split('`').next()) else { continue };
            seen += 1;
            wrong.extend(
                (!root().join(name).join("Cargo.toml").exists()).then(|| format!("{}: crate {name}", record.file)),
            );
        }
        for link in record.text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
            let there = link.is_empty() || link.contains("://") || root().join(FOLDER).join(link).exists();
            wrong.extend((!there).then(|| format!("{}: {link}", record.file)));
        }
    }
    assert!(seen > 50, "names are found: {seen}");
    assert!(wrong.is_empty(), "a decision names what is not there; say what became of it: {wrong:#?}");
}
