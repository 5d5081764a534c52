//! `lastword opencode`: opencode as an agent of the workspace, in this terminal and for this run alone.

use std::process::Command;

use lastword_client::plain_http;
use lastword_programs::opencode::{CONFIG, Joined, OPENCODE, Server, configuration};
use lastword_programs::{PrivateFolder, Requests, connection};

use super::Context;
use super::attend::attend;
use super::launch::{Calls, SessionPlace, exit};
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: opencode, or opencode-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Arguments for opencode.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let calls = args.calls;
    let place = SessionPlace::take(&OPENCODE, args.name.as_deref(), &args.args, cx).await?;
    let (args, resumed) = place.resumed(&args.args)?;
    let (launch, server) = (place.launch(calls)?, Server::new(plain_http()?)?);
    let mut command = Command::new("opencode");
    server.equip(&mut command);
    command.args(&args).env(CONFIG, configuration(&launch));
    place.greet(calls);
    let folder = PrivateFolder::make(&std::env::temp_dir(), "lastword-")?;
    let client = place.client()?;
    let (session, attendant) = connection();
    let joined = Joined::new(server, &args, resumed, &launch, place.last.keeper());
    let deliver = async {
        tokio::select! {
            problem = joined.serve(session) => problem,
            problem = attend(attendant, &client, folder.path(), &place, Requests::of(&OPENCODE), calls) => problem,
        }
    };
    let status = place.beside(command, deliver).await;
    drop(folder);
    exit(status?)
}
