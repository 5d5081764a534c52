//! `lastword pause`: nothing is taken or sent until a resume (H4).

use lastword_client::{Client, Target};

use super::Context;
use super::target::{Args, control};
use crate::failure::Failure;

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    control(&args, cx, "paused", async |client: &Client, target: Target<'_>| client.pause(target).await).await
}
