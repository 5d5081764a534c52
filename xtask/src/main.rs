//! `cargo xtask`: the project's own commands. Nothing of it is shipped.

#![allow(clippy::print_stdout, reason = "commands print their results")]

mod ci;
mod command;
mod failed;
mod faults;
mod measure;
mod pictures;
mod quick;
mod release;

use std::path::Path;
use std::process::ExitCode;

pub(crate) use self::failed::Failed;

/// A command of `cargo xtask`.
struct Task {
    name: &'static str,
    about: &'static str,
    run: fn(&[&str]) -> Result<(), Failed>,
}

const TASKS: &[Task] = &[
    Task { name: "ci", about: "all checks and tests, or the steps that are named; --list names them", run: ci::run },
    Task { name: "ci-build", about: "the build of ci", run: ci::build },
    Task { name: "ci-tests", about: "the tests of features that are off by default, and of the tools", run: ci::tests },
    Task { name: "ci-features", about: "each feature, checked alone", run: ci::features },
    Task {
        name: "faults",
        about: "the faults of a cluster, and after what time it goes on; --times, --only, --random MINUTES, --seed, --json",
        run: faults::run,
    },
    Task { name: "measure", about: "how the project reads, in figures; --json, --list WHAT", run: measure::run },
    Task { name: "pictures", about: "the pictures of the console in docs/images, taken anew", run: pictures::run },
    Task { name: "quick", about: "format, clippy and tests of what differs from main", run: quick::run },
    Task {
        name: "release",
        about: "the files of a release, in target/release-files; --program builds that alone",
        run: release::run,
    },
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let task = args.split_first().and_then(|(name, rest)| Some((TASKS.iter().find(|task| task.name == *name)?, rest)));
    // All paths are from the root of the project.
    let entered = std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    let done = match task {
        _ if entered.is_err() => Err(Failed::new("the folder of the project is gone")),
        Some((task, rest)) => (task.run)(rest),
        None => Err(Failed::usage(&usage())),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => failed.report(),
    }
}

fn usage() -> String {
    TASKS.iter().map(|task| format!("  cargo xtask {:10} {}\n", task.name, task.about)).collect()
}
