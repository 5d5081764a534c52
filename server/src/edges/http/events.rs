//! `/v1/events`: a live stream of server-sent events, resumable by position, or CloudEvents of it page by page.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use lastword_broker::{Live, ReadLane, Subscription, weight};
use lastword_facts::{Entry, Seq};
use lastword_wire::{Event, FieldError, Scope};
use serde::Deserialize;
use serde_json::Value;

use super::answers::{AnswerPermit, permitted};
use super::connections::{Peer, StreamPermit};
use super::extract::Params;
use crate::calls::{Caller, Context, archives, ended, epochs};
use crate::cloud_event::{Attributes, BATCHED, SOURCE, STRUCTURED};
use crate::edges::tail::LogTail;
use crate::error::ApiError;
use crate::views::{self, EventDraft};

/// The most entries turned into events in one step.
const BATCH_MAX: usize = 128;
/// What an event takes for each byte of its entry: itself, and its text.
const EVENT_BYTES: usize = 2;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    /// Start after this position, like `Last-Event-ID`.
    after: Option<u64>,
    /// End after this position instead of following the log.
    until: Option<u64>,
}

/// The response header with the position at which the log ended when the stream was opened.
const POSITION: &str = "lastword-position";

pub(super) async fn events(
    State(ctx): State<Context>,
    caller: Caller,
    peer: Option<Extension<Peer>>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let peer = peer.map(|Extension(peer)| peer);
    let permit = peer.as_ref().map(Peer::stream).transpose()?;
    let after = match headers.get("last-event-id") {
        Some(value) => {
            let wrong = || FieldError::new("Last-Event-ID", "is no position");
            Some(value.to_str().ok().and_then(|text| text.trim().parse().ok()).ok_or_else(wrong)?)
        }
        None => params.after,
    };
    let position = *ctx.handle.committed().borrow();
    let form = EventFormat::accepted(&headers);
    // A page doesn't wait for what follows.
    let end = (form == EventFormat::Page).then_some(position.0);
    let (after, until) = (after.map(Seq), params.until.or(end).map(Seq));
    let source = format!("{SOURCE}:{}", ctx.signer.public().name());
    let feed = Feed { permit, ..Feed::open(ctx, peer, caller, position, after, until).await? };
    let mut response = match form {
        EventFormat::Page => feed.page(&source).await,
        EventFormat::Plain | EventFormat::CloudEvents => {
            let source = (form == EventFormat::CloudEvents).then_some(source);
            let keep_alive = KeepAlive::new().interval(KEEP_ALIVE);
            axum::response::Sse::new(feed.stream(source)).keep_alive(keep_alive).into_response()
        }
    };
    response.headers_mut().insert(POSITION, HeaderValue::from(position.0));
    Ok(response)
}

/// The form in which a client gets events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EventFormat {
    /// A stream of events as they are.
    Plain,
    /// A stream of CloudEvents, each the data of a server-sent event: they have no media type of their own for a stream.
    CloudEvents,
    /// A page of CloudEvents, which ends at the log's end at the latest.
    Page,
}

impl EventFormat {
    /// Returns the first form that a client names as acceptable. A library of server-sent events may add its own type.
    fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let mut ranges = values.flat_map(|value| value.split(','));
        let named = ranges.find_map(|range| {
            let range = range.split(';').next().unwrap_or_default().trim();
            let is = |media: &str| range.eq_ignore_ascii_case(media);
            if is(BATCHED) { Some(Self::Page) } else { is(STRUCTURED).then_some(Self::CloudEvents) }
        });
        named.unwrap_or(Self::Plain)
    }
}

/// Returns the CloudEvent of an event of this source. Its position is its id: a restore gives none of them again (L8).
fn cloud_event(source: &str, event: &Event) -> Value {
    let (id, kind) = (event.seq.to_string(), format!("lastword.{}", event.kind));
    let attributes = Attributes { id: &id, source, kind: &kind, subject: event.reference.as_deref(), time: &event.at };
    attributes.structured(serde_json::to_value(event).unwrap_or_default())
}

