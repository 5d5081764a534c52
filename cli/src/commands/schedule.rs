//! `lastword schedule`: work that begins again and again (D13).

use lastword_client::wire::{NewSchedule, ScheduleView};

use super::Context;
use crate::failure::Failure;
use crate::out::{escape_line, table};
use crate::session::Authority;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lastword schedule add nightly --cron '0 2 * * *' --zone Europe/Berlin --to tester \
                        'Run the whole test suite.'\n  lastword schedule run nightly"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
    /// Change it without a terminal, for a script of yours.
    #[arg(long, global = true)]
    yes: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Set a schedule, or replace the one with this name
    Add(Add),
    /// List schedules, and when each ticks next
    List,
    /// Take a schedule away; what its last tick began goes on
    Remove {
        /// Which.
        name: String,
    },
    /// Let a schedule run now, as your own request
    Run {
        /// Which.
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Its name.
    name: String,
    /// When it ticks: minute, hour, day of the month, month, day of the week.
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// The time zone of the expression, such as Europe/Berlin.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// The agent that is asked, or `#action`.
    #[arg(long, value_name = "AGENT")]
    to: String,
    /// The REF of each tick, such as `NIGHTLY-{date}`; by default NAME, a dash and the tick's number.
    #[arg(long = "ref", value_name = "TEMPLATE")]
    reference: Option<String>,
    /// What is asked.
    text: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        Verb::Add(add) => {
            let new = NewSchedule {
                name: add.name,
                cron: add.cron,
                time_zone: Some(add.zone),
                to: add.to,
                body: add.text,
                reference: add.reference,
            };
            let set = cx.deciding(args.yes).await?.set_schedule(&new).await?;
            cx.out.show(&set, |set, _| format!("{} ticks next at {}", set.name, set.next_at))
        }
        Verb::List => {
            let page = cx.client(Authority::Read)?.schedules().await?;
            cx.out.show(&page, |page, out| match page.items.is_empty() {
                true => "there is no schedule".to_owned(),
                false => table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out),
            })
        }
        Verb::Remove { name } => {
            cx.deciding(args.yes).await?.remove_schedule(&name).await?;
            cx.out.show(&(), |(), _| format!("{} is removed", escape_line(&name)))
        }
        Verb::Run { name } => {
            let ran = cx.deciding(args.yes).await?.run_schedule(&name).await?;
            cx.out.show(&ran, |ran, _| format!("{} was asked; tick {}", escape_line(&ran.to), ran.ticks))
        }
    }
}

const HEAD: [&str; 7] = ["name", "cron", "zone", "to", "next", "ticks", "state"];

fn row(schedule: &ScheduleView) -> Vec<String> {
    let state = match (&schedule.skipped_at, &schedule.skipped) {
        (Some(at), Some(code)) => format!("no grant at {at}: {code}"),
        (Some(at), None) => format!("no grant at {at}: the last one is open"),
        (None, _) if schedule.open => "open".to_owned(),
        (None, _) => "idle".to_owned(),
    };
    vec![
        schedule.name.clone(),
        schedule.cron.clone(),
        schedule.time_zone.clone(),
        schedule.to.clone(),
        schedule.next_at.clone(),
        schedule.ticks.to_string(),
        state,
    ]
}
