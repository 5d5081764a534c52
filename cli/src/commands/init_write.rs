//! Plans what one `lastword init` changes, and writes all of it, or nothing.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use imara_diff::{Algorithm, BasicLineDiffPrinter, Diff, InternedInput, UnifiedDiffConfig};
use lastword_programs::{AgentProgram, Step};
use serde::Serialize;

use crate::failure::Failure;
use crate::text_file;

/// The change of one file.
#[derive(Debug, Serialize)]
pub(super) struct Change {
    pub(super) file: PathBuf,
    /// The changed lines as a diff; empty if there is nothing to change.
    pub(super) diff: String,
}

impl Change {
    pub(super) fn words(&self) -> String {
        if self.diff.is_empty() { format!("{}: nothing to add\n", self.file.display()) } else { self.diff.clone() }
    }
}

/// A planned change of one file.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) change: Change,
    /// What the file holds; `None` if there is none.
    pub(super) old: Option<Vec<u8>>,
    /// What it is to hold; empty if it is to be removed.
    pub(super) new: Vec<u8>,
}

/// Plans the changes of a program's files.
pub(super) fn plan(program: &AgentProgram, step: Step<'_>) -> Result<Vec<Edit>, Failure> {
    let files = program.files.iter();
    files.map(|file| edit(Path::new(file.path), |text| (file.change)(text, step))).collect()
}

/// Applies `change` to the text of a file. One that is left without content is to be removed.
fn edit(file: &Path, change: impl FnOnce(&str) -> Result<String, String>) -> Result<Edit, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::refused(format!("{}: {error}", file.display()));
    let bytes = match fs::read(file) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&error)),
    };
    let old = text_file::decoded(bytes.clone().unwrap_or_default()).map_err(|problem| failed(&problem))?;
    let new = change(&old).map_err(|problem| failed(&problem).hint("fix the file, or edit Lastword's part by hand"))?;
    Ok(Edit {
        change: Change { file: file.to_owned(), diff: diff(file, &old, &new) },
        old: bytes,
        new: new.into_bytes(),
    })
}

/// Returns the differences between two texts of a file; empty without any.
fn diff(file: &Path, old: &str, new: &str) -> String {
    let input = InternedInput::new(old, new);
    let mut diff = Diff::compute(Algorithm::Histogram, &input);
    diff.postprocess_lines(&input);
    let mut config = UnifiedDiffConfig::default();
    config.context_len(2);
    let lines = diff.unified_diff(&BasicLineDiffPrinter(&input.interner), config, &input).to_string();
    let name = file.display();
    if lines.is_empty() { lines } else { format!("--- {name}\n+++ {name}\n{lines}") }
}

/// Writes the changed files with `put`, which removes a file that gets no content. If one can't be written, what was
/// written before is taken back.
pub(super) fn write(
    edits: &[&Edit],
    mut put: impl FnMut(&Path, Option<&[u8]>) -> io::Result<()>,
) -> Result<(), Failure> {
    let changed: Vec<&Edit> = edits.iter().copied().filter(|edit| !edit.change.diff.is_empty()).collect();
    for (at, edit) in changed.iter().enumerate() {
        let file = &edit.change.file;
        let Err(error) = put(file, Some(&*edit.new).filter(|new| !new.is_empty())) else { continue };
        let mut left = Vec::new();
        for done in changed[..=at].iter().rev() {
            if put(&done.change.file, done.old.as_deref()).is_err() {
                left.push(done.change.file.display().to_string());
            }
        }
        let failure = Failure::refused(format!("{}: {error}", file.display()));
        return Err(match left.is_empty() {
            true => failure.hint("nothing was changed: every file is as it was"),
            false => failure.hint(format!("these files couldn't be put back: {}", left.join(", "))),
        });
    }
    Ok(())
}

/// Writes a file with its folder, or removes it, and its folder if nothing else is in it.
pub(super) fn put(file: &Path, content: Option<&[u8]>) -> io::Result<()> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    match content {
        Some(content) => {
            folder.map_or(Ok(()), fs::create_dir_all)?;
            fs::write(file, content)
        }
        None => {
            match fs::remove_file(file) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            // A folder that holds anything else stays.
            let _kept = folder.map(fs::remove_dir);
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whichever_write_fails_every_file_is_as_it_was() {
        for fails in 0..3 {
            let dir = tempfile::tempdir().unwrap();
            let edit = |name: &str, old: Option<&str>, new: &str| {
                let file = dir.path().join(name);
                if let Some(old) = old {
                    fs::write(&file, old).unwrap();
                }
                let change = Change { file, diff: "changed".to_owned() };
                Edit { change, old: old.map(|old| old.as_bytes().to_vec()), new: new.as_bytes().to_vec() }
            };
            let edits = [edit("a", Some("old"), "new"), edit("new/b", None, "new"), edit("c", Some("old"), "")];
            let mut done = 0;
            let failed = write(&edits.each_ref(), |file, content| {
                done += 1;
                // Half of it is written when the disk is full.
                if done == fails + 1 {
                    put(file, Some(b"ne"))?;
                    return Err(io::Error::from(ErrorKind::StorageFull));
                }
                put(file, content)
            });
            assert!(failed.unwrap_err().hint.unwrap().starts_with("nothing was changed"));
            let text = |name: &str| fs::read_to_string(dir.path().join(name)).ok();
            assert_eq!((text("a").as_deref(), text("c").as_deref()), (Some("old"), Some("old")), "{fails}");
            assert!(!dir.path().join("new").exists(), "{fails}");
        }
    }
}
