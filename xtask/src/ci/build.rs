//! Builds the tests, and keeps the programs that steps run beside `cargo tests`, which replaces `target/debug/lastword`
//! when it begins.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::process::FOLDER;
use crate::Failed;
use crate::command::passed;

/// The features of the program that are off by default.
pub(crate) const FEATURES: &str = "lastword-cli/cluster,lastword-cli/discord";

/// What the README's command leaves out: the crates of these features, the tools, and tests that need a feature. `lastword-alike`
/// has the features of that command, so that the libraries of others aren't compiled for both.
const REST: &[&str] = &[
    "lastword-alike",
    "lastword-bench",
    "lastword-bridge",
    "lastword-cli",
    "lastword-cluster",
    "lastword-discord",
    "lastword-server",
    "lastword-store",
    "xtask",
];
/// The features of its tests: these, and the types by which the documents of the surface are made.
const REST_FEATURES: &str = "lastword-cli/cluster,lastword-cli/discord,lastword-server/schema";
/// Its tests that `cargo tests` runs.
const REST_TESTS: &[&str] =
    &["--lib", "--bin", "lastword-bench", "--bin", "xtask", "--test", "bench", "--test", "jetstream"];
/// What it has besides: CI's steps run these tests, and nobody the benches.
const REST_BUILT: &[&str] = &["--test", "cluster", "--test", "discord", "--bench", "core", "--bench", "log"];

/// A program to keep.
struct KeptProgram {
    /// The folder of its crate.
    folder: &'static str,
    /// What it is called there.
    target: &'static str,
    /// Whether it is the one with the tests.
    test: bool,
    /// What it is called in the folder of this run.
    name: &'static str,
}

/// Programs of the first build, that of the README: those that mutate the corpora of the fuzz targets.
const PLAIN: &[KeptProgram] = &[
    KeptProgram { folder: "sim", target: "it", test: true, name: "fuzzed" },
    KeptProgram { folder: "cli", target: "lastword", test: true, name: "fuzzed-config" },
];
/// Tests with all features, and the program with them, which is linked as a release is.
const WHOLE: &[KeptProgram] = &[
    KeptProgram { folder: "discord", target: "lastword_discord", test: true, name: "fuzzed-discord" },
    KeptProgram { folder: "cli", target: "cluster", test: true, name: "cluster" },
    KeptProgram { folder: "cli", target: "discord", test: true, name: "discord" },
    KeptProgram { folder: "cli", target: "lastword", test: false, name: "lastword" },
];
/// Keeps the static program apart from what other commands link.
const STATIC: &str = "profile.test.package.lastword-cli.strip='debuginfo'";

/// Builds the tests of the README's command, or with `--features` all others, and the program. Our crates are linted as they are
/// compiled.
pub(crate) fn run(args: &[&str]) -> Result<(), Failed> {
    let is_rest = args == ["--features"];
    let mut cargo = if is_rest { rest() } else { cargo_test() };
    cargo.args(["--no-run", "--message-format=json-render-diagnostics"]);
    cargo.env("RUSTC_WRAPPER", std::env::current_dir()?.join(".ci/rustc"));
    if !is_rest {
        return build(&mut cargo, PLAIN);
    }
    cargo.args(REST_BUILT).args(["--config", STATIC]);
    build(cargo.env("LASTWORD_STATIC", "1"), WHOLE)
}

/// Runs the tests that the README's command leaves out, except those of the program with features, which steps run.
pub(crate) fn run_rest(_: &[&str]) -> Result<(), Failed> {
    passed(&mut rest())
}

/// Returns the README's command.
fn cargo_test() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["tests", "--locked"]);
    cargo
}

/// Returns the command for the tests that the README's command leaves out.
fn rest() -> Command {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--locked"]);
    cargo.args(REST.iter().flat_map(|package| ["--package", package]));
    cargo.args(["--features", REST_FEATURES]).args(REST_TESTS);
    cargo
}

/// Builds by a command of Cargo, and keeps programs.
fn build(command: &mut Command, kept: &[KeptProgram]) -> Result<(), Failed> {
    let built = command.stderr(Stdio::inherit()).output()?;
    if !built.status.success() {
        return Err(Failed::new(format!("{command:?}: {}", built.status)));
    }
    let messages = String::from_utf8_lossy(&built.stdout);
    let built: Vec<Built> = messages.lines().filter_map(Built::read).collect();
    for kept in kept {
        let named = built.iter().find(|built| built.is(kept));
        let Built { executable, .. } = named.ok_or_else(|| Failed::new(format!("{} isn't built", kept.name)))?;
        std::fs::copy(executable, Path::new(FOLDER).join(kept.name))?;
    }
    Ok(())
}

/// A program that Cargo built.
struct Built {
    executable: String,
    manifest: String,
    target: String,
    test: bool,
}

impl Built {
    /// Reads a message of Cargo.
    fn read(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(Self {
            executable: message["executable"].as_str()?.to_owned(),
            manifest: message["manifest_path"].as_str()?.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            test: message["profile"]["test"].as_bool()?,
        })
    }

    fn is(&self, kept: &KeptProgram) -> bool {
        let manifest = Path::new(kept.folder).join("Cargo.toml");
        self.target == kept.target && self.test == kept.test && Path::new(&self.manifest).ends_with(manifest)
    }
}
