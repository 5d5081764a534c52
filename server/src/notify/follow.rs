//! The follower: reads the committed log, checks the state before sending, and starts the sends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastword_broker::Live;
use lastword_broker::files::Files;
use lastword_broker::metrics::NotificationOutcome;
use lastword_facts::names::SYSTEM_NAME;
use lastword_facts::{Seq, Time};
use lastword_wire::{ApprovalView, IncidentView, Notice};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::book::{self, Parcel, Topic};
use super::channel::Channel;
use super::plan::{Next, Outcome, PendingTopic, Plan, Rules};
use super::words::{Counts, ITEMS_MAX, Item, What};
use super::{Notification, fresh_id, send, wall_time};
use crate::calls::{Context, ended, escalations};
use crate::error::ApiError;
use crate::views;

/// The most entries read in one step.
const BATCH_MAX: usize = 512;
/// If the follower is further behind than this many facts, it skips them and takes the pending topics from the state.
const BEHIND_MAX: u64 = 16_384;
/// The most unread notices that are read again after a start. Older ones remain in the inbox only.
const PASSED_OVER_MAX: usize = 1_000;
/// The pause after reading, and after the broker was too busy. Bounds how often a channel is notified and how often the
/// state is read.
const PACE: Duration = Duration::from_millis(100);

/// Follows the log for the channels of the configuration.
pub(crate) struct Follower {
    ctx: Context,
    channels: Vec<Arc<Channel>>,
    console: String,
    files: Files,
    plan: Plan,
    cursor: Seq,
    sends: JoinSet<(usize, Result<(), String>)>,
}

/// The items of a notification, as read from the state.
#[derive(Default)]
struct FoundItems {
    calls: BTreeMap<Topic, ApprovalView>,
    incidents: BTreeMap<Topic, IncidentView>,
    notes: BTreeMap<Topic, Item>,
    questions: BTreeMap<Topic, Item>,
}

/// Returns the notices that some human has not read yet.
fn unread(live: &Live<'_>) -> BTreeSet<Seq> {
    let humans = live.state.agents.iter().filter(|agent| agent.live && agent.is_human());
    humans.flat_map(|human| human.notices.iter().map(|(seq, _)| *seq)).collect()
}

/// Returns the command for a notice: the one that its text names, or `lastword inbox`.
fn step(notice: &Notice) -> String {
    let named = notice.body.split('`').nth(1).filter(|named| named.starts_with("lastword "));
    // Only the broker's own text may name a command: an agent's must not suggest one to a human.
    let named = named.filter(|_| notice.from == SYSTEM_NAME);
    named.unwrap_or("lastword inbox").to_owned()
}

/// Waits for facts after `cursor` and returns the last position; `None` once the broker has ended.
async fn grown(committed: &mut watch::Receiver<Seq>, cursor: Seq) -> Option<Seq> {
    committed.wait_for(|seq| *seq > cursor).await.ok().map(|seq| *seq)
}

impl Follower {
    /// Creates a follower that keeps its record among `files`; `console` is the URL of the console.
    pub(crate) fn new(ctx: Context, channels: Vec<Channel>, files: Files, console: String) -> Self {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let rules = channels.iter().map(|channel| Rules {
            name: channel.name.clone(),
            minimum: channel.minimum,
            window_ms: milliseconds(channel.window),
            hourly_max: channel.hourly_max,
            stale_ms: milliseconds(channel.stale),
        });
        let plan = Plan::new(rules.collect(), book::load(&files));
        ctx.handle.metrics().tell_of(channels.iter().map(|channel| channel.name.clone()).collect());
        let channels = channels.into_iter().map(Arc::new).collect();
        Self { ctx, channels, console, files, plan, cursor: Seq(0), sends: JoinSet::new() }
    }

