//! `lastword mcp`: serves the tools for a model over standard input and output; each call goes to the running server's
//! `/mcp`.

use lastword_client::{Client, Token};
use lastword_facts::fact::Kind;
use lastword_facts::names::OWN_NAME;
use lastword_mcp::{Remote, Selection, serve_nothing, serve_stdio};

use super::Context;
use crate::failure::Failure;
use crate::out::Out;
use crate::session::{Authority, ServerAccess, no_human_for_a_model};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Serve a human's token, with tools that read and decide; each decision is recorded as that human's.
    #[arg(long)]
    as_human: bool,
    /// Tools to list: core (with those that the agent needs), all, or names. A tool that isn't listed can be called.
    #[arg(long, value_name = "TOOLS", default_value = "core", value_parser = Selection::parse, conflicts_with = "as_human")]
    tools: Selection,
}

/// Standard output belongs to the protocol: everything else goes to standard error.
pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let ServerAccess { endpoint, token } = cx.access(Authority::Act)?;
    // A wrong address or token fails now, when a user configures it, and not at the model's first call.
    // A client of its own, unless a launcher has named the one that it is a part of. Its session carries no call of MCP: its
    // end tells the broker that the client is gone, so that the next one gets the open delivery (F1).
    let endpoint = if endpoint.client().is_some() { endpoint } else { endpoint.called_by_new() };
    let client = Client::new(&endpoint, Some(Token::new(&token)?))?.over_session();
    let me = client.agent(OWN_NAME).await?;
    let remote = Remote::new(client).with_tools(args.tools);
    let served = if let Some(reason) = cx.other_agent(&me.name) {
        Out::note(&reason)?;
        serve_nothing(reason).await
    } else {
        match (me.kind, args.as_human) {
            (Kind::Agent, false) => serve_stdio(remote).await,
            (Kind::Human, true) => serve_stdio(remote.as_human()).await,
            (Kind::Human, false) => return Err(no_human_for_a_model(&me.name)),
            (Kind::Agent, true) => {
                return Err(Failure::usage(format!("--as-human needs a human's token, and this one is {}'s", me.name))
                    .hint("leave out --as-human, or name a human's token with --token-file"));
            }
        }
    };
    served.map_err(|error| {
        Failure::unavailable(format!("the MCP client closed the connection: {error}"))
            .hint("an MCP client starts this command and talks to it on standard input and output")
    })
}
