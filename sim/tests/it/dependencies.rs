//! The check of the dependencies: licences, sources, duplicates and known vulnerabilities, by the rules of `deny.toml`
//! and the advisories of `advisories.toml`. `cargo deny` reads the same `deny.toml`, but takes minutes to build and
//! needs a database of advisories from the network.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use toml::Table;

/// The registry that packages may come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> Table {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}")).parse().unwrap()
}

fn texts(list: &toml::Value) -> BTreeSet<String> {
    list.as_array().into_iter().flatten().map(|item| item.as_str().unwrap().to_owned()).collect()
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

/// Whether an SPDX expression can be met with the allowed licences. `/` is an old way to write `OR`.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest, allowed).filter(|_| rest.is_empty()).unwrap_or_else(|| panic!("{expression:?} isn't SPDX"))
}

fn either(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = both(words, allowed)?;
    while let ["OR", rest @ ..] = *words {
        *words = rest;
        // Both sides are parsed, whatever the first one is.
        met |= both(words, allowed)?;
    }
    Some(met)
}

fn both(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let mut met = one(words, allowed)?;
    while let ["AND", rest @ ..] = *words {
        *words = rest;
        met &= one(words, allowed)?;
    }
    Some(met)
}

fn one(words: &mut &[&str], allowed: &BTreeSet<String>) -> Option<bool> {
    let (first, rest) = words.split_first()?;
    *words = rest;
    if *first == "(" {
        let met = either(words, allowed)?;
        let (")", rest) = words.split_first().map(|(word, rest)| (*word, rest))? else { return None };
        *words = rest;
        return Some(met);
    }
    let mut name = (*first).to_owned();
    if let ["WITH", exception, rest @ ..] = *words {
        name = format!("{name} WITH {exception}");
        *words = rest;
    }
    let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    (is_name && !["AND", "OR", "WITH"].contains(first)).then(|| allowed.contains(&name))
}

/// Returns the packages of `cargo metadata` whose licence isn't allowed.
fn unlicensed(metadata: &Value, allowed: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata["packages"].as_array().unwrap() {
        let licence = package["license"].as_str();
        if !licence.is_some_and(|licence| is_allowed(licence, allowed)) {
            let (name, version) = (package["name"].as_str().unwrap(), package["version"].as_str().unwrap());
            found.push(format!("{name} {version}: {}", licence.unwrap_or("no licence")));
        }
    }
    found
}

/// Returns the crates of which `cargo tree` lists several versions.
fn duplicates(tree: &str) -> BTreeSet<String> {
    let packages: BTreeSet<(&str, &str)> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?))
        })
        .collect();
    assert!(packages.len() > 3, "cargo lists packages: {tree}");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    packages.iter().for_each(|(name, _)| *counts.entry(name).or_default() += 1);
    counts.into_iter().filter(|(_, count)| *count > 1).map(|(name, _)| name.to_owned()).collect()
}

/// Asks cargo, which has downloaded what a build on this machine uses.
fn cargo(arguments: &[&str]) -> Vec<u8> {
    let output =
        Command::new(env!("CARGO")).args(arguments).args(["--locked", "--offline"]).current_dir(root()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn metadata() -> Value {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = cargo(&["metadata", "--format-version=1", "--filter-platform", &target]);
    serde_json::from_slice(&output).unwrap()
}

#[test]
fn each_dependency_has_an_allowed_licence_and_one_version_unless_deny_says_so() {
    let (rules, metadata) = (read("deny.toml"), metadata());
    let refused = unlicensed(&metadata, &texts(&rules["licenses"]["allow"]));
    assert!(refused.is_empty(), "not allowed by deny.toml: {refused:#?}");
    let skipped = rules["bans"]["skip"].as_array().unwrap().iter();
    let skipped: BTreeSet<String> = skipped.map(|skip| skip["crate"].as_str().unwrap().to_owned()).collect();
    // What the program is built of; `cargo metadata` lists optional dependencies that no build uses.
    let tree = cargo(&["tree", "--package=lastword-cli", "--edges=no-dev", "--prefix=none"]);
    assert_eq!(
        duplicates(&String::from_utf8_lossy(&tree)),
        skipped,
        "crates with several versions, and those that deny.toml skips"
    );
    let banned = metadata["packages"].as_array().unwrap().iter().filter_map(|package| {
        let wild =
            package["dependencies"].as_array().unwrap().iter().filter(|d| d["req"] == "*" && d["path"].is_null());
        (package["source"].is_null() && wild.count() > 0).then(|| package["name"].clone())
    });
    assert_eq!(banned.collect::<Vec<_>>(), Vec::<Value>::new(), "crates of ours take any version of another");
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

#[test]
fn a_licence_that_is_not_allowed_and_a_second_version_are_found() {
    let allowed: BTreeSet<String> = ["MIT", "Apache-2.0", "Unicode-3.0"].map(str::to_owned).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0-only", false),
        ("GPL-3.0-only OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR GPL-3.0-only) AND Unicode-3.0", true),
        ("MIT AND GPL-3.0-only", false),
        ("Apache-2.0 WITH LLVM-exception", false),
        ("Apache-2.0 WITH LLVM-exception OR MIT", true),
    ] {
        assert_eq!(is_allowed(expression, &allowed), expected, "{expression}");
    }
    let tree = "a v1.0.0\nb v1.0.0 (*)\nb v1.0.0\na v2.0.0 (proc-macro)\nc v0.1.0";
    assert_eq!(duplicates(tree), BTreeSet::from(["a".to_owned()]));
    let metadata = serde_json::json!({ "packages": [
        { "name": "fine", "version": "1.0.0", "license": "MIT" },
        { "name": "copyleft", "version": "1.0.0", "license": "AGPL-3.0-or-later" },
        { "name": "unsaid", "version": "1.0.0", "license": null },
    ]});
    assert_eq!(unlicensed(&metadata, &allowed), ["copyleft 1.0.0: AGPL-3.0-or-later", "unsaid 1.0.0: no licence"]);
}
