//! The calls of a runner, with what to do when the broker does not answer.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lastword_client::wire::{Delivery, Finish, Finished, Problem, TurnView};
use lastword_client::{Client, ClientError, Token};
use lastword_proto::fact::Kind;
use lastword_proto::{Code, MessageType};
use tokio::time::{sleep, timeout};

use crate::event::{Event, Report};

/// Longest wait for a delivery in one call.
const POLL: Duration = Duration::from_secs(30);
/// Time that an answer gets beyond its wait, before the connection counts as dead.
const ANSWER: Duration = Duration::from_secs(15);
/// Pause before a call is tried again, at first and at last.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A token, which has no printed form.
#[derive(Clone)]
pub(crate) struct Secret(Box<str>);

impl Secret {
    /// The token itself, for the agent whose it is.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The broker's numbers that a runner keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    pub(crate) lease: Duration,
    pub(crate) progress: Duration,
    pub(crate) body_bytes_max: usize,
}

/// What came of a finish.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was taken.
    Finished(Finished),
    /// The turn was lost before; the answer is recorded as late.
    Late,
    /// It was refused for good.
    Refused(String),
}

/// A pause that grows from one failure to the next.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { next: min, max }
    }

    pub(crate) fn grow(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = pause.saturating_mul(2);
        pause
    }
}

/// Whether to try a call again.
enum Verdict {
    /// Yes; where it is said, not before so long.
    Again(Option<Duration>),
    /// It will not get better.
    Never,
}

/// The broker, as one agent sees it.
#[derive(Debug)]
pub(crate) struct RetryingClient {
    pub(crate) client: Client,
    pub(crate) token: Secret,
    report: Report,
    /// Whether the last call failed, so that it is told once and not at each try.
    troubled: Mutex<bool>,
}

impl RetryingClient {
    pub(crate) fn new(url: &str, token: &str, report: Report) -> Result<Self, ClientError> {
        let client = Client::new(url, Some(Token::new(token)?))?;
        Ok(Self { client, token: Secret(token.trim().into()), report, troubled: Mutex::default() })
    }

    /// The numbers in force; a broker that does not answer now is an error.
    pub(crate) async fn numbers(&self) -> Result<Numbers, ClientError> {
        let limits = self.client.limits().await?;
        let value = |name: &str| limits.items.iter().find(|limit| limit.name == name).map(|limit| limit.value);
        let ms = |name, usual| Duration::from_millis(value(name).unwrap_or(usual));
        Ok(Numbers {
            lease: ms("lease_ms", 600_000),
            progress: ms("progress_interval_ms", 1_000),
            body_bytes_max: value("body_bytes_max").and_then(|n| usize::try_from(n).ok()).unwrap_or(256 << 10),
        })
    }

    /// Whether the token is a human's.
    pub(crate) async fn is_human(&self) -> Result<bool, ClientError> {
        Ok(self.client.agent("me").await?.kind == Kind::Human)
    }

    /// The next delivery, however long it takes.
    pub(crate) async fn take(&self) -> Result<Delivery, ClientError> {
        loop {
            let taken = self.persist(|| self.within(POLL + ANSWER, self.client.inbox(POLL))).await?;
            if let Some(delivery) = taken {
                return Ok(delivery);
            }
        }
    }

    /// A call that is cut off where no answer comes.
    pub(crate) async fn within<T>(
        &self,
        time: Duration,
        call: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        timeout(time, call).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", time.as_secs());
            Err(ClientError::Unreachable { url: self.client.url().to_owned(), reason })
        })
    }

    /// Repeats a call until it is answered, or refused for good.
    pub(crate) async fn persist<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T, ClientError>
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

    /// Waits before a call is tried again; one that was refused for good is not.
    async fn pause(&self, backoff: &mut Backoff, error: ClientError) -> Result<(), ClientError> {
        match verdict(&error) {
            Verdict::Never => Err(error),
            Verdict::Again(least) => {
                self.fails(&error);
                sleep(backoff.grow().max(least.unwrap_or_default())).await;
                Ok(())
            }
        }
    }

    /// Ends a turn, once: a finish whose answer was lost is repeated only where the turn is still open.
    pub(crate) async fn finish(&self, delivery: &Delivery, turn: &TurnView, finish: &Finish) -> Outcome {
        match self.finish_once(delivery, turn, finish).await {
            Ok(finished) => Outcome::Finished(finished),
            Err(ClientError::Refused(problem)) if is_late(&problem) => Outcome::Late,
            Err(error) => Outcome::Refused(error.to_string()),
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

    /// What came of a finish that nobody confirmed, if it is in the log.
    async fn recorded(
        &self,
        delivery: &Delivery,
        turn: &TurnView,
        finish: &Finish,
    ) -> Result<Option<Finished>, ClientError> {
        if self.is_open(&turn.id).await? {
            return Ok(None);
        }
        let ended = |open, answer| Ok(Some(Finished { turn: Some(turn.id.clone()), open, answer }));
        // An answer that opened the turn has the id of the request that it answers, not of the one served here.
        let served = delivery.message.request_id.as_ref().filter(|_| delivery.message.kind == MessageType::Request);
        let Some(id) = served else { return ended(finish.status.is_none(), None) };
        let request = self.within(ANSWER, self.client.request_state(id)).await?;
        match request.response {
            // The broker words an empty answer itself.
            Some(response)
                if response.from == delivery.message.to
                    && (response.body == finish.answer || finish.answer.is_empty()) =>
            {
                ended(false, Some(response.id))
            }
            // Another attempt is on its way: this one came too late, and has to hear it.
            None if request.attempts <= turn.attempt => ended(true, None),
            Some(_) | None => Ok(None),
        }
    }

    /// Whether the turn is open.
    pub(crate) async fn is_open(&self, turn: &str) -> Result<bool, ClientError> {
        let agents = self.within(ANSWER, self.client.agents()).await?;
        Ok(agents.items.iter().any(|agent| agent.turns.iter().any(|open| open == turn)))
    }

    pub(crate) fn works(&self) {
        if std::mem::take(&mut *self.troubled.lock().unwrap_or_else(PoisonError::into_inner)) {
            self.report.tell(&Event::Connected);
        }
    }

    pub(crate) fn fails(&self, error: &ClientError) {
        let mut troubled = self.troubled.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *troubled, true) {
            let hint = error.problem().map(|problem| format!(" {}", problem.hint)).unwrap_or_default();
            self.report.tell(&Event::Waiting { reason: format!("{error}.{hint}") });
        }
    }
}

pub(crate) fn is_late(problem: &Problem) -> bool {
    matches!(problem.code, Code::LeaseLost | Code::AlreadySettled)
}

fn verdict(error: &ClientError) -> Verdict {
    match error {
        ClientError::Unreachable { .. } | ClientError::Unexpected { .. } => Verdict::Again(None),
        ClientError::Unusable(_) => Verdict::Never,
        ClientError::Refused(problem) => match problem.retry_after_ms {
            Some(ms) => Verdict::Again(Some(Duration::from_millis(ms))),
            None if problem.status >= 500 || problem.code == Code::Stopped => Verdict::Again(Some(PAUSE_MAX)),
            None => Verdict::Never,
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
        let report = Report::new(|_| ());
        let broker = RetryingClient::new("http://127.0.0.1:9", "lw_canary", report).unwrap();
        assert!(!format!("{broker:?}").contains("canary"));
    }
}
