//! `lastword resume`: lifts a pause, a stop or a latch (H4).

use lastword_client::{Client, Target};

use super::Context;
use super::target::{Args, control};
use crate::failure::Failure;

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    control(&args, cx, "resumed", async |client: &Client, target: Target<'_>| client.resume(target).await).await
}
