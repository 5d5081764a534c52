//! `lastword resume`: lifts a pause, a stop or a latch (H4).

use lastword_client::{Client, Target};

use super::Context;
use super::target::{self, apply};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::session::confirmed;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: target::Args,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(args.yes).await?;
    if !confirmed(&format!("Resume {} and everything held in it?", escape_line(args.target.name())), args.yes)? {
        return Err(Failure::refused("not resumed"));
    }
    apply(&client, &args.target, cx, "resumed", async |client: &Client, target: Target<'_>| client.resume(target).await)
        .await
}
