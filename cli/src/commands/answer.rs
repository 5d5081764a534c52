//! `lastword answer`: sends a human's answer to an escalation, to exactly the task that asked.

use std::ffi::OsString;
use std::io::Write as _;

use lastword_client::wire::{EscalationAnswer, EscalationView};
use lastword_facts::status::EscalationState;

use super::{Context, text_or_stdin};
use crate::failure::Failure;
use crate::out::escape_line;
use crate::render;
use crate::session::confirmed;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Escalation to answer: esc-1.
    id: String,
    /// Text of the answer [default, or with `-`: standard input]. Optional with --lift.
    #[arg(allow_hyphen_values = true)]
    answer: Option<OsString>,
    /// Choose a lift that the broker offers for a question caused by a limit: extends and resumes in one act.
    #[arg(long, value_name = "LIFT")]
    lift: Option<String>,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(args.yes).await?;
    let asked = client.escalation(&args.id).await?;
    // An answer typed at the terminal confirms itself; one in the command line has to be confirmed.
    let typed = args.lift.is_none() && args.answer.as_ref().is_none_or(|text| text == "-");
    let id = escape_line(&args.id);
    let question = match &args.lift {
        Some(lift) => format!("{}\nChoose {} of {id}, as a human?", limit(&asked), offered(&asked, lift)?),
        None => {
            warn_of_words(&asked)?;
            format!("Send this answer to {id}, as a human?")
        }
    };
    if !typed && !confirmed(question.trim_start(), args.yes)? {
        return Err(Failure::refused("not answered"));
    }
    let words = match (args.answer, &args.lift) {
        (None, Some(_)) => String::new(),
        (answer, _) => text_or_stdin(answer)?,
    };
    let answered = client.answer_escalation(&args.id, &EscalationAnswer { answer: words, lift: args.lift }).await?;
    cx.out.show(&answered, |view, _| match view.lifts.iter().find(|lift| lift.chosen) {
        Some(lift) if view.state == EscalationState::Open => {
            format!("lifted: {}; the question of {} is still open", escape_line(&lift.text), view.id)
        }
        Some(lift) => format!("answered {}: {}", view.id, escape_line(&lift.text)),
        None => format!("answered {}", view.id),
    })
}

fn limit(asked: &EscalationView) -> String {
    asked.limit.as_deref().map(escape_line).unwrap_or_default()
}

/// Returns the chosen lift's text; refuses one that isn't offered before the confirmation.
fn offered(asked: &EscalationView, lift: &str) -> Result<String, Failure> {
    match asked.offered().find(|known| known.id == lift) {
        Some(known) => Ok(format!("{} ({})", known.id, known.text)),
        None if asked.offered().next().is_none() => Err(Failure::refused(format!("{} offers no lift", asked.id))
            .hint("no limit caused the question: answer it with a text")),
        None => Err(Failure::refused(format!("{} has no {}", asked.id, escape_line(lift)))
            .hint(render::lifts(asked).join("\n"))),
    }
}

/// Warns that a text answer extends nothing, and names the command that does (H6).
fn warn_of_words(asked: &EscalationView) -> Result<(), Failure> {
    if asked.offered().next().is_none() {
        return Ok(());
    }
    let mut stderr = std::io::stderr().lock();
    writeln!(stderr, "note: {} An answer lifts no limit; this does, and answers nothing:", limit(asked))?;
    for line in render::lifts(asked) {
        writeln!(stderr, "  {line}")?;
    }
    Ok(())
}
