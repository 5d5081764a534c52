//! `lastword clock`: shows the broker's time beside the system clock's (L6).

use lastword_client::wire::{ClockState, ClockView};

use super::Context;
use crate::failure::Failure;
use crate::out::Out;
use crate::session::{Authority, confirmed};
use crate::top::span;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<ClockCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ClockCommand {
    /// Accept the system clock: the broker's time jumps ahead to it, never back
    Accept {
        /// Confirm without a terminal, in a script.
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.command {
        None => cx.out.show(&cx.client(Authority::Read)?.clock().await?, words),
        Some(ClockCommand::Accept { yes }) => accept(yes, cx).await,
    }
}

async fn accept(yes: bool, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(yes).await?;
    let before = client.clock().await?;
    let question = format!("{}\nIs the system clock correct? Grants age by the difference.", words(&before, &cx.out));
    if !confirmed(&question, yes)? {
        return Err(Failure::refused("not accepted"));
    }
    let view = client.accept_clock().await?;
    match (&view.note, view.state) {
        (Some(note), ClockState::HalfSpeed) => {
            Err(Failure::refused(note.clone()).hint("nothing breaks until then: leases and windows last longer"))
        }
        (_, ClockState::InStep | ClockState::CatchingUp | ClockState::Waiting | ClockState::HalfSpeed) => {
            cx.out.show(&view, words)
        }
    }
}

fn words(view: &ClockView, _out: &Out) -> String {
    let side = if view.difference_ms < 0 { "behind" } else { "ahead" };
    let difference = format!("{} {side}", span(view.difference_ms.unsigned_abs()));
    let note = view.note.iter().fold(String::new(), |_, note| format!("\n{note}"));
    format!("broker        {}\nsystem clock  {}, {difference}{note}", view.broker, view.wall)
}
