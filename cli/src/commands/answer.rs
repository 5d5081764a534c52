//! `lastword answer`: a human's answer to an escalation; it goes back to exactly the task that asked.

use lastword_client::wire::EscalationAnswer;

use super::{Context, text_or_stdin};
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The escalation: esc-1.
    id: String,
    /// The answer; from standard input where it is `-` or left out.
    answer: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Act)?;
    let answer = EscalationAnswer { answer: text_or_stdin(args.answer)? };
    let answered = client.answer_escalation(&args.id, &answer).await?;
    cx.out.show(&answered, |_, _| format!("answered {}", args.id))
}
