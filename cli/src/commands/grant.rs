//! `lastword grant`: a human extends a conversation's grants and lifts what their limits latched (D9), or extends an
//! agent's budget for today (B1).

use std::time::Duration;

use lastword_client::wire::{AgentGrant, Extend, HeldBy};

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, Tone, escape_line};
use crate::quantity::{duration, milliseconds};
use crate::session::confirmed;
use crate::tree;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// REF of the conversation.
    #[arg(value_name = "REF", required_unless_present = "agent")]
    reference: Option<String>,
    /// Name of an agent instead: extends its tokens or cost for today.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["reference", "only", "messages", "turns", "agents", "requests", "time", "rounds"])]
    agent: Option<String>,
    /// Extend only this grant of the conversation, as `tree` names it [default: every open grant].
    #[arg(long, value_name = "GRANT")]
    only: Option<String>,
    #[command(flatten)]
    more: More,
    /// Confirm without a terminal, in a script.
    #[arg(long, help_heading = clap::builder::Resettable::Reset)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Extensions")]
#[group(required = true, multiple = true)]
struct More {
    /// Additional waking messages.
    #[arg(long, value_name = "N")]
    messages: Option<u64>,
    /// Additional turns.
    #[arg(long, value_name = "N")]
    turns: Option<u64>,
    /// Additional distinct agents.
    #[arg(long, value_name = "N")]
    agents: Option<u64>,
    /// Additional requests of the root task.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Additional tokens.
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// Additional cost, in dollars.
    #[arg(long, value_name = "USD")]
    cost: Option<f64>,
    /// Additional time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
    /// Additional rounds of two messages each, with the turns and requests that they need.
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match (&args.agent, &args.reference) {
        (Some(agent), _) => to_agent(agent, &args, cx).await,
        (None, Some(reference)) => to_conversation(reference, &args, cx).await,
        (None, None) => Err(Failure::usage("name a conversation or an agent")),
    }
}

async fn to_agent(agent: &str, args: &Args, cx: &Context) -> Result<(), Failure> {
    let more = AgentGrant { tokens: args.more.tokens.unwrap_or(0), cost_usd: args.more.cost.unwrap_or(0.0) };
    let client = cx.deciding(args.yes).await?;
    if !confirmed(&format!("Extend the budget of {} for today?", escape_line(agent)), args.yes)? {
        return Err(Failure::refused("not granted"));
    }
    let view = client.grant_agent(agent, &more).await?;
    let budget = format!("the budget of {agent} for today");
    cx.out.show(&view, |view, out| words(&budget, &view.held_by, out))
}

async fn to_conversation(reference: &str, args: &Args, cx: &Context) -> Result<(), Failure> {
    let more = &args.more;
    let extend = Extend {
        grant: args.only.clone(),
        messages: more.messages.unwrap_or(0),
        turns: more.turns.unwrap_or(0),
        agents: more.agents.unwrap_or(0),
        requests: more.requests.unwrap_or(0),
        tokens: more.tokens.unwrap_or(0),
        cost_usd: more.cost.unwrap_or(0.0),
        time_ms: more.time.map_or(0, milliseconds),
        rounds: more.rounds.unwrap_or(0),
    };
    let client = cx.deciding(args.yes).await?;
    if !confirmed(&format!("Extend the budget of {}?", escape_line(reference)), args.yes)? {
        return Err(Failure::refused("not granted"));
    }
    let extended = client.grant(reference, &extend).await?;
    cx.out.show(&extended, |extended, out| words(&format!("the budget of {reference}"), &extended.held_by, out))
}

/// Words an extension: one that doesn't lift what holds the work names what does.
fn words(budget: &str, held_by: &[HeldBy], out: &Out) -> String {
    let budget = escape_line(budget);
    if held_by.is_empty() {
        return format!("extended {budget}");
    }
    let mut lines = vec![vec![(Tone::Bad, format!("not lifted: the amount was added to {budget}"))]];
    lines.extend(tree::held(held_by));
    out.whole(lines)
}
