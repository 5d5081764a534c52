//! Git decides which paths a pattern covers; the names of resources say the same.

#![allow(clippy::unwrap_used, reason = "a failure is the test's")]

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use lastword_facts::resource::Resource;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

/// Returns which of the paths `.gitignore` covers, by git's own matching.
fn ignored(repository: &Path, paths: &[String]) -> Vec<String> {
    let mut git = Command::new("git");
    git.args(["check-ignore", "--no-index", "-z", "--stdin"]).current_dir(repository);
    let mut git = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(paths.join("\0").as_bytes()).unwrap();
    let out = git.wait_with_output().unwrap();
    assert!(matches!(out.status.code(), Some(0 | 1)), "{out:?}");
    let text = String::from_utf8(out.stdout).unwrap();
    text.split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn a_pattern_covers_what_git_says() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Command::new("git").args(["init", "-q"]).current_dir(dir.path()).status().unwrap().success());
    let part = prop_oneof![
        3 => "[ab.]{0,2}[ab]",
        3 => "[ab*?]{1,4}",
        2 => "[ab]{0,1}\\[[!^]?[ab]-?[bc]?\\][ab*]?",
        1 => Just("**".to_owned()),
        1 => "[ab]?\\\\[*?b]",
    ];
    let pattern = proptest::collection::vec(part, 1..4).prop_map(|parts| parts.join("/"));
    let path = proptest::collection::vec("[abc.*?\\[\\]]{0,2}[abc]", 1..5).prop_map(|parts| parts.join("/"));
    let case = (pattern, proptest::collection::vec(path, 12));
    let mut runner = TestRunner::deterministic();
    let (mut covered, mut compared) = (0, 0);
    for _ in 0..400 {
        let (pattern, paths) = case.new_tree(&mut runner).unwrap().current();
        let Ok(name) = Resource::new(&pattern) else { continue };
        let anywhere = !name.as_str().contains('/') && name.is_pattern();
        let line = if anywhere { name.to_string() } else { format!("/{name}") };
        fs::write(dir.path().join(".gitignore"), line + "\n").unwrap();
        let said = ignored(dir.path(), &paths);
        for path in &paths {
            // A path with a wildcard in it is a pattern here, which may be taken not to be covered.
            let Ok(plain) = Resource::new(path) else { continue };
            if plain.as_str() != path || plain.is_pattern() {
                continue;
            }
            let own = name.covers(&plain);
            assert_eq!(own, said.contains(path), "{name} and {path}");
            covered += u32::from(own);
            compared += 1;
        }
    }
    assert!(covered > 100 && compared > 1_000, "{covered} of {compared}");
}
