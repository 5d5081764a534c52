//! The metrics of a node, in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::{Arc, PoisonError};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::response::IntoResponse;
use lastword_broker::identity::credential;

use crate::{Shared, Standing};

/// What a node tells of itself, by name and meaning.
const FAMILIES: [(&str, &str); 8] = [
    ("node_renewal_age_seconds", "Seconds since this node last renewed its record."),
    ("node_alive", "Whether this node has heard of a node in the last 3 seconds."),
    ("nats_server_lagging", "A NATS server that doesn't store what the others do, as one whose disk is full."),
    ("workspaces_at_rest", "Workspaces that nobody leads or follows until somebody calls or something is due."),
    ("workspace_epoch", "The epoch in which this node leads the workspace; 0 while it follows."),
    ("workspace_position", "The last position of the log on this node."),
    ("workspace_lag_messages", "Messages of the stream that this node has not read yet."),
    ("workspace_fault", "Whether this node fails to follow the workspace."),
];

/// The values of a family, each with its labels.
type Lines = Vec<(String, String)>;

/// `GET /cluster/metrics`: the renewal's age and, with the token in the node's directory, the nodes, and each workspace's
/// position, lag and epoch. Names of nodes and workspaces are nobody else's.
pub(crate) async fn show(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> impl IntoResponse {
    let shown = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()?.strip_prefix("Bearer "));
    let names = shown.is_some_and(|token| credential(token) == shared.metrics_token);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], text(&shared, names))
}

fn text(shared: &Shared, names: bool) -> String {
    let age = shared.heartbeat.age().map_or_else(|| "NaN".to_owned(), |age| age.as_secs_f64().to_string());
    let alive = |node: &str, alive: bool| (format!("{{node=\"{node}\"}}"), u8::from(alive).to_string());
    let nodes = shared.view(|view, now| view.nodes(now).map(|(node, _, heard)| alive(node, heard)).collect::<Lines>());
    let lagging = shared.lagging().into_iter();
    let lagging = lagging.map(|found| (format!("{{server={:?}}}", found.server), "1".to_owned())).collect::<Lines>();
    let standings = shared.standings.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let each = |value: &dyn Fn(&str, &Standing) -> u64| -> Lines {
        let line = |(name, standing): (&String, &Standing)| {
            (format!("{{workspace=\"{name}\"}}"), value(name, standing).to_string())
        };
        standings.iter().map(line).collect()
    };
    let epoch = |name: &str, _: &Standing| shared.epoch(name);
    let resting = shared.view(|view, _| view.resting()).to_string();
    let values = [
        vec![(String::new(), age)],
        nodes,
        lagging,
        if names { vec![(String::new(), resting)] } else { Vec::new() },
        each(&epoch),
        each(&|_, standing| standing.last.0),
        each(&|_, standing| standing.lag),
        each(&|_, standing| u64::from(standing.fault.is_some())),
    ];
    let mut out = String::new();
    for ((name, help), lines) in FAMILIES.into_iter().zip(values) {
        let lines: Lines = lines.into_iter().filter(|(labels, _)| names || labels.is_empty()).collect();
        if lines.is_empty() {
            continue;
        }
        // Writing into a string can't fail.
        let _written = writeln!(out, "# HELP lastword_{name} {help}\n# TYPE lastword_{name} gauge");
        for (labels, value) in lines {
            let _written = writeln!(out, "lastword_{name}{labels} {value}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::FAMILIES;

    #[test]
    fn the_page_of_the_cluster_lists_every_metric_of_a_node() {
        let rows =
            include_str!("../../docs/cluster.md").lines().filter_map(|line| line.trim().strip_prefix("| `lastword_"));
        let listed: Vec<&str> = rows.filter_map(|row| row.split(['{', '`']).next()).collect();
        assert_eq!(listed, FAMILIES.map(|(name, _)| name));
    }
}
