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
    /// Show long calls whole, as they are where the output is no terminal.
    #[arg(long)]
    whole: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let mut page = cx.client(Authority::Read)?.approvals().await?;
    page.items.retain(|item| args.all || item.state == ApprovalState::Pending);
    cx.out.show(&page, |page, out| match page.items.is_empty() {
        true => "no pending approvals".to_owned(),
        false => {
            let folds = !args.whole && out.columns().is_some();
            let shown = |item| if folds { render::approval_in_list(item, out) } else { render::approval(item, out) };
            page.items.iter().map(shown).collect::<Vec<_>>().join("\n")
        }
    })
}
