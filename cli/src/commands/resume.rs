//! `lastword resume`: lifts a pause, a stop or a latch (H4).

use lastword_client::{Client, Target};

use super::Context;
use super::target::{self, apply};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::session::confirmed;

/// The post that lifts a room's latch.
const POST: &str = "resume";

/// Prefix of the rooms of Discord's channels.
const DISCORD: &str = "discord:";

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
    let room = match (&args.room, args.target.reference()) {
        (Some(room), _) => Some(room.as_str()),
        // A channel of Discord is known by its room's name.
        (None, Some(name)) if name.starts_with(DISCORD) => Some(name),
        (None, _) => None,
    };
    if let Some(room) = room {
        let posted = client.post_to_room(room, POST).await?;
        return cx.out.show(&posted, |_, _| format!("posted in {room}, which resumes it"));
    }
    if args.target.is_workspace() {
        let lifted = client.resume_all(None).await?;
        let held: Vec<String> = lifted.held.iter().map(|held| format!("{} {}", held.scope, held.on)).collect();
        let value = serde_json::json!({ "lifted": lifted.lifted, "held": held });
        return cx.out.show(&value, |_, _| told(&lifted.lifted, &held));
    }
    apply(&client, &args.target, cx, "resumed", async |client: &Client, target: Target<'_>| client.resume(target).await)
        .await
}

/// Words what a resume of the workspace lifted, and what it didn't.
fn told(lifted: &[String], held: &[String]) -> String {
    let list = |names: &[String]| escape_line(&names.join(", "));
    let mut text = "resumed the workspace".to_owned();
    if !lifted.is_empty() {
        text.push_str(&format!(", and lifted what held {}", list(lifted)));
    }
    if !held.is_empty() {
        text.push_str(&format!("\nstill held: {}; `lastword incidents` says by what", list(held)));
    }
    text
}