    /// Follows until the server shuts down. A send that is cut off then is repeated after the next start.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let mut stopping = self.ctx.stopping.clone();
        tokio::select! {
            // A send in progress is aborted; it was saved, so the next start repeats it.
            () = ended(&mut stopping) => {}
            () = self.follow() => {}
        }
        Ok(())
    }

    async fn follow(&mut self) {
        let mut committed = self.ctx.handle.committed();
        // After a restart, pending topics must not wait for the next fact.
        while let Err(error) = self.look().await {
            tracing::debug!(?error, "the broker can't list pending items");
            tokio::time::sleep(PACE).await;
        }
        loop {
            let (cursor, now) = (self.cursor, self.ctx.handle.now());
            let next = self.plan.next().map(|next| Duration::from_millis(next.since(now)));
            tokio::select! {
                last = grown(&mut committed, cursor) => match last {
                    Some(last) => self.read(last).await,
                    // The broker has ended, so there is nothing left to send.
                    None => return,
                },
                () = tokio::time::sleep(next.unwrap_or_default()), if next.is_some() => self.tell().await,
                Some(sent) = self.sends.join_next() => match sent {
                    Ok((place, result)) => self.sent(place, &result).await,
                    Err(error) => tracing::error!(%error, "sending a notification failed"),
                },
            }
        }
    }

    /// Reads the pending topics from the state and moves the cursor to its position.
    async fn look(&mut self) -> Result<(), ApiError> {
        let look = |live: &Live<'_>| (live.state.seq, Plan::waiting_in(live.state, live.now()), unread(live));
        type Looked = (Seq, BTreeMap<Topic, PendingTopic>, BTreeSet<Seq>);
        let (seq, waiting, unread): Looked = self.ctx.handle.query(look).await?;
        let passed_over = unread.iter().rev().filter(|unread| **unread > self.cursor).take(PASSED_OVER_MAX);
        let passed_over: Vec<Seq> = passed_over.copied().collect();
        for (seq, entry) in self.ctx.handle.entries(passed_over).await? {
            self.plan.hear(seq, entry.at, &entry.fact);
        }
        self.cursor = self.cursor.max(seq);
        self.plan.correct(waiting, &unread);
        Ok(())
    }

    async fn read(&mut self, last: Seq) {
        // The state knows what is pending, so reading all the facts would gain nothing.
        if last.0 - self.cursor.0 > BEHIND_MAX {
            self.looked().await;
            return;
        }
        match self.ctx.handle.read(Seq(self.cursor.0 + 1), BATCH_MAX).await {
            Ok(entries) => {
                for (seq, entry) in &entries {
                    self.plan.hear(*seq, entry.at, &entry.fact);
                    self.cursor = *seq;
                }
                // Caught up: with the pause, facts in quick succession are read together.
                if entries.len() < BATCH_MAX {
                    tokio::time::sleep(PACE).await;
                }
            }
            Err(error) => {
                tracing::warn!(%error, "the log can't be read for notifications");
                tokio::time::sleep(PACE).await;
            }
        }
    }

    /// Reads the state; `false`, after a pause, if the broker is too busy.
    async fn looked(&mut self) -> bool {
        let looked = self.look().await;
        if looked.is_err() {
            tokio::time::sleep(PACE).await;
        }
        looked.is_ok()
    }

    /// Sends the notifications that are due, after checking that their topics are still pending and saving them as
    /// sent.
    async fn tell(&mut self) {
        if !self.looked().await {
            return;
        }
        let now = self.ctx.handle.now();
        let mut parcels = Vec::new();
        for place in self.plan.due(now) {
            match fresh_id() {
                Ok(id) => parcels.extend(self.plan.begin(place, now, &id).map(|parcel| (place, parcel))),
                Err(error) => tracing::error!(%error, "no id for a notification"),
            }
        }
        // Saved before the first attempt: after a crash the same notification is repeated under its id, instead of
        // being lost.
        self.save().await;
        for (place, parcel) in parcels {
            match self.notification(place, &parcel, now).await {
                Ok(Some(told)) => {
                    let channel = Arc::clone(&self.channels[place]);
                    self.ctx.handle.metrics().told(place, NotificationOutcome::Folded(parcel.folded));
                    self.sends.spawn(async move { (place, send(&channel, &told).await) });
                }
                // Everything in it was settled just now.
                Ok(None) => _ = self.plan.ended(place, now, Outcome::Sent),
                Err(error) => {
                    tracing::debug!(?error, "the broker can't list pending items");
                    self.plan.ended(place, now, Outcome::Failed);
                }
            }
        }
    }

    async fn sent(&mut self, place: usize, result: &Result<(), String>) {
        let outcome = if result.is_ok() { Outcome::Sent } else { Outcome::Failed };
        let next = self.plan.ended(place, self.ctx.handle.now(), outcome);
        // Saved before it is counted: a notification that the metrics show as sent is never repeated.
        self.save().await;
        let channel = &self.channels[place].name;
        match result {
            Ok(()) => {
                self.ctx.handle.metrics().told(place, NotificationOutcome::Sent);
                tracing::info!(channel, "notified");
            }
            Err(reason) => {
                self.ctx.handle.metrics().told(place, NotificationOutcome::Failed);
                match next {
                    Next::Again | Next::Done => tracing::warn!(channel, reason, "not notified; it is tried again"),
                    Next::GivenUp => tracing::error!(channel, reason, "not notified, and given up"),
                }
            }
        }
    }

    async fn save(&self) {
        let (files, book) = (self.files.clone(), self.plan.book().clone());
        let saved = tokio::task::spawn_blocking(move || book::save(&files, book)).await;
        match saved {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "notify.json can't be written: a restart may tell again"),
            Err(error) => tracing::error!(%error, "notify.json was not written"),
        }
    }

    /// Builds the notification of a parcel; `None` if none of its topics is pending any more.
    async fn notification(&self, place: usize, parcel: &Parcel, now: Time) -> Result<Option<Notification>, ApiError> {
        let channel = &self.channels[place];
        let listed: Vec<Topic> = parcel.topics.iter().take(ITEMS_MAX).map(|(topic, _)| *topic).collect();
        let found = self.found(&listed).await?;
        let items = parcel.topics.iter().take(ITEMS_MAX).filter_map(|(topic, again)| {
            let item = match topic {
                Topic::Question(_) => found.questions.get(topic).cloned()?,
                Topic::Call(_) => Item::call(found.calls.get(topic)?, channel.include_arguments),
                Topic::Incident(_) => Item::incident(found.incidents.get(topic)?),
                Topic::Stop => Item::stop(),
                Topic::Note(_) => found.notes.get(topic).cloned()?,
            };
            Some(item.standing(self.plan.severity(*topic, now), *again))
        });
        let items: Vec<Item> = items.collect();
        if items.is_empty() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        items.iter().for_each(|item| counts.add(item.what));
        for (topic, _) in parcel.topics.iter().skip(ITEMS_MAX) {
            counts.add(match topic {
                Topic::Question(_) => What::Question,
                Topic::Call(_) => What::Approval,
                Topic::Incident(_) => What::Incident,
                Topic::Stop => What::Stop,
                Topic::Note(_) => What::Note,
            });
        }
        let console = channel.console.clone().unwrap_or_else(|| self.console.clone());
        let (id, folded) = (parcel.id.clone(), parcel.folded);
        Ok(Some(Notification::waiting(id, wall_time(), channel, counts, items, folded, console)))
    }

    async fn found(&self, topics: &[Topic]) -> Result<FoundItems, ApiError> {
        let noted: Vec<Topic> = topics.iter().filter(|topic| matches!(topic, Topic::Note(_))).copied().collect();
        let wanted = topics.to_vec();
        let look = move |live: &Live<'_>| {
            let (mut found, mut questions) = (FoundItems::default(), Vec::new());
            for topic in wanted {
                match topic {
                    Topic::Question(id) => questions.push(id),
                    Topic::Call(id) => found.calls.extend(views::approval(live.state, id).map(|view| (topic, view))),
                    Topic::Incident(id) => {
                        let known = live.state.incidents.get(&id);
                        found.incidents.extend(known.map(|known| (topic, views::incident(live.state, id, known))));
                    }
                    Topic::Stop | Topic::Note(_) => {}
                }
            }
            (found, questions)
        };
        let (mut found, questions) = self.ctx.handle.query(look).await?;
        let views = escalations::by_ids(&self.ctx, questions.clone()).await?;
        let topics = questions.into_iter().map(Topic::Question);
        for topic in topics {
            let view = views.iter().find(|view| view.id == topic.to_string());
            found.questions.extend(view.map(|view| (topic, Item::question(view))));
        }
        for topic in noted {
            let Topic::Note(seq) = topic else { continue };
            let worded = views::notices(&self.ctx.handle, vec![seq]).await?.into_iter().next();
            let item = worded.map(|worded| Item::note(topic.to_string(), &worded.notice, step(&worded.notice)));
            found.notes.extend(item.map(|item| (topic, item)));
        }
        Ok(found)
    }
}
