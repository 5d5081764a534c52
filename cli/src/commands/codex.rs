//! `lastword codex`: Codex as an agent of the workspace, in this terminal and for this run alone.

use std::fs::File;
use std::process::{Command, Stdio};
use std::time::Duration;

use lastword_programs::codex::{CODEX, HOME, Held, Joined, connect, interface_arguments, last_first, server_arguments};
use lastword_programs::{PrivateFolder, Requests, connection};
use tokio::process::Child;
use tokio::time::timeout;

use super::Context;
use super::attend::attend;
use super::launch::{Calls, SessionPlace, exit, not_started};
use super::own_terminal::apart;
use crate::failure::Failure;

/// Time for the app-server to end.
const END: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: codex, or codex-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Arguments for Codex.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let calls = args.calls;
    let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-")?;
    let held = if calls.unheld { Held::default() } else { Held::of(&args.args, &folder)? };
    let place = SessionPlace::take(&CODEX, args.name.as_deref(), &args.args, cx).await?;
    let (args, _) = place.resumed(&last_first(args.args))?;
    let launch = place.launch(calls)?;
    let (socket, log) = (folder.path().join("codex.sock"), folder.path().join("codex.log"));
    let mut command = apart("/bin/sh")?;
    command.args(server_arguments(&launch, &held, &folder, &socket, &args)?);
    command.envs(held.home.map(|home| (HOME, home)));
    place.equip(&mut command);
    let mut command = tokio::process::Command::from(command);
    // It leads a session, and so a group, of its own.
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let mut server = command.spawn().map_err(|error| not_started("codex", &error))?;
    let status = async {
        let wire = connect(&socket, &log, &mut server).await.map_err(|problem| {
            Failure::unavailable(problem)
                .hint("correct what it names; `codex doctor` checks Codex's installation and settings")
        })?;
        let mut command = Command::new("codex");
        command.args(interface_arguments(&socket, &args, calls.unheld));
        place.greet(calls);
        let client = place.client()?;
        let (session, attendant) = connection();
        let joined = Joined::new(wire, &launch, place.last.keeper());
        let deliver = async {
            tokio::select! {
                problem = joined.serve(session) => problem,
                problem = attend(attendant, &client, folder.path(), &place, Requests::of(&CODEX), calls) => problem,
            }
        };
        place.beside(command, deliver).await
    }
    .await;
    end(server).await;
    drop(folder);
    exit(status?)
}

/// Ends the app-server: the pipe's end tells its watcher.
async fn end(mut server: Child) {
    drop(server.stdin.take());
    // Dropping the child kills what is left.
    let _ended = timeout(END, server.wait()).await;
}
