//! `lastword man`: prints the man page from the same definition as the help.

use std::path::PathBuf;

use super::{Context, help};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Command whose page to print [default: the page of lastword itself].
    command: Option<String>,
    /// Write the pages of all commands into this folder, for a package.
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    to: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, cx: &Context) -> Result<(), Failure> {
    let mut root = help::command();
    if let Some(folder) = &args.to {
        let failed = |error| Failure::usage(format!("{}: {error}", folder.display()));
        return clap_mangen::generate_to(root, folder).map_err(failed);
    }
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
