//! All of CI: the steps of a table, beside each other on two processors.

mod build;
mod features;
mod lanes;
mod process;
mod report;
mod steps;

use std::path::Path;
use std::time::Instant;

pub(crate) use self::build::{FEATURES, run as build, run_rest as tests};
pub(crate) use self::features::run as features;
use self::lanes::Lanes;
use self::process::FOLDER;
use self::steps::{CiStep, STEPS};
use crate::Failed;

/// The program with all features, once it is built.
const PROGRAM: &str = "target/ci/lastword";

/// The forms of the command.
const USAGE: &str = "\
  cargo xtask ci               all steps; .ci/run installs what they need
  cargo xtask ci STEP...       these alone, with what earlier ones left
  cargo xtask ci --list        the steps";

/// Runs all steps, or those that are named.
#[expect(clippy::disallowed_methods, reason = "the time that the steps take is measured")]
pub(crate) fn run(args: &[&str]) -> Result<(), Failed> {
    if args == ["--list"] {
        STEPS.iter().for_each(|step| println!("{:20}  {}", step.name, step.run));
        return Ok(());
    }
    let named = |name: &&str| STEPS.iter().find(|step| step.name == *name).ok_or_else(|| Failed::usage(USAGE));
    let steps: Vec<&'static CiStep> = match args {
        [] => STEPS.iter().collect(),
        names => names.iter().map(named).collect::<Result<_, _>>()?,
    };
    let asked = steps.len();
    std::fs::create_dir_all(FOLDER)?;
    let began = Instant::now();
    let ended = Lanes::new(steps, Path::new(FOLDER)).run(report::step)?;
    report::table(&ended, began.elapsed());
    match ended.iter().filter(|ended| ended.passed).count() {
        passed if passed == asked => {
            report::late(&ended);
            Ok(())
        }
        passed => Err(Failed::new(format!("{passed} of {asked} steps passed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_follows_only_steps_above_it_and_no_two_have_one_name() {
        for (at, step) in STEPS.iter().enumerate() {
            let above = |name: &&str| STEPS[..at].iter().any(|other| other.name == *name);
            assert!(step.after.iter().all(above), "{} follows {:?}", step.name, step.after);
            assert!(!above(&step.name), "{} is there twice", step.name);
        }
    }
}
