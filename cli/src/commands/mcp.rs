//! `lastword mcp`: serves the tools for a model over standard input and output; each call goes to the running server.

use lastword_client::{Client, Token};
use lastword_server::edges::mcp::{Remote, serve_stdio};
use lastword_server::identity::Secret;

use super::Context;
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Standard output belongs to the protocol: everything else goes to standard error.
pub(crate) async fn run(_args: Args, cx: &Context) -> Result<(), Failure> {
    let (url, token) = cx.access(Authority::Act)?;
    // A wrong address or token fails now, when a user configures it, and not at the model's first call.
    Client::new(&url, Some(Token::new(&token)?))?.limits().await?;
    let remote = Remote::new(&url, Secret::new(token.trim().to_owned()));
    serve_stdio(remote).await.map_err(|error| {
        Failure::unavailable(format!("the MCP client closed the connection: {error}"))
            .hint("an MCP client starts this command and talks to it on standard input and output")
    })
}
