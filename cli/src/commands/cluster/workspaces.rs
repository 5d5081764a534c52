//! The verbs of `lastword cluster`: what is there, and the workspaces that it serves.

use lastword_cluster::{
    NodeError, Status, add_files, all_set_aside, configure_workspace, create_workspace, fetch_files, remove_workspace,
    set_aside, status,
};
use lastword_facts::Seq;
use lastword_store::{move_in, move_out};
use serde_json::json;

use super::super::{Context, verify};
use super::configuration::read_config;
use super::connection::NatsConnection;
use super::{Args, ClusterCommand};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::session::confirmed;

/// The bytes of a message that a human is shown before it is set aside.
const SHOWN_BYTES: usize = 40;

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let connection = NatsConnection::open(&args.servers, &args.nats).await?;
    let NatsConnection { nats, registry } = &connection;
    let replicas = match args.nats.replicas {
        Some(replicas) => replicas.into(),
        None => registry.replicas().await.map_err(NodeError::from)?,
    };
    match args.command {
        ClusterCommand::Status => {
            let found = status(nats, registry).await?;
            cx.out.show(&found, |found, _| table(found))
        }
        ClusterCommand::Add { workspace } => {
            let new = create_workspace(nats, registry, &workspace, replicas).await?;
            cx.out.show(&json!({ "workspace": workspace, "new": new }), |_, _| {
                if new { format!("added {workspace}") } else { format!("{workspace} is there already") }
            })
        }
        ClusterCommand::Configure { workspace, file, .. } => {
            let text = file.map(|path| read_config(&path)).transpose()?;
            configure_workspace(registry, &workspace, text.as_deref()).await?;
            let own = text.is_some();
            cx.out.show(&json!({ "workspace": workspace, "own": own }), |_, _| match own {
                true => format!("{workspace} has a configuration of its own"),
                false => format!("{workspace} has the nodes' configuration"),
            })
        }
        ClusterCommand::Remove { workspace, with_log, yes } => {
            let loss = if with_log { "Its log, keys and tokens are gone for good" } else { "Its log stays in NATS" };
            if !confirmed(&format!("Remove the workspace {workspace}? {loss}"), yes)? {
                return Err(Failure::refused("not removed"));
            }
            remove_workspace(nats, registry, &workspace, with_log).await?;
            cx.out.show(&json!({ "workspace": workspace, "log": !with_log }), |_, _| {
                if with_log { format!("removed {workspace} and its log") } else { format!("removed {workspace}") }
            })
        }
        ClusterCommand::SetAside { workspace, message, yes } => {
            put_aside(&connection, &workspace, message, yes, cx).await
        }
        ClusterCommand::MoveIn { workspace } => move_log_in(&connection, &workspace, replicas, cx).await,
        ClusterCommand::MoveOut { workspace, to } => {
            let bar = verify::bar(&cx.out);
            let aside = all_set_aside(registry, &workspace).await?;
            let moved = move_out(nats, &workspace, &aside, &to, &mut |at| bar.set_position(at.0)).await;
            bar.finish_and_clear();
            let moved = moved.map_err(Failure::unavailable)?;
            fetch_files(registry, &workspace, &to).await?;
            let end = moved.end.at.0;
            cx.out.show(&json!({ "to": to, "end": end }), |_, _| format!("{} has the log up to {end}", to.display()))
        }
    }
}

/// Sets a message of a workspace's stream aside, once a human has seen what it is.
async fn put_aside(
    connection: &NatsConnection,
    workspace: &str,
    message: u64,
    yes: bool,
    cx: &Context,
) -> Result<(), Failure> {
    let found = connection.nats.set_aside(workspace, message).await.map_err(NodeError::from)?;
    let Some((aside, bytes)) = found else {
        return Err(Failure::refused(format!("the stream of {workspace} has no message {message}")));
    };
    let begins = escape_line(&String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_BYTES)]));
    let question = format!(
        "Set aside message {message} of {workspace}, {} bytes that begin with {begins:?}? If a node wrote it, what \
         it says is lost",
        bytes.len()
    );
    if !confirmed(&question, yes)? {
        return Err(Failure::refused("not set aside"));
    }
    set_aside(&connection.registry, workspace, aside).await?;
    cx.out.show(&json!({ "workspace": workspace, "message": message }), |_, _| {
        format!("message {message} of {workspace} is set aside")
    })
}

/// Copies the log of a data directory into a new workspace.
async fn move_log_in(
    connection: &NatsConnection,
    workspace: &str,
    replicas: usize,
    cx: &Context,
) -> Result<(), Failure> {
    let NatsConnection { nats, registry } = connection;
    // Before anything is made in the cluster.
    lastword_store::DataDir::at(&cx.settings.data).open_reader()?;
    nats.create_stream(workspace, replicas).await.map_err(NodeError::from)?;
    let bar = verify::bar(&cx.out);
    let mut show = |at: Seq, of: Seq| {
        bar.set_length(of.0);
        bar.set_position(at.0);
    };
    let moved = move_in(nats, workspace, &cx.settings.data, &mut show).await;
    bar.finish_and_clear();
    let moved = moved.map_err(Failure::unavailable)?;
    add_files(registry, workspace, &cx.settings.data).await?;
    // Last: from here on the nodes serve it.
    create_workspace(nats, registry, workspace, replicas).await?;
    let end = moved.end.at.0;
    cx.out.show(&json!({ "workspace": workspace, "end": end }), |_, _| {
        format!("the workspace {workspace} has the log up to {end}")
    })
}

/// Returns the lines about nodes and workspaces.
pub(super) fn table(found: &Status) -> String {
    let node = |node: &lastword_cluster::NodeStatus| {
        let alive = if node.alive { "alive" } else { "not heard of" };
        format!("{}  {alive}  {}  {}", escape_line(&node.node), escape_line(&node.url), escape_line(&node.version))
    };
    let workspace = |workspace: &lastword_cluster::WorkspaceStatus| {
        let leader = match &workspace.leader {
            Some(leader) => format!("led by {}", escape_line(leader)),
            None if workspace.rests => "at rest".to_owned(),
            None => "led by nobody".to_owned(),
        };
        let name = escape_line(&workspace.workspace);
        let copies = format!("{} of {} copies", workspace.copies_current, workspace.copies_wanted);
        format!("{name}  {leader}  epoch {}  {copies}", workspace.epoch)
    };
    let nodes = found.nodes.iter().map(node);
    nodes.chain(found.workspaces.iter().map(workspace)).collect::<Vec<_>>().join("\n")
}
