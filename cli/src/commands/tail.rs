//! `lastword tail`: shows the last events, then follows new ones.

use std::collections::VecDeque;
use std::io::{Write as _, stderr};
use std::time::Duration;

use lastword_client::wire::Event;
use lastword_client::{Client, ClientError, Events};
use lastword_facts::MessageType;

use super::Context;
use crate::failure::{Exit, Failure};
use crate::session::Authority;
use crate::story::Story;

/// Pause before the stream is reopened.
const REOPEN: Duration = Duration::from_secs(1);
/// Events that `-f` shows first without `-n`.
const LINES: usize = 10;
/// Positions first searched for the last events; four times as many each time that isn't enough.
const LOOK_BACK: u64 = 512;

#[derive(Debug, clap::Args)]
#[command(after_help = "Without -n and -f, `tail` starts now and follows, as with -n 0 -f.")]
pub(crate) struct Args {
    /// Show the last events, then follow.
    #[arg(short, long)]
    follow: bool,
    /// Show the last N events that pass the filters [default with -f: 10].
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "after")]
    lines: Option<usize>,
    /// Start after this log position instead.
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// End when the server ends the stream, instead of reconnecting.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    filter: Filter,
}

/// Which events; a member that is absent admits all.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Filters")]
struct Filter {
    /// Only this conversation and its children.
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// Only events caused by this agent or human.
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Only messages to this recipient.
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Only messages of this type, including refused ones: request, response, status, alert, info or broadcast.
    #[arg(long = "type", value_name = "TYPE", value_parser = kind)]
    kind: Option<MessageType>,
    /// Only messages at this depth.
    #[arg(long, value_name = "N")]
    depth: Option<u8>,
    /// Only admitted messages.
    #[arg(long)]
    messages: bool,
}

fn kind(text: &str) -> Result<MessageType, String> {
    let words = || MessageType::ALL.iter().map(|kind| kind.word()).collect::<Vec<_>>().join(", ");
    MessageType::from_word(text).ok_or_else(|| format!("{text:?} isn't one of {}", words()))
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Read)?;
    let mut story = Story::new(cx.out);
    let lines = args.lines.or((args.follow && args.after.is_none()).then_some(LINES));
    let after = match lines {
        Some(lines) => {
            let (last, position) = last(&client, &args.filter, lines).await?;
            for event in &last {
                story.tell(event)?;
            }
            if !args.follow {
                return Ok(());
            }
            Some(position)
        }
        None => args.after,
    };
    follow(cx, client, after, &args, &mut story).await
}

/// Returns the last events that pass the filter, and the log's head.
async fn last(client: &Client, filter: &Filter, lines: usize) -> Result<(VecDeque<Event>, u64), ClientError> {
    let position = client.events(None).await?.position();
    let mut back = LOOK_BACK;
    loop {
        let mut begin = position.saturating_sub(back);
        let mut found = VecDeque::new();
        let mut events = match client.events_until(Some(begin), Some(position)).await {
            // Positions jump where an epoch begins (L8): look back from before the jump.
            Err(error) if error.shared_position().is_some_and(|shared| shared < begin) => {
                begin = error.shared_position().unwrap_or_default();
                back = position - begin;
                client.events_until(Some(begin), Some(position)).await?
            }
            events => events?,
        };
        while let Some(event) = events.next().await? {
            if filter.admits(&event) {
                found.push_back(event);
                if found.len() > lines {
                    found.pop_front();
                }
            }
        }
        if found.len() >= lines || begin == 0 {
            return Ok((found, position));
        }
        back = back.saturating_mul(4);
    }
}

/// Prints events across server restarts, each once: the stream continues after the last event.
async fn follow(
    cx: &Context,
    client: Client,
    after: Option<u64>,
    args: &Args,
    story: &mut Story,
) -> Result<(), Failure> {
    let mut events = client.over_session().events(after).await?;
    let mut after = after.unwrap_or(events.position());
    loop {
        match events.next().await {
            Ok(Some(event)) => {
                after = event.seq;
                if args.filter.admits(&event) {
                    story.tell(&event)?;
                }
            }
            Ok(None) if args.once => return Ok(()),
            Err(error) if args.once => return Err(error.into()),
            Ok(None) | Err(_) => events = reopened(cx, &mut after).await?,
        }
    }
}

