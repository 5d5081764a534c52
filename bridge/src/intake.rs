//! Processes posts one after another: decides each, stores the decision, and only then acts on it.

mod perform;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_facts::Time;
use lastword_wire::rfc3339;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};

use super::backfill::Behind;
use super::book::{Missed, lost};
use super::bridge::BridgeContext;
use super::calls::{self, Done, NextStep, doubles};
use super::early;
use super::heard::Reach;
use super::ids::{ChannelId, PostId};
use super::inbound::{Act, Known, decide, outdated};
use super::outbound::Posting;
use super::platform::{PlatformError, Poster, Spot};
use super::post::Post;
use super::runs::{GAP, Run};

/// Longest wait until the log's head has been shown.
const SHOWN: Duration = Duration::from_secs(5);

/// Reads posts and turns them into calls to the broker.
pub(crate) struct Intake {
    shared: Arc<BridgeContext>,
    /// By channel: a run that another part may continue, and when it stops waiting.
    tails: BTreeMap<ChannelId, (Run, Instant)>,
    /// Whether humans may have to be notified of posts that were too old.
    late: AtomicBool,
}

impl Intake {
    pub(crate) fn new(shared: Arc<BridgeContext>) -> Self {
        Self { shared, tails: BTreeMap::new(), late: AtomicBool::new(true) }
    }

    /// Processes posts until the broker refuses for good, or the bridge's file can't be written; returns why.
    pub(crate) async fn run(mut self, mut posts: mpsc::Receiver<Post>, mut missed: watch::Receiver<u64>) -> String {
        let mut resumed = self.shared.resumed.subscribe();
        resumed.mark_changed();
        loop {
            let due = self.tails.values().map(|(_, until)| *until).min();
            let done = tokio::select! {
                // Catching up goes first: a live post from behind a gap would otherwise mark the gap as handled.
                biased;
                changed = missed.changed() => match changed {
                    Ok(()) => self.catch_up().await,
                    Err(_) => return "the gateway ended".to_owned(),
                },
                post = posts.recv() => match post {
                    Some(post) => self.route(post).await,
                    None => return "the gateway ended".to_owned(),
                },
                // Behind the posts: one that lifts a hold is passed on before what it held.
                Ok(()) = resumed.changed() => self.pass_on_kept().await,
                () = reached(due) => self.flush_due(due).await,
            };
            // One notification for all of them, so wait until the queue is empty.
            let told = match done {
                Ok(()) if posts.is_empty() => self.tell_late().await,
                done => done,
            };
            if let Err(error) = told {
                return error.to_string();
            }
        }
    }

