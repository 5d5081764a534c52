//! `lastword hook`: called by an agent program at the edges of its turns; speaks JSON with it.

use std::io::{Read as _, stdin};
use std::path::{Path, PathBuf};

use lastword_client::Client;
use lastword_proto::names::OWN_NAME;
use lastword_runner::{Occasion, hook, hook_wait};
use rustix::process::getppid;

use super::Context;
use crate::config::TokenSource;
use crate::failure::{Exit, Failure};
use crate::out::Out;
use crate::session::Authority;

/// The exit code with which a hook of `asyncRewake` wakes its session.
const WAKES: i32 = 2;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for session state [default: lastword/hooks in the user's state directory].
    #[arg(long, value_name = "DIR", env = "LASTWORD_HOOK_STATE")]
    state: Option<PathBuf>,
    /// What to do: handle the event, or wait for a message and then wake the session.
    #[arg(value_enum, default_value = "handle", hide_default_value = true)]
    action: Action,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Deliver, finish or renew, as the event requires.
    Handle,
    /// Wait for a message, print it on standard error and exit with 2, which wakes the session.
    Wait,
}

/// A failure must not block the agent: the exit code is never the one with which a hook does that.
pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    answer(args, cx).await.map_err(|failure| match failure.exit {
        Exit::Usage => Failure { exit: Exit::Refused, ..failure },
        Exit::Done | Exit::Refused | Exit::Unavailable | Exit::Bug => failure,
    })
}

async fn answer(args: Args, cx: &Context) -> Result<(), Failure> {
    let mut text = String::new();
    stdin().read_to_string(&mut text)?;
    let occasion: Occasion = serde_json::from_str(&text).map_err(|error| {
        Failure::usage(format!("standard input isn't a hook event: {error}"))
            .hint("this command is called by an agent program; `lastword init --claude` sets it up")
    })?;
    let folder = args
        .state
        .or_else(state_folder)
        .ok_or_else(|| Failure::usage("no directory for session state").hint("name one with --state, or set HOME"))?;
    if cx.environment.in_run {
        return Out::note("this is a run of `lastword run`, which delivers to it; the hook does nothing");
    }
    if cx.settings.token == TokenSource::Implicit {
        return Out::note("LASTWORD_TOKEN and LASTWORD_TOKEN_FILE name no agent's token; the hook does nothing");
    }
    let client = cx.client(Authority::Act)?;
    // Without the variable the check can't fail, and the call is spared.
    if cx.environment.agent_name.is_some() {
        let me = client.agent(OWN_NAME).await?;
        if let Some(reason) = cx.other_agent(&me.name) {
            return Out::note(&reason);
        }
    }
    if args.action == Action::Wait {
        return wait(&client, &folder, &occasion).await;
    }
    let said = hook(&client, &folder, &occasion).await.map_err(Failure::refused)?;
    match said {
        Some(said) => cx.out.text(&format!("{said}\n")),
        None => Ok(()),
    }
}

/// Prints a message on standard error once one arrives, and exits so that the session wakes.
async fn wait(client: &Client, folder: &Path, occasion: &Occasion) -> Result<(), Failure> {
    let parent = getppid();
    // A session that was killed leaves its hooks behind, with another parent.
    let gone = move || getppid() != parent;
    let Some(text) = hook_wait(client, folder, occasion, &gone).await.map_err(Failure::refused)? else {
        return Ok(());
    };
    eprint!("{text}");
    std::process::exit(WAKES)
}

fn state_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    Some(state.join("lastword/hooks"))
}
