//! Builds the tests, and keeps the programs that steps run beside `cargo test`, which replaces `target/debug/lastword`
//! when it begins.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::process::FOLDER;
use crate::Failed;

/// The features of the program that are off by default.
pub(crate) const FEATURES: &str = "lastword-cli/cluster,lastword-cli/discord";

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
    KeptProgram { folder: "cli", target: "cluster", test: true, name: "cluster" },
    KeptProgram { folder: "cli", target: "discord", test: true, name: "discord" },
    KeptProgram { folder: "cli", target: "lastword", test: false, name: "lastword" },
];
/// Keeps the static program apart from what other commands link.
const STATIC: &str = "profile.test.package.lastword-cli.strip='debuginfo'";

/// Builds all tests, or with `--features` those that need the features, and the program.
pub(crate) fn run(args: &[&str]) -> Result<(), Failed> {
    let mut cargo = linting()?;
    cargo.arg("--message-format=json-render-diagnostics");
    if args != ["--features"] {
        build(&mut cargo, PLAIN)?;
        // As a flag of the first command, this would leave out the programs that tests start.
        let benches = linting()?.arg("--benches").status()?;
        return if benches.success() { Ok(()) } else { Err(Failed::new(format!("the benches: {benches}"))) };
    }
    cargo.args(["--features", FEATURES, "--test", "cluster", "--test", "discord", "--config", STATIC]);
    build(cargo.env("LASTWORD_STATIC", "1"), WHOLE)
}

/// Returns a command of Cargo that builds tests, and lints our crates as it compiles them.
fn linting() -> Result<Command, Failed> {
    let mut cargo = Command::new("cargo");
    cargo.args(["test", "--workspace", "--no-run", "--locked"]);
    cargo.env("RUSTC_WRAPPER", std::env::current_dir()?.join(".ci/rustc"));
    Ok(cargo)
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
