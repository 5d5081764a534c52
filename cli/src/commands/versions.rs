//! The agent programs' versions: which were tried with Lastword, and which are installed.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

/// The programs and the versions that were tried; the same as those of the tests with real programs.
pub(super) const TRIED: [(&str, &str); 6] = [
    ("claude", "2.1.330"),
    ("claude-agent-acp", "0.101.0"),
    ("codex", "0.169.0"),
    ("codex-acp", "0.16.0"),
    ("opencode", "1.18.33"),
    ("gemini", "0.61.0"),
];
/// Time for a program to print its version. Some start a runtime first.
const ANSWER: Duration = Duration::from_secs(10);
/// Folders between a package's program and its `package.json`.
const FOLDERS_MAX: usize = 3;

/// What is known of an installed program.
pub(super) struct Installed {
    pub(super) program: &'static str,
    pub(super) tried: &'static str,
    /// `None` if the program doesn't say.
    pub(super) version: Option<String>,
}

impl Installed {
    /// Returns whether the version is higher than the one that was tried.
    pub(super) fn is_newer(&self) -> bool {
        self.version.as_deref().is_some_and(|version| numbers(version) > numbers(self.tried))
    }

    pub(super) fn words(&self) -> String {
        let Self { tried, .. } = self;
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

/// Returns the known programs on PATH, each with its version.
pub(super) async fn installed() -> Vec<Installed> {
    let found = TRIED.into_iter().filter_map(|(program, tried)| on_path(program).map(|path| (program, tried, path)));
    join_all(found.map(async |(program, tried, path)| Installed { program, tried, version: version(&path).await }))
        .await
}

/// Returns the path of a program that is found in PATH.
pub(super) fn on_path(command: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(command)).find(|file| file.is_file())
}

async fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
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
    fn the_versions_are_those_that_the_tests_with_real_programs_install() {
        let package: Value = serde_json::from_str(include_str!("../../../.ci/agents/package.json")).unwrap();
        let names = [
            "@anthropic-ai/claude-code",
            "@agentclientprotocol/claude-agent-acp",
            "@openai/codex",
            "@zed-industries/codex-acp",
            "opencode-ai",
            "@google/gemini-cli",
        ];
        for ((program, tried), name) in TRIED.into_iter().zip(names) {
            assert_eq!(package["dependencies"][name], tried, "{program}");
        }
    }

    #[test]
    fn a_version_is_compared_by_its_numbers() {
        let of = |version: &str| Installed { program: "x", tried: "2.1.330", version: Some(version.to_owned()) };
        assert!(of("2.10.0").is_newer() && !of("2.1.99").is_newer() && !of("2.1.330").is_newer());
        assert!(of("2.1.99").words().contains("older") && of("2.1.330").words().contains("was tried"));
    }
}
