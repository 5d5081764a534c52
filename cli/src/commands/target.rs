//! The target of `pause`, `resume` and `stop`.

use lastword_client::{Client, ClientError, Target};
use lastword_facts::Code;

use super::Context;
use crate::failure::Failure;
use crate::session::Authority;

#[derive(Debug, clap::Args)]
#[group(id = "target", required = true, multiple = false)]
pub(crate) struct Args {
    /// REF of a conversation.
    #[arg(value_name = "REF")]
    reference: Option<String>,
    /// Name of an agent instead.
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// The whole workspace instead.
    #[arg(long)]
    workspace: bool,
}

impl Args {
    /// Returns the REF of a conversation, if it is the target.
    pub(super) fn reference(&self) -> Option<&str> {
        self.reference.as_deref()
    }

    pub(super) const fn is_workspace(&self) -> bool {
        self.workspace
    }

    /// Returns the target's name, for a person.
    pub(super) fn name(&self) -> &str {
        self.reference.as_deref().or(self.agent.as_deref()).unwrap_or("the workspace")
    }
}

/// Hints at `--agent` if the REF that isn't known is the name of an agent.
async fn named_agent(client: &Client, args: &Args, failure: Failure) -> Failure {
    let unknown = failure.problem.as_ref().is_some_and(|problem| problem.code == Code::UnknownRequest);
    match args.reference.as_deref().filter(|_| unknown) {
        Some(name) if client.agent(name).await.is_ok() => failure.hint(format!("for the agent: --agent {name}")),
        _ => failure,
    }
}

/// Applies `verb` to the target with any token, and prints that it was `done`.
pub(super) async fn control(
    args: &Args,
    cx: &Context,
    done: &str,
    verb: impl AsyncFnOnce(&Client, Target<'_>) -> Result<(), ClientError>,
) -> Result<(), Failure> {
    apply(&cx.client(Authority::Act)?, args, cx, done, verb).await
}

/// Applies `verb` to the target, and prints that it was `done`.
pub(super) async fn apply(
    client: &Client,
    args: &Args,
    cx: &Context,
    done: &str,
    verb: impl AsyncFnOnce(&Client, Target<'_>) -> Result<(), ClientError>,
) -> Result<(), Failure> {
    let target = match (&args.reference, &args.agent) {
        (Some(reference), _) => Target::Conversation(reference),
        (None, Some(agent)) => Target::Agent(agent),
        (None, None) => Target::Workspace,
    };
    if let Err(error) = verb(client, target).await {
        return Err(named_agent(client, args, error.into()).await);
    }
    cx.out.show(&serde_json::json!({}), |_, _| format!("{done} {}", args.name()))
}
