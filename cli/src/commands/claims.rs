//! `lastword claim`, `release` and `claims`: leases on files and other resources (C1).

use std::path::Path;
use std::time::Duration;

use lastword_client::wire::{ClaimView, NewClaim};
use lastword_facts::fact::ClaimMode;
use lastword_facts::resource::Resource;
use lastword_programs::edits::WorkTree;
use serde_json::json;

use super::Context;
use crate::failure::Failure;
use crate::out::{escape_line, table};
use crate::quantity::{duration, milliseconds};
use crate::session::Authority;

/// What an id of a claim begins with.
const ID: &str = "clm-";

#[derive(Debug, clap::Args)]
pub(crate) struct Take {
    /// File or directory, or the name of a resource, such as repo:src/auth/*.
    #[arg(value_name = "PATH|NAME")]
    resource: String,
    /// Share it with others that claim it so.
    #[arg(long)]
    shared: bool,
    /// Time that it lasts [default: as long as the workspace allows].
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    lease: Option<Duration>,
    /// Wait so long for its release, if another task holds it.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    /// Id of the claim, such as clm-7; or the file, directory or resource. A human's release ends anyone's.
    #[arg(value_name = "ID|PATH|NAME")]
    claim: String,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show only what concerns this file, directory or resource.
    #[arg(value_name = "PATH|NAME")]
    resource: Option<String>,
}

pub(crate) async fn take(args: Take, cx: &Context) -> Result<(), Failure> {
    let new = NewClaim {
        resource: named(&args.resource)?.to_string(),
        mode: if args.shared { ClaimMode::Shared } else { ClaimMode::Exclusive },
        ttl_ms: args.lease.map(milliseconds),
        wait_ms: args.wait.map(milliseconds),
        key: None,
    };
    let view = cx.client(Authority::Act)?.claim(&new).await?;
    cx.out.show(&view, |view, _| format!("{} until {}", escape_line(&view.id), view.expires_at))
}

pub(crate) async fn release(args: Release, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Act)?;
    let ids = match args.claim.starts_with(ID) {
        true => vec![args.claim],
        false => {
            let name = named(&args.claim)?;
            let all = client.claims().await?.items;
            all.into_iter().filter(|claim| claim.resource == name.as_str()).map(|claim| claim.id).collect()
        }
    };
    if ids.is_empty() {
        return Err(Failure::refused("nobody holds that").hint("`lastword claims` lists what is held"));
    }
    for id in &ids {
        client.release(id).await?;
    }
    cx.out.show(&json!({ "released": ids }), |_, _| format!("released {}", escape_line(&ids.join(", "))))
}

pub(crate) async fn list(args: Args, cx: &Context) -> Result<(), Failure> {
    let name = args.resource.map(|resource| named(&resource)).transpose()?;
    let mut page = cx.client(Authority::Read)?.claims().await?;
    let concerns = |claim: &ClaimView| {
        let held = Resource::new(&claim.resource).ok();
        name.as_ref().is_none_or(|name| held.is_some_and(|held| held.overlaps(name)))
    };
    page.items.retain(concerns);
    cx.out.show(&page, |page, out| match page.items.is_empty() {
        true => "nothing is held".to_owned(),
        false => table(&HEAD, &page.items.iter().map(row).collect::<Vec<_>>(), out),
    })
}

const HEAD: [&str; 5] = ["id", "resource", "held by", "for", "until"];

fn row(claim: &ClaimView) -> Vec<String> {
    let shared = if claim.mode == ClaimMode::Shared { " (shared)" } else { "" };
    vec![
        claim.id.clone(),
        claim.resource.clone() + shared,
        claim.agent.clone(),
        claim.reference.clone().unwrap_or_default(),
        claim.expires_at.clone(),
    ]
}

/// Returns the name of a resource: that of a file, unless it has the form of a name or nothing of it is on the disk.
fn named(text: &str) -> Result<Resource, Failure> {
    let path = Path::new(text);
    let there = path.exists()
        || (!text.contains(':') && path.parent().is_some_and(|above| !above.as_os_str().is_empty() && above.exists()));
    if there && let Some(name) = WorkTree::of(&std::path::absolute(path)?).name(path) {
        return Ok(name);
    }
    Resource::new(text).map_err(|error| Failure::usage(format!("{text:?} {error}")))
}
