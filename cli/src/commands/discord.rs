//! `lastword discord`: runs the bridge to Discord.

use super::Context;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Clone, Copy, Debug, clap::Subcommand)]
enum Command {
    /// Check the tokens, intents, permissions and channels that the bridge needs
    Check,
}

/// Without the feature, reports how to get it.
#[cfg(not(feature = "discord"))]
#[expect(clippy::unused_async, reason = "the version with the bridge awaits")]
pub(crate) async fn run(args: Args, _cx: &Context) -> Result<(), Failure> {
    let _neither = args.command.map(|Command::Check| ());
    Err(Failure::usage("this lastword was built without the Discord bridge")
        .hint("build it with: cargo install --path cli --features discord"))
}

#[cfg(feature = "discord")]
pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    use crate::config::CONFIG_FILE;
    use crate::session::Authority;

    let Some(table) = &cx.settings.discord else {
        return Err(Failure::usage("the configuration has no [discord]")
            .hint(format!("add it to {CONFIG_FILE}; see docs/discord.md")));
    };
    let base = cx.settings.file.as_deref().and_then(std::path::Path::parent).unwrap_or(std::path::Path::new(""));
    let settings = crate::discord::settings(table, base, &cx.settings.data, cx.access(Authority::Act)?)?;
    match args.command {
        Some(Command::Check) => check(&settings, cx).await,
        None => serve(settings, cx).await,
    }
}

/// Prints the result of the checks on both sides.
#[cfg(feature = "discord")]
async fn check(settings: &lastword_discord::Settings, cx: &Context) -> Result<(), Failure> {
    let report = lastword_discord::check(settings).await;
    // Humans choose the names of users and channels, so these may hold control characters.
    cx.out.show(&report, |report, _| crate::out::escape(&report.to_string()))?;
    if report.is_good() { Ok(()) } else { Err(Failure::refused("the bridge isn't ready").hint("see ✗ above")) }
}

/// Runs the bridge until a signal ends it.
#[cfg(feature = "discord")]
async fn serve(settings: lastword_discord::Settings, cx: &Context) -> Result<(), Failure> {
    use lastword_discord::{Bridge, EventSink};
    use tokio::signal::unix::{SignalKind, signal};

    super::serve::log_to_stderr(&cx.out);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let out = cx.out;
    let running = async {
        loop {
            let sink = EventSink::new(move |event| crate::team::print(out, None, event));
            Bridge::start(settings.clone(), sink).await?.run().await?;
        }
    };
    tokio::select! {
        ended = running => {
            let ended: Result<std::convert::Infallible, _> = ended;
            ended.map(|never| match never {}).map_err(crate::discord::failure)
        }
        // Work in progress is stored: the next start continues it.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
