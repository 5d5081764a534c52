//! `lastword grant`: a human gives more to the work of a conversation, and lifts what its limits latched (D9).

use std::time::Duration;

use lastword_client::wire::Extend;

use super::Context;
use crate::failure::Failure;
use crate::out::escape_line;
use crate::quantity::{duration, milliseconds};
use crate::session::confirmed;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The conversation.
    #[arg(value_name = "REF")]
    reference: String,
    /// Only to this grant of the conversation, as `tree` names it; else each open one gets it.
    #[arg(long, value_name = "GRANT")]
    only: Option<String>,
    #[command(flatten)]
    more: More,
    /// Grant it without a terminal, for a script of yours.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = true)]
struct More {
    /// More waking messages.
    #[arg(long, value_name = "N")]
    messages: Option<u64>,
    /// More turns.
    #[arg(long, value_name = "N")]
    turns: Option<u64>,
    /// More distinct agents.
    #[arg(long, value_name = "N")]
    agents: Option<u64>,
    /// More requests of the root task.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// More tokens.
    #[arg(long, value_name = "N")]
    tokens: Option<u64>,
    /// More money, in dollars.
    #[arg(long, value_name = "USD")]
    cost: Option<f64>,
    /// More time.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let more = args.more;
    let extend = Extend {
        grant: args.only,
        messages: more.messages.unwrap_or(0),
        turns: more.turns.unwrap_or(0),
        agents: more.agents.unwrap_or(0),
        requests: more.requests.unwrap_or(0),
        tokens: more.tokens.unwrap_or(0),
        cost_usd: more.cost.unwrap_or(0.0),
        time_ms: more.time.map_or(0, milliseconds),
    };
    let client = cx.deciding(args.yes).await?;
    if !confirmed(&format!("Give the work of {} more?", escape_line(&args.reference)), args.yes)? {
        return Err(Failure::refused("not granted"));
    }
    let answer = client.grant(&args.reference, &extend).await?;
    cx.out.show(&answer, |_, _| format!("granted more to {}", args.reference))
}
