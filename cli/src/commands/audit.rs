//! `lastword audit`: searches messages by REF, sender, recipient, type, depth, time and text.

use lastword_client::MessageQuery;
use lastword_client::wire::{Page, parse_rfc3339};

use super::Context;
use crate::failure::Failure;
use crate::render;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Words that the text contains, all of them.
    #[arg(value_name = "WORD")]
    words: Vec<String>,
    /// Only this conversation and its children.
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// Only messages from this sender.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Only messages to this recipient.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Only this type: request, response, status, alert, info or broadcast.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only messages at this depth.
    #[arg(long, value_name = "N")]
    depth: Option<u8>,
    /// Only messages since this time: 2026-01-31, or 2026-01-31T09:05:00Z.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<String>,
    /// Only messages until this time.
    #[arg(long, value_name = "TIME", value_parser = moment)]
    until: Option<String>,
    /// Maximum number of messages.
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: u32,
    /// Continue where an earlier list ended.
    #[arg(long)]
    cursor: Option<String>,
    /// List all matches.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Read)?;
    let mut query = MessageQuery {
        reference: args.reference,
        from: args.from,
        to: args.to,
        kind: args.kind,
        depth: args.depth,
        since: args.since,
        until: args.until,
        text: (!args.words.is_empty()).then(|| args.words.join(" ")),
        limit: (!args.all).then_some(args.limit),
        cursor: args.cursor,
    };
    let mut page: Page<_> = client.messages(&query).await?;
    while let Some(next) = page.next.take_if(|_| args.all) {
        query.cursor = Some(next);
        let more = client.messages(&query).await?;
        page.items.extend(more.items);
        page.next = more.next;
    }
    cx.out.show(&page, |page, out| {
        let mut text = render::messages(&page.items, out);
        if let Some(next) = &page.next {
            text.push_str(&format!("\nmore: --cursor {next}, or --all"));
        }
        text
    })
}

fn moment(text: &str) -> Result<String, String> {
    match parse_rfc3339(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected a time such as 2026-01-31 or 2026-01-31T09:05:00Z".to_owned()),
    }
}
