//! How the parts of the code relate: lines that two places have, and modules that import each other.

use std::collections::{BTreeSet, HashMap};

use super::tree::{Finding, Shipped, is_of_word, word};

/// How many equal lines are a duplicate.
const WINDOW: usize = 6;

/// Returns the runs of lines that two places have, each at the second one.
pub(super) fn duplicates(sources: &[Shipped<'_>]) -> Vec<Finding> {
    let mut seen = HashMap::new();
    let mut found = Vec::new();
    for source in sources {
        let trimmed = source.lines.iter().map(|line| line.trim()).enumerate();
        let kept: Vec<(usize, &str)> = trimmed.filter(|(_, line)| line.chars().count() > 3).collect();
        let mut skip = 0;
        for (n, window) in kept.windows(WINDOW).enumerate() {
            let lines: Vec<&str> = window.iter().map(|(_, line)| *line).collect();
            let is_said_often =
                |line: &&str| ["use ", "pub use ", "//", "#["].iter().any(|start| line.starts_with(start));
            if lines.iter().any(is_said_often) {
                continue;
            }
            let here = source.place(window[0].0, "");
            let other = seen.entry(lines).or_insert_with(|| here.clone());
            if (&other.path, other.line) != (&here.path, here.line) && n >= skip {
                found.push(source.place(window[0].0, format!("{}:{}", other.path.display(), other.line)));
                skip = n + WINDOW;
            }
        }
    }
    found
}

/// An import between two top-level modules of a crate.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Import<'a> {
    of: &'a str,
    from: &'a str,
    to: &'a str,
}

/// Returns the pairs of top-level modules of a crate that import each other.
pub(super) fn circles(sources: &[Shipped<'_>]) -> Vec<Finding> {
    let mut imports = BTreeSet::new();
    for source in sources {
        let parts: Vec<&str> = source.path.iter().filter_map(|part| part.to_str()).collect();
        let [of, "src", module, ..] = parts[..] else { continue };
        let from = module.trim_end_matches(".rs");
        let to = source.lines.iter().flat_map(|line| imported(line)).filter(|to| *to != from);
        imports.extend(to.map(|to| Import { of, from, to }));
    }
    let back = |i: &&Import<'_>| i.from < i.to && imports.contains(&Import { of: i.of, from: i.to, to: i.from });
    let place = |i: &Import<'_>| Finding { path: i.of.into(), line: 0, text: format!("{} and {}", i.from, i.to) };
    imports.iter().filter(back).map(place).collect()
}

/// Returns the modules that a line names by `crate::`.
fn imported(line: &str) -> impl Iterator<Item = &str> {
    const ROOT: &str = "crate::";
    let named = line.match_indices(ROOT).filter(|(at, _)| !line[..*at].ends_with(is_of_word));
    named.filter_map(|(at, _)| {
        let rest = &line[at + ROOT.len()..];
        let module = word(rest);
        (!module.is_empty() && rest[module.len()..].starts_with("::")).then_some(module)
    })
}
