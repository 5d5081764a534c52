//! `lastword completions`: prints a shell script from the same definition as the help.

use clap_complete::Shell;

use super::{Context, help};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Shell to complete for.
    shell: Shell,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "lastword", &mut script);
    cx.out.text(&String::from_utf8_lossy(&script))
}
