//! Carries out what was decided of a post: calls to the broker in its author's name, and hints.

use std::sync::atomic::Ordering;
use std::time::Duration;

use lastword_client::wire::{NewRoom, Post as RoomPost, Problem};
use lastword_client::{Backoff, ClientError, RetryingClient};
use lastword_facts::fact::Role;
use lastword_facts::refusal::Refusal;
use lastword_facts::{Code, header};
use tokio::time::sleep;

use super::Intake;
use crate::actors::Actor;
use crate::book::{ThreadPlace, lost};
use crate::calls::{BrokerCall, Done, NextStep, call, doubles, explanation, refused};
use crate::heard::Reach;
use crate::ids::ChannelId;
use crate::inbound::{Act, Voice};
use crate::names::{hint_name, lineage};
use crate::outbound::Posting;
use crate::post::Post;
use crate::{early, kept};

/// Pause before a call is retried, first and longest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Most tries of a call while the broker is saturated.
const SATURATED_TRIES_MAX: u32 = 5;

/// Whoever makes a call for a human, and the role that the author's roles on the server give.
type Speaking<'a> = (Actor<'a>, Option<Role>);

impl Intake {
    /// Carries out an act and returns what to do next. `tried` is the log's head before an earlier try, 0 if unknown.
    pub(super) async fn perform(&self, post: &Post, act: &Act, tried: Option<u64>) -> Result<NextStep, ClientError> {
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
        let acting = match self.acting(post, &call).await? {
            Ok(acting) => acting,
            Err(hint) => return Ok(NextStep::Also(vec![hint])),
        };
        let (broker, member) = (acting.as_ref().map(|(actor, _)| actor), acting.as_ref().and_then(|(_, role)| *role));
        let before = match tried.filter(|head| *head > 0 && doubles(act)) {
            Some(head) => self.done(act, head).await?,
            None => None,
        };
        let sent = match (before, &call) {
            (Some(Done::All), _) => return Ok(NextStep::GoOn),
            (Some(Done::Refused(problem)), _) => Err(ClientError::Refused(problem)),
            (None, BrokerCall::Post { voice, said }) => {
                if let Act::Say { mentions, reference, opens, .. } = act {
                    self.prepare(post, mentions, reference.as_deref(), *opens).await?;
                }
                self.post(post, voice, broker, said).await?
            }
            (None, BrokerCall::Send { voice, text }) => self.submit(post, voice, broker, text).await?,
            (None, BrokerCall::Finish { agent, turn, answer }) => return self.finish(agent, turn, answer).await,
        };
        if let Some(actor) = broker {
            actor.ended(&sent);
        }
        let problem = sent.as_ref().err().and_then(ClientError::problem);
        if let Some(problem) = problem
            && let Some(hint) = kept::keep(&self.shared.book, post, act, problem)?
        {
            return Ok(NextStep::Also(vec![hint]));
        }
        Ok(problem.map_or(NextStep::GoOn, |problem| refused(&call, post, self.is_old(post), member, problem)))
    }

