//! A client for programs that stay connected: it retries until the broker answers, and finishes each turn once.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lastword_facts::names::OWN_NAME;
use lastword_facts::{Code, MessageType};
use lastword_wire::{AgentView, Delivery, Finish, Finished, Problem, TurnView};
use tokio::time::{sleep, timeout};

use crate::endpoint::Endpoint;
use crate::error::ClientError;
use crate::http::Client;
use crate::token::Token;

/// Longest wait for a delivery in one call.
const POLL: Duration = Duration::from_secs(30);
/// Time limit of a response beyond the wait, before the connection counts as dead.
const ANSWER: Duration = Duration::from_secs(15);
/// First and longest pause between two tries of a call.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// The broker's limits that a runner keeps to.
#[derive(Clone, Copy, Debug)]
pub struct RunnerLimits {
    /// Time that a turn may go without a sign of progress (`lease_ms`).
    pub lease: Duration,
    /// Shortest time between two reports of progress (`progress_interval_ms`).
    pub progress: Duration,
    /// Longest answer, in bytes (`body_bytes_max`).
    pub body_bytes_max: usize,
}

/// The outcome of [`RetryingClient::finish`].
#[derive(Debug)]
pub enum FinishOutcome {
    /// The broker recorded the answer.
    Finished(Finished),
    /// The turn had ended before; the broker records the answer as late.
    Late,
    /// The broker refused the answer for good; the reason.
    Refused(String),
}

/// A change of the connection to the broker, reported once and not at each retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Connection {
    /// A call failed and is retried.
    Waiting {
        /// The error, with the hint of a refusal.
        reason: String,
    },
    /// The broker answers again.
    Connected,
}

/// An exponential backoff: each pause is twice the one before, up to a maximum.
#[derive(Debug)]
pub struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    /// Starts at `min`; no pause is longer than `max`.
    #[must_use]
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, max }
    }

    /// Returns the next pause.
    pub fn grow(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = pause.saturating_mul(2);
        pause
    }
}

/// Whether to retry a call.
enum RetryDecision {
    /// Retry, after at least this pause where the server names one.
    Retry(Option<Duration>),
    /// A retry would fail in the same way.
    GiveUp,
}

/// A [`Client`] with one token that retries calls until they are answered or refused for good.
pub struct RetryingClient {
    client: Client,
    token: Token,
    on_change: Box<dyn Fn(Connection) + Send + Sync>,
    /// Whether the last call failed, so that a failure is reported only once.
    failing: Mutex<bool>,
}

impl fmt::Debug for RetryingClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryingClient").field("client", &self.client).finish_non_exhaustive()
    }
}

impl RetryingClient {
    /// Connects to the server with `token`, as a client of its own; `on_change` is called when the connection fails and when it recovers.
    ///
    /// # Errors
    /// The address or the token is malformed.
    pub fn new(
        endpoint: &Endpoint,
        token: &str,
        on_change: impl Fn(Connection) + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        let new = Self::without_session(&endpoint.clone().called_by_new(), token, on_change)?;
        Ok(Self { client: new.client.over_session(), ..new })
    }

    /// Like [`RetryingClient::new`], without a connection that stays: for one of many who rarely call.
    ///
    /// # Errors
    /// The address or the token is malformed.
    pub fn without_session(
        endpoint: &Endpoint,
        token: &str,
        on_change: impl Fn(Connection) + Send + Sync + 'static,
    ) -> Result<Self, ClientError> {
        let token = Token::new(token)?;
        let client = Client::new(endpoint, Some(token.clone()))?;
        Ok(Self { client, token, on_change: Box::new(on_change), failing: Mutex::default() })
    }

    /// Returns the underlying client, for calls without retries.
    #[must_use]
    pub const fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the token, to pass on to its agent.
    #[must_use]
    pub const fn token(&self) -> &Token {
        &self.token
    }

    /// Reads the limits in force. Not retried.
    ///
    /// # Errors
    /// The broker does not answer, or refuses.
    pub async fn limits(&self) -> Result<RunnerLimits, ClientError> {
        let limits = self.client.limits().await?;
        let value = |name: &str| limits.items.iter().find(|limit| limit.name == name).map(|limit| limit.value);
        let ms = |name, usual| Duration::from_millis(value(name).unwrap_or(usual));
        Ok(RunnerLimits {
            lease: ms("lease_ms", 600_000),
            progress: ms("progress_interval_ms", 1_000),
            body_bytes_max: value("body_bytes_max").and_then(|n| usize::try_from(n).ok()).unwrap_or(256 << 10),
        })
    }

    /// Returns the token's owner.
    ///
    /// # Errors
    /// The broker does not answer, or refuses.
    pub async fn me(&self) -> Result<AgentView, ClientError> {
        self.client.agent(OWN_NAME).await
    }

    /// Waits for the next delivery, without a limit of time.
    ///
    /// # Errors
    /// The broker refuses the call for good.
    pub async fn take(&self) -> Result<Delivery, ClientError> {
        loop {
            let taken = self.persist(|| self.within(POLL + ANSWER, self.client.inbox(POLL))).await?;
            if let Some(delivery) = taken {
                return Ok(delivery);
            }
        }
    }