/// A watcher, and the events that it gets next.
pub(crate) struct Feed {
    tail: LogTail,
    until: Option<Seq>,
    ready: VecDeque<Event>,
    /// Whose it is, for the bytes of its events; `None` without a socket.
    peer: Option<Peer>,
    /// The bytes of the events that are ready.
    unread: Option<AnswerPermit>,
    /// Counts as a connection of the agent while it is open (Q2).
    _subscription: Subscription,
    /// Its place among the caller's streams, if it is a stream of its own.
    #[expect(dead_code, reason = "it is held")]
    permit: Option<StreamPermit>,
}

impl Feed {
    /// Watches the events after a position, or after the current one, up to another position.
    pub(crate) async fn open(
        ctx: Context,
        peer: Option<Peer>,
        caller: Caller,
        position: Seq,
        after: Option<Seq>,
        until: Option<Seq>,
    ) -> Result<Self, ApiError> {
        if let Some(after) = after {
            epochs::check_position(&ctx, after).await?;
            archives::check_position(&ctx, after)?;
        }
        let mut subscription = Subscription::new(&ctx.handle, caller.principal.agent());
        // A program that only reads serves no work.
        if caller.may(Some(Scope::Work)).is_ok() {
            subscription.attach();
        }
        let tail = LogTail::new(ctx, caller, Some(after.unwrap_or(position)));
        Ok(Self { tail, until, ready: VecDeque::new(), peer, unread: None, _subscription: subscription, permit: None })
    }

    /// Returns the events as server-sent events; those of a source as CloudEvents.
    fn stream(self, source: Option<String>) -> impl Stream<Item = Result<Sse, Infallible>> {
        stream::unfold((self, source), |(mut feed, source)| async move {
            let event = feed.next().await?;
            let data = match &source {
                Some(source) => cloud_event(source, &event).to_string(),
                None => serde_json::to_string(&event).unwrap_or_default(),
            };
            let sse = Sse::default().id(event.seq.to_string()).event(event.kind).data(data);
            Some((Ok(sse), (feed, source)))
        })
    }

    /// Returns the events of one step as a list of CloudEvents; an empty one at the end.
    async fn page(mut self, source: &str) -> Response {
        let mut page = Vec::new();
        while let Some(event) = self.next().await {
            page.push(cloud_event(source, &event));
            if self.ready.is_empty() {
                break;
            }
        }
        let bytes = Value::Array(page).to_string().into_bytes();
        ([(CONTENT_TYPE, BATCHED)], permitted(bytes, self.unread.take())).into_response()
    }

    /// Returns the next event; `None` when the stream ends.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return self.until.is_none_or(|until| event.seq <= until.0).then_some(event);
            }
            // `until` doesn't wait for positions that the log hasn't reached.
            let end = self.until.map(|until| until.min(self.tail.committed()));
            if end.is_some_and(|end| self.tail.last() >= end) {
                return None;
            }
            self.unread = None;
            self.tail.grown().await?;
            self.unread = self.room().await?;
            let lane = ReadLane::of(self.tail.caller().principal.is_human());
            lane.scope(self.fill()).await?;
        }
    }

    /// Waits until the caller has room for more events; `None` when the server shuts down.
    async fn room(&self) -> Option<Option<AnswerPermit>> {
        let Some(peer) = &self.peer else { return Some(None) };
        let mut stopping = self.tail.ctx().stopping.clone();
        tokio::select! {
            permit = peer.answer() => Some(permit),
            () = ended(&mut stopping) => None,
        }
    }

    async fn fill(&mut self) -> Option<()> {
        let entries = self.tail.read(BATCH_MAX).await?;
        if let Some(unread) = &mut self.unread {
            unread.keep(EVENT_BYTES * entries.iter().map(|(_, entry)| weight(entry)).sum::<usize>());
        }
        let who = self.tail.caller().principal;
        let seen = move |live: &Live<'_>| -> Vec<EventDraft> {
            let one = |(seq, entry): &(Seq, Arc<Entry>)| views::event(live.state, who, *seq, entry);
            entries.iter().filter_map(one).collect()
        };
        let drafts = self.tail.ctx().handle.query(seen).await.ok()?;
        self.ready.extend(drafts.into_iter().map(EventDraft::finish));
        Some(())
    }
}