    /// Returns whoever makes a call of a human, and the role that the author's roles on the server give; or a hint why
    /// nobody can.
    async fn acting(&self, post: &Post, call: &BrokerCall) -> Result<Result<Option<Speaking<'_>>, Act>, ClientError> {
        let (BrokerCall::Post { voice, .. } | BrokerCall::Send { voice, .. }) = call else { return Ok(Ok(None)) };
        let Voice::Human(_) = voice else { return Ok(Ok(None)) };
        let shared = &self.shared;
        let home = shared.home_of(post.channel).await;
        let known =
            post.person().and_then(|person| Some((shared.settings.heard(Reach::Channel(home), &person)?, person)));
        let Some((heard, person)) = known else {
            // It was heard when the post was decided, and the post waited since.
            let why = "You may no longer act here.";
            return Ok(Err(explanation(post, voice, "", why)));
        };
        let found = deliver(&shared.broker, || shared.actor(&person, heard)).await?;
        Ok(match found {
            Ok(actor) => Ok(Some((actor, heard.role()))),
            Err(reason) => Err(explanation(post, voice, "", &format!("{}.", reason.trim_end_matches('.')))),
        })
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
                book.ask(&format!("{}.{}", self.shared.dialect.key(post.id), number + 1), post.channel)
                    .map_err(lost)?;
            }
        }
        Ok(())
    }

    async fn post(
        &self,
        post: &Post,
        voice: &Voice,
        actor: Option<&Actor<'_>>,
        said: &RoomPost,
    ) -> Result<Result<(), ClientError>, ClientError> {
        let room = match self.room(post.channel).await {
            Ok(room) => room,
            Err(error) => return refused_or_fatal(Err(error)),
        };
        let key = self.shared.dialect.key(post.id);
        loop {
            let as_guest = self.is_guest(voice);
            let broker = actor.map_or_else(|| self.bot(voice, as_guest), Actor::broker);
            let sent = deliver(broker, || broker.client().post_in_room(&room, said, Some(&key))).await.map(|_| ());
            // What a bot without a token posts counts as a guest's.
            if !self.signed_out(voice, as_guest, &sent) {
                return if actor.is_some_and(Actor::is_alone) { Ok(sent) } else { refused_or_fatal(sent) };
            }
        }
    }

    async fn submit(
        &self,
        post: &Post,
        voice: &Voice,
        actor: Option<&Actor<'_>>,
        text: &str,
    ) -> Result<Result<(), ClientError>, ClientError> {
        if let Some(problem) = actor.and_then(|actor| claimed(actor.name(), text)) {
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
        let as_guest = self.is_guest(voice);
        let broker = actor.map_or_else(|| self.bot(voice, as_guest), Actor::broker);
        let dialect = self.shared.dialect;
        let human = matches!(voice, Voice::Human(_));
        let key = if human { dialect.key(post.id) } else { dialect.message_key(post.id) };
        let sent = deliver(broker, || broker.client().send_text_keyed(text.to_owned(), Some(&key))).await.map(|_| ());
        if let (Some(reference), Err(_)) = (&fresh, &sent) {
            let root = lineage(reference).last().unwrap_or(reference);
            book.unplace(root, post.id).map_err(lost)?;
        }
        // The text of a bot without a token isn't a message, and counts as a guest's post.
        if self.signed_out(voice, as_guest, &sent) || actor.is_some_and(Actor::is_alone) {
            Ok(sent)
        } else {
            refused_or_fatal(sent)
        }
    }

    /// Takes a foreign bot out of service if the broker refuses its token; returns whether this call was made with it.
    fn signed_out(&self, voice: &Voice, as_guest: bool, sent: &Result<(), ClientError>) -> bool {
        let refused = sent.as_ref().err().and_then(ClientError::problem);
        let Some(_) = refused.filter(|problem| problem.code == Code::Unauthenticated) else { return false };
        let Voice::Agent(agent) = voice else { return false };
        // Its deliveries may have found this out during the call.
        self.shared.lose(agent);
        !as_guest
    }

    /// Returns whether the calls of a bot are made as a guest.
    fn is_guest(&self, voice: &Voice) -> bool {
        !matches!(voice, Voice::Agent(agent) if !self.shared.is_lost(agent) && self.shared.takers.contains_key(agent))
    }

    /// Returns where a conversation that begins with this post is shown: in a new thread, or in the thread of the post.
    async fn place(&self, post: &Post, reference: &str) -> ThreadPlace {
        let parent = self.shared.threads.parent(post.channel).await.ok().flatten();
        let thread = parent.is_some().then_some(post.channel);
        let reference = lineage(reference).last().unwrap_or(reference).to_owned();
        ThreadPlace { reference, channel: parent.unwrap_or(post.channel), origin: post.id, thread }
    }

    /// Returns a channel's room, opened if the bridge hasn't done so since its start.
    async fn room(&self, channel: ChannelId) -> Result<String, ClientError> {
        let name = self.shared.dialect.room(channel);
        if !self.shared.has_room(channel) {
            let members = self.shared.roster.agents().chain([self.shared.dialect.guest]).map(str::to_owned).collect();
            let room = NewRoom { name: name.clone(), members, key: None };
            let broker = &self.shared.broker;
            deliver(broker, || broker.client().open_room(&room)).await?;
            self.shared.note_room(channel);
        }
        Ok(name)
    }

    /// Returns the broker as a bot; a human's calls are its actor's.
    fn bot(&self, voice: &Voice, as_guest: bool) -> &RetryingClient {
        match voice {
            Voice::Agent(agent) if !as_guest => {
                self.shared.takers.get(agent).map_or(&self.shared.guest, |taker| &taker.broker)
            }
            Voice::Agent(_) | Voice::Guest | Voice::Human(_) => &self.shared.guest,
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

/// Returns the refusal of a human's text that claims another sender or depth: it is never rewritten (E3). A human's
/// message adds no depth, so 0 is due.
fn claimed(name: &str, text: &str) -> Option<Problem> {
    let (header, _) = header::parse(text).ok()?;
    let claim = header.from.as_str();
    if claim != name {
        return Some(Problem::new(&Refusal::new(Code::FromMismatch).about(claim)));
    }
    let depth = u64::from(header.depth);
    (depth != 0).then(|| Problem::new(&Refusal::new(Code::DepthMismatch).numbers(0, depth)))
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
