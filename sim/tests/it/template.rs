//! Adds a fact and a guard to a copy of the tree, and compares the files that don't compile until they are known there with
//! those that the table of ARCHITECTURE.md names.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use crate::tidy::{read, root};

/// A copy of the tracked files.
struct TreeCopy(tempfile::TempDir);

impl TreeCopy {
    fn new() -> Self {
        let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap();
        let copy = tempfile::tempdir().unwrap();
        for file in String::from_utf8(listed.stdout).unwrap().split_terminator('\0') {
            let to = copy.path().join(file);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(root().join(file), to).unwrap();
        }
        Self(copy)
    }

    /// Inserts a text behind the first line for which `is_before` holds from line `from` on, counted from 1.
    fn insert(&self, file: &str, from: usize, is_before: impl Fn(&str) -> bool, text: &str) {
        let path = self.0.path().join(file);
        let source = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = source.lines().collect();
        let at = (from - 1..lines.len()).find(|at| is_before(lines[*at])).unwrap_or_else(|| panic!("{file}: {text}"));
        lines.insert(at + 1, text);
        fs::write(path, lines.join("\n")).unwrap();
    }

    /// Returns the places of the compiler's errors: the file and the line.
    fn errors(&self) -> BTreeSet<(String, usize)> {
        let mut check = Command::new(env!("CARGO"));
        check.args(["check", "--tests", "--keep-going", "--message-format=short", "--target-dir"]);
        // Cargo takes what it has built of one copy for another's: none of it may be what the tree itself is built of.
        check.arg(root().join("target/template")).current_dir(self.0.path());
        for of in ["facts", "core", "witness", "server"] {
            check.args(["-p", &format!("lastword-{of}")]);
        }
        let checked = check.output().unwrap();
        let told = String::from_utf8(checked.stderr).unwrap();
        let place = |line: &str| {
            let (file, rest) = line.split_once(".rs:")?;
            let (number, rest) = rest.split_once(':')?;
            rest.contains(" error").then(|| (format!("{file}.rs"), number.parse().unwrap()))
        };
        let places: BTreeSet<(String, usize)> = told.lines().filter_map(place).collect();
        assert_eq!(places.is_empty(), checked.status.success(), "{told}");
        places
    }

    /// Repairs what doesn't compile until everything does; returns the files.
    fn repaired(&self, repair: impl Fn(&Self, &str, usize)) -> BTreeSet<String> {
        let (mut files, mut rounds) = (BTreeSet::new(), 0);
        loop {
            let errors = self.errors();
            if errors.is_empty() {
                return files;
            }
            // From the last line on: a line that is inserted moves those behind it.
            for (file, line) in errors.into_iter().rev() {
                repair(self, &file, line);
                files.insert(file);
            }
            rounds += 1;
            assert!(rounds < 20, "{files:?}");
        }
    }
}

/// The source files that a row of the table names.
fn places(row: &str) -> BTreeSet<String> {
    let table = read("ARCHITECTURE.md");
    let row = table.lines().find(|line| line.starts_with(&format!("| {row} |"))).unwrap();
    let quoted = row.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.ends_with(".rs") && !word.contains('<')).map(str::to_owned).collect()
}

#[test]
#[ignore = "it compiles most crates several times"]
fn what_is_new_is_asked_for_where_the_architecture_says() {
    assert_eq!(places_of_a_fact(), places("a fact"));
    assert_eq!(places_of_a_guard(), places("a guard"));
}

fn places_of_a_fact() -> BTreeSet<String> {
    let copy = TreeCopy::new();
    copy.insert("facts/src/fact.rs", 1, |line| line == "pub enum Fact {", "/// A template.\nTemplate { number: u64 },");
    copy.repaired(|copy, file, line| {
        let of = if file.starts_with("facts/") { "crate" } else { "lastword_facts" };
        copy.insert(file, line, |line| line.ends_with('{'), &format!("{of}::Fact::Template {{ .. }} => todo!(),"));
    })
}

fn places_of_a_guard() -> BTreeSet<String> {
    let copy = TreeCopy::new();
    copy.insert("facts/src/guards.rs", 1, |line| line.starts_with("pub const GUARDS"), "always(\"template\", \"E1\"),");
    copy.repaired(|copy, file, _| {
        copy.insert(file, 1, |line| line.contains("const JUDGES"), "(\"template\", |_| None),");
    })
}
