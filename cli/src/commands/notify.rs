//! `lastword notify test`: sends a test notification through each channel.

use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, Tone, escape_line};
use crate::{config, notify};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Send a test notification through the channels of lastword.toml
    Test {
        /// Test only this channel.
        name: Option<String>,
    },
}

#[derive(Debug, Serialize)]
struct Tried {
    channel: String,
    sent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let What::Test { name } = args.what;
    let wanted = |table: &&notify::NotifyTable| name.as_ref().is_none_or(|name| name == table.name());
    let tables: Vec<_> = cx.settings.notify.iter().filter(wanted).cloned().collect();
    if tables.is_empty() {
        let file = config::CONFIG_FILE;
        return Err(match name {
            Some(name) => {
                Failure::usage(format!("no [[notify]] is named {name:?}")).hint(format!("see [[notify]] in {file}"))
            }
            None => Failure::usage("the configuration has no notification channels")
                .hint(format!("add [[notify]] with name and command to {file}")),
        });
    }
    let mut tried = Vec::new();
    for table in &tables {
        let problem = match table.channel() {
            Ok(channel) => lastword_server::notify::test(&channel).await.err(),
            Err(problem) => Some(problem),
        };
        tried.push(Tried { channel: table.name().to_owned(), sent: problem.is_none(), problem });
    }
    cx.out.show(&tried, |tried, out| words(tried, out))?;
    match tried.iter().filter(|tried| !tried.sent).count() {
        0 => Ok(()),
        failed => Err(Failure::refused(format!("{failed} of {} channels failed", tried.len()))),
    }
}

fn words(tried: &[Tried], out: &Out) -> String {
    let line = |tried: &Tried| match &tried.problem {
        None => format!("{} {}", out.tone(Tone::Good, "sent  "), tried.channel),
        Some(problem) => format!("{} {}: {}", out.tone(Tone::Bad, "failed"), tried.channel, escape_line(problem)),
    };
    tried.iter().map(line).collect::<Vec<_>>().join("\n")
}
