//! Checks each feature alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::Failed;
use crate::command::command;

/// Features that other checks compile alone, or that would compile other systems' clients.
const ELSEWHERE: &[&str] = &["lastword-bench/peers", "lastword-broker/interleavings"];

/// The crate of the program.
const PROGRAM: &str = "lastword-cli";

/// Checks all of them. Features of one name are one feature of several crates, and checked together. Other crates are compiled
/// as for the program, so that they are checked once for all features.
pub(crate) fn run(_: &[&str]) -> Result<(), Failed> {
    for features in all()?.into_values() {
        let features: Vec<&str> = features.iter().map(String::as_str).collect();
        println!("{}", features.join(" "));
        let packages: BTreeSet<&str> = features.iter().map(|feature| package_of(feature)).collect();
        let target: &[&str] = if packages.contains(PROGRAM) { &["--bin", "lastword"] } else { &["--lib"] };
        let mut args = vec!["check", "--quiet", "--locked", "--package", PROGRAM];
        args.extend(packages.into_iter().flat_map(|package| ["--package", package]));
        let features = features.join(",");
        args.extend(["--features", &features]);
        command("cargo", &[&args[..], target].concat())?;
    }
    Ok(())
}

/// Returns the crate of a feature that is written `crate/feature`.
fn package_of(feature: &str) -> &str {
    feature.split_once('/').map_or(feature, |(package, _)| package)
}

/// Returns the features of the workspace's crates, each with its crate's name, by their names.
fn all() -> Result<BTreeMap<String, BTreeSet<String>>, Failed> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for entry in std::fs::read_dir(".")? {
        let manifest = entry?.path().join("Cargo.toml");
        if manifest.exists() && !manifest.starts_with("./fuzz") {
            let text = std::fs::read_to_string(&manifest)?;
            for feature in features(&text).filter(|feature| !ELSEWHERE.contains(&feature.as_str())) {
                let name = feature.split('/').next_back().unwrap_or_default().to_owned();
                found.entry(name).or_default().insert(feature);
            }
        }
    }
    Ok(found)
}

/// Returns the features of a manifest.
fn features(manifest: &str) -> impl Iterator<Item = String> {
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).unwrap_or_default();
    let (_, section) = manifest.split_once("\n[features]\n").unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split_once(" = [")).map(|(feature, _)| feature);
    names.map(move |feature| format!("{name}/{feature}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_read_from_the_manifests() {
        let manifest =
            "[package]\nname = \"a\"\n\n[features]\n# A note.\none = []\ntwo = [\n]\n\n[dependencies]\nc = [1]\n";
        assert_eq!(features(manifest).collect::<Vec<_>>(), ["a/one", "a/two"]);
    }
}
