//! Says that this node is alive, and knows for how long it may serve on the strength of that.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lastword_broker::clock::{Stopwatch, uptime};
use lastword_store::{Registry, RegistryError};
use tokio::sync::watch;

use crate::members::{NodeInfo, RENEW_EVERY, SERVE_MAX, node_key};
use crate::parse;

/// The wait for the answer to one renewal.
const ANSWER_MAX: Duration = Duration::from_millis(900);
/// The pause after a renewal that failed.
const AGAIN: Duration = Duration::from_millis(200);

/// The time of this node's last renewal, by its own clock since the machine started.
#[derive(Clone)]
pub(crate) struct Heartbeat {
    /// In ms since the machine started, plus 1, sleep included; 0 before the first.
    renewed: Arc<AtomicU64>,
    /// Likewise: since when renewals have not failed.
    healthy: Arc<AtomicU64>,
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self { renewed: Arc::default(), healthy: Arc::default() }
    }

    /// Returns the stretch of renewals without a gap that goes on now; `None` while there is a gap. What was won in one
    /// stretch isn't held in another.
    pub(crate) fn stretch(&self) -> Option<u64> {
        // Read before the check: a new stretch begins only after a gap.
        let stretch = self.healthy.load(Ordering::Acquire);
        self.is_valid().then_some(stretch)
    }

    /// Returns whether this node may serve what it leads: the others don't take it for dead yet.
    pub(crate) fn is_valid(&self) -> bool {
        self.since(&self.renewed).is_some_and(|age| age < SERVE_MAX)
    }

    /// Returns for how long this node has been heard without a gap.
    pub(crate) fn healthy_for(&self) -> Duration {
        self.since(&self.healthy).filter(|_| self.is_valid()).unwrap_or_default()
    }

    /// Returns the time since the last renewal; `None` before the first.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.since(&self.renewed)
    }

    fn since(&self, moment: &AtomicU64) -> Option<Duration> {
        let at = moment.load(Ordering::Acquire).checked_sub(1)?;
        Some(uptime().saturating_sub(Duration::from_millis(at)))
    }

    fn renewed_at(&self, at: Duration) {
        let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        if !self.is_valid() {
            self.healthy.store(at, Ordering::Release);
        }
        self.renewed.store(at, Ordering::Release);
    }

    /// Writes the node's record once. Returns its revision.
    ///
    /// # Errors
    /// [`RegistryError::Conflict`] if another program that is alive uses the node's name.
    async fn beat(
        &self,
        registry: &Registry,
        node: &str,
        info: NodeInfo,
        revision: Option<u64>,
    ) -> Result<u64, RegistryError> {
        let (key, value) = (node_key(node), serde_json::to_vec(&info).unwrap_or_default());
        // Before it is sent: the others hear of it later, so their count starts later.
        let at = uptime();
        let written = match revision {
            Some(revision) => registry.replace(&key, &value, revision).await,
            None => registry.create(&key, &value).await,
        };
        if let Ok(revision) = written {
            self.renewed_at(at);
            return Ok(revision);
        }
        written
    }

    /// Renews for good, and at once when `changed` says that there is news. Returns the reason if another program uses the
    /// node's name.
    pub(crate) async fn run(
        self,
        registry: Registry,
        node: String,
        info: impl Fn() -> NodeInfo + Send + Sync,
        mut revision: Option<u64>,
        mut changed: watch::Receiver<u64>,
    ) -> RegistryError {
        loop {
            let began = Stopwatch::start();
            changed.mark_unchanged();
            let beat = self.beat(&registry, &node, info(), revision);
            let pause = match tokio::time::timeout(ANSWER_MAX, beat).await {
                Ok(Ok(next)) => {
                    revision = Some(next);
                    // The slower the answers, the earlier the next renewal: its answer has to come before SERVE_MAX, too.
                    RENEW_EVERY.saturating_sub(2 * began.elapsed())
                }
                Ok(Err(RegistryError::Conflict { key })) => {
                    // An answer that was lost leaves the revision behind.
                    match registry.get(&key).await {
                        Ok(Some(record)) => match parse::<NodeInfo>(&record) {
                            Some(found) if found.session == info().session => revision = Some(record.revision),
                            _ => return RegistryError::Conflict { key },
                        },
                        Ok(None) => revision = None,
                        Err(error) => {
                            tracing::debug!(%error, "the node's record can't be read");
                            tokio::time::sleep(AGAIN).await;
                        }
                    }
                    Duration::ZERO
                }
                Ok(Err(error @ (RegistryError::Sealed { .. } | RegistryError::Unavailable { .. }))) => {
                    tracing::warn!(%error, "the cluster doesn't hear this node");
                    AGAIN
                }
                Err(_) => {
                    tracing::warn!("the cluster doesn't hear this node: NATS doesn't answer");
                    AGAIN
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                // The sender lives as long as this node.
                Ok(()) = changed.changed() => {}
            }
        }
    }
}
