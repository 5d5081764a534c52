//! `lastword token`: makes a narrowed token of one's own.

use std::time::Duration;

use lastword_client::wire::{NewToken, Scope};

use super::Context;
use crate::failure::Failure;
use crate::quantity::{duration, milliseconds};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the token may do: read, send, work, ask, decide, control or manage; repeatable.
    #[arg(long = "scope", value_name = "SCOPE", required = true, value_parser = scope)]
    scopes: Vec<Scope>,
    /// Time after which it expires, such as 8h; at most 366d.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    expires: Duration,
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::named(text).ok_or_else(|| {
        let all = Scope::ALL.map(Scope::as_str).join(", ");
        format!("there is no such scope; use one of {all}")
    })
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.acting().await?;
    let new = NewToken { scopes: args.scopes, expires_in_ms: milliseconds(args.expires) };
    let made = client.narrow(&new).await?;
    cx.out.show(&made, |made, _| made.token.clone())
}
