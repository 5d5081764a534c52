//! The tail of the log, as one watcher follows it.

use std::sync::Arc;

use lastword_facts::{Entry, Fact, Seq};
use tokio::sync::watch;

use crate::calls::{Caller, Context, ended};

/// A watcher's position in the log, and its right to read.
pub struct LogTail {
    ctx: Context,
    caller: Caller,
    committed: watch::Receiver<Seq>,
    last: Seq,
}

impl LogTail {
    /// Follows the log after position `after`, or from its current end.
    pub fn new(ctx: Context, caller: Caller, after: Option<Seq>) -> Self {
        let committed = ctx.handle.committed();
        let last = after.unwrap_or_else(|| *committed.borrow());
        Self { ctx, caller, committed, last }
    }

    /// Returns what the watcher's calls work with.
    pub const fn ctx(&self) -> &Context {
        &self.ctx
    }

    /// Returns whose watcher it is.
    pub const fn caller(&self) -> Caller {
        self.caller
    }

    /// Returns the position up to which the watcher has read.
    pub const fn last(&self) -> Seq {
        self.last
    }

    /// Returns the position up to which the log is durable.
    pub fn committed(&self) -> Seq {
        *self.committed.borrow()
    }

    /// Skips everything up to `seq`.
    pub const fn skip_to(&mut self, seq: Seq) {
        self.last = seq;
    }

    /// Waits for entries to read; returns the position of the last one. `None` if the server shuts down or the token
    /// was revoked.
    pub async fn grown(&mut self) -> Option<Seq> {
        let mut stopping = self.ctx.stopping.clone();
        let last = self.last;
        let grown = tokio::select! {
            () = ended(&mut stopping) => return None,
            changed = self.committed.wait_for(|seq| *seq > last) => changed.map(|seq| *seq).ok()?,
        };
        // A stream may stay open for days; its token must still be valid for each batch.
        self.caller.reauthenticate(&self.ctx.handle).ok()?;
        Some(grown)
    }

    /// Reads up to `max` further entries. `None` if the log can't be read, or if the next one has moved to the archive.
    pub async fn read(&mut self, max: usize) -> Option<Vec<(Seq, Arc<Entry>)>> {
        let next = Seq(self.last.0 + 1);
        let entries = self.ctx.handle.read(next, max).await.ok()?;
        if entries.first().is_some_and(|(at, entry)| *at > next && !matches!(entry.fact, Fact::EpochBegan { .. })) {
            return None;
        }
        self.last = entries.last().map_or(self.last, |(seq, _)| *seq);
        Some(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use lastword_facts::Seq;
    use lastword_store::Base;

    use super::LogTail;
    use crate::calls::Caller;
    use crate::{Config, Server};

    #[tokio::test]
    async fn a_watcher_whose_next_entry_left_the_log_ends_rather_than_skips() {
        let dir = tempfile::tempdir().unwrap();
        Server::start(Config::local(dir.path())).await.unwrap().shutdown().await;
        // What was before the start isn't in memory.
        let server = Server::start(Config::local(dir.path())).await.unwrap();
        let ctx = server.context();
        let token = std::fs::read_to_string(server.operator_token_file()).unwrap();
        let caller = Caller::prove(&ctx.handle, token.trim(), None).unwrap();
        let mut behind = LogTail::new(ctx.clone(), caller, Some(Seq(0)));
        assert!(behind.read(1).await.is_some_and(|read| read.first().is_some_and(|(at, _)| *at == Seq(1))));
        let archive = Arc::clone(&ctx.archives.archive);
        let base = Base { at: behind.committed(), state: b"state" };
        while archive.seal(Seq(u64::MAX), u64::MAX, base).unwrap().is_some() {}
        let first = ctx.archives.log.first().unwrap();
        assert!(first > Seq(2), "{first:?}");
        assert!(behind.read(1).await.is_none());
        let mut beyond = LogTail::new(ctx.clone(), caller, Some(Seq(first.0 - 1)));
        assert!(beyond.read(1).await.is_some());
        server.shutdown().await;
    }
}
