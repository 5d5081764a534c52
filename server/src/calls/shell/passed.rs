//! The words that a program gets which isn't known, in the spellings that a rule's pattern may have.

use super::inner;

/// Returns lists of these words: as they are, without folders, and without the options before a subcommand.
pub(super) fn spellings(words: &[String]) -> Vec<Vec<String>> {
    let names: Vec<String> = words.iter().flat_map(|word| names(word)).collect();
    let git = without_git_options(names.clone());
    let is_option = |word: &String| word.starts_with('-');
    let without_options = git.iter().filter(|word| !is_option(word)).cloned().collect();
    // Each option may have a value.
    let is_behind_option = |at: usize| at.checked_sub(1).is_some_and(|before| is_option(&git[before]));
    let kept = git.iter().enumerate().filter(|(at, word)| !is_option(word) && !is_behind_option(*at));
    let without_values = kept.map(|(_, word)| word.clone()).collect();
    vec![words.to_vec(), names, git, without_options, without_values]
}

/// Returns the name of a program without its folder, and that of one of git's programs as two words.
fn names(word: &str) -> Vec<String> {
    let name = word.rsplit('/').next().unwrap_or_default();
    match name.strip_prefix("git-") {
        _ if word.contains(char::is_whitespace) => vec![word.to_owned()],
        Some(subcommand) => vec!["git".to_owned(), subcommand.to_owned()],
        None => vec![name.to_owned()],
    }
}

fn without_git_options(mut words: Vec<String>) -> Vec<String> {
    for at in (0..words.len()).rev().filter(|at| *at + 1 < words.len()).collect::<Vec<_>>() {
        if words[at] == "git"
            && let Some(start) = inner(&words[at..], 0).last()
        {
            words.drain(at + 1..at + start);
        }
    }
    words
}