    /// Notes where to begin in new channels: earlier posts aren't for the bridge.
    pub(crate) async fn begin(&self) -> Result<(), String> {
        let BridgeContext { settings, book, outbox, platform, .. } = &*self.shared;
        for channel in settings.channels.iter().copied() {
            let since = match book.handled(channel).map_err(|error| error.to_string())? {
                Some(post) => post,
                None => {
                    let last = outbox
                        .persist(|| platform.last_post(channel))
                        .await
                        .map_err(|error| format!("the broker's bot can't read the channel {channel}: {error}"))?;
                    let last = last.unwrap_or_default();
                    book.handle(channel, last, last).map_err(|error| error.to_string())?;
                    // Threads may hold posts newer than the channel's last one, so the start is at least the current
                    // time.
                    last.max(platform.now_ms().map_or_else(PostId::default, |now| platform.first_at(now)))
                }
            };
            let away = rfc3339(Time(platform.time_of(since)));
            book.begin_in(channel, since, &away).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads the posts that were missed.
    async fn catch_up(&mut self) -> Result<(), ClientError> {
        let shared = Arc::clone(&self.shared);
        // What was read of people before may have changed.
        shared.platform.forget_roles();
        let behind = Behind::look(&shared).await?;
        let channels = shared.settings.channels.iter().map(|channel| (*channel, PostId::default()));
        for (channel, since) in channels.chain(behind.threads) {
            if let Err(error) = self.catch_up_in(channel, since).await? {
                shared.outbox.warn(&format!("{channel} can't be read. {error}"));
            }
        }
        // Only after reading, and not while a part of an answer is awaited: a bridge killed in between must find the same
        // threads again.
        for (channel, moment) in behind.looked.into_iter().filter(|_| self.tails.is_empty()) {
            shared.book.looked_through(channel, &moment).map_err(lost)?;
        }
        Ok(())
    }

    /// Reads the posts after the last handled one, or after `since` if none was handled.
    async fn catch_up_in(
        &mut self,
        channel: ChannelId,
        since: PostId,
    ) -> Result<Result<(), PlatformError>, ClientError> {
        let shared = Arc::clone(&self.shared);
        let mut after = shared.book.handled(channel).map_err(lost)?.unwrap_or(since);
        if let Some((run, _)) = self.tails.get(&channel) {
            after = after.max(run.last_id());
        }
        loop {
            let behind = Spot { channel, post: after };
            let page = match shared.outbox.persist(|| shared.platform.posts_after(&Poster::Broker, behind)).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            for mut post in page.items {
                after = after.max(post.id);
                self.add_roles(&mut post).await;
                self.route(post).await?;
            }
            if !page.more {
                return Ok(Ok(()));
            }
        }
    }

    /// Adds the author's roles to a post that was sent without them, if they may matter.
    async fn add_roles(&self, post: &mut Post) {
        let BridgeContext { settings, outbox, platform, .. } = &*self.shared;
        let user = post.author.id;
        let judged = !settings.roles.is_empty() && post.roles.is_none() && post.person().is_some();
        if !judged || settings.humans.contains_key(&user) {
            return;
        }
        let home = self.shared.home_of(post.channel).await;
        match outbox.persist(|| platform.roles_of(home, user)).await {
            Ok(found) => post.roles = found,
            Err(error) => outbox.warn(&format!("the roles of {user} can't be read. {error}")),
        }
    }

    /// Takes a post: continues the channel's run or begins a new one.
    async fn route(&mut self, post: Post) -> Result<(), ClientError> {
        let channel = post.channel;
        if !self.shared.takes_part(channel).await {
            return Ok(());
        }
        let handled = self.shared.book.handled(channel).map_err(lost)?.unwrap_or_default();
        let held = self.tails.get(&channel).map_or_else(PostId::default, |(run, _)| run.last_id());
        // Catching up and the gateway may deliver the same post twice.
        if post.id <= handled.max(held) {
            return Ok(());
        }
        let run = match self.tails.remove(&channel) {
            None => Run::of(post),
            Some((mut run, _)) => match run.go_on(post) {
                Ok(()) => run,
                Err(post) => {
                    self.deal_with(&run).await?;
                    Run::of(*post)
                }
            },
        };
        if run.may_go_on() {
            self.tails.insert(channel, (run, Instant::now() + GAP));
            return Ok(());
        }
        self.deal_with(&run).await
    }

    async fn flush_due(&mut self, due: Option<Instant>) -> Result<(), ClientError> {
        let over = |until: &Instant| due.is_some_and(|due| *until <= due);
        let channels: Vec<ChannelId> =
            self.tails.iter().filter(|(_, (_, until))| over(until)).map(|(id, _)| *id).collect();
        for channel in channels {
            if let Some((run, _)) = self.tails.remove(&channel) {
                self.deal_with(&run).await?;
            }
        }
        Ok(())
    }

    /// Decides what a run of posts means, stores that, carries it out, and marks the run as handled.
    async fn deal_with(&self, run: &Run) -> Result<(), ClientError> {
        let shared = &self.shared;
        let Some(first) = run.first() else { return Ok(()) };
        let (acts, tried) = match shared.book.decided(first.id).map_err(lost)? {
            // Unknown whether the earlier try succeeded. Posts repeat safely under their key; `perform` looks up other calls
            // in the log.
            Some((acts, head)) => (if self.is_old(first) { outdated(acts) } else { acts }, Some(head)),
            None => (self.decided(run, first).await?, None),
        };
        let acts = VecDeque::from(acts);
        // Stored before the first act, so that a retry after a restart does the same, whatever has changed meanwhile.
        if tried.is_none() && !acts.is_empty() {
            self.note(first, &acts).await?;
        }
        self.carry_out(first, acts, tried).await?;
        shared.book.handle(first.channel, first.id, run.last_id()).map_err(lost)
    }

    /// Carries out acts in order, and what follows from them.
    async fn carry_out(&self, post: &Post, mut acts: VecDeque<Act>, tried: Option<u64>) -> Result<(), ClientError> {
        while let Some(act) = acts.pop_front() {
            match self.perform(post, &act, tried).await? {
                NextStep::GoOn => {}
                NextStep::Stop => break,
                NextStep::Also(more) => {
                    more.into_iter().rev().for_each(|act| acts.push_front(act));
                    // A refused act counts once and isn't retried.
                    self.note(post, &acts).await?;
                }
            }
        }
        Ok(())
    }

    /// Passes on what humans posted during a pause or stop, as far as it is over.
    async fn pass_on_kept(&self) -> Result<(), ClientError> {
        let BridgeContext { book, outbox, platform, .. } = &*self.shared;
        for kept in book.kept().map_err(lost)? {
            match outbox.persist(|| platform.read_post(kept.spot)).await {
                Ok(mut post) => {
                    platform.forget_roles();
                    self.add_roles(&mut post).await;
                    let acts = vec![kept.act.clone()];
                    let acts = if self.is_old(&post) { outdated(acts) } else { acts };
                    // Once more with the same key: nothing is passed on twice.
                    self.carry_out(&post, acts.into(), None).await?;
                }
                // Deleted, so its author wants it no longer.
                Err(error) => outbox.warn(&format!("a kept post of {} is dropped. {error}", kept.spot.channel)),
            }
            book.unkeep(&kept).map_err(lost)?;
        }
        Ok(())
    }

    /// Stores the acts that remain and the log's head before them, behind which a retry finds what the first try has
    /// done.
    async fn note(&self, post: &Post, acts: &VecDeque<Act>) -> Result<(), ClientError> {
        let broker = &self.shared.broker;
        let head = if acts.iter().any(doubles) {
            broker.persist(|| broker.client().events(None)).await?.position()
        } else {
            0
        };
        self.shared.book.decide(post.id, acts, head).map_err(lost)
    }

    /// Returns the outcome of an earlier try, as far as the log behind `head` shows.
    async fn done(&self, act: &Act, head: u64) -> Result<Option<Done>, ClientError> {
        let broker = &self.shared.broker;
        let look = async || {
            let mut events = broker.client().events_until(Some(head), Some(u64::MAX)).await?;
            while let Some(event) = events.next().await? {
                if let Some(done) = calls::done(act, &event, self.shared.dialect.guest) {
                    return Ok(Some(done));
                }
            }
            Ok(None)
        };
        broker.persist(look).await
    }

    /// Returns whether a post is too old to send requests, by the platform's clock.
    fn is_old(&self, post: &Post) -> bool {
        let age_ms = self.shared.platform.now_ms().map(|now| now.saturating_sub(post.at_ms));
        age_ms.is_some_and(|age| u128::from(age) > self.shared.age_max.as_millis())
    }

    /// Notifies humans of posts that were too old, in the channels where they were posted.
    async fn tell_late(&self) -> Result<(), ClientError> {
        if !self.late.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let BridgeContext { book, outbox, age_max, .. } = &*self.shared;
        for Missed { channel, posts, last } in book.missed().map_err(lost)? {
            if self.tails.contains_key(&channel) {
                self.late.store(true, Ordering::Relaxed);
                continue;
            }
            let what = if posts == 1 { "1 post was".to_owned() } else { format!("{posts} posts were") };
            let hours = age_max.as_secs_f64() / 3_600.0;
            let text = format!(
                "⏳ {what} not passed on: when Lastword could read here again, more than {hours} h had passed. Post again \
                 what still matters."
            );
            outbox.send(&format!("l{}", last.short()), channel, &Posting::of_broker(text), None).await;
            book.notified(channel, last).map_err(lost)?;
        }
        Ok(())
    }

    async fn decided(&self, run: &Run, post: &Post) -> Result<Vec<Act>, ClientError> {
        let shared = &self.shared;
        let echo = post.nonce.as_ref().is_some_and(|nonce| shared.book.is_own(nonce))
            || shared.book.is_echo(post.channel, post.id, post.content.trim()).map_err(lost)?;
        let thread = shared.book.thread(post.channel).map_err(lost)?;
        let waiting = match self.shared.roster.get(post.author.id).filter(|member| !member.ours) {
            Some(member) => early::waiting(shared, &member.agent, post).await?,
            None => None,
        };
        // A reply to a waiting request answers that one, so the turn isn't looked up.
        let turn = if waiting.is_none() { self.turn(post).await? } else { None };
        let (settings, home) = (&shared.settings, shared.home_of(post.channel).await);
        let known = Known {
            roster: &shared.roster,
            policy: settings.policy_in(home),
            trusted: settings.trusts(home, post.author.id),
            human: post.person().is_some_and(|person| settings.heard(Reach::Channel(home), &person).is_some()),
            inside: true,
            echo,
            old: self.is_old(post),
            thread: thread.as_ref(),
            turn: turn.as_deref(),
            waiting: waiting.as_deref(),
        };
        let mut acts = settings.within_channel(home, post, decide(run, &known));
        shared.channels.name_in(&*shared.platform, run, &mut acts).await;
        Ok(acts)
    }

    /// Returns the open turn that was shown to the author's bot in the post's channel.
    async fn turn(&self, post: &Post) -> Result<Option<String>, ClientError> {
        let Some(member) = self.shared.roster.get(post.author.id).filter(|member| !member.ours) else {
            return Ok(None);
        };
        let taker = self.shared.takers.get(&member.agent);
        let mut turn = self.shared.book.turn(&member.agent, post.channel, post.id).map_err(lost)?;
        if turn.is_none() && taker.is_some_and(|taker| taker.holds_any()) {
            // A bot may answer before `follow.rs` has noted the turn that it was shown.
            self.catch_up_with_log().await?;
            turn = self.shared.book.turn(&member.agent, post.channel, post.id).map_err(lost)?;
        }
        let (Some(turn), Some(taker)) = (turn, taker) else { return Ok(None) };
        // Ask the taker or the broker: the delivery may not have arrived here yet.
        let open = taker.is_open(&turn).await;
        Ok(open.then_some(turn))
    }

    /// Waits until everything in the log so far has been shown, at most `SHOWN`.
    async fn catch_up_with_log(&self) -> Result<(), ClientError> {
        let broker = &self.shared.broker;
        let head = broker.persist(|| broker.client().events(None)).await?.position();
        let mut shown = self.shared.shown.subscribe();
        let _in_time = timeout(SHOWN, shown.wait_for(|shown| *shown >= head)).await.is_ok();
        Ok(())
    }
}

async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
