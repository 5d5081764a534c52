//! Wakes workspaces that are at rest: by a call, or by the time at which something is due.
//!
//! A stranger's call wakes nobody: the rest knows the tokens of its workspace by the beginning of their hashes. What only the
//! workspace itself can check, such as a session's cookie, wakes some in a minute.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, Uri};
use lastword_broker::clock::{Stopwatch, wall};
use lastword_broker::identity::{credential, unhex};
use lastword_facts::fact::Credential;
use lastword_store::{Record, RegistryError};

use crate::Shared;
use crate::members::{LeaseRecord, lease_key};
use crate::rest::Rest;

/// The paths at which callers prove who they are: what they show is no token yet, or comes later.
const DOORS: [&str; 6] = ["/sign-in", "/v1/sign-in", "/v1/session", "/shared", "/.well-known/", "/a2a/"];
/// The calls in a minute that may wake a workspace although nothing tells that it knows the caller.
const UNKNOWN_MAX: u32 = 30;
const MINUTE: Duration = Duration::from_mins(1);
/// The pause before NATS is asked once more to wake a workspace.
const AGAIN: Duration = Duration::from_secs(1);

/// What a node notes of waking.
#[derive(Default)]
pub(crate) struct Waking {
    /// The workspaces that it is about to wake.
    under_way: Mutex<BTreeSet<String>>,
    /// The calls of this minute that may be anybody's.
    unknown: Mutex<Option<(Stopwatch, u32)>>,
}

/// Who a call may be from, as far as a node can tell without the workspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// A token that is stored as its hash.
    Token(Credential),
    /// What the workspace itself has to look at.
    Unverified,
    /// Nothing by which anybody could be known.
    Nothing,
}

/// Returns the token that a call shows, which may be empty; `None` without any.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let authorization = headers.get(AUTHORIZATION)?.to_str().ok()?;
    Some(authorization.split_once(' ').map_or("", |(_, token)| token.trim()))
}

/// Returns the values of a call's cookies.
pub(crate) fn cookies(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get(COOKIE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    all.split(';').filter_map(|cookie| Some(cookie.split_once('=')?.1.trim()))
}

fn shown(headers: &HeaderMap, uri: &Uri) -> Evidence {
    if let Some(token) = bearer(headers) {
        return if is_signed(token) { Evidence::Unverified } else { Evidence::Token(credential(token)) };
    }
    let session = cookies(headers).any(is_signed);
    let door = DOORS.iter().any(|door| uri.path().starts_with(door));
    if session || door { Evidence::Unverified } else { Evidence::Nothing }
}

/// Returns whether a text has the form of a session or a signed token: it ends with a code.
fn is_signed(text: &str) -> bool {
    text.rsplit_once('.').is_some_and(|(_, code)| unhex::<32>(code).is_some())
}

/// What a call may do to a workspace that isn't awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It wakes it.
    Wakes,
    /// It is a stranger's.
    Stranger,
    /// There were too many of its kind in this minute.
    Later,
}

impl Waking {
    /// Returns what a call may do to a workspace at rest; `None` is one that doesn't exist, of which no caller learns that.
    pub(crate) fn admits(&self, rest: Option<&Rest>, headers: &HeaderMap, uri: &Uri) -> Admission {
        let known = match shown(headers, uri) {
            Evidence::Token(token) => rest.map_or(Some(false), |rest| rest.knows(&token)),
            Evidence::Unverified => None,
            Evidence::Nothing => Some(false),
        };
        match (known, rest) {
            (Some(true), _) => Admission::Wakes,
            (Some(false), _) => Admission::Stranger,
            (None, _) if !self.has_room() => Admission::Later,
            (None, Some(_)) => Admission::Wakes,
            (None, None) => Admission::Stranger,
        }
    }

    /// Counts a call that may be anybody's; `false` if there were too many in this minute.
    fn has_room(&self) -> bool {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = match *unknown {
            Some((since, count)) if since.elapsed() < MINUTE => (since, count + 1),
            Some(_) | None => (Stopwatch::start(), 1),
        };
        *unknown = Some((since, count.min(UNKNOWN_MAX + 1)));
        count <= UNKNOWN_MAX
    }

    /// Notes that this node is about to wake a workspace, until that is dropped: the call that wakes it may break off.
    fn begin<'a>(&'a self, workspace: &'a str) -> Option<UnderWay<'a>> {
        let begun = self.under_way.lock().unwrap_or_else(PoisonError::into_inner).insert(workspace.to_owned());
        begun.then(|| UnderWay { waking: self, workspace })
    }
}

/// A workspace that this node is about to wake.
struct UnderWay<'a> {
    waking: &'a Waking,
    workspace: &'a str,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.waking.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(self.workspace);
    }
}

