//! Shows that a request waits for its agent and, if no runner serves the agent, tells whoever asked.

use std::sync::Arc;
use std::time::Duration;

use lastword_client::ClientError;
use lastword_facts::fsm::RequestState;
use rusqlite::params;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::book::{BridgeStore, Kept};
use super::bridge::BridgeContext;
use super::ids::ChannelId;
use super::outbound::Posting;
use super::platform::Spot;
use super::signs;

/// How long an agent has to take a request: a runner that reconnects takes it within that.
const GRACE: Duration = Duration::from_secs(3);
/// Most requests watched at once; more are told nothing.
const WATCHED_MAX: usize = 256;

/// A request that was shown in a thread.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) seq: u64,
    pub(crate) request: String,
    pub(crate) agent: String,
    pub(crate) thread: ChannelId,
    /// The post that asked, if it is on the platform.
    pub(crate) spot: Option<Spot>,
}

/// Watches each request for a moment. Returns when the bridge ends.
pub(crate) async fn serve(shared: Arc<BridgeContext>, mut asked: UnboundedReceiver<Asked>) {
    let mut watched = JoinSet::new();
    loop {
        tokio::select! {
            one = asked.recv(), if watched.len() < WATCHED_MAX => {
                let Some(one) = one else { return };
                let shared = Arc::clone(&shared);
                watched.spawn(async move { watch(&shared, &one).await });
            }
            Some(_done) = watched.join_next() => {}
        }
    }
}

async fn watch(shared: &BridgeContext, asked: &Asked) {
    sleep(GRACE).await;
    if let Some(spot) = asked.spot
        && waits(shared, asked).await.unwrap_or_default()
    {
        signs::queued(shared, &asked.agent, spot).await;
        // It may have been taken, and its sign taken back, before there was one.
        if !waits(shared, asked).await.unwrap_or(true) {
            signs::taken_back(shared, &asked.agent, spot).await;
        }
    }
    let Ok(Some(waiting)) = unserved(shared, asked).await else { return };
    let agent = &asked.agent;
    let seen = match shared.book.seen(agent).ok().flatten() {
        Some(at_ms) => format!("it was last at work {}", (shared.dialect.time)(at_ms / 1000)),
        None => "it was never seen at work".to_owned(),
    };
    let others = if waiting > 1 { format!(", with {} others", waiting - 1) } else { String::new() };
    let text = format!(
        "⏳ Queued for {agent}{others}: no runner serves it now, and {seen}. It answers once someone runs it: `lastword run \
         --as {agent} -- PROGRAM`."
    );
    shared.outbox.send(&format!("u{}", asked.seq), asked.thread, &Posting::of_broker(text), None).await;
}

/// Returns whether nobody has taken the request.
async fn waits(shared: &BridgeContext, asked: &Asked) -> Result<bool, ClientError> {
    Ok(shared.broker.client().request_state(&asked.request).await?.state == RequestState::RequestSent)
}

/// Returns how many deliveries wait for the agent, if nobody serves it and the request waits.
async fn unserved(shared: &BridgeContext, asked: &Asked) -> Result<Option<u64>, ClientError> {
    let client = shared.broker.client();
    let waits = waits(shared, asked).await?;
    let agent = client.agent(&asked.agent).await?;
    let served = agent.connected || !agent.turns.is_empty();
    Ok((waits && !served).then_some(agent.queued))
}

impl BridgeStore {
    /// Returns when an agent was last seen at work.
    fn seen(&self, agent: &str) -> Kept<Option<u64>> {
        let at: Option<i64> = self.first("SELECT at_ms FROM seen WHERE agent = ?1", [agent], |row| row.get(0))?;
        Ok(at.map(i64::cast_unsigned))
    }

    /// Notes that an agent was at work.
    pub(crate) fn see(&self, agent: &str, at_ms: u64) -> Kept<()> {
        self.change("INSERT OR REPLACE INTO seen VALUES (?1, ?2)", params![agent, at_ms.cast_signed()])
    }
}
