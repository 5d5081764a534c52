//! `lastword console`: opens the console in a browser, signed in.

use std::process::{Command, Stdio};

use super::Context;
use crate::environment::variable;
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only print the link; open no browser.
    #[arg(long)]
    print: bool,
}

/// The programs that open a link with the user's own browser.
const OPENERS: [&str; 2] = ["xdg-open", "open"];

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    // The link acts as the token's owner.
    let endpoint = cx.access(Authority::Act)?.endpoint;
    let link = cx.client(Authority::Act)?.sign_in_link().await?;
    let url = format!("{}{}", endpoint.url().trim_end_matches('/'), link.path);
    let opened = !args.print && !cx.out.is_json() && has_display() && OPENERS.iter().any(|program| open(program, &url));
    let shown = serde_json::json!({ "url": url, "expires_at": link.expires_at });
    cx.out.show(&shown, |_, _| {
        let how = if opened { "opened in the browser; " } else { "" };
        format!("{url}\n{how}signs in once, until {}", link.expires_at)
    })
}

/// Whether a browser of the user could be shown: on this machine's own screen.
fn has_display() -> bool {
    let screen = ["DISPLAY", "WAYLAND_DISPLAY"].into_iter().any(|name| variable(name).is_some());
    cfg!(target_os = "macos") || screen
}

/// Starts a program that opens the link, without waiting for it.
fn open(program: &str, url: &str) -> bool {
    let started =
        Command::new(program).arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    started.is_ok()
}
