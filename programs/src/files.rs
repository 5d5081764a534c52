//! Looks up the files and variables of agent programs, and reads their settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use jsonc_parser::{ParseOptions, parse_to_serde_value};
use serde_json::{Value, json};

/// Returns the path in a variable; `None` if it is unset or empty.
pub(crate) fn set(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the path in a variable, or else this one in the user's home.
pub(crate) fn set_or_home(name: &str, path: &str) -> Option<PathBuf> {
    set(name).or_else(|| Some(set("HOME")?.join(path)))
}

/// Returns a variable of this process, as what it starts would read it.
#[expect(clippy::disallowed_methods, reason = "the agent's own configuration, which it would read itself")]
pub(crate) fn inherited(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Returns the files of a folder with this extension.
pub(crate) fn named(folder: &Path, extension: &'static str) -> impl Iterator<Item = PathBuf> + use<> {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    files.filter(move |file| file.extension().is_some_and(|found| found == extension))
}

/// Reads files of settings. One that can't be read is left out: the program itself, or the check of its set-up, names it.
pub(crate) fn read<T>(files: impl IntoIterator<Item = PathBuf>, parse: impl Fn(&str) -> Result<T, String>) -> Vec<T> {
    files.into_iter().filter_map(|file| parse(&fs::read_to_string(file).ok()?).ok()).collect()
}

/// Parses JSON with comments.
pub(crate) fn jsonc(text: &str) -> Result<Value, String> {
    parse_to_serde_value(text, &ParseOptions::default()).map_err(|error| error.to_string())
}

/// Returns the JSON object in a text; an empty one if it has none.
pub(crate) fn object(text: Option<&str>) -> Value {
    let found: Option<Value> = text.and_then(|text| serde_json::from_str(text).ok());
    found.filter(Value::is_object).unwrap_or_else(|| json!({}))
}

/// Returns whether a list has this word.
pub(crate) fn lists(list: &Value, word: &str) -> bool {
    list.as_array().is_some_and(|list| list.iter().any(|entry| entry == word))
}

/// Words why something can't be made that a held run needs.
pub(crate) fn unmade(what: &str, error: &io::Error) -> String {
    format!("{what} for a held run can't be made: {error}")
}

/// Returns the main worktree of a linked one, whose `.git` is a file that names a folder in the shared repository.
#[must_use]
pub fn main_worktree(top: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(top.join(".git")).ok()?;
    let folder = top.join(text.strip_prefix("gitdir:")?.trim());
    let common = folder.join(fs::read_to_string(folder.join("commondir")).ok()?.trim()).canonicalize().ok()?;
    // A bare repository has no main worktree.
    (common.file_name()? == ".git").then(|| common.parent().map(Path::to_owned))?
}
