//! Posts exactly once: looks for a post that may have been sent before it sends the post again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::book::{BridgeStore, Tried};
use super::cards::{Button, Style};
use super::event::{Event, EventSink};
use super::ids::{ChannelId, PostId, UserId};
use super::outbound::Posting;
use super::platform::{Part, Platform, PlatformError, Poster, Spot};
use lastword_client::Backoff;

/// Pause before a call is retried, first and longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Most pages of history searched for a post.
const HISTORY_PAGES_MAX: usize = 20;

/// Sends posts as the broker's or an agent's bot.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) book: BridgeStore,
    pub(crate) platform: Arc<dyn Platform>,
    /// The user of the broker's bot.
    pub(crate) broker: UserId,
    /// The users of the agents' bots that were signed in, by agent.
    pub(crate) agents: BTreeMap<String, UserId>,
    pub(crate) report: EventSink,
}

impl Outbox {
    /// Returns whether an agent has a bot of ours in service.
    pub(crate) fn posts_as(&self, agent: &str) -> bool {
        self.agents.contains_key(agent) && self.platform.knows(&Poster::Agent(agent.to_owned()))
    }

    /// Returns a poster; the broker's bot if the agent has none of ours in service.
    fn serving<'a>(&self, poster: &'a Poster) -> &'a Poster {
        match poster {
            Poster::Agent(agent) if self.posts_as(agent) => poster,
            Poster::Agent(_) | Poster::Broker => &Poster::Broker,
        }
    }

    /// Posts all parts, each once; returns the id of the first. `name` is unique to this post. `None` if a part
    /// is refused.
    pub(crate) async fn send(
        &self,
        name: &str,
        channel: ChannelId,
        posting: &Posting,
        reply: Option<PostId>,
    ) -> Option<PostId> {
        let mut first = None;
        for (number, part) in posting.parts.iter().enumerate() {
            let reply = reply.filter(|_| number == 0);
            let nonce = self.book.nonce(name, number);
            let last = number + 1 == posting.parts.len();
            let envelope = posting.envelope.as_ref().filter(|_| last);
            let envelope = envelope.map(|id| Button::Envelope { id: id.clone() }.label("envelope", Style::Secondary));
            let buttons = envelope.map(|label| (self.platform.dialect().buttons)(&[label]));
            let (text, buttons, file) = (part.trim(), buttons.as_ref(), posting.file.as_deref().filter(|_| last));
            // Ping only in the last part: the bot is woken by it and must find the whole message.
            let ping = posting.ping.filter(|_| last);
            let part = Part { nonce: &nonce, channel, text, ping, reply, buttons, file };
            let sent = self.send_part(part, &posting.poster).await?;
            first.get_or_insert(sent);
        }
        first
    }

    async fn send_part(&self, mut part: Part<'_>, poster: &Poster) -> Option<PostId> {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let bot = self.serving(poster);
            // Retried here, so that later posts of the caller keep their order.
            match self.try_part(bot, &part).await {
                Ok(id) => return Some(id),
                // The bot's token was revoked: the broker's bot posts instead.
                Err(_) if self.serving(poster) != bot => {}
                Err(error) if error.may_pass => {
                    self.report.emit(&Event::Waiting { reason: error.to_string() });
                    sleep(backoff.grow()).await;
                }
                // The permission to attach files may be missing; the post itself isn't lost with it.
                Err(_) if part.file.is_some() => part.file = None,
                Err(error) => {
                    let message = format!("a post in {} is left out. {error}", part.channel);
                    self.report.emit(&Event::Warning { message });
                    return None;
                }
            }
        }
    }

    pub(crate) async fn try_part(&self, bot: &Poster, part: &Part<'_>) -> Result<PostId, PlatformError> {
        let Part { nonce, channel, text, .. } = *part;
        let found = match self.book.tried(nonce).map_err(lost)? {
            // Three states: sent and known; begun, so it may have been sent and is looked for; new.
            Some(Tried { id: Some(id), .. }) => return Ok(id),
            Some(Tried { id: None, floor }) => self.look_for(bot, Spot { channel, post: floor }, text).await?,
            None => {
                self.book.begin(nonce, channel, text).map_err(lost)?;
                None
            }
        };
        let id = match found {
            Some(id) => id,
            None => self.platform.post(bot, part).await?,
        };
        self.book.sent(nonce, id).map_err(lost)?;
        Ok(id)
    }

    /// Returns the post with this text that this bot made after a floor and that doesn't belong to another nonce.
    async fn look_for(&self, bot: &Poster, floor: Spot, text: &str) -> Result<Option<PostId>, PlatformError> {
        let user = match bot {
            Poster::Broker => Some(self.broker),
            Poster::Agent(agent) => self.agents.get(agent).copied(),
        };
        let mut after = floor;
        for _ in 0..HISTORY_PAGES_MAX {
            let page = self.platform.posts_after(bot, after).await?;
            for post in page.items.iter().filter(|post| Some(post.author.id) == user && post.content.trim() == text) {
                if !self.book.is_known(post.id).map_err(lost)? {
                    return Ok(Some(post.id));
                }
            }
            match page.items.last() {
                Some(last) if page.more => after.post = last.id,
                Some(_) | None => break,
            }
        }
        Ok(None)
    }

    pub(crate) fn warn(&self, message: &str) {
        self.report.emit(&Event::Warning { message: message.to_owned() });
    }

    /// Repeats a call until the platform answers; returns its refusal as an error.
    pub(crate) async fn persist<T, F>(&self, call: impl FnMut() -> F) -> Result<T, PlatformError>
    where
        F: Future<Output = Result<T, PlatformError>>,
    {
        persist(&self.report, call).await
    }

    /// Like [`Outbox::persist`], for calls that the bridge can do without: gives up after `tries`.
    pub(crate) async fn try_for<T, F>(&self, tries: u32, call: impl FnMut() -> F) -> Result<T, PlatformError>
    where
        F: Future<Output = Result<T, PlatformError>>,
    {
        try_for(tries, &self.report, call).await
    }
}

/// Repeats a call until the platform answers; returns its refusal as an error.
///
/// # Errors
/// The platform refuses the call.
pub async fn persist<T, F>(report: &EventSink, call: impl FnMut() -> F) -> Result<T, PlatformError>
where
    F: Future<Output = Result<T, PlatformError>>,
{
    try_for(u32::MAX, report, call).await
}

async fn try_for<T, F>(tries: u32, report: &EventSink, mut call: impl FnMut() -> F) -> Result<T, PlatformError>
where
    F: Future<Output = Result<T, PlatformError>>,
{
    let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
    let mut tried = 0;
    loop {
        tried += 1;
        match call().await {
            Err(error) if error.may_pass && tried < tries => {
                report.emit(&Event::Waiting { reason: error.to_string() });
                sleep(backoff.grow()).await;
            }
            answer => return answer,
        }
    }
}

/// Maps an error of the bridge's file to one that may pass: a post that can't be noted isn't sent.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
fn lost(error: rusqlite::Error) -> PlatformError {
    PlatformError { message: format!("the bridge's own file: {error}"), may_pass: true }
}
