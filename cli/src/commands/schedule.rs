//! `lastword schedule`: sets recurring requests (D13).

use lastword_client::wire::{NewSchedule, ScheduleView};

use super::Context;
use crate::failure::Failure;
use crate::out::{escape_line, table};
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: ScheduleCommand,
    /// Confirm without a terminal, in a script.
    #[arg(long, global = true)]
    yes: bool,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleCommand {
    /// Add a schedule, or replace the one with this name
    Add(Add),
    /// List schedules and their next ticks
    List,
    /// Remove a schedule; work that its last tick started continues
    Remove {
        /// Name of the schedule.
        name: String,
    },
    /// Run a schedule now, as your own request
    Run {
        /// Name of the schedule.
        name: String,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// Name of the schedule.
    name: String,
    /// Cron expression: minute, hour, day of the month, month, day of the week.
    #[arg(long, value_name = "EXPRESSION")]
    cron: String,
    /// Time zone of the expression, such as Europe/Berlin.
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    zone: String,
    /// Recipient of each request: an agent, or `#action`.
    #[arg(long, value_name = "AGENT")]
    to: String,
    /// REF of each tick, such as `NIGHTLY-{date}` [default: NAME, a dash and the tick's number].
    #[arg(long = "ref", value_name = "TEMPLATE")]
    reference: Option<String>,
    /// Text of each request.
    #[arg(allow_hyphen_values = true)]
    text: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.verb {
        ScheduleCommand::Add(add) => {
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
        ScheduleCommand::List => {
            let page = cx.client(Authority::Read)?.schedules().await?;
            cx.out.show(&page, |page, out| match page.items.is_empty() {
                true => "no schedules".to_owned(),
                false => table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out),
            })
        }
        ScheduleCommand::Remove { name } => {
            cx.deciding(args.yes).await?.remove_schedule(&name).await?;
            cx.out.show(&(), |(), _| format!("removed {}", escape_line(&name)))
        }
        ScheduleCommand::Run { name } => {
            let ran = cx.deciding(args.yes).await?.run_schedule(&name).await?;
            cx.out.show(&ran, |ran, _| format!("sent to {}; tick {}", escape_line(&ran.to), ran.ticks))
        }
    }
}

const HEAD: [&str; 7] = ["name", "cron", "zone", "to", "next", "ticks", "state"];

fn row(schedule: &ScheduleView) -> Vec<String> {
    let state = match (&schedule.skipped_at, &schedule.skipped) {
        (Some(at), Some(code)) => format!("skipped at {at}: {code}"),
        (Some(at), None) => format!("skipped at {at}: the previous grant is open"),
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
