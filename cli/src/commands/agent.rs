//! `lastword agent`: registers agents and sets their limits.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Subcommand;
use lastword_client::Client;
use lastword_client::wire::{AgentPatch, AgentView, NewAgent, TokenTerms};
use lastword_facts::Code;
use lastword_facts::fact::Kind;
use serde_json::json;

use super::Context;
use super::send::one_of;
use crate::failure::Failure;
use crate::out::{escape_line, table};
use crate::quantity::{duration, milliseconds};
use crate::render;
use crate::session::{Authority, confirmed};
use crate::top::WAITS_FOR_USER;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: AgentCommand,
}

#[derive(Debug, Subcommand)]
enum AgentCommand {
    /// Register an agent or human and print its token, once
    Add {
        /// Name of the agent or human.
        name: String,
        /// Action that it serves; repeatable.
        #[arg(long = "action", value_name = "ACTION")]
        actions: Vec<String>,
        /// Group that it belongs to; repeatable.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// What to register: agent or human.
        #[arg(long, default_value = "agent", value_parser = kind)]
        kind: Kind,
        /// Name that humans and models read beside it, in any script.
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        /// Open turns that it may have at once [default: the workspace's limit].
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        turns_max: u64,
        #[command(flatten)]
        limits: Limits,
    },
    /// Set actions, groups, the display name, or per-agent limits, which 0 removes
    Set {
        /// Name of the agent or human.
        name: String,
        /// Action that it serves, in place of those before; repeatable.
        #[arg(long = "action", value_name = "ACTION")]
        actions: Vec<String>,
        /// Group that it belongs to, in place of those before; repeatable.
        #[arg(long = "group", value_name = "GROUP")]
        groups: Vec<String>,
        /// Name that humans and models read beside it, in any script; its own name removes it.
        #[arg(long, value_name = "NAME")]
        display_name: Option<String>,
        #[command(flatten)]
        limits: Limits,
        /// Confirm without a terminal, in a script.
        #[arg(long, help_heading = clap::builder::Resettable::Reset)]
        yes: bool,
    },
    /// List agents and humans
    List,
    /// Show one agent or human
    Show {
        /// Name of the agent or human.
        name: String,
    },
    /// Remove an agent: hand its requests back and revoke its token
    Remove {
        /// Name of the agent or human.
        name: String,
    },
    /// Replace a token and print the new one
    Token {
        /// Name of the agent or human.
        name: String,
        /// Time after which the new token expires, such as 30d [default: never].
        #[arg(long, value_name = "DURATION", value_parser = duration)]
        expires: Option<Duration>,
        /// Time that the old token stays valid, such as 1h [default: none].
        #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "0s", hide_default_value = true)]
        overlap: Duration,
    },
}

/// Limits of one agent.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Limits")]
struct Limits {
    /// Roots that it may start in any hour.
    #[arg(long, value_name = "N")]
    roots_per_hour: Option<u64>,
    /// Messages to one recipient in any window.
    #[arg(long, value_name = "N")]
    pair_messages: Option<u64>,
    /// Messages in any window.
    #[arg(long, value_name = "N")]
    sender_messages: Option<u64>,
    /// Open turns at once.
    #[arg(long, value_name = "N")]
    turns: Option<u64>,
    /// Time to acknowledge a request, such as 1d for an agent that polls once a day.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    ack: Option<Duration>,
    /// Tokens in a UTC day.
    #[arg(long, value_name = "N")]
    day_tokens: Option<u64>,
    /// Cost in a UTC day, in dollars.
    #[arg(long, value_name = "USD")]
    day_cost: Option<f64>,
}

