//! A workspace that this node serves, and who uses it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, Uri};
use lastword_broker::Handle;
use lastword_broker::clock::uptime;
use lastword_core::Principal;

use crate::Shared;
use crate::front::is_control;
use crate::waking::{bearer, cookies};

/// A workspace that this node serves.
pub(crate) struct Open {
    pub(crate) routes: Router,
    handle: Handle,
    pub(crate) epoch: u64,
    /// The stretch of renewals in which the lease was won.
    pub(crate) stretch: u64,
    /// The calls in progress.
    pub(crate) calls: AtomicUsize,
    /// The answers that are being read, such as event streams.
    answers: AtomicUsize,
    /// When it was opened, and when somebody last used it whom it knows, in ms since the machine started; 0 if nobody has.
    opened: u64,
    used: AtomicU64,
}

impl Open {
    /// Begins to serve a workspace, in an epoch and a stretch of renewals.
    pub(crate) fn new(routes: Router, handle: Handle, epoch: u64, stretch: u64) -> Self {
        let (calls, answers, opened, used) =
            (AtomicUsize::default(), AtomicUsize::default(), uptime_ms(), AtomicU64::default());
        Self { routes, handle, epoch, stretch, calls, answers, opened, used }
    }

    /// Returns whether a call is a human's, by what it shows.
    fn is_humans(&self, headers: &HeaderMap) -> bool {
        match bearer(headers) {
            Some(token) => {
                let signed = || self.handle.bearer(token).map(|bearer| bearer.principal);
                self.handle.prove(token).or_else(signed).is_some_and(Principal::is_human)
            }
            None => cookies(headers).any(|cookie| self.handle.session(cookie).is_some()),
        }
    }

    /// Notes that somebody uses it.
    pub(crate) fn touch(&self) {
        self.used.store(uptime_ms(), Ordering::Release);
    }

    /// Returns how long nobody has used it, and whether nobody ever has; `None` while it is in use.
    pub(crate) fn unused_for(&self) -> Option<(Duration, bool)> {
        let in_use = self.calls.load(Ordering::Acquire) + self.answers.load(Ordering::Acquire) > 0;
        let used = self.used.load(Ordering::Acquire);
        let since = Duration::from_millis(used.max(self.opened));
        (!in_use).then(|| (uptime().saturating_sub(since), used == 0))
    }
}

impl Shared {
    /// Returns whether a call is a human's. Of a workspace that this node is only about to serve, it knows the stops and pauses.
    pub(crate) fn is_humans(&self, workspace: &str, headers: &HeaderMap, uri: &Uri) -> bool {
        match self.enter(workspace) {
            Some(call) => call.open().is_humans(headers),
            None => is_control(uri) && self.knows(workspace, headers, uri),
        }
    }
}

fn uptime_ms() -> u64 {
    u64::try_from(uptime().as_millis()).unwrap_or(u64::MAX)
}

/// Counts an answer until it is read.
pub(crate) struct Using {
    open: Arc<Open>,
    /// Whether the workspace knows who reads it: a stranger's calls are no use of it.
    known: bool,
}

impl Using {
    pub(crate) fn of(open: &Arc<Open>, known: bool) -> Self {
        open.answers.fetch_add(1, Ordering::AcqRel);
        Self { open: Arc::clone(open), known }
    }
}

impl Drop for Using {
    fn drop(&mut self) {
        if self.known {
            self.open.touch();
        }
        self.open.answers.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Counts a call while it is in progress.
pub(crate) struct InProgress(Arc<Open>);

impl InProgress {
    pub(crate) fn enter(open: &Arc<Open>) -> Self {
        open.calls.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(open))
    }

    /// Returns the workspace that it is a call of.
    pub(crate) fn open(&self) -> Arc<Open> {
        Arc::clone(&self.0)
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::AcqRel);
    }
}
