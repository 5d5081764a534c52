//! `lastword answer`: a human's answer to an escalation; it goes back to exactly the task that asked.

use lastword_client::wire::EscalationAnswer;

use super::{Context, text_or_stdin};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::session::confirmed;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The escalation: esc-1.
    id: String,
    /// The answer; from standard input where it is `-` or left out.
    answer: Option<String>,
    /// Answer without a terminal, for a script of yours.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(args.yes).await?;
    // What is typed at the terminal is typed by somebody; what stands in a command line has to be confirmed.
    let typed = args.answer.as_ref().is_none_or(|text| text == "-");
    if !typed && !confirmed(&format!("Answer {} so, as a human?", escape_line(&args.id)), args.yes)? {
        return Err(Failure::refused("not answered"));
    }
    let answer = EscalationAnswer { answer: text_or_stdin(args.answer)? };
    let answered = client.answer_escalation(&args.id, &answer).await?;
    cx.out.show(&answered, |_, _| format!("answered {}", args.id))
}
