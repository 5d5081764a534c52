//! Checks each feature of each crate alone.

use crate::Failed;
use crate::command::command;

/// Features that other checks compile alone, or that would compile other systems' clients.
const ELSEWHERE: &[&str] = &["lastword-bench/peers", "lastword-broker/interleavings"];

/// The crate of the program.
const PROGRAM: &str = "lastword-cli";

/// Checks all of them. Other crates are compiled as for the program, so that they are checked once for all features.
pub(crate) fn run(_: &[&str]) -> Result<(), Failed> {
    for feature in all()? {
        let (package, _) = feature.split_once('/').unwrap_or((&feature, ""));
        println!("{feature}");
        let target: &[&str] = if package == PROGRAM { &["--bin", "lastword"] } else { &["--lib"] };
        let args = ["check", "--quiet", "--locked", "--package", PROGRAM, "--package", package, "--features", &feature];
        command("cargo", &[&args[..], target].concat())?;
    }
    Ok(())
}

/// Returns the features of the workspace's crates, each with its crate's name.
fn all() -> Result<Vec<String>, Failed> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(".")? {
        let manifest = entry?.path().join("Cargo.toml");
        if manifest.exists() && !manifest.starts_with("./fuzz") {
            let text = std::fs::read_to_string(&manifest)?;
            found.extend(features(&text).filter(|feature| !ELSEWHERE.contains(&feature.as_str())));
        }
    }
    found.sort();
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
