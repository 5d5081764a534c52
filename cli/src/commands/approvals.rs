//! `lastword approvals`: lists the tool calls that wait for a decision.

use lastword_facts::status::ApprovalState;

use super::Context;
use crate::failure::Failure;
use crate::render;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Include decided approvals.
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let mut page = cx.client(Authority::Read)?.approvals().await?;
    page.items.retain(|item| args.all || item.state == ApprovalState::Pending);
    cx.out.show(&page, |page, out| match page.items.is_empty() {
        true => "no pending approvals".to_owned(),
        false => page.items.iter().map(|item| render::approval(item, out)).collect::<Vec<_>>().join("\n"),
    })
}
