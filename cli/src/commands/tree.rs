//! `lastword tree`: shows a conversation, each message under its cause.

use super::Context;
use crate::failure::Failure;
use crate::session::Authority;
use crate::tree;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// REF of the conversation.
    #[arg(value_name = "REF")]
    reference: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let view = cx.client(Authority::Read)?.conversation(&args.reference).await?;
    cx.out.show(&view, |view, out| out.lines(tree::lines(view)))
}
