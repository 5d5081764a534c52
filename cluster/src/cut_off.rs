//! What a node says that NATS doesn't hear: nothing can be done there, and who may be asked instead.

use std::time::Duration;

use axum::http::{HeaderMap, Uri};
use axum::response::{IntoResponse as _, Response};
use lastword_facts::Code;
use lastword_server::ApiError;
use lastword_server::edges::http::Peer;

use crate::{RETRY_MS, Shared};

/// The time after which a human's stop that isn't answered asks whether NATS hears this node.
const ASKS_AFTER: Duration = Duration::from_millis(300);
/// The time in which NATS answers that.
const ANSWER_MAX: Duration = Duration::from_millis(600);

/// Waits until NATS doesn't answer this node, for a call that came now; for good if it does.
pub(crate) async fn unheard(shared: &Shared) {
    tokio::time::sleep(ASKS_AFTER).await;
    shared.renew();
    tokio::time::sleep(ANSWER_MAX).await;
    if shared.heartbeat.age().is_some_and(|age| age < ASKS_AFTER + ANSWER_MAX) {
        std::future::pending::<()>().await;
    }
}

/// Refuses a call.
pub(crate) fn refuse(shared: &Shared, workspace: &str, known: bool, headers: &HeaderMap, uri: &Uri) -> Response {
    let text = "This node doesn't reach a majority of the NATS servers, and nothing was done";
    let known = known || shared.knows(workspace, headers, uri);
    respond(ApiError::new(Code::Saturated, text), advice(shared, known))
}

/// Ends a call that may have been carried out.
pub(crate) fn unanswered(
    shared: &Shared,
    workspace: &str,
    peer: Option<&Peer>,
    headers: &HeaderMap,
    uri: &Uri,
) -> Response {
    let text = "This node doesn't reach a majority of the NATS servers any more. Whether the call was carried out isn't \
                known: repeat it with the same Idempotency-Key";
    let mut fault = ApiError::new(Code::Saturated, text);
    fault.0.status = 502;
    let known = peer.is_some_and(Peer::is_proven) || shared.knows(workspace, headers, uri);
    respond(fault, advice(shared, known))
}

fn respond(fault: ApiError, advice: String) -> Response {
    let mut fault = fault.hinted(advice);
    fault.0.retry_after_ms = Some(RETRY_MS);
    fault.into_response()
}

/// Returns what to do. Nodes and their addresses are named to those alone whom the workspace knows.
fn advice(shared: &Shared, known: bool) -> String {
    if !known {
        return "Ask another node, or try again.".to_owned();
    }
    let reached = shared.reached.borrow().clone();
    let heard = |node: &str| reached.get(node).is_some_and(|reach| reach.is_heard);
    let named = shared.view(|view, now| {
        let mut others = view.nodes(now).filter(|(node, ..)| heard(node));
        others.next().map(|(node, info, _)| (node.to_owned(), info.url.clone()))
    });
    match named {
        Some((node, url)) => format!("Ask the node {node} at {url}, which reaches them."),
        None => {
            format!("No other node that this one reaches does: see that {}, then try again.", needed(shared.replicas))
        }
    }
}

/// Returns what of NATS has to be there, by the number of servers on which each log is stored.
fn needed(replicas: usize) -> String {
    match replicas {
        0 | 1 => "the NATS server runs and has room on its disk".to_owned(),
        _ => {
            let most = replicas / 2 + 1;
            format!("{most} of the {replicas} NATS servers that store a log run and have room on their disks")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_that_are_needed_are_as_many_as_are_configured() {
        for (replicas, said) in [(1, "the NATS server runs"), (3, "2 of the 3 NATS"), (5, "3 of the 5 NATS")] {
            assert!(needed(replicas).contains(said), "{replicas}");
        }
    }
}