impl Shared {
    /// Notes whose calls are known while NATS doesn't hear this node.
    pub(crate) fn note_tokens(&self, workspace: &str, tokens: Vec<Credential>) {
        self.note(workspace, |standing| standing.tokens = Arc::new(tokens));
    }

    /// Returns whether a call has a token that the workspace knew when NATS last heard this node.
    pub(crate) fn knows(&self, workspace: &str, headers: &HeaderMap, uri: &Uri) -> bool {
        let Evidence::Token(token) = shown(headers, uri) else { return false };
        let standings = self.standings.lock().unwrap_or_else(PoisonError::into_inner);
        standings.get(workspace).is_some_and(|standing| standing.tokens.binary_search(&token).is_ok())
    }

    /// Wakes a workspace at rest, unless it is awake or about to be. Another node may have done so first: then its record
    /// comes.
    pub(crate) async fn wake(&self, workspace: &str) {
        let Some(_under_way) = self.waking.begin(workspace) else { return };
        if let Some((revision, lease)) = self.view(|view, now| view.wake(workspace, now)) {
            match self.replace_lease(workspace, &lease, revision).await {
                Ok(_) => tracing::debug!(workspace, next = lease.next, "the workspace wakes"),
                Err(error @ RegistryError::Conflict { .. }) => tracing::debug!(workspace, %error, "it was woken"),
                Err(error) => {
                    tracing::warn!(workspace, %error, "the workspace isn't woken; this node tries again");
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// Writes a lease in place of that of a revision, and takes it in before the registry tells of it. Returns its revision.
    pub(crate) async fn replace_lease(
        &self,
        workspace: &str,
        lease: &LeaseRecord,
        revision: u64,
    ) -> Result<u64, RegistryError> {
        let (key, value) = (lease_key(workspace), serde_json::to_vec(lease).unwrap_or_default());
        let revision = self.registry.replace(&key, &value, revision).await?;
        let record = Record { key, value: Some(value), revision };
        self.view(|view, now| view.apply(&record, now, wall()));
        self.looks.send_modify(|looks| *looks += 1);
        self.changed.send_modify(|changed| *changed += 1);
        Ok(revision)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_str(value).unwrap());
        headers
    }

    #[test]
    fn a_known_token_wakes_and_a_stranger_does_not() {
        let (waking, inbox) = (Waking::default(), Uri::from_static("/v1/inbox"));
        let rest = Rest { tokens: Rest::tokens(&[credential("lw_own")]), ..Rest::default() };
        let own = with("authorization", "Bearer lw_own");
        for _ in 0..2 * UNKNOWN_MAX {
            assert_eq!(waking.admits(Some(&rest), &own, &inbox), Admission::Wakes);
            for other in [with("authorization", "Bearer lw_other"), with("authorization", ""), HeaderMap::new()] {
                assert_eq!(waking.admits(Some(&rest), &other, &inbox), Admission::Stranger);
            }
            assert_eq!(waking.admits(None, &own, &inbox), Admission::Stranger);
        }
    }

    #[test]
    fn a_call_that_breaks_off_lets_the_next_one_wake() {
        let waking = Waking::default();
        let first = waking.begin("w");
        assert!(first.is_some() && waking.begin("w").is_none() && waking.begin("v").is_some());
        drop(first);
        assert!(waking.begin("w").is_some());
    }

    #[test]
    fn what_only_the_workspace_can_check_wakes_some_in_a_minute() {
        let (waking, page) = (Waking::default(), Uri::from_static("/inbox"));
        let (rest, code) = (Rest { tokens: Rest::tokens(&[]), ..Rest::default() }, "0".repeat(64));
        let cookie = with("cookie", &format!("a=b; session=1.99.{code}"));
        let signed = with("authorization", &format!("Bearer lws_1.99.{code}"));
        assert_eq!(waking.admits(Some(&rest), &cookie, &page), Admission::Wakes);
        assert_eq!(waking.admits(Some(&rest), &signed, &page), Admission::Wakes);
        for door in ["/sign-in", "/shared"].map(Uri::from_static) {
            assert_eq!(waking.admits(Some(&rest), &HeaderMap::new(), &door), Admission::Wakes);
        }
        assert_eq!(waking.admits(Some(&rest), &with("cookie", "a=b"), &page), Admission::Stranger);
        while waking.admits(None, &cookie, &page) == Admission::Stranger {}
        for rest in [None, Some(&rest)] {
            assert_eq!(waking.admits(rest, &cookie, &page), Admission::Later, "whether or not there is one");
        }
        let counted = *waking.unknown.lock().unwrap();
        assert_eq!(counted.map(|(_, count)| count), Some(UNKNOWN_MAX + 1));
    }
}