/// Reopens the stream after the position `after`, once a server answers. The server may have moved, so it is looked up
/// again.
async fn reopened(cx: &Context, after: &mut u64) -> Result<Events, Failure> {
    // On standard error, so that standard output holds only events.
    writeln!(stderr().lock(), "the server is gone; reconnecting")?;
    loop {
        tokio::time::sleep(REOPEN).await;
        let client = match cx.client(Authority::Read) {
            Err(failure) if failure.exit == Exit::Unavailable => continue,
            client => client?.over_session(),
        };
        match client.events(Some(*after)).await.map_err(|error| (error.shared_position(), Failure::from(error))) {
            Ok(events) => return Ok(events),
            Err((Some(shared), _)) => {
                writeln!(stderr().lock(), "the log went back to {shared}: events after it never happened")?;
                *after = shared;
            }
            Err((None, failure)) if failure.exit == Exit::Unavailable => {}
            Err((None, failure)) => return Err(failure),
        }
    }
}

impl Filter {
    fn admits(&self, event: &Event) -> bool {
        let message = event.message.as_ref();
        let data = |name: &str| event.data.get(name).and_then(|value| value.as_str());
        let from = message.map(|message| message.from.as_str()).or(event.agent.as_deref());
        let to = message.map(|message| message.to.as_str()).or_else(|| data("to"));
        let kind = message.map(|message| message.kind).or_else(|| MessageType::from_word(data("type")?));
        let reference = event.reference.as_deref().or_else(|| data("ref"));
        (!self.messages || message.is_some())
            && belongs(reference, self.reference.as_deref())
            && self.from.as_deref().is_none_or(|wanted| from == Some(wanted))
            && self.to.as_deref().is_none_or(|wanted| to == Some(wanted))
            && self.kind.is_none_or(|wanted| kind == Some(wanted))
            && self.depth.is_none_or(|wanted| message.is_some_and(|message| message.depth == wanted))
    }
}

/// Returns whether the conversation `reference` is `wanted` or one of its children.
fn belongs(reference: Option<&str>, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    let below = reference.and_then(|reference| reference.strip_prefix(wanted));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_ref_stands_for_itself_and_its_children() {
        for (reference, wanted, expected) in [
            (Some("E-1"), Some("E-1"), true),
            (Some("E-1/2"), Some("E-1"), true),
            (Some("E-10"), Some("E-1"), false),
            (None, Some("E-1"), false),
            (None, None, true),
        ] {
            assert_eq!(belongs(reference, wanted), expected, "{reference:?} {wanted:?}");
        }
    }

    #[test]
    fn a_refused_message_passes_the_filters_that_it_would_pass_as_an_admitted_one() {
        let event: Event = serde_json::from_value(json!({
            "seq": 7, "type": "refused", "at": "2026-01-31T09:00:00Z", "agent": "kilo",
            "data": { "to": "hive", "type": "request", "ref": "E-1/2", "code": "depth_cap" },
        }))
        .unwrap();
        let of = |flags: &str| {
            let mut filter = Filter::default();
            for flag in flags.split(' ') {
                match flag.split_once('=') {
                    Some(("ref", text)) => filter.reference = Some(text.into()),
                    Some(("from", text)) => filter.from = Some(text.into()),
                    Some(("to", text)) => filter.to = Some(text.into()),
                    Some(("type", text)) => filter.kind = Some(kind(text).unwrap()),
                    Some(("depth", text)) => filter.depth = text.parse().ok(),
                    _ => filter.messages = flag == "messages",
                }
            }
            filter.admits(&event)
        };
        for yes in ["", "ref=E-1", "from=kilo", "to=hive", "type=request", "ref=E-1 from=kilo to=hive type=request"] {
            assert!(of(yes), "{yes}");
        }
        for no in ["ref=E-2", "from=hive", "to=kilo", "type=response", "depth=0", "messages"] {
            assert!(!of(no), "{no}");
        }
        assert!(kind("letter").is_err());
    }
}
