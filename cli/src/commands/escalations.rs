//! `lastword escalations`: lists the questions of agents to humans.

use lastword_facts::status::EscalationState;

use super::Context;
use crate::failure::Failure;
use crate::render;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Include answered and withdrawn escalations.
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let mut page = cx.client(Authority::Read)?.escalations().await?;
    let known = page.items.clone();
    let once = |item: &_| !render::is_asked_twice(item, &known);
    page.items.retain(|item| args.all || (item.state == EscalationState::Open && once(item)));
    cx.out.show(&page, |page, out| match page.items.is_empty() {
        true => "no open escalations".to_owned(),
        false => page.items.iter().map(|item| render::escalation(item, out)).collect::<Vec<_>>().join("\n"),
    })
}
