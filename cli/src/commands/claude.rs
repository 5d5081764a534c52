//! `lastword claude`: Claude Code as an agent of the workspace, in this terminal and for this run alone.

use std::process::Command;

use lastword_programs::PrivateFolder;
use lastword_programs::claude::{CLAUDE, arguments};

use super::Context;
use super::launch::{Calls, SessionPlace, exit};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: claude, or claude-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Arguments for Claude Code.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let place = SessionPlace::take(&CLAUDE, args.name.as_deref(), &args.args, cx).await?;
    let calls = args.calls;
    let (args, _) = place.resumed(&args.args)?;
    let state = PrivateFolder::make(&std::env::temp_dir(), "lastword-")?;
    let mut command = Command::new("claude");
    command.args(arguments(&place.launch(calls)?, &place.hook(&[], state.path())?, args)?);
    place.greet(calls);
    let status = place.beside(command, place.look_after(state.path(), true)).await;
    // `exit` runs no destructors.
    drop(state);
    exit(status?)
}
