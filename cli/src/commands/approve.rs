//! `lastword approve`: allows the very call that was looked at, once (H2).

use std::io::{BufRead as _, IsTerminal as _, stderr, stdin};

use lastword_client::wire::{ApprovalView, DecideApproval};
use lastword_proto::fact::Decision;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, escape_line};
use crate::render;
use crate::session::Authority;

/// Shortest beginning of a digest that says which call was looked at.
const DIGEST_CHARS_MIN: usize = 8;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The approval: apr-1.
    id: String,
    /// Digest of the call that was looked at, or its first 8 characters; asked for at a terminal.
    #[arg(long)]
    digest: Option<String>,
    /// Words for the agent.
    #[arg(long)]
    comment: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Act)?;
    let view = client.approval(&args.id, None).await?;
    match &args.digest {
        Some(digest) => check_digest(&view, digest)?,
        None => confirm(&view, &cx.out)?,
    }
    let decision =
        DecideApproval { decision: Decision::Approve, comment: args.comment, input: None, digest: Some(view.digest) };
    let decided = client.decide(&args.id, &decision).await?;
    cx.out.show(&decided, |decided, _| format!("{} {}", decided.id, render::word(&decided.state)))
}

fn check_digest(view: &ApprovalView, digest: &str) -> Result<(), Failure> {
    if digest.len() >= DIGEST_CHARS_MIN && view.digest.starts_with(&digest.to_ascii_lowercase()) {
        return Ok(());
    }
    Err(Failure::refused(format!("{} is for another call: its digest is {}", view.id, view.digest))
        .hint("look at the call with `lastword approvals`, then name its digest"))
}

fn confirm(view: &ApprovalView, out: &Out) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage("which call is approved? name its digest with --digest")
            .hint("`lastword approvals` shows the calls and their digests"));
    }
    // On standard error, so that --json leaves standard output to the answer.
    let mut shown = stderr().lock();
    std::io::Write::write_all(&mut shown, format!("{}\n", render::approval(view, out)).as_bytes())?;
    let question = format!("Allow {} to make this call, once? [y/N] ", escape_line(&view.agent));
    std::io::Write::write_all(&mut shown, question.as_bytes())?;
    drop(shown);
    let mut line = String::new();
    stdin().lock().read_line(&mut line)?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::refused("not approved").hint(format!("`lastword reject {}` refuses it now", view.id))),
    }
}
