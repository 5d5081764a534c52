//! Processes posts one after another: decides each, stores the decision, and only then acts on it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::{NewRoom, Post as RoomPost, Problem};
use lastword_proto::refusal::Refusal;
use lastword_proto::wire::rfc3339;
use lastword_proto::{Code, Time, header};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::backfill::Behind;
use super::book::{Place, lost};
use super::bridge::BridgeContext;
use super::calls::{self, Call, Done, NextStep, call, doubles, refused};
use super::early;
use super::inbound::{Act, Known, Voice, decide, outdated, turn_place};
use super::kept;
use super::model::{Post, first_id, moment};
use super::names::{GUEST, hint_name, key, lineage, message_key, room, short};
use super::outbound::Posting;
use super::rest::{PAGE, RestError};
use super::runs::{GAP, Run};
use lastword_client::{Backoff, RetryingClient};

/// Pause before a call is retried, first and longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Longest wait until the log's head has been shown.
const SHOWN: Duration = Duration::from_secs(5);
/// Most tries of a call while the broker is saturated.
const SATURATED_TRIES_MAX: u32 = 5;

/// Reads posts and turns them into calls to the broker.
pub(crate) struct Intake {
    shared: Arc<BridgeContext>,
    /// By channel: a run that another part may continue, and when it stops waiting.
    tails: BTreeMap<u64, (Run, Instant)>,
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
        let BridgeContext { settings, book, outbox, .. } = &*self.shared;
        for channel in settings.channels.iter().copied() {
            let since = match book.handled(channel).map_err(|error| error.to_string())? {
                Some(post) => post,
                None => {
                    let last = outbox
                        .persist(|| outbox.broker.last_post(channel))
                        .await
                        .map_err(|error| format!("the broker's bot can't read the channel {channel}: {error}"))?;
                    let last = last.unwrap_or_default();
                    book.handle(channel, last, last).map_err(|error| error.to_string())?;
                    // Threads may hold posts newer than the channel's last one, so the start is at least the current
                    // time.
                    last.max(outbox.broker.now_ms().map_or(0, first_id))
                }
            };
            let away = rfc3339(Time(moment(since)));
            book.begin_in(channel, since, &away).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads the posts that were missed.
    async fn catch_up(&mut self) -> Result<(), ClientError> {
        let shared = Arc::clone(&self.shared);
        let behind = Behind::look(&shared).await?;
        let channels = shared.settings.channels.iter().map(|channel| (*channel, 0));
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
    async fn catch_up_in(&mut self, channel: u64, since: u64) -> Result<Result<(), RestError>, ClientError> {
        let shared = Arc::clone(&self.shared);
        let rest = &shared.outbox.broker;
        let mut after = shared.book.handled(channel).map_err(lost)?.unwrap_or(since);
        if let Some((run, _)) = self.tails.get(&channel) {
            after = after.max(run.last_id());
        }
        loop {
            let posts = match shared.outbox.persist(|| rest.posts_after(channel, after)).await {
                Ok(posts) => posts,
                Err(error) => return Ok(Err(error)),
            };
            let full = posts.len() == PAGE;
            for post in posts {
                after = after.max(post.id);
                self.route(post).await?;
            }
            if !full {
                return Ok(Ok(()));
            }
        }
    }

    /// Takes a post: continues the channel's run or begins a new one.
    async fn route(&mut self, post: Post) -> Result<(), ClientError> {
        let channel = post.channel;
        if !self.shared.takes_part(channel).await {
            return Ok(());
        }
        let handled = self.shared.book.handled(channel).map_err(lost)?.unwrap_or_default();
        let held = self.tails.get(&channel).map_or(0, |(run, _)| run.last_id());
        // Catching up and the gateway may deliver the same post twice; ids increase within a channel.
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
        let channels: Vec<u64> = self.tails.iter().filter(|(_, (_, until))| over(until)).map(|(id, _)| *id).collect();
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

    /// Stores the acts that remain and the log's head before them, behind which a retry finds what the first try has
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
        let BridgeContext { book, outbox, .. } = &*self.shared;
        for kept in book.kept().map_err(lost)? {
            match outbox.persist(|| outbox.broker.read_post(kept.channel, kept.post)).await {
                Ok(post) => {
                    let acts = vec![kept.act.clone()];
                    let acts = if self.is_old(&post) { outdated(acts) } else { acts };
                    // Once more with the same key: nothing is passed on twice.
                    self.carry_out(&post, acts.into(), None).await?;
                }
                // Deleted, so its author wants it no longer.
                Err(error) => outbox.warn(&format!("a kept post of {} is dropped. {error}", kept.channel)),
            }
            book.unkeep(&kept).map_err(lost)?;
        }
        Ok(())
    }

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
                if let Some(done) = calls::done(act, &event) {
                    return Ok(Some(done));
                }
            }
            Ok(None)
        };
        broker.persist(look).await
    }

    /// Returns whether a post is too old to send requests, by Discord's clock.
    fn is_old(&self, post: &Post) -> bool {
        let age_ms = self.shared.outbox.broker.now_ms().map(|now| now.saturating_sub(post.unix_ms()));
        age_ms.is_some_and(|age| u128::from(age) > self.shared.age_max.as_millis())
    }

    /// Notifies humans of posts that were too old, in the channels where they were posted.
    async fn tell_late(&self) -> Result<(), ClientError> {
        if !self.late.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let BridgeContext { book, outbox, age_max, .. } = &*self.shared;
        for (channel, posts, last) in book.missed().map_err(lost)? {
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
            outbox.send(&format!("l{}", short(last)), channel, &Posting::of_broker(text), None).await;
            book.told(channel, last).map_err(lost)?;
        }
        Ok(())
    }

    async fn decided(&self, run: &Run, post: &Post) -> Result<Vec<Act>, ClientError> {
        let shared = &self.shared;
        let echo = post.nonce().is_some_and(|nonce| shared.book.is_own(&nonce))
            || shared.book.is_echo(post.channel, post.id, post.content.trim()).map_err(lost)?;
        let thread = shared.book.thread(post.channel).map_err(lost)?;
        let waiting = match self.shared.roster.get(post.author.id).filter(|member| !member.ours) {
            Some(member) => early::waiting(shared, &member.agent, post).await?,
            None => None,
        };
        // A reply to a waiting request answers that one, so the turn isn't looked up.
        let turn = if waiting.is_none() { self.turn(post).await? } else { None };
        let trusted = &shared.settings.trusted;
        let known = Known {
            roster: &shared.roster,
            policy: shared.settings.policy,
            trusted: trusted.is_empty() || trusted.contains(&post.author.id),
            human: shared.settings.humans.contains_key(&post.author.id),
            inside: true,
            echo,
            old: self.is_old(post),
            thread: thread.as_ref(),
            turn: turn.as_deref(),
            waiting: waiting.as_deref(),
        };
        Ok(decide(run, &known))
    }

    /// Returns the open turn that was shown to the author's bot in the post's channel.
    async fn turn(&self, post: &Post) -> Result<Option<String>, ClientError> {
        let Some(member) = self.shared.roster.get(post.author.id).filter(|member| !member.ours) else {
            return Ok(None);
        };
        let place = turn_place(post.channel);
        let taker = self.shared.takers.get(&member.agent);
        let mut turn = self.shared.book.turn(&member.agent, place, post.id).map_err(lost)?;
        if turn.is_none() && taker.is_some_and(|taker| taker.holds_any()) {
            // A bot may answer before `follow.rs` has noted the turn that it was shown.
            self.catch_up_with_log().await?;
            turn = self.shared.book.turn(&member.agent, place, post.id).map_err(lost)?;
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

    /// Carries out an act and returns what to do next. `tried` is the log's head before an earlier try, 0 if unknown.
    async fn perform(&self, post: &Post, act: &Act, tried: Option<u64>) -> Result<NextStep, ClientError> {
        let Some(call) = call(act) else {
            match act {
                Act::Hint { about, text } => self.hint(post, about, text).await,
                Act::Late => {
                    self.shared.book.miss(post.id, post.channel).map_err(lost)?;
                    self.late.store(true, Ordering::Relaxed);
                }
                Act::Early { agent, request, answer } => return self.answer_early(post, agent, request, answer).await,
                Act::Post { .. } | Act::Submit { .. } | Act::Finish { .. } | Act::Say { .. } => {}
            }
            return Ok(NextStep::GoOn);
        };
        let before = match tried.filter(|head| *head > 0 && doubles(act)) {
            Some(head) => self.done(act, head).await?,
            None => None,
        };
        let sent = match (before, &call) {
            (Some(Done::All), _) => return Ok(NextStep::GoOn),
            (Some(Done::Refused(problem)), _) => Err(ClientError::Refused(problem)),
            (None, Call::Post { voice, said }) => {
                if let Act::Say { mentions, about, opens, .. } = act {
                    self.prepare(post, mentions, about.as_deref(), *opens).await?;
                }
                self.post(post, voice, said).await?
            }
            (None, Call::Send { voice, text }) => self.submit(post, voice, text).await?,
            (None, Call::Finish { agent, turn, answer }) => return self.finish(agent, turn, answer).await,
        };
        let problem = sent.as_ref().err().and_then(ClientError::problem);
        if let Some(problem) = problem
            && let Some(hint) = kept::keep(&self.shared.book, post, act, problem)?
        {
            return Ok(NextStep::Also(vec![hint]));
        }
        Ok(problem.map_or(NextStep::GoOn, |problem| refused(&call, post, self.is_old(post), problem)))
    }

    async fn finish(&self, agent: &str, turn: &str, answer: &str) -> Result<NextStep, ClientError> {
        let Some(taker) = self.shared.takers.get(agent) else { return Ok(NextStep::GoOn) };
        let ended = taker.finish(turn, answer).await;
        self.shared.book.end_turn(turn).map_err(lost)?;
        Ok(match ended {
            Ok(()) => NextStep::GoOn,
            Err(reason) => {
                let (about, text) = (format!("{agent}:late"), format!("{agent}: {reason}"));
                NextStep::Also(vec![Act::Hint { about, text }])
            }
        })
    }

    /// Stores an early answer, or finishes the turn if it has opened meanwhile.
    async fn answer_early(
        &self,
        post: &Post,
        agent: &str,
        request: &str,
        answer: &str,
    ) -> Result<NextStep, ClientError> {
        let shared = &self.shared;
        shared.book.answer_early(request, answer).map_err(lost)?;
        if early::waits(shared, request).await? {
            return Ok(NextStep::GoOn);
        }
        // `follow.rs` may have passed the turn's opening before the answer was stored.
        self.catch_up_with_log().await?;
        let Some(turn) = self.turn(post).await? else { return Ok(NextStep::GoOn) };
        let (agent, answer) = (agent.to_owned(), answer.to_owned());
        Ok(NextStep::Also(vec![Act::Finish { agent, turn, answer }]))
    }

    /// Stores what a human's post is about before it is sent.
    async fn prepare(
        &self,
        post: &Post,
        mentions: &[String],
        about: Option<&str>,
        opens: bool,
    ) -> Result<(), ClientError> {
        let book = &self.shared.book;
        // First, because the message's event can arrive before the call returns, and `follow.rs` looks up its place.
        if let Some(reference) = about.filter(|_| opens) {
            book.place(&self.place(post, reference).await).map_err(lost)?;
        }
        if let (Some(reference), Some(agent)) = (about, mentions.first()) {
            book.involve(reference, agent).map_err(lost)?;
        }
        let named = self.shared.roster.mentioned(post);
        for (number, agent) in mentions.iter().enumerate() {
            // A foreign bot that the human's own post mentions has read it, so it isn't posted again.
            if self.shared.roster.foreign(agent).is_some() && named.contains(agent) {
                book.ask(&format!("{}.{}", key(post.id), number + 1), post.channel).map_err(lost)?;
            }
        }
        Ok(())
    }

    async fn post(&self, post: &Post, voice: &Voice, said: &RoomPost) -> Result<Result<(), ClientError>, ClientError> {
        let room = match self.room(post.channel).await {
            Ok(room) => room,
            Err(error) => return refused_or_fatal(Err(error)),
        };
        let key = key(post.id);
        loop {
            let broker = self.broker(voice);
            let sent = deliver(broker, || broker.client().post_in_room(&room, said, Some(&key))).await.map(|_| ());
            // What a bot without a token posts counts as a guest's.
            if !self.signed_out(voice, &sent) {
                return if self.speaks_alone(voice) { Ok(sent) } else { refused_or_fatal(sent) };
            }
        }
    }

    async fn submit(&self, post: &Post, voice: &Voice, text: &str) -> Result<Result<(), ClientError>, ClientError> {
        if let Some(problem) = self.claimed(voice, text) {
            return Ok(Err(ClientError::Refused(Box::new(problem))));
        }
        let book = &self.shared.book;
        let reference = header::parse(text).ok().map(|(header, _)| header.reference.to_string());
        let mut fresh = None;
        if let Some(reference) = reference
            && self.shared.threads.place(&reference, None).map_err(lost)?.is_none()
        {
            // Noted before the call, because the message's event may come before the call returns; taken back if the
            // call fails.
            book.place(&self.place(post, &reference).await).map_err(lost)?;
            fresh = Some(reference);
        }
        let broker = self.broker(voice);
        let key = if matches!(voice, Voice::Human(_)) { key(post.id) } else { message_key(post.id) };
        let sent = deliver(broker, || broker.client().send_text_keyed(text.to_owned(), Some(&key))).await.map(|_| ());
        if let (Some(reference), Err(_)) = (&fresh, &sent) {
            let root = lineage(reference).last().unwrap_or(reference);
            book.unplace(root, post.id).map_err(lost)?;
        }
        // The text of a bot without a token isn't a message, and counts as a guest's post.
        if self.signed_out(voice, &sent) || self.speaks_alone(voice) { Ok(sent) } else { refused_or_fatal(sent) }
    }

    /// Returns the refusal of a human's text that claims another sender or depth: it is never rewritten (E3). A human's
    /// message adds no depth, so 0 is due.
    fn claimed(&self, voice: &Voice, text: &str) -> Option<Problem> {
        let Voice::Human(user) = voice else { return None };
        let (header, _) = header::parse(text).ok()?;
        let claim = header.from.as_str();
        if claim != self.shared.name_of(*user) {
            return Some(Problem::new(&Refusal::new(Code::FromMismatch).about(claim)));
        }
        let depth = u64::from(header.depth);
        (depth != 0).then(|| Problem::new(&Refusal::new(Code::DepthMismatch).numbers(0, depth)))
    }

    /// Takes a foreign bot whose token the broker refuses out of service; returns whether it was in service until now.
    fn signed_out(&self, voice: &Voice, sent: &Result<(), ClientError>) -> bool {
        let refused = sent.as_ref().err().and_then(ClientError::problem);
        let Some(_) = refused.filter(|problem| problem.code == Code::Unauthenticated) else { return false };
        let Voice::Agent(agent) = voice else { return false };
        let until_now = !self.shared.is_lost(agent);
        self.shared.lose(agent);
        until_now
    }

    /// Returns whether a human has a token of their own, whose end isn't the bridge's.
    fn speaks_alone(&self, voice: &Voice) -> bool {
        matches!(voice, Voice::Human(user) if self.shared.humans.contains_key(user))
    }

    /// Returns where a conversation that begins with this post is shown: in a new thread, or in the thread of the post.
    async fn place(&self, post: &Post, reference: &str) -> Place {
        let parent = self.shared.threads.parent(post.channel).await.ok().flatten();
        let thread = parent.is_some().then_some(post.channel);
        let reference = lineage(reference).last().unwrap_or(reference).to_owned();
        Place { reference, channel: parent.unwrap_or(post.channel), origin: post.id, thread }
    }

    /// Returns a channel's room, opened if the bridge hasn't done so since its start.
    async fn room(&self, channel: u64) -> Result<String, ClientError> {
        let name = room(channel);
        if !self.shared.has_room(channel) {
            let members = self.shared.roster.agents().chain([GUEST]).map(str::to_owned).collect();
            let room = NewRoom { name: name.clone(), members, key: None };
            let broker = &self.shared.broker;
            deliver(broker, || broker.client().open_room(&room)).await?;
            self.shared.note_room(channel);
        }
        Ok(name)
    }

    fn broker(&self, voice: &Voice) -> &RetryingClient {
        match voice {
            Voice::Agent(agent) if self.shared.is_lost(agent) => &self.shared.guest,
            Voice::Agent(agent) => self.shared.takers.get(agent).map_or(&self.shared.guest, |taker| &taker.broker),
            Voice::Guest => &self.shared.guest,
            Voice::Human(user) => self.shared.humans.get(user).unwrap_or(&self.shared.broker),
        }
    }

    async fn hint(&self, post: &Post, about: &str, text: &str) {
        let book = &self.shared.book;
        if book.hinted(about).unwrap_or(true) {
            return;
        }
        let posting = Posting::of_broker(text.to_owned());
        let name = hint_name(post.id, about);
        self.shared.outbox.send(&name, post.channel, &posting, Some(post.id)).await;
        if let Err(error) = book.hint(about) {
            self.shared.outbox.warn(&lost(error).to_string());
        }
    }
}

/// Repeats a call until it is answered. A refusal is an answer, even if a later try could succeed: the posts behind
/// this one would wait with it. Only a saturated broker is retried, a few times.
async fn deliver<T, F>(broker: &RetryingClient, mut call: impl FnMut() -> F) -> Result<T, ClientError>
where
    F: Future<Output = Result<T, ClientError>>,
{
    let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
    let mut tries = 0;
    loop {
        let error = match call().await {
            Ok(answer) => {
                broker.works();
                return Ok(answer);
            }
            Err(error) => error,
        };
        tries += 1;
        let again = match &error {
            ClientError::Refused(problem) => problem.code == Code::Saturated && tries < SATURATED_TRIES_MAX,
            ClientError::Unusable(_) => false,
            ClientError::Unreachable { .. } | ClientError::Untrusted { .. } | ClientError::Unexpected { .. } => true,
        };
        if !again {
            return Err(error);
        }
        broker.fails(&error);
        sleep(backoff.grow()).await;
    }
}

/// Separates refusals, which concern only the post's author, from errors that end the bridge.
fn refused_or_fatal(sent: Result<(), ClientError>) -> Result<Result<(), ClientError>, ClientError> {
    match sent {
        Err(ClientError::Refused(problem)) if problem.code == Code::Unauthenticated => {
            Err(ClientError::Refused(problem))
        }
        Err(error @ ClientError::Refused(_)) => Ok(Err(error)),
        Err(error) => Err(error),
        Ok(()) => Ok(Ok(())),
    }
}

async fn reached(due: Option<Instant>) {
    match due {
        Some(due) => sleep_until(due).await,
        None => std::future::pending().await,
    }
}
