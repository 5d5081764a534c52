//! `lastword gemini`: Gemini CLI as an agent of the workspace, in this terminal and for this run alone.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use lastword_programs::PrivateFolder;
use lastword_programs::gemini::{GEMINI, SETTINGS, TOKEN, arguments, settings, with_latest};

use super::Context;
use super::hook::state_folder;
use super::init_clients::text;
use super::launch::{Calls, SessionPlace, exit};
use crate::failure::Failure;

/// Permission of others than the owner to write.
const OTHERS_WRITE: u32 = 0o022;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Name of the agent [default: gemini, or gemini-2 and so on while others run].
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    calls: Calls,
    /// Wake the idle session: each turn's end waits for a message, and Esc frees the session for its user.
    #[arg(long)]
    wake: bool,
    /// Arguments for Gemini CLI.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    args: Vec<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    if args.calls.held {
        return Err(Failure::refused("Gemini CLI lets no other program answer its dialogs").hint(
            "leave --held out, so that it asks you, or use `lastword run --driver acp --as NAME -- gemini --acp`",
        ));
    }
    let place = SessionPlace::take(&GEMINI, args.name.as_deref(), &args.args, cx).await?;
    let (calls, wake) = (args.calls, args.wake);
    let args = place.resumed(&with_latest(&args.args))?.0;
    let parent = private_parent(cx)?;
    let folder = PrivateFolder::make(&parent, "gemini-")?;
    folder.write(TOKEN, place.token())?;
    let launch = place.launch(calls)?;
    // Gemini CLI may hide a token in the environment from its hooks.
    let token = ["--token-file".to_owned(), text(&folder.path().join(TOKEN))?];
    let hook = place.hook(&[launch.endpoint.as_slice(), &token].concat(), folder.path())?;
    let file = folder.write("settings.json", &settings(&launch, &folder, &hook, wake)?.to_string())?;
    let mut command = Command::new("gemini");
    command.args(arguments(&launch, &folder, args)?).env(SETTINGS, &file);
    place.greet(calls);
    if !wake {
        eprintln!(
            "messages come with your prompts and after your turns; an idle session isn't woken. `--wake` wakes it, and \
             `lastword run --driver acp --as NAME -- gemini --acp` serves messages unattended"
        );
    }
    let status = place.beside(command, place.look_after(folder.path(), false)).await;
    drop(folder);
    exit(status?)
}

/// Returns a folder for the settings: Gemini CLI skips a file below a folder to which others may write.
fn private_parent(cx: &Context) -> Result<PathBuf, Failure> {
    let candidates = [state_folder(), Some(cx.settings.data.join("sessions"))];
    for folder in candidates.into_iter().flatten() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let folder = folder.canonicalize()?;
        let open = |path: &Path| fs::metadata(path).is_ok_and(|found| found.permissions().mode() & OTHERS_WRITE != 0);
        if !folder.ancestors().any(open) {
            return Ok(folder);
        }
    }
    Err(Failure::refused("Gemini CLI reads no settings below a folder to which others may write")
        .hint("name a data directory with --data whose folders only you may write to"))
}
