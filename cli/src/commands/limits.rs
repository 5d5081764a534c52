//! `lastword limits`: every number, from the running server or from the configuration.

use lastword_client::wire::{LimitView, LimitsView};
use lastword_proto::Limits;
use lastword_proto::guards::GUARDS;
use lastword_proto::limits::LIMITS;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, table};
use crate::session::{Authority, running};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show the configuration's numbers, even where a server is running.
    #[arg(long)]
    offline: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let named = cx.settings.url.is_some() || running(&cx.settings.data).is_some();
    let view = if named && !args.offline {
        cx.client(Authority::Read)?.limits().await?
    } else {
        configured(&cx.settings.limits)
    };
    cx.out.show(&view, words)
}

fn configured(limits: &Limits) -> LimitsView {
    let items = LIMITS.iter().map(|row| LimitView {
        name: row.name.to_owned(),
        rule: row.rule.to_owned(),
        value: limits.value(row.name).unwrap_or(row.default),
        default: row.default,
        meaning: row.meaning.to_owned(),
    });
    let guards = GUARDS.iter().enumerate().map(|(i, guard)| {
        let mode = if limits.observed.contains(i) { "observe" } else { "enforce" };
        (guard.name.to_owned(), mode.to_owned())
    });
    LimitsView { items: items.collect(), guards: guards.collect(), bound_messages: limits.bound_messages() }
}

fn words(view: &LimitsView, out: &Out) -> String {
    let row = |limit: &LimitView| {
        let changed = if limit.value == limit.default { String::new() } else { limit.default.to_string() };
        vec![limit.name.clone(), limit.value.to_string(), changed, limit.rule.clone(), limit.meaning.clone()]
    };
    let limits: Vec<_> = view.items.iter().map(row).collect();
    let guards: Vec<_> = view.guards.iter().map(|(name, mode)| vec![name.clone(), mode.clone()]).collect();
    format!(
        "{}\n\n{}\n\nA grant can cause {} waking messages at most (`lastword bound`).",
        table(&["limit", "value", "default", "rule", "what it bounds"], &limits, out),
        table(&["guard", "mode"], &guards, out),
        view.bound_messages,
    )
}
