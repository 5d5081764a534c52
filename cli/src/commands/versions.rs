//! The agent programs' versions: which were tried with Lastword, and which are installed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use lastword_programs::{ALL, Command, Event, EventSink, scrub};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::process;
use tokio::time::timeout;

use super::hook::state_folder;
use crate::out::{self, Out};

/// The file in the user's state directory with the versions that were told of.
const FILE_TOLD: &str = "versions.json";
/// Time for a program to print its version. Some start a runtime first.
const ANSWER: Duration = Duration::from_secs(10);
/// Folders between a package's program and its `package.json`.
const FOLDERS_MAX: usize = 3;

/// What is known of an installed program.
pub(super) struct Installed {
    pub(super) program: &'static Command,
    /// `None` if the program doesn't say.
    pub(super) version: Option<String>,
}

impl Installed {
    /// Returns whether the version is higher than the one that was tried.
    pub(super) fn is_newer(&self) -> bool {
        self.version.as_deref().is_some_and(|version| numbers(version) > numbers(self.program.tried))
    }

    pub(super) fn words(&self) -> String {
        let tried = self.program.tried;
        match &self.version {
            None => format!("installed, but it doesn't state its version; {tried} was tried with Lastword"),
            Some(version) if version == tried => format!("{version}, the version that was tried with Lastword"),
            Some(version) => {
                let relation = if self.is_newer() { "newer" } else { "older" };
                format!("{version}, which is {relation} than the {tried} that was tried with Lastword")
            }
        }
    }
}

/// Returns the commands of the known programs.
fn commands() -> impl Iterator<Item = &'static Command> {
    ALL.into_iter().flat_map(|program| program.commands())
}

/// Returns the known programs on PATH, each with its version.
pub(super) async fn installed() -> Vec<Installed> {
    let found = commands().filter_map(|program| Some((program, on_path(program.names[0])?)));
    join_all(found.map(async |(program, path)| Installed { program, version: version(&path).await })).await
}

/// Prints which versions of the known programs are installed and which were tried, and whether their calls are held.
pub(super) fn table(installed: &[Installed], out: &Out) -> String {
    let rows = commands().map(|program| {
        let found = installed.iter().find(|installed| std::ptr::eq(installed.program, program));
        let version = found.map_or("-", |found| found.version.as_deref().unwrap_or("unknown"));
        let newer = if found.is_some_and(Installed::is_newer) { " (newer)" } else { "" };
        [program.names[0], &format!("{version}{newer}"), program.tried, program.held].map(str::to_owned).to_vec()
    });
    out::table(&["program", "found", "tried", "calls held"], &rows.collect::<Vec<_>>(), out)
}

/// What is known of a program since an earlier run.
#[derive(Debug, Default, Deserialize, Serialize)]
struct KnownVersions {
    /// The file that was asked, with its last change: only another one is asked again.
    file: String,
    /// The versions that were told of.
    told: BTreeSet<String>,
}

/// Returns a warning if a command starts a program that is newer than the one tried; for each version once.
pub(super) async fn newer(command: &Path) -> Option<String> {
    let name = command.file_name()?.to_str()?;
    let program = commands().find(|program| program.names[0] == name)?;
    let path = if command.parent() == Some(Path::new("")) { on_path(name)? } else { command.to_owned() };
    let found = path.canonicalize().ok()?;
    let changed = fs::metadata(&found).ok()?;
    let told = state_folder()?.with_file_name(FILE_TOLD);
    let read = fs::read(&told).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let mut all: BTreeMap<String, KnownVersions> = read.unwrap_or_default();
    let known = all.entry(name.to_owned()).or_default();
    let file = format!("{} {}.{}", found.display(), changed.ctime(), changed.ctime_nsec());
    if known.file == file {
        return None;
    }
    let installed = Installed { program, version: version(&path).await };
    let version = installed.version.clone().filter(|_| installed.is_newer());
    known.file = file;
    let news = version.is_some_and(|version| known.told.insert(version));
    // What can't be kept is told again.
    let _kept = kept(&told, &all);
    news.then(|| format!("{name} is {}; `lastword doctor` lists the versions", installed.words()))
}

/// Reports [`newer`] as a runner's warning.
pub(crate) async fn report_newer(command: &Path, report: &EventSink) {
    if let Some(message) = newer(command).await {
        report.emit(&Event::Warning { message });
    }
}

fn kept(path: &Path, all: &BTreeMap<String, KnownVersions>) -> std::io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path.parent().unwrap_or(Path::new(".")))?;
    let draft = path.with_extension(format!("new.{}", std::process::id()));
    fs::write(&draft, serde_json::to_vec(all)?)?;
    fs::rename(&draft, path)
}

/// Returns the path of a program that is found in PATH.
pub(super) fn on_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(|file| file.is_file())
}

async fn version(program: &Path) -> Option<String> {
    let mut command = process::Command::new(program);
    // It may be a program of the folder, and needs no token to say who it is.
    scrub(command.as_std_mut());
    command.arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let said = match timeout(ANSWER, command.output()).await {
        Ok(Ok(output)) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(_) | Err(_) => String::new(),
    };
    said.split_whitespace().find(|word| numbers(word).len() == 3).map(str::to_owned).or_else(|| packaged(program))
}

/// Returns the version of the npm package that a program belongs to.
fn packaged(program: &Path) -> Option<String> {
    let program = program.canonicalize().ok()?;
    let name = program.file_stem()?.to_str()?.to_owned();
    let mut files = program.ancestors().skip(1).take(FOLDERS_MAX).map(|folder| folder.join("package.json"));
    let text = files.find_map(|file| std::fs::read_to_string(file).ok())?;
    let package: Value = serde_json::from_str(&text).ok()?;
    let whole = package["name"].as_str()?;
    (whole.rsplit('/').next() == Some(&name)).then(|| package["version"].as_str().map(str::to_owned))?
}

/// Returns the numbers of a version; none if it isn't made of numbers and dots.
fn numbers(version: &str) -> Vec<u64> {
    let parsed: Result<Vec<u64>, _> = version.split('.').map(str::parse).collect();
    parsed.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        const PROGRAM: Command = Command { names: &["x"], package: "x", tried: "2.1.332", held: "yes" };
        let of = |version: &str| Installed { program: &PROGRAM, version: Some(version.to_owned()) };
        assert!(of("2.10.0").is_newer() && !of("2.1.99").is_newer() && !of("2.1.332").is_newer());
        assert!(of("2.1.99").words().contains("older") && of("2.1.332").words().contains("was tried"));
    }
}
