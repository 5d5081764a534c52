//! `lastword man`: the man page, from the same definition as the help.

use clap::CommandFactory as _;

use super::{Cli, Context};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A command's own page.
    command: Option<String>,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let mut root = Cli::command();
    root.build();
    let command = match &args.command {
        Some(name) => root.find_subcommand(name).cloned().ok_or_else(|| {
            Failure::usage(format!("there is no command {name:?}")).hint("`lastword --help` lists them")
        })?,
        None => root,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    cx.out.text(&String::from_utf8_lossy(&page))
}