    /// Runs `call` with a time limit.
    ///
    /// # Errors
    /// As the call, or [`ClientError::Unreachable`] once `time` is over.
    pub async fn within<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        timeout(time, call).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", time.as_secs());
            Err(ClientError::Unreachable { url: self.client.url().to_owned(), reason })
        })
    }

    /// Retries a call until it is answered.
    ///
    /// # Errors
    /// The broker refuses the call for good.
    pub async fn persist<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            match call().await {
                Ok(answer) => {
                    self.works();
                    return Ok(answer);
                }
                Err(error) => self.pause(&mut backoff, error).await?,
            }
        }
    }

    /// Pauses before a retry; returns the error if a retry would be useless.
    async fn pause(&self, backoff: &mut Backoff, error: ClientError) -> Result<(), ClientError> {
        match retry_decision(&error) {
            RetryDecision::GiveUp => Err(error),
            RetryDecision::Retry(least) => {
                self.fails(&error);
                sleep(backoff.grow().max(least.unwrap_or_default())).await;
                Ok(())
            }
        }
    }

    /// Finishes a turn exactly once: a finish whose response was lost is resent only if the turn is still open.
    pub async fn finish(&self, delivery: &Delivery, turn: &TurnView, finish: &Finish) -> FinishOutcome {
        match self.finish_once(delivery, turn, finish).await {
            Ok(finished) => FinishOutcome::Finished(finished),
            Err(ClientError::Refused(problem)) if is_late(&problem) => FinishOutcome::Late,
            Err(error) => FinishOutcome::Refused(error.to_string()),
        }
    }

    async fn finish_once(
        &self,
        delivery: &Delivery,
        turn: &TurnView,
        finish: &Finish,
    ) -> Result<Finished, ClientError> {
        let mut backoff = Backoff::new(PAUSE_MIN, PAUSE_MAX);
        loop {
            let sent = self.within(ANSWER, self.client.finish(&turn.id, finish)).await;
            // Any error but a refusal leaves open whether the broker recorded the finish.
            let unsure = !matches!(sent, Err(ClientError::Refused(_)));
            match sent {
                Ok(finished) => {
                    self.works();
                    return Ok(finished);
                }
                Err(error) => self.pause(&mut backoff, error).await?,
            }
            if unsure && let Some(recorded) = self.persist(|| self.recorded(delivery, turn, finish)).await? {
                return Ok(recorded);
            }
        }
    }

    /// Looks up a finish whose response was lost; `None` if the broker hasn't recorded it.
    async fn recorded(
        &self,
        delivery: &Delivery,
        turn: &TurnView,
        finish: &Finish,
    ) -> Result<Option<Finished>, ClientError> {
        if self.is_open(&turn.id).await? {
            return Ok(None);
        }
        let ended = |open, answer| Ok(Some(Finished { turn: Some(turn.id.clone()), open, answer, warning: None }));
        // An answer that opened the turn has the id of the request that it answers, not of the one served here.
        let served = delivery.message.request_id.as_ref().filter(|_| delivery.message.kind == MessageType::Request);
        let Some(id) = served else { return ended(finish.status.is_none(), None) };
        let request = self.within(ANSWER, self.client.request_state(id)).await?;
        match request.response {
            // The broker words an empty answer itself, so its text can't be compared.
            Some(response)
                if response.from == delivery.message.to
                    && (response.body == finish.answer || finish.answer.is_empty()) =>
            {
                ended(false, Some(response.id))
            }
            // A newer attempt is open, so this finish is late; resending it returns that to the runner.
            None if request.attempts <= turn.attempt => ended(true, None),
            Some(_) | None => Ok(None),
        }
    }

    /// Returns whether the turn is open.
    ///
    /// # Errors
    /// The broker does not answer, or refuses.
    pub async fn is_open(&self, turn: &str) -> Result<bool, ClientError> {
        let agents = self.within(ANSWER, self.client.agents()).await?;
        Ok(agents.items.iter().any(|agent| agent.turns.iter().any(|open| open == turn)))
    }

    /// Records a call that succeeded.
    pub fn works(&self) {
        if std::mem::take(&mut *self.failing.lock().unwrap_or_else(PoisonError::into_inner)) {
            (self.on_change)(Connection::Connected);
        }
    }

    /// Records a call that failed.
    pub fn fails(&self, error: &ClientError) {
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *failing, true) {
            let hint = error.problem().map(|problem| format!(" {}", problem.hint)).unwrap_or_default();
            (self.on_change)(Connection::Waiting { reason: format!("{error}.{hint}") });
        }
    }
}

/// Returns whether a finish came after its turn had ended.
#[must_use]
pub fn is_late(problem: &Problem) -> bool {
    matches!(problem.code, Code::LeaseLost | Code::AlreadySettled | Code::EpochOver)
}

/// Returns whether the same call may succeed later: the server is away, or busy.
#[must_use]
pub fn is_transient(error: &ClientError) -> bool {
    matches!(retry_decision(error), RetryDecision::Retry(_))
}

fn retry_decision(error: &ClientError) -> RetryDecision {
    match error {
        ClientError::Unreachable { .. } | ClientError::Unexpected { .. } => RetryDecision::Retry(None),
        // A retry would meet the same certificate; a person has to say which one is right.
        ClientError::Untrusted { .. } | ClientError::Unusable(_) => RetryDecision::GiveUp,
        ClientError::Refused(problem) => match problem.retry_after_ms {
            Some(ms) => RetryDecision::Retry(Some(Duration::from_millis(ms))),
            None if problem.status >= 500 || problem.code == Code::Stopped => RetryDecision::Retry(Some(PAUSE_MAX)),
            None => RetryDecision::GiveUp,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_maximum() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(350));
        let pauses: Vec<u128> = std::iter::repeat_with(|| backoff.grow().as_millis()).take(4).collect();
        assert_eq!(pauses, [100, 200, 350, 350]);
    }

    #[test]
    fn a_token_is_never_printed() {
        let broker = RetryingClient::new(&Endpoint::new("http://127.0.0.1:9"), "lw_canary", drop).unwrap();
        assert!(!format!("{broker:?}").contains("canary"));
    }
}
