//! `lastword ls`: lists conversations with their subjects, newest first, those below another folded into it and counted
//! with it.

use lastword_client::wire::ConversationSummary;

use super::Context;
use crate::failure::Failure;
use crate::families::{Counted, Families};
use crate::out::{Out, table};
use crate::session::Authority;
use crate::top::{moment, told_state};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The most conversations.
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 50)]
    limit: usize,
    /// List also the conversations below another one, each with its own numbers.
    #[arg(long)]
    all: bool,
    /// Only conversations with open requests.
    #[arg(long)]
    open: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let page = cx.client(Authority::Read)?.newest_conversations(args.limit, args.open).await?;
    cx.out.show(&page, |page, out| {
        if page.items.is_empty() {
            let open = if args.open { "open " } else { "" };
            return format!("no {open}conversations: `lastword ask` starts one");
        }
        let families = Families::of(&page.items, args.all);
        let shown = page.items.iter().filter_map(|item| Some((item, families.counted(&item.reference)?)));
        let rows: Vec<_> = shown.map(|(item, counted)| row(item, &counted, out)).collect();
        let more = page.next.as_ref().map(|_| "\nmore: --limit COUNT").unwrap_or_default();
        table(&HEAD, &rows, out) + more
    })
}

const HEAD: [&str; 7] = ["ref", "state", "subject", "messages", "open", "spent", "last"];

fn row(item: &ConversationSummary, counted: &Counted, out: &Out) -> Vec<String> {
    vec![
        item.reference.clone() + &counted.folded(),
        told_state(item, counted.waits_for_human).0,
        item.subject.clone(),
        counted.messages.to_string(),
        counted.open_tasks.to_string(),
        counted.spent(),
        moment(&item.last_at, out),
    ]
}
