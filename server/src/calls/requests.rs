//! Calls that show and cancel requests (Q9).

use lastword_broker::Live;
use lastword_core::Input;
use lastword_facts::Seq;
use lastword_facts::names::RequestId;
use lastword_wire::RequestView;

use super::{Caller, Context, admitted, epochs, messages};
use crate::error::ApiError;
use crate::views;

/// Returns the current state of a request, for humans and the participants of its conversation.
pub async fn show(ctx: &Context, caller: Caller, id: &str) -> Result<RequestView, ApiError> {
    let (wanted, who) = (id.to_owned(), caller.principal);
    let look = move |live: &Live<'_>| -> Option<(RequestView, Option<Seq>)> {
        let (task_id, task) = live.state.task_of(&wanted)?;
        let conv = live.state.conversations.get(&task.conv);
        let concerned = who.is_human()
            || task.agent == who.agent()
            || task.asker.agent() == Some(who.agent())
            || conv.is_some_and(|c| c.has_part(who.agent()));
        let view = views::request(live.state, task_id, task).filter(|_| concerned)?;
        Some((view, task.request.as_ref().and_then(|r| r.answer.get())))
    };
    let (mut view, answer) = epochs::found(ctx, id, ctx.handle.query(look).await?).await?;
    if let Some(answer) = answer {
        let response = messages::one(ctx, answer).await?;
        if let Some(settled) = view.history.iter_mut().find(|item| item.event == "settled") {
            settled.at.clone_from(&response.created_at);
            settled.agent.clone_from(&response.from);
        }
        view.response = Some(response);
    }
    Ok(view)
}

/// Cancels a request (Q9).
pub async fn cancel(ctx: &Context, caller: Caller, id: &str) -> Result<RequestView, ApiError> {
    let request_id = RequestId::new(id).map_err(|_| ApiError::unknown(id))?;
    admitted(ctx.handle.submit(Input::Cancel(caller.principal, request_id)).await)?;
    show(ctx, caller, id).await
}

/// Dismisses a request that ended without its result.
pub async fn dismiss(ctx: &Context, caller: Caller, id: &str) -> Result<(), ApiError> {
    let request_id = RequestId::new(id).map_err(|_| ApiError::unknown(id))?;
    admitted(ctx.handle.submit(Input::Dismiss(caller.principal, request_id)).await)?;
    Ok(())
}
