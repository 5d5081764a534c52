//! `lastword agent`: the registry.

use clap::Subcommand;
use lastword_client::wire::{AgentView, NewAgent};
use lastword_proto::fact::Kind;
use serde_json::json;

use super::Context;
use super::send::one_of;
use crate::failure::Failure;
use crate::out::table;
use crate::render;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Register an agent or human and print its token, which is shown this once
    Add {
        /// Its name.
        name: String,
        /// An action that it serves; may be repeated.
        #[arg(long = "action", value_name = "ACTION")]
        actions: Vec<String>,
        /// A group that it belongs to; may be repeated.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// agent or human.
        #[arg(long, default_value = "agent", value_parser = kind)]
        kind: Kind,
        /// Open turns that it may have at once [default: the workspace's].
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        turns_max: u64,
    },
    /// List agents and humans
    List,
    /// Show one of them
    Show {
        /// Its name.
        name: String,
    },
    /// Remove one; what it serves is handed back, its token dies
    Remove {
        /// Its name.
        name: String,
    },
    /// Replace the token of one and print the new one
    Token {
        /// Its name.
        name: String,
    },
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        Verb::Add { name, actions, groups, kind, turns_max } => {
            let agent = NewAgent { name, actions, groups, kind, turns_max };
            let registered = cx.acting().await?.register(&agent).await?;
            cx.out.show(&registered, |registered, _| registered.token.clone())
        }
        Verb::List => {
            let page = cx.client(Authority::Read)?.agents().await?;
            cx.out.show(&page, |page, out| table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out))
        }
        Verb::Show { name } => {
            let agent = cx.client(Authority::Read)?.agent(&name).await?;
            cx.out.show(&agent, |agent, out| table(&HEAD, &[row(agent)], out))
        }
        Verb::Remove { name } => {
            cx.acting().await?.remove(&name).await?;
            cx.out.show(&json!({ "removed": name }), |_, _| format!("removed {name}"))
        }
        Verb::Token { name } => {
            let token = cx.acting().await?.rekey(&name).await?;
            cx.out.show(&token, |token, _| token.token.clone())
        }
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_word(text).ok_or_else(|| one_of(Kind::ALL))
}

const HEAD: [&str; 8] = ["name", "kind", "state", "connected", "turns", "queued", "actions", "groups"];

fn row(agent: &AgentView) -> Vec<String> {
    vec![
        agent.name.clone(),
        agent.kind.to_string(),
        render::word(&agent.state),
        if agent.connected { "yes" } else { "no" }.to_owned(),
        agent.turns.len().to_string(),
        agent.queued.to_string(),
        agent.actions.join(" "),
        agent.groups.join(" "),
    ]
}
