//! Early answers: a foreign bot may reply to the post that asked it while the request still waits behind another turn.
//! The reply identifies the request.

use lastword_client::ClientError;
use lastword_client::wire::RequestView;
use lastword_facts::Code;
use lastword_facts::fsm::RequestState;
use rusqlite::params;

use super::book::{BridgeStore, Kept, lost};
use super::bridge::BridgeContext;
use super::post::Post;

/// Returns the request that waits for this agent and came from the post replied to.
pub(crate) async fn waiting(shared: &BridgeContext, agent: &str, post: &Post) -> Result<Option<String>, ClientError> {
    let Some(origin) = post.replied.map(|replied| replied.post) else { return Ok(None) };
    let BridgeContext { book, dialect, .. } = shared;
    if book.is_known(origin).map_err(lost)? {
        // The bridge's own posts show requests whose turn has opened.
        return Ok(None);
    }
    let mut requests = book.asked_by(&dialect.key(origin)).map_err(lost)?;
    // Also the request of a header, and one that a reply or a thread addressed without a mention.
    requests.extend([dialect.key(origin), dialect.message_key(origin), format!("{}.1", dialect.key(origin))]);
    requests.dedup();
    for request in requests {
        let Some(found) = state(shared, &request).await? else { continue };
        let waits = found.state == RequestState::RequestSent && found.to == agent;
        // A second answer to the same request is an ordinary post, and counts.
        if waits && book.early(&request).map_err(lost)?.is_none() {
            return Ok(Some(request));
        }
    }
    Ok(None)
}

/// Returns whether a request still waits for its turn.
pub(crate) async fn waits(shared: &BridgeContext, request: &str) -> Result<bool, ClientError> {
    Ok(state(shared, request).await?.is_some_and(|found| found.state == RequestState::RequestSent))
}

/// Finishes a newly opened turn with the early answer to its request; returns whether there is one.
pub(crate) async fn finish(
    shared: &BridgeContext,
    agent: &str,
    turn: &str,
    request: &str,
) -> Result<bool, ClientError> {
    let Some(answer) = shared.book.early(request).map_err(lost)? else { return Ok(false) };
    let Some(taker) = shared.takers.get(agent) else { return Ok(false) };
    // If the turn is over, it was finished before, or the next attempt's turn will be.
    if taker.is_open(turn).await
        && let Err(reason) = taker.finish(turn, &answer).await
    {
        shared.outbox.warn(&format!("{agent} had answered before its turn. {reason}"));
    }
    Ok(true)
}

async fn state(shared: &BridgeContext, request: &str) -> Result<Option<RequestView>, ClientError> {
    let broker = &shared.broker;
    match broker.persist(|| broker.client().request_state(request)).await {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::Refused(problem)) if problem.code == Code::Unauthenticated => {
            Err(ClientError::Refused(problem))
        }
        Err(ClientError::Refused(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

impl BridgeStore {
    /// Returns the requests that a human's own post, with this key, showed to foreign bots.
    pub(crate) fn asked_by(&self, key: &str) -> Kept<Vec<String>> {
        self.all("SELECT request FROM asked WHERE request LIKE ?1 ORDER BY request", [format!("{key}.%")], |row| {
            row.get(0)
        })
    }

    /// Notes an early answer to a request; the first one wins.
    pub(crate) fn answer_early(&self, request: &str, answer: &str) -> Kept<()> {
        self.change("INSERT OR IGNORE INTO early VALUES (?1, ?2)", params![request, answer])
    }

    pub(crate) fn early(&self, request: &str) -> Kept<Option<String>> {
        self.first("SELECT answer FROM early WHERE request = ?1", [request], |row| row.get(0))
    }

    /// Drops the early answer of a settled request.
    pub(crate) fn settle_early(&self, request: &str) -> Kept<()> {
        self.change("DELETE FROM early WHERE request = ?1", [request])
    }
}
