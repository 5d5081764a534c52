//! `lastword tail`: what happens, as it happens.

use std::time::Duration;

use super::Context;
use crate::failure::Failure;
use crate::render;
use crate::session::Authority;

/// Pause before the stream is opened again.
const REOPEN: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Start behind this position instead of now.
    #[arg(long, value_name = "SEQ")]
    after: Option<u64>,
    /// Only this conversation and its children.
    #[arg(long = "ref", value_name = "REF")]
    reference: Option<String>,
    /// Only messages.
    #[arg(long)]
    messages: bool,
    /// End when the server ends the stream, instead of opening it again.
    #[arg(long)]
    once: bool,
}

pub(crate) async fn run(args: Args, cx: &Context) -> Result<(), Failure> {
    let client = cx.client(Authority::Read)?;
    let mut after = args.after;
    let mut events = client.events(after).await?;
    loop {
        match events.next().await {
            Ok(Some(event)) => {
                after = Some(event.seq);
                let wanted = !args.messages || event.message.is_some();
                if wanted && belongs(event.reference.as_deref(), args.reference.as_deref()) {
                    cx.out.show(&event, render::event)?;
                }
            }
            Ok(None) if args.once => return Ok(()),
            Err(error) if args.once => return Err(error.into()),
            Ok(None) | Err(_) => {
                tokio::time::sleep(REOPEN).await;
                events = client.events(after).await?;
            }
        }
    }
}

/// Whether an event of the conversation `reference` is wanted by who asks for `wanted` and its children.
fn belongs(reference: Option<&str>, wanted: Option<&str>) -> bool {
    let Some(wanted) = wanted else { return true };
    let below = reference.and_then(|reference| reference.strip_prefix(wanted));
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::belongs;

    #[test]
    fn a_ref_stands_for_itself_and_its_children() {
        for (reference, wanted, expected) in [
            (Some("E-1"), Some("E-1"), true),
            (Some("E-1/2"), Some("E-1"), true),
            (Some("E-10"), Some("E-1"), false),
            (None, Some("E-1"), false),
            (None, None, true),
        ] {
            assert_eq!(belongs(reference, wanted), expected, "{reference:?} {wanted:?}");
        }
    }
}
