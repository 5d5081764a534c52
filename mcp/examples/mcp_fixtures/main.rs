//! The server with the surface that the MCP conformance suite calls, for callers without a token. It never ships.
//!
//! Prints one line of JSON as `lastword serve --json` does, and ends with SIGTERM.
#![expect(deprecated, reason = "the suite covers logging, sampling and roots, which later revisions drop")]

mod calls;
mod inputs;
mod surface;
mod texts;

use std::io::Write as _;
use std::path::Path;

use lastword_mcp::mount_with_anonymous;
use lastword_server::{Config, Server};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use crate::surface::Fixtures;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        mounts: vec![mount_with_anonymous(|stopping| Fixtures { stopping })],
        ..Config::local(Path::new(".lastword"))
    };
    let mut terminate = signal(SignalKind::terminate())?;
    let server = Server::start(config).await?;
    let listening = json!({
        "listening": format!("http://{}", server.addr()),
        "operator_token_file": server.operator_token_file(),
    });
    writeln!(std::io::stdout(), "{listening}")?;
    terminate.recv().await;
    server.shutdown().await;
    Ok(())
}
