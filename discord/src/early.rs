//! Answers of foreign bots to requests that still wait behind another turn: a bot that replies to the post which asked it
//! says itself which request it answers.

use lastword_client::ClientError;
use lastword_client::wire::RequestView;
use lastword_proto::Code;
use lastword_proto::fsm::RequestState;
use rusqlite::{OptionalExtension as _, params};

use super::book::{BridgeStore, Kept, lost};
use super::bridge::BridgeContext;
use super::model::Post;
use super::names::key;

/// The request that waits for this agent, and of which the post replied to is the origin.
pub(crate) async fn waiting(shared: &BridgeContext, agent: &str, post: &Post) -> Result<Option<String>, ClientError> {
    let Some(origin) = post.replied_post() else { return Ok(None) };
    let book = &shared.book;
    if book.is_known(origin).map_err(lost)? {
        // What we posted shows a request whose turn has opened.
        return Ok(None);
    }
    let mut requests = book.asked_by(origin).map_err(lost)?;
    // A header's own request, and whom a reply or a thread asked without a mention.
    requests.extend([key(origin), format!("{}.1", key(origin))]);
    requests.dedup();
    for request in requests {
        let Some(found) = state(shared, &request).await? else { continue };
        let waits = found.state == RequestState::RequestSent && found.to == agent;
        // A second answer to the same request is a post like any other, and counts.
        if waits && book.early(&request).map_err(lost)?.is_none() {
            return Ok(Some(request));
        }
    }
    Ok(None)
}

/// Whether a request waits for its turn.
pub(crate) async fn waits(shared: &BridgeContext, request: &str) -> Result<bool, ClientError> {
    Ok(state(shared, request).await?.is_some_and(|found| found.state == RequestState::RequestSent))
}

/// Ends a turn that opens with the answer that was given before, where there is one; says whether there is.
pub(crate) async fn finish(
    shared: &BridgeContext,
    agent: &str,
    turn: &str,
    request: &str,
) -> Result<bool, ClientError> {
    let Some(answer) = shared.book.early(request).map_err(lost)? else { return Ok(false) };
    let Some(taker) = shared.takers.get(agent) else { return Ok(false) };
    // Where it is over, this was done before, or the turn of the next attempt ends with it.
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
    /// The requests that a human's own post put before foreign bots.
    pub(crate) fn asked_by(&self, post: u64) -> Kept<Vec<String>> {
        let db = self.db();
        let mut look = db.prepare_cached("SELECT request FROM asked WHERE request LIKE ?1 ORDER BY request")?;
        look.query_map([format!("{}.%", key(post))], |row| row.get(0))?.collect()
    }

    /// A request was answered before its turn; the first answer stays.
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

    /// A request is over, however it ended.
    pub(crate) fn settle_early(&self, request: &str) -> Kept<()> {
        self.db().prepare_cached("DELETE FROM early WHERE request = ?1")?.execute([request]).map(|_| ())
    }
}
