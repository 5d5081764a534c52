//! `lastword reject`: rejects a held call: for good, with instructions for the agent, or without a review (H2).

use lastword_client::wire::DecideApproval;
use lastword_facts::fact::Decision;

use super::Context;
use crate::failure::Failure;
use crate::render;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Approval to decide: apr-1.
    id: String,
    /// Reason for the agent.
    #[arg(long, allow_hyphen_values = true)]
    comment: Option<String>,
    /// Reject this call with instructions for the agent, which may ask again.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, conflicts_with_all = ["comment", "ignore"])]
    respond: Option<String>,
    /// Reject without a decision on the merits.
    #[arg(long)]
    ignore: bool,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(args.yes).await?;
    let (decision, comment) = match (args.respond, args.ignore) {
        (Some(words), _) => (Decision::Respond, Some(words)),
        (None, true) => (Decision::Ignore, args.comment),
        (None, false) => (Decision::Reject, args.comment),
    };
    let decision = DecideApproval { decision, comment, input: None, digest: None };
    let decided = client.decide(&args.id, &decision).await?;
    cx.out.show(&decided, |decided, _| format!("{} {}", decided.id, render::word(&decided.state)))
}
