//! `lastword man`: prints the man page from the same definition as the help.

use super::{Context, help};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Command whose page to print [default: the page of lastword itself].
    command: Option<String>,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let mut root = help::command();
    root.build();
    let command = match &args.command {
        Some(name) => root
            .find_subcommand(name)
            .cloned()
            .ok_or_else(|| Failure::usage(format!("unknown command {name:?}")).hint("`lastword --help` lists them"))?,
        None => root,
    };
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    cx.out.text(&String::from_utf8_lossy(&page))
}
