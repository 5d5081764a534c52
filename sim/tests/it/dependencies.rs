//! The check of the lock files: where packages come from, and the known vulnerabilities of `advisories.toml`. `.ci/run`
//! checks licences, duplicates and sources with `cargo deny`, whose database of advisories is a Git repository that can't
//! be fetched there.

use std::path::{Path, PathBuf};

use toml::Table;

/// The registry that packages may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> Table {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}")).parse().unwrap()
}

/// One package of a lock file.
struct Locked {
    name: String,
    version: String,
    /// `None` for a crate of this project.
    source: Option<String>,
    checksum: bool,
}

fn locked(lock: &Table) -> Vec<Locked> {
    let text = |package: &toml::Value, key: &str| package.get(key).map(|value| value.as_str().unwrap().to_owned());
    let packages = lock["package"].as_array().unwrap().iter();
    packages
        .map(|package| Locked {
            name: text(package, "name").unwrap(),
            version: text(package, "version").unwrap(),
            source: text(package, "source"),
            checksum: package.get("checksum").is_some(),
        })
        .collect()
}

/// Returns the packages that come from elsewhere than the registry, or have no checksum.
fn foreign(lock: &Table) -> Vec<String> {
    let foreign = |package: &Locked| package.source.as_ref().is_some_and(|s| s != REGISTRY || !package.checksum);
    locked(lock).into_iter().filter(foreign).map(|package| format!("{} {}", package.name, package.version)).collect()
}

/// A version as numbers; the tags behind `-` and `+` don't count.
fn version(text: &str) -> [u64; 3] {
    let numbers = text.split(['-', '+']).next().unwrap_or_default();
    let mut parts = numbers.split('.').map(|part| part.parse().unwrap_or_else(|_| panic!("{text:?} isn't a version")));
    [parts.next().unwrap_or_default(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default()]
}

/// Returns each locked package with a listed vulnerability, by the advisory's id.
fn vulnerable(lock: &Table, advisories: &Table) -> Vec<String> {
    let packages = locked(lock);
    let mut found = Vec::new();
    for advisory in advisories["advisory"].as_array().unwrap() {
        let text = |key: &str| advisory.get(key).and_then(toml::Value::as_str);
        let (id, name) = (text("id").expect("an id"), text("package").expect("a package"));
        assert!(text("about").is_some_and(|about| about.len() > 10), "{id} says what it is about");
        let below = version(text("below").unwrap_or_else(|| panic!("{id} has no first fixed version")));
        let from = text("from").map_or([0; 3], version);
        let affected = packages.iter().filter(|p| p.name == name && (from..below).contains(&version(&p.version)));
        found.extend(affected.map(|p| format!("{id}: {} {}", p.name, p.version)));
    }
    found
}

#[test]
fn each_locked_package_is_from_the_registry_and_without_a_known_vulnerability() {
    let advisories = read("advisories.toml");
    for lock in ["Cargo.lock", "fuzz/Cargo.lock"] {
        let lock = read(lock);
        assert_eq!(foreign(&lock), Vec::<String>::new());
        assert_eq!(vulnerable(&lock, &advisories), Vec::<String>::new());
    }
}

#[test]
fn a_lock_with_a_vulnerable_or_a_foreign_package_is_refused() {
    let lock: Table = include_str!("../data/bad.lock").parse().unwrap();
    assert_eq!(foreign(&lock), ["forked 0.1.0", "unsigned 1.0.0"]);
    let listed = |text: &str| vulnerable(&lock, &text.parse().unwrap());
    let advisory = "[[advisory]]\nid = \"X-1\"\npackage = \"ring\"\nabout = \"it panics on empty input\"\n";
    assert_eq!(listed(&format!("{advisory}below = \"0.17.12\"")), ["X-1: ring 0.17.5"]);
    assert_eq!(listed(&format!("{advisory}from = \"0.17.5\"\nbelow = \"0.17.6\"")), ["X-1: ring 0.17.5"]);
    assert_eq!(listed(&format!("{advisory}from = \"0.17.6\"\nbelow = \"0.18.0\"")), Vec::<String>::new());
    assert_eq!(listed(&format!("{advisory}below = \"0.17.5\"")), Vec::<String>::new(), "the first fixed version");
    let ours = vulnerable(&lock, &read("advisories.toml"));
    assert!(ours.iter().any(|found| found.ends_with("ring 0.17.5")), "{ours:?}");
}
