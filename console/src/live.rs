//! `/live`: hints about changes, as server-sent events. The pages reload what they show.

use std::collections::{BTreeSet, VecDeque};
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use lastword_broker::Live;
use lastword_facts::fact::Area;
use lastword_facts::ids::ConvId;
use lastword_facts::{Entry, Seq, Time};
use lastword_server::calls::epochs;
use lastword_server::edges::LogTail;
use lastword_server::{Context, views};
use serde::Deserialize;

use super::session::Viewer;
use crate::reads::decisions::{self, DecisionId};

/// The most entries read in one step.
const BATCH_MAX: usize = 256;
/// A page that is further behind than this reloads completely.
const BEHIND_MAX: u64 = 2_048;
/// The pause between hints; all changes within it become one hint.
const PACE: Duration = Duration::from_millis(150);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// A part of the workspace that pages show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Topic {
    /// Everything: makes every page reload.
    All,
    /// Escalations, approvals, and the unread messages of a human.
    Inbox,
    /// The list of conversations.
    Conversations,
    /// One conversation or its descendants.
    Conversation(ConvId),
    /// Agents and humans, and their current work.
    Agents,
    /// Limits that tripped or were lifted.
    Incidents,
    /// Rooms and claims.
    Rooms,
    /// Limits, policy and schedules.
    Limits,
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("lw-all"),
            Self::Inbox => f.write_str("lw-inbox"),
            Self::Conversations => f.write_str("lw-conversations"),
            Self::Conversation(conv) => write!(f, "lw-{conv}"),
            Self::Agents => f.write_str("lw-agents"),
            Self::Incidents => f.write_str("lw-incidents"),
            Self::Rooms => f.write_str("lw-rooms"),
            Self::Limits => f.write_str("lw-limits"),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct LiveParams {
    after: Option<u64>,
}

/// `GET /live?after=POSITION`; the header `Last-Event-ID` takes precedence.
pub(super) async fn hints(
    State(ctx): State<Context>,
    viewer: Viewer,
    Query(params): Query<LiveParams>,
    headers: HeaderMap,
) -> Response {
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let mut tail = LogTail::new(ctx, viewer.caller, resumed.or(params.after).map(Seq));
    let now = tail.committed();
    let mut ready = VecDeque::new();
    // The page comes from another log or from before a restore, so its position is meaningless here.
    if epochs::check_position(tail.ctx(), tail.last()).await.is_err() {
        ready.push_back(Topic::All);
        tail.skip_to(now);
    }
    let feed = Feed { tail, ready, rest: false, waiting: None };
    axum::response::Sse::new(feed.stream()).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// A page's connection, and the hints that it gets next.
struct Feed {
    tail: LogTail,
    ready: VecDeque<Topic>,
    rest: bool,
    /// The decisions that were pending at the last look: some are settled without a fact of their own.
    waiting: Option<Vec<(DecisionId, Option<Time>)>>,
}

impl Feed {
    fn stream(self) -> impl Stream<Item = Result<Sse, Infallible>> {
        stream::unfold(self, |mut feed| async move {
            let topic = feed.next().await?;
            let seq = feed.tail.last().0.to_string();
            let event = Sse::default().event(topic.to_string()).data(&seq);
            // Only the last hint of a position carries its id: a page that resumes after an id must have received every
            // hint up to it.
            let event = if feed.ready.is_empty() { event.id(&seq) } else { event };
            Some((Ok(event), feed))
        })
    }

    /// Returns the next hint; `None` when the server shuts down or the session ends.
    async fn next(&mut self) -> Option<Topic> {
        loop {
            if let Some(topic) = self.ready.pop_front() {
                return Some(topic);
            }
            if std::mem::take(&mut self.rest) {
                tokio::time::sleep(PACE).await;
            }
            let now = self.tail.grown().await?;
            self.fill(now).await?;
        }
    }

    async fn fill(&mut self, now: Seq) -> Option<()> {
        if now.0 - self.tail.last().0 > BEHIND_MAX {
            self.tail.skip_to(now);
            self.ready.push_back(Topic::All);
            return Some(());
        }
        let mut topics = BTreeSet::new();
        while self.tail.last() < now {
            let entries = self.tail.read(BATCH_MAX).await.filter(|entries| !entries.is_empty())?;
            let look = move |live: &Live<'_>| (topics_of(live, &entries), decisions::expiring(live.state));
            let (found, waiting) = self.tail.ctx().handle.query(look).await.ok()?;
            topics.extend(found);
            if self.waiting.replace(waiting.clone()).is_none_or(|before| before != waiting) {
                topics.insert(Topic::Inbox);
            }
        }
        self.ready.extend(topics);
        // The next look waits for `PACE`, so that the changes until then become one hint.
        self.rest = true;
        Some(())
    }
}

fn topics_of(live: &Live<'_>, entries: &[(Seq, Arc<Entry>)]) -> BTreeSet<Topic> {
    let mut topics = BTreeSet::new();
    for (_, entry) in entries {
        let (subject, conv) = views::subject(live.state, &entry.fact);
        match subject {
            Area::Work => topics.extend([Topic::Conversations, Topic::Agents]),
            Area::Desk => topics.extend([Topic::Inbox, Topic::Conversations]),
            Area::Notices => topics.extend([Topic::Inbox]),
            Area::People => topics.extend([Topic::Agents]),
            Area::Control => topics.extend([Topic::Conversations, Topic::Agents, Topic::Incidents]),
            Area::Incidents => topics.extend([Topic::Conversations, Topic::Incidents]),
            Area::Rooms => topics.extend([Topic::Rooms]),
            Area::Settings => topics.extend([Topic::Limits]),
        }
        // A conversation's page shows its descendants too.
        let mut above = conv;
        while let Some(conv) = above {
            topics.insert(Topic::Conversation(conv));
            above = live.state.conversations.get(&conv).and_then(|known| known.parent);
        }
    }
    topics
}
