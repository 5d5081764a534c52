//! `lastword reject`: refuses a held call, with words for the agent where there are some (H2).

use lastword_client::wire::DecideApproval;
use lastword_proto::fact::Decision;

use super::Context;
use crate::failure::Failure;
use crate::render;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The approval: apr-1.
    id: String,
    /// What the agent should do instead.
    #[arg(long)]
    comment: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let decision = if args.comment.is_some() { Decision::Respond } else { Decision::Reject };
    let decision = DecideApproval { decision, comment: args.comment, input: None, digest: None };
    let decided = cx.client(Authority::Act)?.decide(&args.id, &decision).await?;
    cx.out.show(&decided, |decided, _| format!("{} {}", decided.id, render::word(&decided.state)))
}
