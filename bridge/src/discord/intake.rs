//! What is posted on Discord, one post after another: decided, noted, and only then done.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lastword_client::ClientError;
use lastword_client::wire::{NewRoom, Post as RoomPost};
use lastword_proto::wire::rfc3339;
use lastword_proto::{Code, Time, header};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, sleep_until};

use super::behind::Behind;
use super::book::{Place, lost};
use super::bridge::Shared;
use super::inbound::{Act, Fixes, Known, Voice, decide, outdated, turn_place};
use super::names::{GUEST, key, lineage, room, short};
use super::outbound::Posting;
use super::rest::{PAGE, RestError};
use super::runs::{GAP, Run};
use super::seen::{Post, first_id, moment};
use crate::broker::{Backoff, Broker};

/// Pause before a call is tried again, at first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Tries of a call while the broker is full.
const SATURATED_TRIES_MAX: u32 = 5;

/// Hears posts, and makes calls of them.
pub(crate) struct Intake {
    shared: Arc<Shared>,
    /// Posts of which another part may come, by channel, and until when.
    tails: BTreeMap<u64, (Run, Instant)>,
    /// Humans may have to be told of posts that were too old.
    late: AtomicBool,
}

impl Intake {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, tails: BTreeMap::new(), late: AtomicBool::new(true) }
    }

    /// Serves. Ends only where the broker refuses for good, or the bridge's own file can't be written.
    pub(crate) async fn run(mut self, mut posts: mpsc::Receiver<Post>, mut missed: watch::Receiver<u64>) -> String {
        loop {
            let due = self.tails.values().map(|(_, until)| *until).min();
            let done = tokio::select! {
                biased;
                changed = missed.changed() => match changed {
                    Ok(()) => self.catch_up().await,
                    Err(_) => return "the gateway ended".to_owned(),
                },
                post = posts.recv() => match post {
                    Some(post) => self.hear(post).await,
                    None => return "the gateway ended".to_owned(),
                },
                () = reached(due) => self.flush_due(due).await,
            };
            // Once for all of them: not before everything is read that waits.
            let told = match done {
                Ok(()) if posts.is_empty() => self.tell_late().await,
                done => done,
            };
            if let Err(error) = told {
                return error.to_string();
            }
        }
    }

    /// Where to begin in channels that are new: what was said before the bridge was there is not for it.
    pub(crate) async fn begin(&self) -> Result<(), String> {
        let Shared { settings, book, outbox, .. } = &*self.shared;
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
                    last.max(outbox.broker.now_ms().map_or(0, first_id))
                }
            };
            let away = rfc3339(Time(moment(since)));
            book.begin_in(channel, since, &away).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// Reads what was posted while nobody listened.
    async fn catch_up(&mut self) -> Result<(), ClientError> {
        let shared = Arc::clone(&self.shared);
        let behind = Behind::look(&shared).await?;
        let channels = shared.settings.channels.iter().map(|channel| (*channel, 0));
        for (channel, since) in channels.chain(behind.threads) {
            if let Err(error) = self.catch_up_in(channel, since).await? {
                shared.outbox.warn(&format!("{channel} can't be read. {error}"));
            }
        }
        // Only now: whoever is killed on the way looks for the same threads again.
        for (channel, moment) in behind.looked {
            shared.book.looked_through(channel, &moment).map_err(lost)?;
        }
        Ok(())
    }

    /// Reads what is behind the last post that was dealt with, or behind `since` where none was.
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
                self.hear(post).await?;
            }
            if !full {
                return Ok(Ok(()));
            }
        }
    }

    /// A post came.
    async fn hear(&mut self, post: Post) -> Result<(), ClientError> {
        let channel = post.channel;
        if !self.shared.takes_part(channel).await {
            return Ok(());
        }
        let handled = self.shared.book.handled(channel).map_err(lost)?.unwrap_or_default();
        let held = self.tails.get(&channel).map_or(0, |(run, _)| run.last_id());
        if post.id <= handled.max(held) {
            return Ok(());
        }
        let run = match self.tails.remove(&channel) {
            None => Run::of(post),
            Some((mut run, _)) => match run.go_on(post, Fixes::default()) {
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

    /// Decides what a run of posts means, notes it, does it, and notes that it is done.
    async fn deal_with(&self, run: &Run) -> Result<(), ClientError> {
        let shared = &self.shared;
        let Some(first) = run.first() else { return Ok(()) };
        let acts = match shared.book.decided(first.id).map_err(lost)? {
            // Nobody knows whether it was done. What was done is not done again: the key is taken.
            Some(acts) if self.is_old(first) => outdated(acts),
            Some(acts) => acts,
            None => {
                let acts = self.decided(run, first).await?;
                if !acts.is_empty() {
                    shared.book.decide(first.id, &acts).map_err(lost)?;
                }
                acts
            }
        };
        for act in acts {
            if !self.perform(first, act).await? {
                break;
            }
        }
        shared.book.handle(first.channel, first.id, run.last_id()).map_err(lost)
    }

    /// Whether a post is so old that it asks nobody any more, by Discord's own clock.
    fn is_old(&self, post: &Post) -> bool {
        let age_ms = self.shared.outbox.broker.now_ms().map(|now| now.saturating_sub(post.unix_ms()));
        age_ms.is_some_and(|age| u128::from(age) > self.shared.age_max.as_millis())
    }

    /// Tells the humans of posts that were too old, where they posted them.
    async fn tell_late(&self) -> Result<(), ClientError> {
        if !self.late.swap(false, Ordering::Relaxed) {
            return Ok(());
        }
        let Shared { book, outbox, age_max, .. } = &*self.shared;
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
        let turn = self.turn(post).await?;
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
            fixes: Fixes::default(),
        };
        Ok(decide(run, &known))
    }

    /// The open turn that was shown to the author's bot where it posts.
    async fn turn(&self, post: &Post) -> Result<Option<String>, ClientError> {
        let Some(member) = self.shared.roster.get(post.author.id).filter(|member| !member.ours) else {
            return Ok(None);
        };
        let parent = self.shared.threads.parent(post.channel).await.ok().flatten();
        let place = turn_place(post.channel, parent, Fixes::default());
        let Some(turn) = self.shared.book.turn(&member.agent, place).map_err(lost)? else { return Ok(None) };
        let held = match self.shared.takers.get(&member.agent) {
            Some(taker) => taker.held(&turn).await,
            None => None,
        };
        Ok(held.map(|_| turn))
    }

    /// Does it; says whether what comes after it is still to be done.
    async fn perform(&self, post: &Post, act: Act) -> Result<bool, ClientError> {
        match act {
            Act::Post { voice, body } => {
                let plain = RoomPost { body, mentions: None, reference: None };
                let sent = self.post(post, &voice, &plain).await?;
                if was_done(&sent) && self.is_old(post) {
                    return Ok(false);
                }
                self.explain(post, &voice, sent).await;
            }
            Act::Submit { voice, text } => {
                let sent = self.submit(post, &voice, text.clone()).await?;
                if sent.is_err() && !is_silent(&sent) && !matches!(voice, Voice::Human(_)) {
                    // What is no message is a post like any other, and counts where it stands (R1). What was refused
                    // for its turns was counted in its conversation.
                    let plain = RoomPost { body: text, mentions: None, reference: None };
                    let counted = self.post_under(&format!("{}.0", key(post.id)), post, &voice, &plain).await?;
                    if is_silent(&counted) {
                        return Ok(true);
                    }
                }
                self.explain(post, &voice, sent).await;
            }
            Act::Finish { agent, turn, answer } => {
                let Some(taker) = self.shared.takers.get(&agent) else { return Ok(true) };
                // A turn that is over was ended by this very answer, before the bridge was.
                let Some(held) = taker.held(&turn).await else { return Ok(true) };
                if let Err(reason) = taker.finish(&held, answer).await {
                    self.hint(post, &format!("{agent}:late"), &format!("{agent}: {reason}")).await;
                }
                self.shared.book.end_turn(&turn).map_err(lost)?;
            }
            Act::Say { user, mentions, about, opens, body } => {
                return self.say(post, user, mentions, about, opens, body).await;
            }
            Act::Hint { about, text } => self.hint(post, &about, &text).await,
            Act::Late => {
                self.shared.book.miss(post.id, post.channel).map_err(lost)?;
                self.late.store(true, Ordering::Relaxed);
            }
        }
        Ok(true)
    }

    async fn say(
        &self,
        post: &Post,
        user: u64,
        mentions: Vec<String>,
        about: Option<String>,
        opens: bool,
        body: String,
    ) -> Result<bool, ClientError> {
        let book = &self.shared.book;
        if let Some(reference) = about.as_deref().filter(|_| opens) {
            book.place(&self.place(post, reference).await).map_err(lost)?;
        }
        if let (Some(reference), Some(agent)) = (&about, mentions.first()) {
            book.involve(reference, agent).map_err(lost)?;
        }
        let named = self.shared.roster.mentioned(post);
        for (number, agent) in mentions.iter().enumerate() {
            // Whom the human's own post mentions has it before it, and gets it no second time.
            if self.shared.roster.foreign(agent).is_some() && named.contains(agent) {
                book.ask(&format!("{}.{}", key(post.id), number + 1), post.channel).map_err(lost)?;
            }
        }
        let said = RoomPost { body, mentions: Some(mentions), reference: about };
        let voice = Voice::Human(user);
        let sent = self.post(post, &voice, &said).await?;
        if was_done(&sent) && self.is_old(post) {
            return Ok(false);
        }
        self.explain(post, &voice, sent).await;
        Ok(true)
    }

    async fn post(&self, post: &Post, voice: &Voice, said: &RoomPost) -> Result<Result<(), ClientError>, ClientError> {
        self.post_under(&key(post.id), post, voice, said).await
    }

    async fn post_under(
        &self,
        key: &str,
        post: &Post,
        voice: &Voice,
        said: &RoomPost,
    ) -> Result<Result<(), ClientError>, ClientError> {
        let room = match self.room(post.channel).await {
            Ok(room) => room,
            Err(error) => return refused_or_fatal(Err(error)),
        };
        let broker = self.broker(voice);
        let sent = deliver(broker, || broker.client.post_in_room(&room, said, Some(key))).await.map(|_| ());
        refused_or_fatal(sent)
    }

    async fn submit(&self, post: &Post, voice: &Voice, text: String) -> Result<Result<(), ClientError>, ClientError> {
        let book = &self.shared.book;
        let reference = header::parse(&text).ok().map(|(header, _)| header.reference.to_string());
        let mut fresh = None;
        if let Some(reference) = reference
            && self.shared.threads.place(&reference, None).map_err(lost)?.is_none()
        {
            book.place(&self.place(post, &reference).await).map_err(lost)?;
            fresh = Some(reference);
        }
        let broker = self.broker(voice);
        let key = key(post.id);
        let sent = deliver(broker, || broker.client.send_text_keyed(text.clone(), Some(&key))).await.map(|_| ());
        if let (Some(reference), Err(_)) = (&fresh, &sent) {
            let root = lineage(reference).last().unwrap_or(reference);
            book.unplace(root, post.id).map_err(lost)?;
        }
        refused_or_fatal(sent)
    }

    /// Where a conversation that begins with this post is shown: in a thread of its own, or in that in which it is.
    async fn place(&self, post: &Post, reference: &str) -> Place {
        let parent = self.shared.threads.parent(post.channel).await.ok().flatten();
        let thread = parent.is_some().then_some(post.channel);
        let reference = lineage(reference).last().unwrap_or(reference).to_owned();
        Place { reference, channel: parent.unwrap_or(post.channel), origin: post.id, thread }
    }

    /// The room of a channel, opened where it isn't yet.
    async fn room(&self, channel: u64) -> Result<String, ClientError> {
        let name = room(channel);
        if !self.shared.has_room(channel) {
            let members = self.shared.roster.agents().chain([GUEST]).map(str::to_owned).collect();
            let room = NewRoom { name: name.clone(), members };
            let broker = &self.shared.broker;
            deliver(broker, || broker.client.open_room(&room)).await?;
            self.shared.note_room(channel);
        }
        Ok(name)
    }

    fn broker(&self, voice: &Voice) -> &Broker {
        match voice {
            Voice::Agent(agent) => self.shared.takers.get(agent).map_or(&self.shared.guest, |taker| &taker.broker),
            Voice::Guest => &self.shared.guest,
            Voice::Human(user) => self.shared.humans.get(user).unwrap_or(&self.shared.broker),
        }
    }

    /// Says to the humans why something was not passed on: to a human each time, of a bot once for each reason.
    async fn explain(&self, post: &Post, voice: &Voice, sent: Result<(), ClientError>) {
        let Err(error) = sent else { return };
        let Some(problem) = error.problem() else { return };
        // Beyond the limit of turns a room stays silent: its one warning was posted.
        if is_turns(problem.code) {
            return;
        }
        // A bot is named, and not mentioned: what explains a refusal must wake nobody.
        let (who, about) = match voice {
            Voice::Human(user) => (format!("<@{user}>"), format!("{}", post.id)),
            Voice::Agent(agent) => (agent.clone(), format!("{}:{}:{}", post.author.id, post.channel, problem.code)),
            Voice::Guest => ("a bot".to_owned(), format!("{}:{}:{}", post.author.id, post.channel, problem.code)),
        };
        let detail = problem.detail.trim_end_matches('.');
        let text = format!("{who}: not passed on. {detail}. {}", problem.hint);
        self.hint(post, &about, &text).await;
    }

    async fn hint(&self, post: &Post, about: &str, text: &str) {
        let book = &self.shared.book;
        if book.hinted(about).unwrap_or(true) {
            return;
        }
        let posting = Posting::of_broker(text.to_owned());
        let name = format!("h{}", short(post.id));
        self.shared.outbox.send(&name, post.channel, &posting, Some(post.id)).await;
        if let Err(error) = book.hint(about) {
            self.shared.outbox.warn(&lost(error).to_string());
        }
    }
}

/// Repeats a call until it is answered. A refusal is an answer, whatever may be possible later: what waits behind the
/// post would wait with it. A full broker alone is tried again, a few times.
async fn deliver<T, F>(broker: &Broker, mut call: impl FnMut() -> F) -> Result<T, ClientError>
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
            ClientError::Unreachable { .. } | ClientError::Unexpected { .. } => true,
        };
        if !again {
            return Err(error);
        }
        broker.fails(&error);
        sleep(backoff.grow()).await;
    }
}

const fn is_turns(code: Code) -> bool {
    matches!(code, Code::TurnsSoft | Code::TurnsHard)
}

/// Whether it was refused because enough was said there since a human spoke.
fn is_silent(sent: &Result<(), ClientError>) -> bool {
    sent.as_ref().err().and_then(ClientError::problem).is_some_and(|problem| is_turns(problem.code))
}

/// Whether it was done before in other words: as it was meant before it was too old.
fn was_done(sent: &Result<(), ClientError>) -> bool {
    sent.as_ref().err().and_then(ClientError::problem).is_some_and(|problem| problem.code == Code::IdempotencyConflict)
}

/// A refusal is for whoever posted; anything else ends the bridge.
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
