//! The short check of what changed: format, clippy and tests of the crates that it touches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::Failed;
use crate::command::command;

/// The branch that changes are compared with.
const MAIN: &str = "main";
/// Crates whose integration tests take longer than a minute: those run whose names have that of a changed file.
const SLOW: &[&str] = &["cli", "server", "sim", "store"];
/// Features that tests of a crate need.
const FEATURES: &[(&str, &str)] = &[("server", "schema"), ("store", "cluster")];
/// The tests that read documents.
const OF_DOCUMENTS: &[&str] = &["decisions::", "tidy::"];

/// Checks the crates that differ from the main branch, or have changes that aren't committed.
pub(crate) fn run(_: &[&str]) -> Result<(), Failed> {
    let changed = changed()?;
    command("cargo", &["fmt", "--all", "--check"])?;
    for (folder, files) in by_crate(&changed) {
        let package = package(folder)?;
        println!("{package}: {} changed files", files.len());
        let features = FEATURES.iter().find(|(of, _)| *of == folder).map_or("", |(_, feature)| feature);
        let of_crate = ["--package", &package, "--features", features, "--locked"];
        command("cargo", &[&["clippy"], &of_crate[..], &["--all-targets", "--", "-D", "warnings"]].concat())?;
        test(folder, &of_crate, &files)?;
    }
    if changed.iter().any(|path| path.ends_with(".md")) {
        let mut args = vec!["test", "--package", "lastword-sim", "--test", "it", "--locked", "--"];
        args.extend(OF_DOCUMENTS);
        command("cargo", &args)?;
    }
    Ok(())
}

/// Returns the changed files: of the commits since the branch left the main one, and those that aren't committed.
fn changed() -> Result<BTreeSet<String>, Failed> {
    let lines = |args: &[&str]| -> Result<Vec<String>, Failed> {
        let output = Command::new("git").args(args).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect())
    };
    let base = lines(&["merge-base", MAIN, "HEAD"])?.pop().unwrap_or_else(|| "HEAD".to_owned());
    let mut changed = lines(&["diff", "--name-only", &base])?;
    changed.extend(lines(&["ls-files", "--others", "--exclude-standard"])?);
    Ok(changed.into_iter().collect())
}

/// Returns the changed files of each crate, by its folder.
fn by_crate(changed: &BTreeSet<String>) -> BTreeMap<&str, Vec<&str>> {
    let mut crates = BTreeMap::<&str, Vec<&str>>::new();
    for path in changed {
        let Some((folder, _)) = path.split_once('/') else { continue };
        // The fuzz targets are a workspace apart.
        if folder != "fuzz" && Path::new(folder).join("Cargo.toml").exists() {
            crates.entry(folder).or_default().push(path);
        }
    }
    crates
}

/// Returns the name of the package in a folder.
fn package(folder: &str) -> Result<String, Failed> {
    let manifest = std::fs::read_to_string(Path::new(folder).join("Cargo.toml"))?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    name.map(str::to_owned).ok_or_else(|| Failed::new(format!("{folder}/Cargo.toml has no name")))
}

/// Runs the tests of a crate; of a slow one, its unit tests and those that are named like a changed file.
fn test(folder: &str, of_crate: &[&str], files: &[&str]) -> Result<(), Failed> {
    let of_crate = [&["test"], of_crate].concat();
    if !SLOW.contains(&folder) {
        return command("cargo", &of_crate);
    }
    let units = if Path::new(folder).join("src/lib.rs").exists() { "--lib" } else { "--bins" };
    command("cargo", &[&of_crate[..], &[units]].concat())?;
    let stems = files.iter().filter_map(|path| Path::new(path).file_stem()?.to_str());
    let names: Vec<&str> = stems.filter(|stem| !["main", "mod", "lib"].contains(stem)).collect();
    if names.is_empty() {
        return Ok(());
    }
    command("cargo", &[&of_crate[..], &["--test", "it", "--"], &names[..]].concat())
}
