//! `lastword serve --cluster`: a node that runs until a signal ends it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use lastword_cluster::{ClusterConfig, ConfigReader, Node, monitored};
use lastword_server::Config;
use serde_json::json;

use super::super::Context;
use super::super::serve::EndSignals;
use super::check::not_synced;
use super::configuration::config_of;
use super::connection::{monitors, options};
use super::{NatsArgs, NodeArgs};
use crate::failure::Failure;
use crate::service;

/// Further attempts to find out whether the NATS servers sync, the pause between two, and how many go by in silence.
const ATTEMPTS: u32 = 40;
const PAUSE: Duration = Duration::from_millis(500);
const TELL_EVERY: u32 = 10;
/// The pause before a server that gave no answer at the start is asked again.
const PAUSE_LATE: Duration = Duration::from_secs(2);

/// Refuses NATS servers that may lose what they acknowledged. They may be starting, as this node is; a minority may be
/// away, for NATS works without it. Returns the monitoring of those that gave no answer.
async fn durable(servers: &[String], args: &NatsArgs) -> Result<Vec<String>, Failure> {
    let refused = |fault: String| {
        Failure::unavailable(fault).hint(
            "name the servers' monitoring with --nats-monitor, or accept with --not-durable that a power cut loses \
             acknowledged messages",
        )
    };
    for attempt in 0.. {
        let (mut silent, mut answered, mut unknown) = (Vec::new(), 0, None);
        for monitor in monitors(servers, args) {
            match monitored(&monitor).await {
                Ok(server) if server.sync_always => answered += 1,
                Ok(server) => return Err(refused(not_synced(&server))),
                Err(error) => {
                    silent.push(monitor);
                    unknown = Some(error);
                }
            }
        }
        let Some(error) = unknown.filter(|_| answered <= silent.len()) else { return Ok(silent) };
        let fault = format!("whether NATS syncs before it acknowledges isn't known: {error}");
        if attempt == ATTEMPTS {
            return Err(refused(fault));
        }
        if attempt % TELL_EVERY == 0 {
            eprintln!("{fault}; asking again");
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(Vec::new())
}

/// Asks the servers that gave no answer at the start, until each of them says whether it syncs. Never returns.
async fn check_late(mut silent: Vec<String>) {
    while !silent.is_empty() {
        tokio::time::sleep(PAUSE_LATE).await;
        let mut left = Vec::new();
        for monitor in silent {
            match monitored(&monitor).await {
                Ok(server) if server.sync_always => {}
                Ok(server) => eprintln!("{}", not_synced(&server)),
                Err(_) => left.push(monitor),
            }
        }
        silent = left;
    }
    std::future::pending().await
}

/// Runs a node until a signal ends it.
pub(crate) async fn serve(config: Config, node: NodeArgs, insecure: bool, cx: &Context) -> Result<(), Failure> {
    let name = node.node.unwrap_or_else(host_name);
    let cluster = ClusterConfig {
        nats: options(&node.servers, &node.nats)?,
        node: name.clone(),
        advertise: node.advertise,
        insecure,
        accept_missing: node.accept_missing,
        replicas: node.nats.replicas.map(usize::from),
        rest_after: Some(node.rest_after).filter(|after| !after.is_zero()),
        configs: ConfigReader::new(config_of),
    };
    let mut end = EndSignals::listen()?;
    let starting = async {
        let silent = if node.not_durable { Vec::new() } else { durable(&node.servers, &node.nats).await? };
        Ok::<_, Failure>((Node::start(config, cluster).await?, silent))
    };
    // It waits for NATS, and a signal ends the wait.
    let (node, silent) = tokio::select! {
        started = starting => started?,
        () = end.asked() => return Ok(()),
    };
    tokio::select! {
        () = node.ready() => {}
        () = end.asked() => {
            node.shutdown().await;
            return Ok(());
        }
        reason = node.failed() => return Err(Failure::unavailable(format!("the node stopped: {reason}"))),
    }
    let token = node.operator_token_file();
    let mut listening = json!({ "listening": node.url(), "node": name, "operator_token_file": token });
    if let Some(fingerprint) = node.fingerprint() {
        listening["fingerprint"] = json!(fingerprint);
    }
    cx.out.show(&listening, |_, _| {
        format!("node {name} listening on {}\noperator token of the workspace main in {}", node.url(), token.display())
    })?;
    service::ready(node.url());
    let failed = tokio::select! {
        () = end.asked() => None,
        reason = node.failed() => Some(reason),
        () = check_late(silent) => None,
        // A node without NATS stops serving by itself: the watchdog only checks that it runs.
        () = service::watched(async || ()) => None,
    };
    service::stopping();
    node.shutdown().await;
    failed.map_or(Ok(()), |reason| Err(Failure::unavailable(format!("the node stopped: {reason}"))))
}

/// Returns the host's name, as far as it can be a node's.
fn host_name() -> String {
    let name = fs::read_to_string(Path::new("/etc/hostname")).unwrap_or_default();
    let name = name.trim().split('.').next().unwrap_or_default().to_ascii_lowercase();
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(32).collect();
    if name.is_empty() { "node".to_owned() } else { name }
}
