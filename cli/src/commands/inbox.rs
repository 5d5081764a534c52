//! `lastword inbox`: takes the next delivery of the token's owner.

use std::time::Duration;

use lastword_client::Client;
use lastword_facts::MessageType;
use lastword_facts::names::OWN_NAME;
use lastword_wire::{ConversationSummary, Delivery};
use serde_json::Value;

use super::Context;
use super::ask::Stopwatch;
use super::send::{completed, in_turn};
use crate::failure::Failure;
use crate::out::StyledLine;
use crate::quantity::{duration, milliseconds};
use crate::render;
use crate::session::Authority;
use crate::tree::{self, plain};

/// Most conversations that an empty inbox lists.
const OPEN_MAX: usize = 5;
/// How many of the newest conversations are looked through for them.
const READ_MAX: usize = 200;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Wait for a delivery up to this long.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    wait: Duration,
    /// Token of the turn whose answers to wait for.
    #[arg(long, value_name = "TOKEN", env = "LASTWORD_TURN", hide_env_values = true)]
    turn_token: Option<String>,
    /// Open a turn also for the answer to a request that no turn sent.
    #[arg(long)]
    turns: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = in_turn(cx.client(Authority::Act)?, args.turn_token.as_deref());
    match taken(&client, &args).await? {
        Some(delivery) => {
            cx.out.show(&delivery, render::delivery)?;
            let answer = Some(&delivery.message).filter(|message| message.kind == MessageType::Response);
            completed(answer)
        }
        None => {
            // The inbox is empty, whether or not the requests can be listed.
            let [open, held] =
                if cx.out.is_json() { Default::default() } else { open(&client).await.unwrap_or_default() };
            cx.out.show(&Value::Null, |_, out| {
                let empty = vec![plain(if open.is_empty() { "inbox empty" } else { "inbox empty; no answer yet to:" })];
                out.lines([vec![empty], open, held].concat())
            })?;
            // Without `--wait` an empty inbox is a result.
            if args.wait.is_zero() {
                return Ok(());
            }
            Err(Failure::no_answer(format!("nothing came within {} ms", milliseconds(args.wait))))
        }
    }
}

/// Takes the next delivery. The broker ends a long wait early, and it is begun again.
async fn taken(client: &Client, args: &Args) -> Result<Option<Delivery>, Failure> {
    let waiting = Stopwatch::start();
    loop {
        let left = args.wait.saturating_sub(waiting.elapsed());
        let taken = if args.turns { client.inbox(left).await } else { client.inbox_once(left).await };
        match taken? {
            None if waiting.elapsed() < args.wait => {}
            taken => return Ok(taken),
        }
    }
}

/// Lists the caller's conversations with open requests, each with what holds it (H6), and its open turns.
async fn open(client: &Client) -> Result<[Vec<StyledLine>; 2], Failure> {
    let me = client.agent(OWN_NAME).await?;
    let page = client.newest_conversations(READ_MAX, true).await?;
    let mine = page.items.into_iter().filter(|one| one.opener == me.name);
    let mine: Vec<ConversationSummary> = mine.collect();
    let held = |turn: &String| {
        vec![plain(format!(
            "{turn} is open in another client; with no sign of that one for a while, its delivery comes again"
        ))]
    };
    let held = me.turns.iter().map(held).collect();
    let mut lines = Vec::new();
    for one in mine.iter().take(OPEN_MAX) {
        // One that was forgotten in the meantime is not open any more.
        if let Ok(view) = client.conversation(&one.reference).await {
            lines.push(tree::heading(&view.summary));
            lines.extend(tree::held(&view.held_by));
        }
    }
    if mine.len() > OPEN_MAX || page.next.is_some() {
        lines.push(vec![plain("there may be older ones: `lastword top`")]);
    }
    Ok([lines, held])
}
