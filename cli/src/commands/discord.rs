//! `lastword discord`: runs the bridge to Discord.

use std::path::PathBuf;

use lastword_facts::fact::Role;

use super::Context;
#[cfg(feature = "discord")]
use crate::discord::settings;
use crate::failure::Failure;
#[cfg(feature = "discord")]
use crate::session::{Authority, ServerAccess};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<DiscordCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum DiscordCommand {
    /// Write [discord] from tokens and names, with invite addresses, and check it
    Init(InitArgs),
    /// Check the tokens, intents, permissions and channels that the bridge needs
    Check,
}

/// What `init` asks for at a terminal where it isn't given.
#[derive(Debug, clap::Args)]
pub(super) struct InitArgs {
    /// File with the Discord token of the broker's bot; - reads the token from standard input.
    #[arg(long, value_name = "FILE")]
    pub(super) bot_token_file: Option<PathBuf>,
    /// Name of a text channel in which the bridge works; may be repeated.
    #[arg(long = "channel", value_name = "NAME")]
    pub(super) channels: Vec<String>,
    /// Discord name of a human who may speak to agents; may be repeated.
    #[arg(long = "human", value_name = "NAME")]
    pub(super) humans: Vec<String>,
    /// Name of a role of the Discord server, and what its members are here: owner, operator, approver or viewer; may be
    /// repeated.
    #[arg(long = "role", value_name = "NAME=ROLE", value_parser = GivenRole::parse)]
    pub(super) roles: Vec<GivenRole>,
    /// Agent for which the bridge posts with a bot of its own, and the file with that bot's token; may be repeated.
    #[arg(long = "agent", value_name = "NAME=FILE", value_parser = AgentBot::parse)]
    pub(super) agents: Vec<AgentBot>,
    /// Address of Discord's API, if it isn't Discord's own.
    #[arg(long, value_name = "URL")]
    pub(super) api: Option<String>,
    /// Address of Discord's gateway, if it isn't the one that the API names.
    #[arg(long, value_name = "URL")]
    pub(super) gateway: Option<String>,
    /// Put the table in place of the one that is there.
    #[arg(long)]
    pub(super) replace: bool,
    /// Write without asking.
    #[arg(long)]
    pub(super) yes: bool,
}

/// A role of the Discord server on the command line, and the role in the workspace that it gives.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "discord"), expect(dead_code, reason = "only the bridge reads it"))]
pub(super) struct GivenRole {
    pub(super) name: String,
    pub(super) gives: Role,
}

impl GivenRole {
    fn parse(text: &str) -> Result<Self, String> {
        // The name of a role may have an equals sign.
        let (name, gives) = text.rsplit_once('=').ok_or("give NAME=ROLE")?;
        let gives = Role::from_word(gives).ok_or("the role is owner, operator, approver or viewer")?;
        Ok(Self { name: name.to_owned(), gives })
    }
}

/// An agent's bot on the command line.
#[derive(Clone, Debug)]
#[cfg_attr(not(feature = "discord"), expect(dead_code, reason = "only the bridge reads it"))]
pub(super) struct AgentBot {
    pub(super) name: String,
    pub(super) file: PathBuf,
}

impl AgentBot {
    fn parse(text: &str) -> Result<Self, String> {
        let (name, file) = text.split_once('=').ok_or("give NAME=FILE")?;
        lastword_facts::names::AgentName::new(name).map_err(|error| format!("{name:?} {error}"))?;
        Ok(Self { name: name.to_owned(), file: PathBuf::from(file) })
    }
}

/// Without the feature, reports how to get it.
#[cfg(not(feature = "discord"))]
#[expect(clippy::unused_async, reason = "the version with the bridge awaits")]
pub(crate) async fn run(args: Args, _cx: &Context) -> Result<(), Failure> {
    let _neither = args.command;
    Err(Failure::usage("this lastword was built without the Discord bridge")
        .hint("build it with: cargo install --path cli --features discord"))
}

#[cfg(feature = "discord")]
pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    use crate::config::CONFIG_FILE;

    if let Some(DiscordCommand::Init(args)) = args.command {
        return super::discord_init::init(args, cx).await;
    }
    let Some(table) = &cx.settings.discord else {
        return Err(Failure::usage("the configuration has no [discord]")
            .hint(format!("`lastword discord init` adds it to {CONFIG_FILE}; see docs/discord.md")));
    };
    let access = cx.access(Authority::Act)?;
    let settings = settings(table, &base(cx), &cx.settings.data, access.clone())?;
    match args.command {
        Some(DiscordCommand::Check | DiscordCommand::Init(_)) => check(&settings, cx).await,
        None => serve(settings, access, cx).await,
    }
}

/// How often the configuration and its token files are read for changes.
#[cfg(feature = "discord")]
const LOOK: std::time::Duration = std::time::Duration::from_secs(2);

/// Returns the directory of the configuration, to which its paths are relative.
#[cfg(feature = "discord")]
fn base(cx: &Context) -> PathBuf {
    cx.settings.file.as_deref().and_then(std::path::Path::parent).map(PathBuf::from).unwrap_or_default()
}

/// Reads the settings from the configuration file once more; `None` without a file or its table.
#[cfg(feature = "discord")]
fn reread(access: ServerAccess, cx: &Context) -> Option<Result<lastword_discord::DiscordSettings, Failure>> {
    let text = std::fs::read_to_string(cx.settings.file.as_deref()?).ok()?;
    let file: toml::Table = match text.parse() {
        Ok(file) => file,
        Err(error) => return Some(Err(Failure::usage(error.to_string()))),
    };
    Some(settings(file.get("discord")?.as_table()?, &base(cx), &cx.settings.data, access))
}

/// Waits for other settings that can be used. Those that can't are reported once, and change nothing.
#[cfg(feature = "discord")]
async fn changed(
    now: &lastword_discord::DiscordSettings,
    access: &ServerAccess,
    cx: &Context,
) -> lastword_discord::DiscordSettings {
    let mut told = None;
    loop {
        tokio::time::sleep(LOOK).await;
        match reread(access.clone(), cx) {
            Some(Ok(settings)) if settings != *now => return settings,
            Some(Err(failure)) if told.as_ref() != Some(&failure.message) => {
                let message = format!("the changed configuration is not used. {}", failure.message);
                crate::team::print(cx.out, None, &lastword_discord::bridge::event::Event::Warning { message });
                told = Some(failure.message);
            }
            Some(Ok(_) | Err(_)) | None => {}
        }
    }
}

/// Prints the result of the checks on both sides.
#[cfg(feature = "discord")]
pub(super) async fn check(settings: &lastword_discord::DiscordSettings, cx: &Context) -> Result<(), Failure> {
    let report = lastword_discord::check(settings).await;
    // Humans choose the names of users and channels, so these may hold control characters.
    cx.out.show(&report, |report, _| crate::out::escape(&report.to_string()))?;
    if report.is_good() { Ok(()) } else { Err(Failure::refused("the bridge isn't ready").hint("see ✗ above")) }
}

/// Runs the bridge until a signal ends it; other settings start it anew.
#[cfg(feature = "discord")]
async fn serve(
    mut settings: lastword_discord::DiscordSettings,
    access: ServerAccess,
    cx: &Context,
) -> Result<(), Failure> {
    use lastword_discord::bridge::event::{Event, EventSink};
    use tokio::signal::unix::{SignalKind, signal};

    super::serve::log_to_stderr(&cx.out, false);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let out = cx.out;
    loop {
        let running = async {
            let sink = EventSink::new(move |event| crate::team::print(out, None, event));
            lastword_discord::start(settings.clone(), sink).await?.run().await
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
