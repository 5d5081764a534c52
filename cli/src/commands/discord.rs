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
    let access = cx.access(Authority::Act)?;
    let settings = read(table, access.clone(), cx)?;
    match args.command {
        Some(Command::Check) => check(&settings, cx).await,
        None => serve(settings, access, cx).await,
    }
}

/// How often the configuration and its token files are read for changes.
#[cfg(feature = "discord")]
const LOOK: std::time::Duration = std::time::Duration::from_secs(2);

#[cfg(feature = "discord")]
fn read(
    table: &toml::Table,
    access: (lastword_client::Endpoint, String),
    cx: &Context,
) -> Result<lastword_discord::Settings, Failure> {
    let base = cx.settings.file.as_deref().and_then(std::path::Path::parent).unwrap_or(std::path::Path::new(""));
    crate::discord::settings(table, base, &cx.settings.data, access)
}

/// Reads the settings from the configuration file once more; `None` without a file or its table.
#[cfg(feature = "discord")]
fn reread(
    access: (lastword_client::Endpoint, String),
    cx: &Context,
) -> Option<Result<lastword_discord::Settings, Failure>> {
    let text = std::fs::read_to_string(cx.settings.file.as_deref()?).ok()?;
    let file: toml::Table = match text.parse() {
        Ok(file) => file,
        Err(error) => return Some(Err(Failure::usage(error.to_string()))),
    };
    Some(read(file.get("discord")?.as_table()?, access, cx))
}

/// Waits for other settings that can be used. Those that can't are reported once, and change nothing.
#[cfg(feature = "discord")]
async fn changed(
    now: &lastword_discord::Settings,
    access: &(lastword_client::Endpoint, String),
    cx: &Context,
) -> lastword_discord::Settings {
    let mut told = None;
    loop {
        tokio::time::sleep(LOOK).await;
        match reread(access.clone(), cx) {
            Some(Ok(settings)) if settings != *now => return settings,
            Some(Err(failure)) if told.as_ref() != Some(&failure.message) => {
                let message = format!("the changed configuration is not used. {}", failure.message);
                crate::team::print(cx.out, None, &lastword_discord::Event::Warning { message });
                told = Some(failure.message);
            }
            Some(Ok(_) | Err(_)) | None => {}
        }
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

/// Runs the bridge until a signal ends it; other settings start it anew.
#[cfg(feature = "discord")]
async fn serve(
    mut settings: lastword_discord::Settings,
    access: (lastword_client::Endpoint, String),
    cx: &Context,
) -> Result<(), Failure> {
    use lastword_discord::{Bridge, Event, EventSink};
    use tokio::signal::unix::{SignalKind, signal};

    super::serve::log_to_stderr(&cx.out);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let out = cx.out;
    loop {
        let running = async {
            let sink = EventSink::new(move |event| crate::team::print(out, None, event));
            Bridge::start(settings.clone(), sink).await?.run().await
        };
        let other = tokio::select! {
            // It ends without an error to be started again.
            ended = running => ended.map(|()| None).map_err(crate::discord::failure)?,
            other = changed(&settings, &access, cx) => Some(other),
            // Work in progress is stored: the next start continues it.
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
        };
        if let Some(other) = other {
            settings = other;
            let message = "the configuration has changed: the bridge starts anew with it".to_owned();
            crate::team::print(out, None, &Event::Restored { message });
        }
    }
}
