//! Calls on notifications that were given up, and for sending some again. The task that sends notifications answers them.

use lastword_facts::Seq;
use lastword_facts::fact::Role;
use lastword_wire::{FailedNotification, Page, Replay, Resent};
use tokio::sync::oneshot;

use super::{Caller, Context, archives, epochs, humans};
use crate::error::ApiError;

/// The most calls that wait for the task.
pub(crate) const NOTIFY_CALLS_MAX: usize = 16;

/// A call, and where its answer goes.
pub(crate) enum NotifyCall {
    /// Lists what was given up, newest first.
    Failed(oneshot::Sender<Vec<FailedNotification>>),
    /// Sends some of it, or of what came before, again.
    Send(Wanted, oneshot::Sender<Result<Resent, ApiError>>),
}

/// What is to be sent again.
pub(crate) enum Wanted {
    /// The notification with this id, which was given up.
    Failed(String),
    /// What began after a position, on the channel with this name.
    After(String, Seq),
}

/// Lists the notifications that were given up, newest first.
pub(crate) async fn failed(ctx: &Context, caller: Caller) -> Result<Page<FailedNotification>, ApiError> {
    caller.human()?;
    Ok(Page::whole(asked(ctx, NotifyCall::Failed).await?.unwrap_or_default()))
}

/// Sends a notification that was given up again, under its id.
pub(crate) async fn resend(ctx: &Context, caller: Caller, id: &str) -> Result<Resent, ApiError> {
    humans::require(ctx, caller, Role::Operator).await?;
    let resent = asked(ctx, |reply| NotifyCall::Send(Wanted::Failed(id.to_owned()), reply)).await?;
    resent.unwrap_or_else(|| Err(unknown_notification(id)))
}

/// Sends a channel what began after a position and is pending.
pub(crate) async fn replay(ctx: &Context, caller: Caller, replay: Replay) -> Result<Resent, ApiError> {
    humans::require(ctx, caller, Role::Operator).await?;
    let Replay { channel, after } = replay;
    epochs::check_position(ctx, Seq(after)).await?;
    archives::check_position(ctx, Seq(after))?;
    let wanted = Wanted::After(channel.clone(), Seq(after));
    let resent = asked(ctx, |reply| NotifyCall::Send(wanted, reply)).await?;
    resent.unwrap_or_else(|| Err(unknown_channel(&channel)))
}

/// Returns the refusal of an id under which no notification was given up.
pub(crate) fn unknown_notification(id: &str) -> ApiError {
    ApiError::unknown(id).hinted("`lastword notify failed` lists the notifications that can be sent again.")
}

/// Returns the refusal of a name that no channel has.
pub(crate) fn unknown_channel(name: &str) -> ApiError {
    ApiError::unknown(name)
        .hinted("Name a channel of a `[[notify]]` in lastword.toml, or one that the console lists under Team.")
}

/// Passes a call on to the task; `None` if there is no channel, and so no task.
async fn asked<T>(ctx: &Context, call: impl FnOnce(oneshot::Sender<T>) -> NotifyCall) -> Result<Option<T>, ApiError> {
    let Some(notifier) = ctx.notifier.get() else { return Ok(None) };
    let (reply, answer) = oneshot::channel();
    // If the task has ended, it drops the call, and the answer with it.
    let _ended = notifier.send(call(reply)).await;
    answer.await.map(Some).map_err(|_| ApiError::internal("the server ends, and sends no more notifications"))
}
