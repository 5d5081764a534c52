//! Posts exactly once: looks for a post that may have been sent before it sends the post again.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::book::{BridgeStore, Tried};
use super::cards::Button;
use super::outbound::{Poster, Posting};
use super::rest::{PAGE, Rest, RestError};
use crate::event::{Event, EventSink};
use lastword_client::Backoff;

/// Pause before a call is retried, first and longest.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// Most pages of history searched for a post.
const HISTORY_PAGES_MAX: usize = 20;

/// One message of a post.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) nonce: &'a str,
    pub(crate) channel: u64,
    /// Its text, by which it is found if its answer was lost.
    pub(crate) text: &'a str,
    pub(crate) body: &'a Value,
    pub(crate) file: Option<&'a str>,
}

/// Sends posts as the broker's or an agent's bot.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) book: BridgeStore,
    /// The client of the broker's bot.
    pub(crate) broker: Rest,
    pub(crate) agents: BTreeMap<String, Rest>,
    pub(crate) report: EventSink,
}

impl Outbox {
    /// Returns a poster's bot; the broker's if the agent has none of ours in service.
    pub(crate) fn rest(&self, poster: &Poster) -> &Rest {
        match poster {
            Poster::Broker => &self.broker,
            Poster::Agent(agent) => self.agents.get(agent).filter(|rest| rest.is_known()).unwrap_or(&self.broker),
        }
    }

    /// Returns whether an agent has a bot of ours in service.
    pub(crate) fn posts_as(&self, agent: &str) -> bool {
        self.agents.get(agent).is_some_and(Rest::is_known)
    }

    /// Posts all parts, each once; returns the id of the first. `name` is unique to this post. `None` if Discord
    /// refuses a part.
    pub(crate) async fn send(&self, name: &str, channel: u64, posting: &Posting, reply: Option<u64>) -> Option<u64> {
        let mut first = None;
        for (number, part) in posting.parts.iter().enumerate() {
            let reply = reply.filter(|_| number == 0);
            let nonce = self.book.nonce(name, number);
            let last = number + 1 == posting.parts.len();
            // Ping only in the last part: the bot is woken by it and must find the whole message.
            let mut body = message(part.trim(), &nonce, posting.ping.filter(|_| last), reply);
            if let Some(id) = posting.envelope.as_ref().filter(|_| last) {
                body["components"] = Button::Envelope { id: id.clone() }.alone("envelope");
            }
            let file = posting.file.as_deref().filter(|_| last);
            let part = Part { nonce: &nonce, channel, text: part.trim(), body: &body, file };
            let sent = self.send_part(part, &posting.poster).await?;
            first.get_or_insert(sent);
        }
        first
    }

    async fn send_part(&self, mut part: Part<'_>, poster: &Poster) -> Option<u64> {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let rest = self.rest(poster);
            // Retried here, so that later posts of the caller keep their order.
            match self.try_part(rest, &part).await {
                Ok(id) => return Some(id),
                // The bot's token was revoked: the broker's bot posts instead.
                Err(_) if !rest.is_known() && !std::ptr::eq(rest, &raw const self.broker) => {}
                Err(error) if error.may_pass() => {
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

    pub(crate) async fn try_part(&self, rest: &Rest, part: &Part<'_>) -> Result<u64, RestError> {
        let Part { nonce, channel, text, body, file } = *part;
        let found = match self.book.tried(nonce).map_err(lost)? {
            // Three states: sent and known; begun, so it may have been sent and is looked for; new.
            Some(Tried { id: Some(id), .. }) => return Ok(id),
            Some(Tried { id: None, floor }) => self.look_for(rest, channel, floor, text).await?,
            None => {
                self.book.begin(nonce, channel, text).map_err(lost)?;
                None
            }
        };
        let id = match found {
            Some(id) => id,
            None => rest.post(channel, body, file).await?,
        };
        self.book.sent(nonce, id).map_err(lost)?;
        Ok(id)
    }

    /// Returns the post with this text that this bot made after `floor` and that doesn't belong to another nonce.
    async fn look_for(&self, rest: &Rest, channel: u64, floor: u64, text: &str) -> Result<Option<u64>, RestError> {
        let mut after = floor;
        for _ in 0..HISTORY_PAGES_MAX {
            let posts = rest.posts_after(channel, after).await?;
            for post in posts.iter().filter(|post| post.author.id == rest.user && post.content.trim() == text) {
                if !self.book.is_known(post.id).map_err(lost)? {
                    return Ok(Some(post.id));
                }
            }
            match posts.last() {
                Some(last) if posts.len() == PAGE => after = last.id,
                Some(_) | None => break,
            }
        }
        Ok(None)
    }

    pub(crate) fn warn(&self, message: &str) {
        self.report.emit(&Event::Warning { message: message.to_owned() });
    }

    /// Repeats a call until Discord answers; returns its refusal as an error.
    pub(crate) async fn persist<T, F>(&self, call: impl FnMut() -> F) -> Result<T, RestError>
    where
        F: Future<Output = Result<T, RestError>>,
    {
        self.try_for(u32::MAX, call).await
    }

    /// Like [`Outbox::persist`], for calls that the bridge can do without: gives up after `tries`.
    pub(crate) async fn try_for<T, F>(&self, tries: u32, mut call: impl FnMut() -> F) -> Result<T, RestError>
    where
        F: Future<Output = Result<T, RestError>>,
    {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        let mut tried = 0;
        loop {
            tried += 1;
            match call().await {
                Err(error) if error.may_pass() && tried < tries => {
                    self.report.emit(&Event::Waiting { reason: error.to_string() });
                    sleep(backoff.grow()).await;
                }
                answer => return answer,
            }
        }
    }
}

/// Maps an error of the bridge's file to an unreachable Discord: a post that can't be noted isn't sent.
#[expect(clippy::needless_pass_by_value, reason = "the signature that `map_err` takes")]
fn lost(error: rusqlite::Error) -> RestError {
    RestError::Unreachable(format!("the bridge's own file: {error}"))
}

/// Builds a message that pings no user except the foreign bot that gets the delivery.
pub(crate) fn message(text: &str, nonce: &str, ping: Option<u64>, reply: Option<u64>) -> Value {
    let users: Vec<String> = ping.iter().map(ToString::to_string).collect();
    let mut message = json!({
        "content": text,
        "nonce": nonce,
        // Discord itself drops a repeated nonce for a few minutes; the bridge's file covers later retries.
        "enforce_nonce": true,
        "allowed_mentions": { "parse": [], "users": users, "replied_user": false },
    });
    if let Some(reply) = reply {
        message["message_reference"] = json!({ "message_id": reply.to_string(), "fail_if_not_exists": false });
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_pings_nobody_but_whom_it_is_delivered_to() {
        let plain = message("@everyone <@1>", "n", None, Some(5));
        assert_eq!(plain["allowed_mentions"], json!({ "parse": [], "users": [], "replied_user": false }));
        assert_eq!((&plain["nonce"], &plain["enforce_nonce"]), (&json!("n"), &json!(true)));
        assert_eq!(message("x", "n", Some(7), None)["allowed_mentions"]["users"], json!(["7"]));
    }
}
