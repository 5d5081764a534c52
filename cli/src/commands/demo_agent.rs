//! `lastword demo-agent`: one scripted agent of the demo, in its own process. Not for users.

use super::Context;
use crate::demo::perform;
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which one.
    name: String,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Read)?;
    Ok(perform(&args.name, &client).await?)
}
