//! Threads in which something may have been posted while nobody listened.
//!
//! Where the bridge began in a channel never moves, and each thread has a mark of its own: so whoever is killed in the
//! middle of catching up finds the same threads again, whatever was read before.

use std::collections::{BTreeMap, BTreeSet};

use lastword_client::ClientError;

use super::book::lost;
use super::bridge::BridgeContext;
use super::model::Channel;
use super::rest::RestError;

/// Tries of a list: what is posted now is not to wait for it, and the next look finds what this one did not.
const LIST_TRIES: u32 = 5;
/// As much of a moment's text as is compared: up to the second.
const SECOND_CHARS: usize = 19;

/// What is behind.
#[derive(Debug, Default)]
pub(crate) struct Behind {
    /// Threads in which something was posted, and behind which post to read where none of it was dealt with.
    pub(crate) threads: BTreeMap<u64, u64>,
    /// Channels, and up to when their threads that were put away were looked through.
    pub(crate) looked: Vec<(u64, String)>,
}

impl Behind {
    /// Looks for threads of our channels: those that are open, and then those that were put away since the last time.
    /// A thread that is put away in between is among the latter.
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
        let BridgeContext { settings, outbox, book, .. } = shared;
        let mut guilds = BTreeSet::new();
        for channel in &settings.channels {
            if let Ok(known) = outbox.persist(|| outbox.broker.channel(*channel)).await {
                guilds.extend(known.guild());
            }
        }
        for guild in guilds {
            match outbox.try_for(LIST_TRIES, || outbox.broker.open_threads(guild)).await {
                Ok(open) => open.iter().try_for_each(|thread| self.weigh(shared, thread))?,
                Err(error) => {
                    outbox.warn(&format!("the open threads can't be listed. {error}"));
                    // All that are known, then.
                    let known = book.followed().map_err(lost)?.into_iter();
                    self.threads.extend(known.filter(|id| !settings.channels.contains(id)).map(|id| (id, 0)));
                }
            }
        }
        Ok(())
    }

    /// Gives when the last one was put away.
    async fn put_away(
        &mut self,
        shared: &BridgeContext,
        channel: u64,
    ) -> Result<Result<Option<String>, RestError>, ClientError> {
        let outbox = &shared.outbox;
        let (_, done) = shared.book.began(channel).map_err(lost)?.unwrap_or_default();
        let mut last: Option<String> = None;
        let mut before: Option<String> = None;
        loop {
            let page = outbox.try_for(LIST_TRIES, || outbox.broker.put_away(channel, before.as_deref())).await;
            let (threads, more) = match page {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            threads.iter().try_for_each(|thread| self.weigh(shared, thread))?;
            let moments = || threads.iter().map(|thread| thread.put_away().to_owned());
            last = last.max(moments().max());
            before = moments().min();
            let older = before.as_deref().is_none_or(|before| second(before) < second(&done));
            if !more || older {
                return Ok(Ok(last));
            }
        }
    }

    /// Takes a thread in which there is something that was not dealt with.
    fn weigh(&mut self, shared: &BridgeContext, thread: &Channel) -> Result<(), ClientError> {
        let book = &shared.book;
        let Some(parent) = thread.parent().filter(|parent| shared.settings.channels.contains(parent)) else {
            return Ok(());
        };
        // Of a thread in which nothing was heard, what was said before the bridge was there is not for it.
        let began = book.began(parent).map_err(lost)?.map_or(u64::MAX, |(post, _)| post);
        let since = if book.thread(thread.id).map_err(lost)?.is_some() { began.min(thread.id) } else { began };
        let dealt_with = book.handled(thread.id).map_err(lost)?.unwrap_or(since);
        if thread.last().is_none_or(|last| last > dealt_with) {
            shared.threads.note_parent(thread.id, Some(parent));
            self.threads.insert(thread.id, since);
        }
        Ok(())
    }
}

fn second(moment: &str) -> &str {
    moment.get(..SECOND_CHARS).unwrap_or(moment)
}
