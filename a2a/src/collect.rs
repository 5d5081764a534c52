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

use crate::tasks::is_ours;

/// The most entries that are read in one step.
const BATCH_MAX: usize = 512;
/// The pause after a step, and before what failed is tried again.
const PACE: Duration = Duration::from_millis(50);
/// The longest pause before an answer is tried again that can't be taken, such as on a disk that is low.
const PAUSE_MAX: Duration = Duration::from_secs(5);

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
    let (mut failed, mut pause) = (Ready::new(), PACE);
    let Some((mut last, mut awaited, mut ready)) = begun(ctx).await else { return };
    loop {
        for (agent, request) in failed.drain(..).chain(ready.drain(..)).collect::<Ready>() {
            if !taken(ctx, agent, request.clone()).await {
                failed.push((agent, request));
            }
        }
        if failed.is_empty() {
            pause = PACE;
            if committed.wait_for(|seq| *seq > last).await.is_err() {
                return;
            }
        } else {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
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
                Part::Request(terms) if is_ours(ctx.handle.signer(), message.from, terms.request.as_str()) => {
                    awaited.insert(terms.task, (message.from, terms.request.clone()));
                }
                Part::Answer(answer) => {
                    ready.extend(awaited.remove(&answer.task));
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

/// The answers to take, each with its caller and its request.
type Ready = Vec<(AgentId, RequestId)>;

/// Returns the position of the state, what is awaited there, and what was answered and not taken before.
async fn begun(ctx: &Context) -> Option<(Seq, Awaited, Ready)> {
    let handle = ctx.handle.clone();
    let look = move |live: &Live<'_>| {
        let (mut awaited, mut ready) = (Awaited::new(), Ready::new());
        for (id, task) in live.state.tasks.iter() {
            let Asker::Task { agent, task: above } = task.asker else { continue };
            let ours = |id: &RequestId| is_ours(handle.signer(), agent, id.as_str());
            let Some(request) = task.request.as_ref().filter(|own| ours(&own.id)) else { continue };
            match request.answer.get() {
                None => _ = awaited.insert(id, (agent, request.id.clone())),
                Some(answer) => {
                    let waits = live
                        .state
                        .tasks
                        .get(&above)
                        .is_some_and(|task| task.ready.iter().any(|ready| ready.message == answer));
                    ready.extend(waits.then(|| (agent, request.id.clone())));
                }
            }
        }
        (live.state.seq, awaited, ready)
    };
    loop {
        match ctx.handle.query(look.clone()).await {
            Ok(found) => return Some(found),
            Err(Unserved::Down(_)) => return None,
            Err(_) => tokio::time::sleep(PACE).await,
        }
    }
}

/// Takes an answer to a root of its caller. What was sent in a turn is answered there, and one that was delivered
/// otherwise, or whose caller was removed, needs nothing.
async fn taken(ctx: &Context, agent: AgentId, request: RequestId) -> bool {
    let id = request.clone();
    let of_root = move |live: &Live<'_>| {
        let above = live.state.task_of(id.as_str()).and_then(|(_, task)| task.asker.task());
        above.and_then(|above| live.state.tasks.get(&above)).is_some_and(|above| above.asker == Asker::Nobody)
    };
    match ctx.handle.query(of_root).await {
        Ok(true) => {}
        Ok(false) => return true,
        Err(_) => return false,
    }
    let Some((_, principal)) = ctx.handle.proof_of(agent) else { return true };
    match ctx.handle.submit(Input::Collect(principal, request)).await {
        Ok(Reply::Refused { refusal, .. }) => refusal.code == lastword_facts::Code::UnknownRequest,
        Ok(_) => true,
        Err(_) => false,
    }
}
