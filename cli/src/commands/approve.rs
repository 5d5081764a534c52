//! `lastword approve`: allows exactly the call that was reviewed, or one with other arguments, once (H2).

use std::io::{IsTerminal as _, Write as _, stderr, stdin};

use lastword_client::wire::{ApprovalView, Arguments, DecideApproval};
use lastword_facts::fact::Decision;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, escape_line};
use crate::render;
use crate::session::confirmed;

/// Shortest prefix of a digest that identifies the reviewed call.
const DIGEST_CHARS_MIN: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Approval to decide: apr-1.
    id: String,
    /// Digest of the call that you reviewed, or its first 8 characters; at a terminal, `approve` shows the call and asks.
    #[arg(long)]
    digest: Option<String>,
    /// Approve the call with these arguments instead.
    #[arg(long, value_name = "JSON", value_parser = json)]
    edit: Option<Arguments>,
    /// Comment for the agent.
    #[arg(long, allow_hyphen_values = true)]
    comment: Option<String>,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let in_script = "confirm with --yes, and name the call's digest with --digest";
    let client = cx.deciding_so(args.yes, in_script).await?;
    let view = client.approval(&args.id, None).await?;
    match &args.digest {
        Some(digest) => check_digest(&view, digest)?,
        None => confirm(&view, args.edit.as_ref(), &cx.out)?,
    }
    let decision = if args.edit.is_some() { Decision::Edit } else { Decision::Approve };
    let decision = DecideApproval { decision, comment: args.comment, input: args.edit, digest: Some(view.digest) };
    let decided = client.decide(&args.id, &decision).await?;
    cx.out.show(&decided, |decided, _| format!("{} {}", decided.id, render::word(&decided.state)))
}

fn json(text: &str) -> Result<Arguments, String> {
    Arguments::parse(text).map_err(|error| error.to_string())
}

fn check_digest(view: &ApprovalView, digest: &str) -> Result<(), Failure> {
    if digest.len() >= DIGEST_CHARS_MIN && view.digest.starts_with(&digest.to_ascii_lowercase()) {
        return Ok(());
    }
    Err(Failure::refused(format!("{} is for another call: its digest is {}", view.id, view.digest))
        .hint("review the call with `lastword approvals`, then pass its digest"))
}

fn confirm(view: &ApprovalView, edit: Option<&Arguments>, out: &Out) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage("name the digest of the call with --digest")
            .hint("`lastword approvals` shows the calls and their digests"));
    }
    stderr().lock().write_all(format!("{}\n", render::approval(view, out)).as_bytes())?;
    let agent = escape_line(&view.agent);
    let question = match edit {
        Some(edit) => format!("Allow {agent} to make it once, with {} instead?", escape_line(&edit.to_string())),
        None => format!("Allow {agent} to make this call once?"),
    };
    if confirmed(&question, false)? {
        return Ok(());
    }
    Err(Failure::refused("not approved").hint(format!("`lastword reject {}` rejects it", view.id)))
}
