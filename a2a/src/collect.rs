//! Takes the answers to the tasks of this edge, as a send that waited would (Q8). Their callers read tasks, not inboxes: an
//! answer that stayed there would keep its root and its grant open.

use std::collections::BTreeMap;
use std::time::Duration;

use lastword_broker::{Live, Unserved};
use lastword_core::state::Asker;
use lastword_core::{Input, Reply};
use lastword_facts::fact::Part;
use lastword_facts::ids::{AgentId, TaskId};
use lastword_facts::names::RequestId;
use lastword_facts::{Fact, Seq};
use lastword_server::{Context, ended};

use crate::tasks::PREFIX;

/// The most entries that are read in one step.
const BATCH_MAX: usize = 512;
/// The pause after a step, and before what failed is tried again.
const PACE: Duration = Duration::from_millis(50);
/// How often an answer is tried that can't be taken, such as on a disk that is low.
const TRIES_MAX: usize = 600;

/// The tasks whose answers are to be taken, each with its caller.
type Awaited = BTreeMap<TaskId, (AgentId, RequestId)>;

/// Follows the log until the server shuts down.
pub(crate) async fn run(ctx: Context) {
    let mut stopping = ctx.stopping.clone();
    tokio::select! {
        () = ended(&mut stopping) => {}
        () = follow(&ctx) => {}
    }
}

async fn follow(ctx: &Context) {
    let mut committed = ctx.handle.committed();
    let mut failed: Vec<(AgentId, RequestId, usize)> = Vec::new();
    let Some((mut last, mut awaited, mut ready)) = begun(ctx).await else { return };
    loop {
        for (agent, request, tries) in failed.drain(..).chain(ready.drain(..)).collect::<Vec<_>>() {
            if !taken(ctx, agent, request.clone()).await && tries < TRIES_MAX {
                failed.push((agent, request, tries + 1));
            }
        }
        if failed.is_empty() {
            if committed.wait_for(|seq| *seq > last).await.is_err() {
                return;
            }
        } else {
            tokio::time::sleep(PACE).await;
        }
        let Ok(entries) = ctx.handle.read(Seq(last.0 + 1), BATCH_MAX).await else {
            tokio::time::sleep(PACE).await;
            continue;
        };
        let some = entries.len() < BATCH_MAX;
        for (seq, entry) in entries {
            last = last.max(seq);
            let Fact::Accepted { message } = &entry.fact else { continue };
            match &message.part {
                Part::Request(terms) if terms.request.as_str().starts_with(PREFIX) => {
                    awaited.insert(terms.task, (message.from, terms.request.clone()));
                }
                Part::Answer(answer) => {
                    ready.extend(awaited.remove(&answer.task).map(|(agent, request)| (agent, request, 0)));
                }
                Part::Request(_) | Part::Status { .. } | Part::Reply { .. } | Part::Plain | Part::Echo => {}
            }
        }
        if some {
            // Few large steps cost the log less than many small ones.
            tokio::time::sleep(PACE).await;
        }
    }
}

/// An answer to take: its caller, its request, and how often that failed.
type Ready = Vec<(AgentId, RequestId, usize)>;

/// Returns the position of the state, what is awaited there, and what was answered and not taken before.
async fn begun(ctx: &Context) -> Option<(Seq, Awaited, Ready)> {
    let look = |live: &Live<'_>| {
        let (mut awaited, mut ready) = (Awaited::new(), Ready::new());
        for (id, task) in live.state.tasks.iter() {
            let Some(request) = task.request.as_ref().filter(|own| own.id.as_str().starts_with(PREFIX)) else {
                continue;
            };
            let Asker::Task { agent, task: above } = task.asker else { continue };
            match request.answer.get() {
                None => _ = awaited.insert(id, (agent, request.id.clone())),
                Some(answer) => {
                    let waits = live
                        .state
                        .tasks
                        .get(&above)
                        .is_some_and(|task| task.ready.iter().any(|ready| ready.message == answer));
                    ready.extend(waits.then(|| (agent, request.id.clone(), 0)));
                }
            }
        }
        (live.state.seq, awaited, ready)
    };
    loop {
        match ctx.handle.query(look).await {
            Ok(found) => return Some(found),
            Err(Unserved::Down(_)) => return None,
            Err(_) => tokio::time::sleep(PACE).await,
        }
    }
}

/// Takes an answer. One that was delivered otherwise, or whose caller was removed, needs nothing.
async fn taken(ctx: &Context, agent: AgentId, request: RequestId) -> bool {
    let Some((_, principal)) = ctx.handle.proof_of(agent) else { return true };
    match ctx.handle.submit(Input::Collect(principal, request)).await {
        Ok(Reply::Refused { refusal, .. }) => refusal.code == lastword_facts::Code::UnknownRequest,
        Ok(_) => true,
        Err(_) => false,
    }
}
