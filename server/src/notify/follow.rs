//! The follower: reads the committed log, checks the state before sending, and starts the sends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use lastword_broker::Live;
use lastword_broker::files::Files;
use lastword_broker::metrics::NotificationOutcome;
use lastword_facts::Seq;
use lastword_wire::{FailedNotification, Resent, rfc3339};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinError, JoinSet};

use super::book::{self, GivenUp, Topic};
use super::channel::Channel;
use super::compose::{Again, BATCH_MAX, Composer, NOTES_MAX};
use super::plan::{Next, Outcome, PendingTopic, Plan, Rules};
use super::words::first_line;
use super::{fresh_id, send};
use crate::calls::notifications::{NOTIFY_CALLS_MAX, NotifyCall, Wanted, unknown_channel, unknown_notification};
use crate::calls::{Context, ended};
use crate::error::ApiError;

/// If the follower is further behind than this many facts, it skips them and takes the pending topics from the state.
const BEHIND_MAX: u64 = 16_384;
/// The pause after reading, and after the broker was too busy. Bounds how often a channel is notified and how often the
/// state is read.
const PACE: Duration = Duration::from_millis(100);

/// Follows the log for the channels of a workspace.
pub(crate) struct Follower {
    ctx: Context,
    channels: Vec<Arc<Channel>>,
    in_force: watch::Receiver<Vec<Arc<Channel>>>,
    composer: Composer,
    files: Files,
    plan: Plan,
    cursor: Seq,
    sends: JoinSet<(usize, Result<(), String>)>,
    calls: mpsc::Receiver<NotifyCall>,
    /// The number of devices.
    devices: watch::Receiver<usize>,
    /// What humans send again.
    resends: JoinSet<Resending>,
}

/// What came of sending a notification again: its channel, and the answer to whoever asked.
type Resending = (Arc<Channel>, Result<Resent, ApiError>, oneshot::Sender<Result<Resent, ApiError>>);

fn rules(channels: &[Arc<Channel>]) -> Vec<Rules> {
    let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let of = |channel: &Arc<Channel>| Rules {
        name: channel.name.clone(),
        minimum: channel.minimum,
        window_ms: milliseconds(channel.window),
        hourly_max: channel.hourly_max,
        stale_ms: milliseconds(channel.stale),
    };
    channels.iter().map(of).collect()
}

/// Returns the notices that some human has not read yet.
fn unread(live: &Live<'_>) -> BTreeSet<Seq> {
    let humans = live.state.agents.iter().filter(|agent| agent.live && agent.is_human());
    humans.flat_map(|human| human.notices.iter().map(|(seq, _)| *seq)).collect()
}

/// Waits for facts after `cursor` and returns the last position; `None` once the broker has ended.
async fn grown(committed: &mut watch::Receiver<Seq>, cursor: Seq) -> Option<Seq> {
    committed.wait_for(|seq| *seq > cursor).await.ok().map(|seq| *seq)
}

impl Follower {
    /// Creates a follower for the channels in force that keeps its record among `files`; `console` is the URL of the
    /// console.
    pub(crate) fn new(
        ctx: Context,
        mut in_force: watch::Receiver<Vec<Arc<Channel>>>,
        files: Files,
        console: String,
    ) -> Self {
        let (notifier, calls) = mpsc::channel(NOTIFY_CALLS_MAX);
        // A workspace has one follower, so that this one is the first.
        let _first = ctx.notifier.set(notifier);
        let channels = in_force.borrow_and_update().clone();
        let plan = Plan::new(rules(&channels), book::load(&files));
        ctx.handle.metrics().tell_of(channels.iter().map(|channel| channel.name.clone()).collect());
        let composer = Composer { ctx: ctx.clone(), console };
        let (sends, resends) = (JoinSet::new(), JoinSet::new());
        let devices = channels.iter().find_map(|channel| channel.means.devices());
        let devices = devices.map_or_else(|| watch::channel(0).1, |devices| devices.count());
        Self { ctx, channels, in_force, composer, files, plan, cursor: Seq(0), sends, calls, devices, resends }
    }

