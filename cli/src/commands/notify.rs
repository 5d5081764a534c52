//! `lastword notify`: tests the channels of notifications, and sends some again.

use lastword_client::wire::{FailedNotification, Replay, Resent};
use serde::Serialize;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, Tone, escape_line, table};
use crate::session::Authority;
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
    /// List the notifications that were given up, newest first
    Failed {
        /// List only those of this channel.
        channel: Option<String>,
    },
    /// Send a notification that was given up again, with what of it is pending
    Resend(Resend),
    /// Send a channel what began after a position and is pending
    Replay {
        /// Name of the channel.
        channel: String,
        /// Position in the log.
        #[arg(long, value_name = "POSITION")]
        after: u64,
        /// Confirm without a terminal, in a script.
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Resend {
    /// Id of the notification.
    #[arg(required_unless_present = "all")]
    id: Option<String>,
    /// Send all of this channel, the oldest first, until one fails.
    #[arg(long, value_name = "CHANNEL", conflicts_with = "id")]
    all: Option<String>,
    /// Confirm without a terminal, in a script.
    #[arg(long)]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct Tried {
    channel: String,
    sent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    match args.what {
        What::Test { name } => test(name, cx).await,
        What::Failed { channel } => {
            let mut page = cx.client(Authority::Read)?.failed_notifications().await?;
            page.items.retain(|failed| channel.as_ref().is_none_or(|channel| *channel == failed.channel));
            cx.out.show(&page, |page, out| match page.items.is_empty() {
                true => "no notification was given up".to_owned(),
                false => table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out),
            })
        }
        What::Resend(resend) => resend_all(resend, cx).await,
        What::Replay { channel, after, yes } => {
            let resent = cx.deciding(yes).await?.replay_notifications(&Replay { channel, after }).await?;
            shown(&[resent], cx)
        }
    }
}

const HEAD: [&str; 5] = ["id", "channel", "failed", "items", "reason"];

fn row(failed: &FailedNotification) -> Vec<String> {
    let FailedNotification { id, channel, failed_at, reason, items } = failed;
    vec![id.clone(), channel.clone(), failed_at.clone(), items.join(" "), escape_line(reason)]
}

async fn resend_all(resend: Resend, cx: &Context) -> Result<(), Failure> {
    let client = cx.deciding(resend.yes).await?;
    let mut ids: Vec<String> = resend.id.into_iter().collect();
    if let Some(channel) = resend.all {
        let listed = client.failed_notifications().await?.items.into_iter().rev();
        ids.extend(listed.filter(|failed| failed.channel == channel).map(|failed| failed.id));
    }
    let mut all = Vec::new();
    for id in ids {
        let resent = client.resend_notification(&id).await?;
        let failed = resent.problem.is_some();
        all.push(resent);
        if failed {
            break;
        }
    }
    shown(&all, cx)
}

/// Shows what came of sending notifications again; fails if one of them did.
fn shown(all: &[Resent], cx: &Context) -> Result<(), Failure> {
    cx.out.show(&all, |all, out| match all.is_empty() {
        true => "no notification was given up".to_owned(),
        false => all.iter().map(|resent| line(resent, out)).collect::<Vec<_>>().join("\n"),
    })?;
    match all.iter().find(|resent| resent.problem.is_some()) {
        Some(resent) => Err(Failure::refused(format!("{} is not sent", resent.id))
            .hint(format!("see that {} works: lastword notify test {}", resent.channel, resent.channel))),
        None => Ok(()),
    }
}

fn line(resent: &Resent, out: &Out) -> String {
    let Resent { id, channel, items, settled, problem } = resent;
    let plural = |n: usize| format!("{n} item{}", if n == 1 { "" } else { "s" });
    let settled = if *settled > 0 { format!("; {} settled", plural(*settled)) } else { String::new() };
    let (tone, word, what) = match (problem, items) {
        (Some(problem), _) => (Tone::Bad, "failed", escape_line(problem)),
        (None, 0) => (Tone::Good, "empty ", format!("nothing of it is pending{settled}")),
        (None, items) => (Tone::Good, "sent  ", format!("{}{settled}", plural(*items))),
    };
    format!("{} {id} {channel}: {what}", out.tone(tone, word))
}

async fn test(name: Option<String>, cx: &Context) -> Result<(), Failure> {
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
