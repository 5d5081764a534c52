//! Finds threads with posts that the bridge missed while it wasn't connected.
//!
//! The post from which the bridge began in a channel never changes, and each thread has its own mark of handled posts.
//! A bridge that is killed while it catches up therefore finds the same threads again.

use std::collections::{BTreeMap, BTreeSet};

use lastword_client::ClientError;

use super::book::lost;
use super::bridge::BridgeContext;
use super::ids::{ChannelId, PostId};
use super::platform::PlatformError;
use super::post::ThreadState;

/// Most tries to list threads: new posts must not wait for it, and the next look finds what this one missed.
const LIST_TRIES: u32 = 5;
/// Characters of a timestamp that are compared: up to the second, because later digits may differ in form.
const SECOND_CHARS: usize = 19;

/// What the bridge has missed.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// Threads with unhandled posts; the value is the post to read after if none of the thread was handled yet.
    pub(crate) threads: BTreeMap<ChannelId, PostId>,
    /// Channels, each with the latest time of archival among the archived threads looked through.
    pub(crate) looked: Vec<(ChannelId, String)>,
}

impl Behind {
    /// Looks for threads of the bridge's channels: first the open ones, then those archived since the last look. A
    /// thread that is archived in between is found among the latter.
    pub(crate) async fn look(shared: &BridgeContext) -> Result<Self, ClientError> {
        let mut behind = Self::default();
        behind.open(shared).await?;
        for channel in &shared.settings.channels {
            match behind.put_away(shared, *channel).await? {
                Ok(Some(last)) => behind.looked.push((*channel, last)),
                Ok(None) => {}
                Err(error) => {
                    shared.outbox.warn(&format!("threads of {channel} that were put away can't be listed. {error}"));
                }
            }
        }
        Ok(behind)
    }

    async fn open(&mut self, shared: &BridgeContext) -> Result<(), ClientError> {
        let BridgeContext { settings, outbox, platform, book, .. } = shared;
        let mut servers = BTreeSet::new();
        for channel in &settings.channels {
            if let Ok(known) = outbox.persist(|| platform.channel(*channel)).await {
                servers.extend(known.server);
            }
        }
        for server in servers {
            match outbox.try_for(LIST_TRIES, || platform.open_threads(server)).await {
                Ok(open) => open.iter().try_for_each(|thread| self.weigh(shared, thread))?,
                Err(error) => {
                    outbox.warn(&format!("the open threads can't be listed. {error}"));
                    // Fall back to all known threads, from their last handled post on.
                    let known = book.followed().map_err(lost)?.into_iter();
                    self.threads
                        .extend(known.filter(|id| !settings.channels.contains(id)).map(|id| (id, PostId::default())));
                }
            }
        }
        Ok(())
    }

    /// Looks through the archived threads of a channel; returns when the last of them was archived.
    async fn put_away(
        &mut self,
        shared: &BridgeContext,
        channel: ChannelId,
    ) -> Result<Result<Option<String>, PlatformError>, ClientError> {
        let BridgeContext { outbox, platform, .. } = shared;
        let done = shared.book.began(channel).map_err(lost)?.unwrap_or_default().archived;
        let mut last: Option<String> = None;
        let mut before: Option<String> = None;
        loop {
            let page = outbox.try_for(LIST_TRIES, || platform.archived_threads(channel, before.as_deref())).await;
            let page = match page {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            page.items.iter().try_for_each(|thread| self.weigh(shared, thread))?;
            let moments = || page.items.iter().map(|thread| thread.archived.clone());
            last = last.max(moments().max());
            before = moments().min();
            // Pages go back in time; stop once a page reaches what the last look has done.
            let older = before.as_deref().is_none_or(|before| second(before) < second(&done));
            if !page.more || older {
                return Ok(Ok(last));
            }
        }
    }

    /// Adds a thread that has unhandled posts.
    fn weigh(&mut self, shared: &BridgeContext, thread: &ThreadState) -> Result<(), ClientError> {
        let book = &shared.book;
        let parent = thread.parent;
        if !shared.settings.channels.contains(&parent) {
            return Ok(());
        }
        // In a thread unknown to the bridge, posts from before the bridge began aren't for it.
        let began = book.began(parent).map_err(lost)?.map_or(PostId::LAST, |begun| begun.post);
        let since = if book.thread(thread.id).map_err(lost)?.is_some() { began.min(thread.since) } else { began };
        let dealt_with = book.handled(thread.id).map_err(lost)?.unwrap_or(since);
        if thread.last.is_none_or(|last| last > dealt_with) {
            shared.threads.note_parent(thread.id, Some(parent));
            self.threads.insert(thread.id, since);
        }
        Ok(())
    }
}

fn second(moment: &str) -> &str {
    moment.get(..SECOND_CHARS).unwrap_or(moment)
}