    /// Follows until the server shuts down. A send that is cut off then is repeated after the next start.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let mut stopping = self.ctx.stopping.clone();
        let listened = async {
            self.listened().await;
            self.follow().await;
        };
        tokio::select! {
            // A send in progress is aborted; it was saved, so the next start repeats it.
            () = ended(&mut stopping) => {}
            () = listened => {}
        }
        Ok(())
    }

    /// Takes other channels, once what is being sent has been sent.
    async fn replace(&mut self) {
        while let Some(sent) = self.sends.join_next().await {
            self.joined(sent).await;
        }
        self.channels = self.in_force.borrow_and_update().clone();
        self.plan.replace(rules(&self.channels));
        self.ctx.handle.metrics().tell_of(self.channels.iter().map(|channel| channel.name.clone()).collect());
        self.save().await;
    }

    /// Returns the channels that send to nobody.
    fn idle(&self) -> BTreeSet<usize> {
        (0..self.channels.len()).filter(|place| self.channels[*place].means.is_idle()).collect()
    }

    /// Waits until some channel goes somewhere: reading the log for nobody would keep it awake.
    async fn listened(&mut self) {
        while self.idle().len() == self.channels.len() {
            tokio::select! {
                Ok(()) = self.devices.changed() => {}
                Ok(()) = self.in_force.changed() => self.replace().await,
                Some(call) = self.calls.recv() => self.called(call),
                Some(resent) = self.resends.join_next() => if let Ok(resent) = resent { self.resent(resent).await },
            }
        }
    }

    async fn follow(&mut self) {
        let mut committed = self.ctx.handle.committed();
        // After a restart, pending topics must not wait for the next fact.
        while let Err(error) = self.look().await {
            tracing::debug!(?error, "the broker can't list pending items");
            tokio::time::sleep(PACE).await;
        }
        loop {
            self.plan.rest(self.idle());
            let (cursor, now) = (self.cursor, self.ctx.handle.now());
            let next = self.plan.next();
            self.ctx.errands.plan("notifications", next);
            let next = next.map(|next| Duration::from_millis(next.since(now)));
            tokio::select! {
                last = grown(&mut committed, cursor) => match last {
                    Some(last) => self.read(last).await,
                    // The broker has ended, so there is nothing left to send.
                    None => return,
                },
                () = tokio::time::sleep(next.unwrap_or_default()), if next.is_some() => self.tell().await,
                Ok(()) = self.devices.changed() => {}
                Ok(()) = self.in_force.changed() => self.replace().await,
                Some(sent) = self.sends.join_next() => self.joined(sent).await,
                Some(call) = self.calls.recv() => self.called(call),
                Some(resent) = self.resends.join_next() => match resent {
                    Ok(resent) => self.resent(resent).await,
                    Err(error) => tracing::error!(%error, "sending a notification again failed"),
                },
            }
        }
    }

    /// Reads the pending topics from the state and moves the cursor to its position.
    async fn look(&mut self) -> Result<(), ApiError> {
        let look = |live: &Live<'_>| (live.state.seq, Plan::waiting_in(live.state, live.now()), unread(live));
        type Looked = (Seq, BTreeMap<Topic, PendingTopic>, BTreeSet<Seq>);
        let (seq, waiting, unread): Looked = self.ctx.handle.query(look).await?;
        let passed_over = unread.iter().rev().filter(|unread| **unread > self.cursor).take(NOTES_MAX);
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
            let channel = Arc::clone(&self.channels[place]);
            let severity = |topic| self.plan.severity(topic, now);
            match self.composer.notification(&channel, &parcel, severity).await {
                Ok(Some(told)) => {
                    let folded = NotificationOutcome::Folded(parcel.folded);
                    self.ctx.handle.metrics().told(&channel.name, folded);
                    let errand = self.ctx.errands.begin();
                    self.sends.spawn(async move {
                        let sent = send(&channel, &told).await;
                        drop(errand);
                        (place, sent)
                    });
                }
                // Everything in it was settled just now.
                Ok(None) => _ = self.plan.ended(place, now, Outcome::Sent),
                Err(error) => {
                    tracing::debug!(?error, "the broker can't list pending items");
                    self.plan.ended(place, now, Outcome::Failed(&error.0.detail));
                }
            }
        }
    }

    async fn joined(&mut self, sent: Result<(usize, Result<(), String>), JoinError>) {
        match sent {
            Ok((place, result)) => self.sent(place, &result).await,
            Err(error) => tracing::error!(%error, "sending a notification failed"),
        }
    }

    async fn sent(&mut self, place: usize, result: &Result<(), String>) {
        let reason = result.as_ref().err().map(|reason| first_line(reason));
        let outcome = reason.as_deref().map_or(Outcome::Sent, Outcome::Failed);
        let next = self.plan.ended(place, self.ctx.handle.now(), outcome);
        // Saved before it is counted: a notification that the metrics show as sent is never repeated.
        self.save().await;
        let channel = &self.channels[place].name;
        match result {
            Ok(()) => {
                self.ctx.handle.metrics().told(channel, NotificationOutcome::Sent);
                tracing::info!(channel, "notified");
            }
            Err(reason) => {
                self.ctx.handle.metrics().told(channel, NotificationOutcome::Failed);
                match next {
                    Next::Again | Next::Done => tracing::warn!(channel, reason, "not notified; it is tried again"),
                    Next::GivenUp => tracing::error!(channel, reason, "not notified, and given up"),
                }
            }
        }
    }

    /// Answers a call, or starts what it asks for.
    fn called(&mut self, call: NotifyCall) {
        match call {
            NotifyCall::Failed(reply) => {
                let view = |(channel, kept): (&str, &GivenUp)| FailedNotification {
                    id: kept.id.clone(),
                    channel: channel.to_owned(),
                    failed_at: rfc3339(kept.at),
                    reason: kept.reason.clone(),
                    items: kept.topics.iter().map(ToString::to_string).collect(),
                };
                let _gone = reply.send(self.plan.given_up().into_iter().map(view).collect());
            }
            NotifyCall::Send(wanted, reply) => match self.wanted(wanted) {
                Ok((place, id, again)) => {
                    let (composer, channel) = (self.composer.clone(), Arc::clone(&self.channels[place]));
                    self.resends.spawn(async move {
                        let again = composer.again(&channel, id, again).await;
                        (channel, again, reply)
                    });
                }
                Err(refused) => {
                    let _gone = reply.send(Err(refused));
                }
            },
        }
    }

    /// Returns the place of the channel, the notification's id and its topics for what is to be sent again.
    fn wanted(&self, wanted: Wanted) -> Result<(usize, String, Again), ApiError> {
        let place = |name: &str| {
            let place = self.channels.iter().position(|channel| channel.name == name);
            place.ok_or_else(|| unknown_channel(name))
        };
        match wanted {
            Wanted::Failed(id) => {
                let known = self.plan.given_up().into_iter().find(|(_, kept)| kept.id == id);
                let (channel, kept) = known.ok_or_else(|| unknown_notification(&id))?;
                Ok((place(channel)?, id, Again::Topics(kept.topics.clone())))
            }
            Wanted::After(channel, after) => {
                let id = fresh_id().map_err(|error| ApiError::internal(&error.to_string()))?;
                Ok((place(&channel)?, id, Again::After(after)))
            }
        }
    }

    /// Records what came of sending a notification again, and answers.
    async fn resent(&mut self, (channel, result, reply): Resending) {
        if let Ok(resent) = &result {
            self.plan.resent(&resent.id, self.ctx.handle.now(), resent.problem.as_deref());
            self.save().await;
            let outcome =
                if resent.problem.is_some() { NotificationOutcome::Failed } else { NotificationOutcome::Sent };
            if resent.items > 0 {
                self.ctx.handle.metrics().told(&channel.name, outcome);
            }
        }
        // A caller that has gone needs no answer.
        let _gone = reply.send(result);
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
}
