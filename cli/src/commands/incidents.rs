//! `lastword incidents`: lists the limits that tripped and hold work until a human lifts them (R3).

use lastword_client::wire::IncidentView;

use super::Context;
use crate::failure::Failure;
use crate::out::{Out, table};
use crate::session::Authority;
use crate::top::moment;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Include lifted incidents.
    #[arg(long)]
    all: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let mut page = cx.client(Authority::Read)?.incidents().await?;
    page.items.retain(|item| args.all || item.lifted_at.is_none());
    cx.out.show(&page, |page, out| match page.items.is_empty() {
        true => "no open incidents".to_owned(),
        false => table(&HEAD, &page.items.iter().map(|item| row(item, out)).collect::<Vec<_>>(), out),
    })
}

const HEAD: [&str; 8] = ["id", "at", "holds", "code", "limit", "was", "parked", "lifted by"];

fn row(incident: &IncidentView, out: &Out) -> Vec<String> {
    let [current, limit] = incident.amounts();
    vec![
        incident.id.clone(),
        moment(&incident.at, out),
        // An incident about an agent holds nothing.
        if incident.scope == "agent" {
            format!("nothing; {}", incident.on)
        } else {
            format!("{} {}", incident.scope, incident.on)
        },
        incident.code.to_string(),
        limit,
        current,
        incident.parked.join(" "),
        match (&incident.lifted_by, &incident.lifted_at) {
            (Some(by), _) => by.clone(),
            (None, Some(_)) => "grant closed".to_owned(),
            (None, None) => String::new(),
        },
    ]
}
