//! Tells the followers of a workspace what left the stream of its log.

use std::io;

use lastword_facts::Seq;
use lastword_server::{Context, ended};
use lastword_store::Registry;

use crate::members::archive_key;

/// Tells the followers when a part of the log left the stream. A hint that is lost costs them room, until the next one.
pub(crate) async fn tell_of_archive(registry: Registry, workspace: String, ctx: Context) -> io::Result<()> {
    let (mut first, mut stopping) = (ctx.archives.first.clone(), ctx.stopping.clone());
    loop {
        tokio::select! {
            changed = first.changed() => if changed.is_err() { return Ok(()) },
            () = ended(&mut stopping) => return Ok(()),
        }
        let value = *first.borrow_and_update();
        tell_first(&registry, &workspace, value).await;
    }
}

/// Tells the followers where the stream's log begins, unless the registry has it.
pub(crate) async fn tell_first(registry: &Registry, workspace: &str, first: Seq) {
    let (key, value) = (archive_key(workspace), first.0.to_string());
    let written = match registry.get(&key).await {
        Ok(Some(record)) if record.value.as_deref() == Some(value.as_bytes()) => Ok(record.revision),
        Ok(Some(record)) => registry.replace(&key, value.as_bytes(), record.revision).await,
        Ok(None) if first == Seq(1) => Ok(0),
        Ok(None) => registry.create(&key, value.as_bytes()).await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        tracing::warn!(workspace, %error, "the followers were not told what left the log");
    }
}
