//! `lastword stop`: cancels open work; nothing more is admitted (H4).

use lastword_client::{Client, Target};

use super::Context;
use super::target::{Args, control};
use crate::failure::Failure;

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    control(&args, cx, "stopped", async |client: &Client, target: Target<'_>| client.stop(target).await).await
}