impl Limits {
    /// Returns the limits that are set, by their names at the broker.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates, and negative is 0")]
    fn set(&self) -> BTreeMap<String, u64> {
        let set = [
            ("roots_per_hour_max", self.roots_per_hour),
            ("pair_messages_max", self.pair_messages),
            ("sender_messages_max", self.sender_messages),
            ("agent_turns_max", self.turns),
            ("ack_ms", self.ack.map(milliseconds)),
            ("agent_day_tokens_max", self.day_tokens),
            ("agent_day_cost_microusd_max", self.day_cost.map(|usd| (usd * 1_000_000.0).round() as u64)),
        ];
        set.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

async fn limit(client: &Client, name: &str, limits: BTreeMap<String, u64>) -> Result<AgentView, Failure> {
    let patch = AgentPatch { limits: Some(limits), ..AgentPatch::default() };
    Ok(client.amend(name, &patch).await?)
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        AgentCommand::Add { name, actions, groups, kind, display_name, turns_max, limits } => {
            let set = limits.set();
            if kind == Kind::Human && !set.is_empty() {
                return Err(Failure::usage("only agents have limits; this is a human"));
            }
            let agent = NewAgent { name, actions, groups, kind, turns_max, role: None, display_name, key: None };
            let client = cx.acting().await?;
            let registered = client.register(&agent).await.map_err(|error| in_ascii(error.into(), &agent.name))?;
            if !set.is_empty() {
                limit(&client, &registered.name, set).await?;
            }
            cx.out.show(&registered, |registered, _| registered.token.clone())
        }
        AgentCommand::Set { name, actions, groups, display_name, limits, yes } => {
            let [actions, groups] = [actions, groups].map(|list| Some(list).filter(|list| !list.is_empty()));
            let limits = Some(limits.set()).filter(|set| !set.is_empty());
            amend(&name, AgentPatch { actions, groups, display_name, limits, turns_max: None }, yes, cx).await
        }
        AgentCommand::List => {
            let page = cx.client(Authority::Read)?.agents().await?;
            cx.out.show(&page, |page, out| {
                let all = table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out);
                std::iter::once(all).chain(page.items.iter().filter_map(unavailable)).collect::<Vec<_>>().join("\n")
            })
        }
        AgentCommand::Show { name } => {
            let agent = cx.client(Authority::Read)?.agent(&name).await?;
            cx.out.show(&agent, |agent, out| {
                let rests = agent.rests_until.as_ref().map(|until| format!("\nday budget used up until {until}"));
                let own = if agent.limits.is_empty() { String::new() } else { format!("\n{}", own_limits(agent)) };
                let failed = unavailable(agent).map(|line| format!("\n{line}")).unwrap_or_default();
                format!("{}{failed}{}{own}", table(&HEAD, &[row(agent)], out), rests.unwrap_or_default())
            })
        }
        AgentCommand::Remove { name } => {
            cx.acting().await?.remove(&name).await?;
            cx.out.show(&json!({ "removed": name }), |_, _| format!("removed {name}"))
        }
        AgentCommand::Token { name, expires, overlap } => {
            let terms = TokenTerms { expires_in_ms: expires.map(milliseconds), overlap_ms: milliseconds(overlap) };
            let token = cx.acting().await?.rotate(&name, terms).await?;
            cx.out.show(&token, |token, _| token.token.clone())
        }
    }
}

/// Changes what the patch names of an agent or human, once it is confirmed.
async fn amend(name: &str, patch: AgentPatch, yes: bool, cx: &Context) -> Result<(), Failure> {
    let parts = [
        ("actions", patch.actions.is_some()),
        ("groups", patch.groups.is_some()),
        ("display name", patch.display_name.is_some()),
        ("limits", patch.limits.is_some()),
    ];
    let set: Vec<&str> = parts.iter().filter_map(|(part, set)| set.then_some(*part)).collect();
    if set.is_empty() {
        return Err(Failure::usage("nothing to set").hint("`lastword agent set --help` lists what can be set"));
    }
    let client = cx.deciding(yes).await?;
    if !confirmed(&format!("Set {} of {}?", set.join(", "), escape_line(name)), yes)? {
        return Err(Failure::refused("not changed"));
    }
    let agent = client.amend(name, &patch).await?;
    cx.out.show(&agent, |agent, out| match set[..] {
        ["limits"] => own_limits(agent),
        ["display name"] => render::named(agent),
        _ => table(&HEAD, &[row(agent)], out),
    })
}

/// Words the refusal of a name in another script: it is a display name.
fn in_ascii(failure: Failure, name: &str) -> Failure {
    let is_display_name = failure.problem.as_ref().is_some_and(|problem| problem.code == Code::Malformed);
    if name.is_ascii() || !is_display_name {
        return failure;
    }
    failure.hint(format!("a name is ASCII: `lastword agent add NAME --display-name {name:?}`"))
}

/// Returns why the agent's program can't work, if its runner reported a reason.
pub(super) fn unavailable(agent: &AgentView) -> Option<String> {
    let reason = agent.unavailable.as_ref()?;
    Some(format!("{} can't work: {}", escape_line(&agent.name), escape_line(reason)))
}

/// Formats the agent's own limits.
fn own_limits(agent: &AgentView) -> String {
    if agent.limits.is_empty() {
        return format!("{} has no per-agent limits", agent.name);
    }
    let each: Vec<String> = agent.limits.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{} has the limits {}", agent.name, each.join(", "))
}

fn kind(text: &str) -> Result<Kind, String> {
    Kind::from_word(text).ok_or_else(|| one_of(Kind::ALL))
}

const HEAD: [&str; 8] = ["name", "kind", "state", "connected", "turns", "queued", "actions", "groups"];

fn row(agent: &AgentView) -> Vec<String> {
    vec![
        render::named(agent),
        agent.kind.to_string(),
        if agent.waits_for_user { WAITS_FOR_USER.to_owned() } else { render::word(&agent.state) },
        match agent.clients {
            2.. => format!("{} clients", agent.clients),
            _ => if agent.connected { "yes" } else { "no" }.to_owned(),
        },
        agent.turns.len().to_string(),
        agent.queued.to_string(),
        agent.actions.join(" "),
        agent.groups.join(" "),
    ]
}
