//! `lastword resume`: lifts a pause, a stop or a latch (H4).

use lastword_client::{Client, Target};

use super::Context;
use super::target::{self, apply};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::session::confirmed;

/// The post that lifts a room's latch.
const POST: &str = "resume";

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    target: target::Args,
    /// Name of a room instead: posts in it, which lifts its latch.
    #[arg(long, value_name = "NAME", group = "target")]
    room: Option<String>,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(args.yes).await?;
    let name = args.room.as_deref().unwrap_or_else(|| args.target.name());
    if !confirmed(&format!("Resume {} and everything held in it?", escape_line(name)), args.yes)? {
        return Err(Failure::refused("not resumed"));
    }
    if let Some(room) = &args.room {
        let posted = client.post_to_room(room, POST).await?;
        return cx.out.show(&posted, |_, _| format!("posted in {room}, which resumes it"));
    }
    apply(&client, &args.target, cx, "resumed", async |client: &Client, target: Target<'_>| client.resume(target).await)
        .await
}
