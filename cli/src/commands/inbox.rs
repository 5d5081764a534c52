//! `lastword inbox`: takes the next delivery of the token's owner.

use std::time::Duration;

use serde_json::Value;

use super::Context;
use super::send::in_turn;
use crate::failure::Failure;
use crate::quantity::duration;
use crate::render;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Wait for a delivery up to this long.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = duration)]
    wait: Duration,
    /// Token of the turn whose answers to wait for.
    #[arg(long, value_name = "TOKEN", env = "LASTWORD_TURN", hide_env_values = true)]
    turn_token: Option<String>,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = in_turn(cx.client(Authority::Act)?, args.turn_token.as_deref());
    match client.inbox(args.wait).await? {
        Some(delivery) => cx.out.show(&delivery, render::delivery),
        None => cx.out.show(&Value::Null, |_, _| "inbox empty".to_owned()),
    }
}
