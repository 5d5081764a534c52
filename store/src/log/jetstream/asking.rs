//! Questions from one node to another through NATS, sealed with a key that NATS doesn't have.

use std::time::Duration;

use async_nats::connection::State;
use async_nats::{Client, Message, Request, RequestErrorKind, Subscriber};
use futures_util::StreamExt as _;

use super::nats::{Nats, NatsError};
use crate::registry::Sealing;

/// The wait for a sign that somebody listens.
const LISTENS_MAX: Duration = Duration::from_millis(300);
/// Room for what sealing and NATS add to a message.
const ROOM: usize = 4 << 10;

/// Why a question wasn't answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// Nobody was asked.
    #[error("{0}")]
    Unasked(String),
    /// Whoever was asked may have done what it was about.
    #[error("{0}")]
    Unanswered(String),
}

/// Who is asked.
#[derive(Clone, Copy, Debug)]
pub struct Listener<'a> {
    /// The subject on which it listens.
    pub subject: &'a str,
    /// What it opens questions by: those for an earlier listener stay closed.
    pub label: &'a str,
}

/// The questions that a node is asked.
pub struct Questions {
    client: Client,
    subscriber: Subscriber,
}

/// A question of another node.
pub struct Question {
    client: Client,
    message: Message,
}

/// Returns what an answer is sealed under: it is of one question.
fn answer_to(reply: &str) -> String {
    format!("answer {reply}")
}

/// Returns what a question is sealed under: it is for one listener, and for one answer.
fn question_of(label: &str, reply: &str) -> String {
    format!("question {label} {reply}")
}

impl Nats {
    /// Returns the longest question and answer, in bytes.
    #[must_use]
    pub fn question_bytes_max(&self) -> usize {
        self.client().max_payload().saturating_sub(ROOM)
    }

    /// Returns whether somebody may listen on a subject: NATS doesn't say that nobody does.
    pub async fn may_be_heard(&self, subject: &str) -> bool {
        let asked = self.client().send_request(subject.to_owned(), Request::new().timeout(Some(LISTENS_MAX))).await;
        !asked.is_err_and(|error| error.kind() == RequestErrorKind::NoResponders)
    }

    /// Asks a question, and waits for the answer.
    ///
    /// # Errors
    /// See [`AskError`].
    pub async fn ask(
        &self,
        Listener { subject, label }: Listener<'_>,
        sealing: &Sealing,
        question: &[u8],
        within: Duration,
    ) -> Result<Vec<u8>, AskError> {
        let unasked = |reason: &dyn std::fmt::Display| AskError::Unasked(reason.to_string());
        // The client would keep it, and send it when nobody waits any more.
        if self.client().connection_state() != State::Connected {
            return Err(AskError::Unasked("no connection to a server of NATS".to_owned()));
        }
        let reply = self.client().new_inbox();
        let sealed = sealing.seal(&question_of(label, &reply), question).map_err(|error| unasked(&error))?;
        let request = Request::new().payload(sealed.into()).inbox(reply.clone()).timeout(Some(within));
        let answered = self.client().send_request(subject.to_owned(), request).await;
        let answer = answered.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders
            | RequestErrorKind::InvalidSubject
            | RequestErrorKind::MaxPayloadExceeded => unasked(&error),
            RequestErrorKind::TimedOut | RequestErrorKind::Other => AskError::Unanswered(error.to_string()),
        })?;
        let opened = sealing.open(&answer_to(&reply), &answer.payload);
        opened.ok_or_else(|| AskError::Unanswered("the answer is sealed with another key".to_owned()))
    }

    /// Listens for questions on a subject.
    ///
    /// # Errors
    /// [`NatsError::Unavailable`].
    pub async fn questions(&self, subject: &str) -> Result<Questions, NatsError> {
        let subscribed = self.client().subscribe(subject.to_owned()).await;
        let subscriber = subscribed.map_err(|error| NatsError::Unavailable { reason: error.to_string() })?;
        Ok(Questions { client: self.client().clone(), subscriber })
    }
}

impl Questions {
    /// Waits for the next question; `None`: listen anew.
    pub async fn next(&mut self) -> Option<Question> {
        let message = self.subscriber.next().await?;
        Some(Question { client: self.client.clone(), message })
    }
}

impl Question {
    /// Returns the question; `None` if it isn't for this label, or sealed with another key.
    #[must_use]
    pub fn open(&self, sealing: &Sealing, label: &str) -> Option<Vec<u8>> {
        sealing.open(&question_of(label, self.message.reply.as_deref()?), &self.message.payload)
    }

    /// Answers it.
    ///
    /// # Errors
    /// [`AskError::Unanswered`]: whoever asked hears nothing.
    pub async fn answer(self, sealing: &Sealing, answer: &[u8]) -> Result<(), AskError> {
        let failed = |error: &dyn std::fmt::Display| AskError::Unanswered(error.to_string());
        let reply = self.message.reply.ok_or_else(|| failed(&"nobody waits for an answer"))?;
        let sealed = sealing.seal(&answer_to(&reply), answer).map_err(|error| failed(&error))?;
        self.client.publish(reply, sealed.into()).await.map_err(|error| failed(&error))
    }
}
