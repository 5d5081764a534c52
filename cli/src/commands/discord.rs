//! `lastword discord`: the bridge to Discord.

use super::Context;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Without the feature: says how to get it.
#[cfg(not(feature = "discord"))]
#[expect(clippy::unused_async, reason = "the bridge itself, which this stands for, waits")]
pub(crate) async fn run(_args: Args, _cx: &Context) -> Result<(), Failure> {
    Err(Failure::usage("this lastword was built without the bridge to Discord")
        .hint("build it with: cargo install --path cli --features discord"))
}

#[cfg(feature = "discord")]
pub(crate) async fn run(_args: Args, cx: &Context) -> Result<(), Failure> {
    use lastword_bridge::discord::Bridge;
    use tokio::signal::unix::{SignalKind, signal};

    use crate::config::CONFIG_FILE;
    use crate::session::Authority;
    use crate::team::report;

    let Some(table) = &cx.settings.discord else {
        return Err(Failure::usage("the configuration has no [discord]")
            .hint(format!("add it to {CONFIG_FILE}: docs/discord.md")));
    };
    let base = cx.settings.file.as_deref().and_then(std::path::Path::parent).unwrap_or(std::path::Path::new(""));
    let settings = crate::discord::settings(table, base, &cx.settings.data, cx.access(Authority::Act)?)?;
    super::serve::log_to_stderr(&cx.out);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let running = async {
        let bridge = Bridge::start(settings, report(cx.out, None)).await?;
        bridge.run().await
    };
    tokio::select! {
        ended = running => ended.map_err(crate::discord::failure),
        // Whatever was begun is noted: the next start goes on from there.
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}
