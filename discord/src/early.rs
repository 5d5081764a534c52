//! Early answers: a foreign bot may reply to the post that asked it while the request still waits behind another turn.
//! The reply identifies the request.

use lastword_client::ClientError;
use lastword_client::wire::RequestView;
use lastword_facts::Code;
use lastword_facts::fsm::RequestState;
use rusqlite::{OptionalExtension as _, params};

use super::book::{BridgeStore, Kept, lost};
use super::bridge::BridgeContext;
use super::model::Post;
use super::names::{key, message_key};

/// Returns the request that waits for this agent and came from the post replied to.
pub(crate) async fn waiting(shared: &BridgeContext, agent: &str, post: &Post) -> Result<Option<String>, ClientError> {
    let Some(origin) = post.replied_post() else { return Ok(None) };
    let book = &shared.book;
    if book.is_known(origin).map_err(lost)? {
        // The bridge's own posts show requests whose turn has opened.
        return Ok(None);
    }
    let mut requests = book.asked_by(origin).map_err(lost)?;
    // Also the request of a header, and one that a reply or a thread addressed without a mention.
    requests.extend([key(origin), message_key(origin), format!("{}.1", key(origin))]);
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
    /// Returns the requests that a human's own post showed to foreign bots.
    pub(crate) fn asked_by(&self, post: u64) -> Kept<Vec<String>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT request FROM asked WHERE request LIKE ?1 ORDER BY request")?;
        look.query_map([format!("{}.%", key(post))], |row| row.get(0))?.collect()
    }

    /// Notes an early answer to a request; the first one wins.
    pub(crate) fn answer_early(&self, request: &str, answer: &str) -> Kept<()> {
        let db = self.db();
        let mut add = db.prepare_cached("INSERT OR IGNORE INTO early VALUES (?1, ?2)")?;
        add.execute(params![request, answer]).map(|_| ())
    }

    pub(crate) fn early(&self, request: &str) -> Kept<Option<String>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT answer FROM early WHERE request = ?1")?;
        look.query_row([request], |row| row.get(0)).optional()
    }

    /// Drops the early answer of a settled request.
    pub(crate) fn settle_early(&self, request: &str) -> Kept<()> {
        self.db().prepare_cached("DELETE FROM early WHERE request = ?1")?.execute([request]).map(|_| ())
    }
}
