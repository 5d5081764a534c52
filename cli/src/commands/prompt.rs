//! `lastword prompt`: prints what an agent has to know, short enough for every system prompt.

use lastword_server::edges::mcp::PRIMER;
use serde_json::json;

use super::Context;
use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_args: &Args, cx: &Context) -> Result<(), Failure> {
    cx.out.show(&json!({ "prompt": PRIMER }), |_, _| PRIMER.to_owned())
}
