//! `lastword completions`: a script for a shell, from the same definition as the help.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Context};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell.
    shell: Shell,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lastword", &mut script);
    cx.out.text(&String::from_utf8_lossy(&script))
}
