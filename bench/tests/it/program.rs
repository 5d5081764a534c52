//! Runs `lastword-bench` beside the `lastword` of the same build.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// The end of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Runs the program in `dir` to its end.
pub(crate) fn run(dir: &Path, args: &[&str]) -> Ended {
    let bench = PathBuf::from(env!("CARGO_BIN_EXE_lastword-bench"));
    let lastword = bench.with_file_name("lastword");
    assert!(lastword.is_file(), "{} is missing: run `cargo build` first", lastword.display());
    let mut command = Command::new(bench);
    command.args(args).current_dir(dir).env_clear().stdin(Stdio::null());
    let output = command.output().unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
