//! The bytes of answers that callers have not read yet (L4).
//!
//! Each caller has a window, and all agents together have one. An answer gets a permit before it is built and
//! gives it back once it is written, so a caller that doesn't read waits for itself.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use lastword_broker::ReadLane;
use lastword_wire::Call;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::connections::{Peer, saturated};
use crate::error::ApiError;

/// The most bytes of unread answers of one caller.
const WINDOW_BYTES: usize = 16 << 20;
/// The same of all agents together.
const AGENTS_BYTES: usize = 128 << 20;
/// What building an answer takes at most: its entries, their wire form and its text.
const BUILD_BYTES: usize = 4 << 20;
/// How long a call waits for its permit before it is refused.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The unit of the windows: a semaphore counts in `u32`.
const UNIT: usize = 1 << 10;

/// The window of one caller, or of all agents.
#[derive(Clone, Debug)]
pub(super) struct AnswerWindow(Arc<Semaphore>);

impl AnswerWindow {
    /// Returns the window of a caller.
    pub(super) fn of_caller() -> Self {
        Self(Arc::new(Semaphore::new(WINDOW_BYTES / UNIT)))
    }

    /// Returns the window of all agents together.
    pub(super) fn of_agents() -> Self {
        Self(Arc::new(Semaphore::new(AGENTS_BYTES / UNIT)))
    }

    /// Waits for room. Callers get it in the order in which they asked.
    async fn enter(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_many_owned(units(bytes)).await.ok()
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

/// The bytes of one answer in its windows; dropping it gives them back.
pub struct AnswerPermit {
    windows: Vec<(AnswerWindow, OwnedSemaphorePermit)>,
    /// Its owner's window lasts while one of its connections does.
    #[expect(dead_code, reason = "it is held")]
    peer: Peer,
}

impl AnswerPermit {
    /// Keeps as many bytes as the answer has. One that turned out longer takes what is free.
    pub(crate) fn keep(&mut self, bytes: usize) {
        for (window, held) in &mut self.windows {
            let (has, needs) = (held.num_permits(), bytes.div_ceil(UNIT));
            if needs <= has {
                drop(held.split(has - needs));
            } else if let Ok(more) = Arc::clone(&window.0).try_acquire_many_owned(units(bytes - has * UNIT)) {
                held.merge(more);
            }
        }
    }
}

impl Peer {
    /// Waits until an answer to this caller has room, for as long as it takes.
    pub async fn answer(&self) -> Option<AnswerPermit> {
        let mut windows = Vec::with_capacity(2);
        for window in self.answers()? {
            let held = window.enter(BUILD_BYTES).await?;
            windows.push((window, held));
        }
        Some(AnswerPermit { windows, peer: self.clone() })
    }

    /// Waits until an answer to this caller has room, and refuses if its answers aren't read meanwhile.
    pub async fn answer_in_time(&self) -> Result<Option<AnswerPermit>, ApiError> {
        let full = |_elapsed| saturated("bytes of answers that this caller has not read", WINDOW_BYTES);
        tokio::time::timeout(WAIT_MAX, self.answer()).await.map_err(full)
    }
}

/// Waits for the permit of a call's answer, if it may be long. A call that waits for news gets none: it would hold it
/// idle.
pub(crate) async fn enter(call: &Call, query: &str, peer: &Peer) -> Result<Option<AnswerPermit>, ApiError> {
    let waits = query.split('&').any(|part| part.starts_with("wait="));
    if call.method == "GET" && !waits { peer.answer_in_time().await } else { Ok(None) }
}

/// Lets the reads of a request take the lane of its caller, once that is known.
pub(super) async fn in_lane(request: Request, next: Next) -> Response {
    ReadLane::default().scope(next.run(request)).await
}

/// Returns an answer's bytes with its permit, which is dropped once they are written.
pub fn permitted(bytes: Vec<u8>, permit: Option<AnswerPermit>) -> Bytes {
    match permit {
        Some(mut permit) => {
            permit.keep(bytes.len());
            Bytes::from_owner(PermittedBytes { bytes, permit })
        }
        None => bytes.into(),
    }
}

/// The bytes of an answer with their permit.
struct PermittedBytes {
    bytes: Vec<u8>,
    #[expect(dead_code, reason = "it is held")]
    permit: AnswerPermit,
}

impl AsRef<[u8]> for PermittedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
