//! `lastword ls`: lists conversations with their subjects, newest first, those below another folded into it.

use std::collections::{BTreeMap, BTreeSet};

use lastword_client::wire::ConversationSummary;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, table};
use crate::session::Authority;
use crate::top::{moment, spent, state_of};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The most conversations.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,
    /// List also the conversations below another one.
    #[arg(long)]
    all: bool,
    /// Only conversations with open requests.
    #[arg(long)]
    open: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let page = cx.client(Authority::Read)?.newest_conversations(args.limit, args.open).await?;
    let below = children(&page.items);
    cx.out.show(&page, |page, out| {
        if page.items.is_empty() {
            let open = if args.open { "open " } else { "" };
            return format!("no {open}conversations: `lastword ask` starts one");
        }
        let shown = page.items.iter().filter(|item| args.all || !is_below(item, &page.items));
        let below = |item| if args.all { 0 } else { below_of(item, &below) };
        let rows: Vec<_> = shown.map(|item| row(item, below(item), out)).collect();
        let more = page.next.as_ref().map(|_| "\nmore: --limit COUNT").unwrap_or_default();
        table(&HEAD, &rows, out) + more
    })
}

const HEAD: [&str; 7] = ["ref", "state", "subject", "messages", "open", "spent", "last"];

/// Returns how many of these conversations were opened from each other one.
fn children(items: &[ConversationSummary]) -> BTreeMap<String, usize> {
    let mut below = BTreeMap::new();
    for parent in items.iter().filter_map(|item| item.parent_ref.clone()) {
        *below.entry(parent).or_default() += 1;
    }
    below
}

/// Returns whether a conversation was opened from another one in the list, which then stands for it.
fn is_below(item: &ConversationSummary, items: &[ConversationSummary]) -> bool {
    let known: BTreeSet<&str> = items.iter().map(|item| item.reference.as_str()).collect();
    item.parent_ref.as_deref().is_some_and(|parent| known.contains(parent))
}

fn below_of(item: &ConversationSummary, below: &BTreeMap<String, usize>) -> usize {
    below.get(&item.reference).copied().unwrap_or_default()
}

fn row(item: &ConversationSummary, below: usize, out: &Out) -> Vec<String> {
    let folded = if below > 0 { format!("{} +{below}", item.reference) } else { item.reference.clone() };
    vec![
        folded,
        state_of(item).0,
        item.subject.clone(),
        item.counters.messages.to_string(),
        item.counters.open_tasks.to_string(),
        spent(item),
        moment(&item.last_at, out),
    ]
}
