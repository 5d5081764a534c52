//! An agent's inbox without taking anything from it, and the watch that reports new entries.

use std::collections::BTreeSet;
use std::time::Duration;

use lastword_broker::{Live, Subscription};
use lastword_core::state::Task;
use lastword_facts::Seq;
use lastword_facts::ids::{AgentId, TaskId};
use lastword_server::calls::Caller;
use lastword_server::{ApiError, Context, ended};
use rmcp::model::ResourceUpdatedNotificationParam;
use rmcp::service::{Peer, RoleServer, SubscriptionSink};
use serde::Serialize;

use super::resources::INBOX;

/// The most deliveries that are listed; `queued` counts all.
const LISTED_MAX: usize = 50;
/// The time after which the watch looks without a hint, because a hint may get lost.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The resource `lastword://inbox`.
#[derive(Debug, Serialize)]
pub(super) struct InboxView {
    agent: String,
    /// The number of queued deliveries.
    queued: usize,
    /// The number of notices attached to the next delivery.
    notices: usize,
    /// The ids of the open turns.
    turns: Vec<String>,
    /// The first queued deliveries, in the order in which they are taken.
    waiting: Vec<InboxItem>,
}

#[derive(Debug, Serialize)]
struct InboxItem {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(rename = "ref")]
    reference: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

/// A queued entry: a task with the latest answer for it, or a notice to a human.
type InboxKey = (Option<TaskId>, Option<Seq>);

/// Returns the current inbox.
pub(super) async fn view(ctx: &Context, caller: Caller) -> Result<InboxView, ApiError> {
    let agent = caller.principal.agent();
    Ok(ctx.handle.query(move |live| look(live, agent)).await?)
}

fn look(live: &Live<'_>, agent: AgentId) -> InboxView {
    let waiting = tasks(live, agent);
    let known = live.state.agent(agent);
    InboxView {
        agent: live.state.name_of(agent).to_owned(),
        queued: waiting.len(),
        notices: known.map_or(0, |a| a.notices.len()),
        turns: known.into_iter().flat_map(|a| &a.turns).map(ToString::to_string).collect(),
        waiting: waiting.into_iter().take(LISTED_MAX).map(|(_, task)| listed(live, task)).collect(),
    }
}

/// Returns the agent's tasks with a delivery to take: those in its queue, and those with an answer in an open turn.
fn tasks<'a>(live: &'a Live<'_>, agent: AgentId) -> Vec<(TaskId, &'a Task)> {
    let Some(own) = live.state.agent(agent) else { return Vec::new() };
    let open = own.turns.iter().filter_map(|turn| live.state.turns.get(turn)).map(|turn| turn.task);
    // Answers to an open turn come first, as they do when taking.
    let answered = open.filter(|id| live.state.tasks.get(id).is_some_and(|task| !task.ready.is_empty()));
    let ids = answered.chain(own.queue.iter().map(|(_, id)| *id));
    let known = ids.filter_map(|id| Some((id, live.state.tasks.get(&id)?)));
    // A parked delivery can't be taken until its hold is lifted.
    known.filter(|(_, task)| !live.state.is_parked(task)).collect()
}

/// Returns the entry of a task: its first answer, otherwise its request.
fn listed(live: &Live<'_>, task: &Task) -> InboxItem {
    let answer = task.ready.first();
    let (asked, from) = match answer {
        Some(ready) => {
            let child = ready.child.get().and_then(|child| live.state.tasks.get(&child));
            (child.unwrap_or(task), child.map(|child| child.agent))
        }
        None => (task, task.asker.agent()),
    };
    InboxItem {
        kind: if answer.is_some() { "response" } else { "request" },
        reference: live.state.ref_of(asked.conv).map_or_else(String::new, ToString::to_string),
        request_id: asked.request.as_ref().map(|request| request.id.to_string()),
        from: from.map(|agent| live.state.name_of(agent).to_owned()),
    }
}

fn keys(live: &Live<'_>, agent: AgentId) -> BTreeSet<InboxKey> {
    let tasks = tasks(live, agent).into_iter();
    let mut keys: BTreeSet<InboxKey> =
        tasks.map(|(id, task)| (Some(id), task.ready.last().map(|r| r.message))).collect();
    if let Some(own) = live.state.agent(agent).filter(|own| own.is_human()) {
        keys.extend(own.notices.iter().map(|(seq, _)| (None, Some(*seq))));
    }
    keys
}

/// The client to which a watch reports.
pub(super) enum Listener {
    /// A client with a session.
    Session(Peer<RoleServer>),
    /// A subscription that is one long request.
    Request(SubscriptionSink),
}

impl Listener {
    /// Reports a change; `false` if the client is gone.
    pub(super) async fn tell(&self) -> bool {
        match self {
            Self::Session(peer) => {
                peer.notify_resource_updated(ResourceUpdatedNotificationParam::new(INBOX)).await.is_ok()
            }
            Self::Request(sink) => sink.notify_resource_updated(INBOX).await.is_ok(),
        }
    }

    /// Reports that the list of tools has changed; `false` if the client is gone.
    pub(super) async fn tell_tools(&self) -> bool {
        match self {
            Self::Session(peer) => peer.notify_tool_list_changed().await.is_ok(),
            Self::Request(sink) => sink.notify_tool_list_changed().await.is_ok(),
        }
    }
}

/// Reports each new entry to a listener, and at the start any existing ones. Ends when the listener is gone, the
/// caller's token is revoked or the server shuts down. Meanwhile the agent counts as connected (Q2).
pub(super) async fn watch(ctx: &Context, caller: Caller, listener: &Listener) {
    let agent = caller.principal.agent();
    let mut subscription = Subscription::new(&ctx.handle, agent);
    subscription.attach();
    let bell = subscription.bell();
    let mut stopping = ctx.stopping.clone();
    let mut known = BTreeSet::new();
    loop {
        let mut ring = std::pin::pin!(bell.notified());
        // Listen before looking: an entry that arrives between the two still rings.
        ring.as_mut().enable();
        // A watch may last for days, in which the token can be revoked.
        if caller.reauthenticate(&ctx.handle).is_err() {
            return;
        }
        let Ok(now) = ctx.handle.query(move |live| keys(live, agent)).await else { return };
        // Only new entries are reported; entries that were taken are not.
        if !now.is_subset(&known) && !listener.tell().await {
            return;
        }
        known = now;
        tokio::select! {
            () = ring => {}
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = ended(&mut stopping) => return,
        }
    }
}
