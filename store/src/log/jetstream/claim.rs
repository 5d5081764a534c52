//! The claim of an epoch: its start is published if it is newer than all others.

use std::time::Duration;

use super::leader::Lease;
use super::nats::{Expect, Nats, PublishError, StreamNames};
use super::record::EpochStart;
use crate::log::AppendError;

/// The pause before a request is repeated.
pub(crate) const RETRY: Duration = Duration::from_millis(100);

/// Waits before a request is repeated, if the lease is still held.
pub(super) async fn retry(lease: &Lease, reason: &str) -> Result<(), AppendError> {
    tokio::time::sleep(RETRY).await;
    if lease() { Ok(()) } else { Err(AppendError::Ambiguous { reason: format!("the lease ended: {reason}") }) }
}

/// Publishes the start of an epoch if it is newer than all others; returns its sequence. `known` is an epoch that has begun: a
/// start of an earlier one, published again, begins nothing.
pub(super) async fn claim(
    nats: &Nats,
    names: &StreamNames,
    start: &EpochStart,
    known: u64,
    lease: &Lease,
) -> Result<u64, AppendError> {
    let fatal = |reason: String| AppendError::Fatal { reason };
    let payload = start.message().map_err(|error| fatal(error.to_string()))?;
    loop {
        let newest = match nats.last_epoch(names).await {
            Ok(newest) => newest,
            Err(error) => {
                retry(lease, &error.to_string()).await?;
                continue;
            }
        };
        let mut behind = 0;
        if let Some(found) = newest {
            let newest = EpochStart::parse(&found.payload)
                .map_err(|problem| fatal(format!("the start of an epoch, message {}: {problem}", found.at)))?;
            if newest == *start {
                return Ok(found.at);
            }
            if newest.epoch >= start.epoch {
                return Err(AppendError::Fenced { epoch: newest.epoch });
            }
            if newest.importing && newest.epoch >= known && newest.node != start.node {
                return Err(fatal(format!(
                    "a log was being copied into {} and isn't whole: copy it again, or delete the stream",
                    names.stream
                )));
            }
            behind = found.at;
        }
        let expect = Expect { last: None, of: (&names.epoch, behind) };
        let reason = match nats.publish(&names.epoch, expect, payload.clone()).await {
            Ok(at) => return Ok(at),
            Err(PublishError::Never(reason)) => return Err(fatal(reason)),
            // An earlier attempt may be in the stream nevertheless; a claim without a leader does no harm.
            Err(PublishError::Full(reason)) => return Err(AppendError::Full { reason }),
            Err(PublishError::Expected(reason) | PublishError::Unknown(reason)) => reason,
        };
        retry(lease, &reason).await?;
    }
}
