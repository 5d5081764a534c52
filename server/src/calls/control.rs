//! Requests, and what humans do out of band (H4, D9).

use lastword_proto::fact::{Control, Extension, Latched, Place, Scope};
use lastword_proto::ids::{AgentId, ConvId, GrantId};
use lastword_proto::names::RequestId;
use lastword_proto::state::{IncidentOn, Running};
use lastword_proto::wire::{Extend, FieldError, IncidentView, LimitsView, Page, RequestView};
use lastword_proto::{Input, Seq};

use super::turns::microusd;
use super::{Caller, Context, admitted, messages};
use crate::broker::Live;
use crate::edges::ApiError;
use crate::views;

/// A request, as it stands; for who takes part in its conversation.
pub(crate) async fn request(ctx: &Context, caller: Caller, id: &str) -> Result<RequestView, ApiError> {
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
    let (mut view, answer) = ctx.handle.query(look).await?.ok_or_else(|| ApiError::unknown(id))?;
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

/// Takes a request back (Q9).
pub(crate) async fn cancel(ctx: &Context, caller: Caller, id: &str) -> Result<RequestView, ApiError> {
    let request_id = RequestId::new(id).map_err(|_| ApiError::unknown(id))?;
    admitted(ctx.handle.submit(Input::Cancel(caller.principal, request_id)).await)?;
    request(ctx, caller, id).await
}

/// Pauses, resumes or stops something.
pub(crate) async fn control(ctx: &Context, caller: Caller, scope: Scope, control: Control) -> Result<(), ApiError> {
    caller.human()?;
    admitted(ctx.handle.submit(Input::Control(caller.principal, scope, control)).await).map(|_| ())
}

/// Whether the whole workspace runs.
pub(crate) async fn running(ctx: &Context) -> Result<Running, ApiError> {
    Ok(ctx.handle.query(|live| live.state.running).await?)
}

/// The whole workspace: whether it runs, and what stopping it would end.
pub(crate) struct Workspace {
    /// Whether it runs.
    pub(crate) running: Running,
    /// Conversations with open work.
    pub(crate) conversations: u64,
    /// Open turns.
    pub(crate) turns: u64,
}

/// How the workspace stands.
pub(crate) async fn workspace(ctx: &Context) -> Result<Workspace, ApiError> {
    let look = |live: &Live<'_>| Workspace {
        running: live.state.running,
        conversations: live.state.conversations.range(..).filter(|(_, conv)| !conv.open_tasks.is_empty()).count()
            as u64,
        turns: live.state.agents.iter().map(|agent| agent.turns.len() as u64).sum(),
    };
    Ok(ctx.handle.query(look).await?)
}

/// Gives more to what runs in a conversation.
pub(crate) async fn extend(ctx: &Context, caller: Caller, conv: ConvId, more: Extend) -> Result<(), ApiError> {
    caller.human()?;
    let named = |id: &str| {
        let text = format!("{id:?} isn't a grant id such as grant-3");
        GrantId::parse(id).ok_or_else(|| FieldError::new("grant", text))
    };
    let only = more.grant.as_deref().map(named).transpose()?;
    if more.cost_usd < 0.0 {
        return Err(FieldError::new("cost_usd", "is below 0: a grant can't be reduced").into());
    }
    let extension = Extension {
        messages: more.messages,
        turns: more.turns,
        agents: more.agents,
        requests: more.requests,
        tokens: more.tokens,
        cost_microusd: microusd(more.cost_usd),
        time_ms: more.time_ms,
    };
    if more.rounds > 0 {
        admitted(ctx.handle.submit(Input::ExtendRounds(caller.principal, conv, more.rounds)).await)?;
    }
    if extension != Extension::NONE || more.rounds == 0 {
        admitted(ctx.handle.submit(Input::Extend(caller.principal, conv, only, extension)).await)?;
    }
    Ok(())
}

/// The latches that tripped, newest first.
pub(crate) async fn incidents(ctx: &Context, caller: Caller) -> Result<Page<IncidentView>, ApiError> {
    let who = caller.principal;
    let all = move |live: &Live<'_>| {
        let incidents = live.state.incidents.iter().rev();
        let seen = incidents.filter(|(_, incident)| who.is_human() || concerns(live, incident.on, who.agent()));
        seen.map(|(id, incident)| views::incident(live.state, *id, incident)).collect()
    };
    Ok(Page::whole(ctx.handle.query(all).await?))
}

fn concerns(live: &Live<'_>, on: IncidentOn, agent: AgentId) -> bool {
    let latch = match on {
        IncidentOn::Agent(about) => return about == agent,
        IncidentOn::Latch(latch) => latch,
    };
    match latch {
        Latched::Grant(grant) => live.state.grants.get(&grant).is_some_and(|g| g.agents.contains(&agent)),
        Latched::Place(Place::Conversation(conv)) => {
            live.state.conversations.get(&conv).is_some_and(|c| c.has_part(agent))
        }
        Latched::Place(Place::Room(room)) => live.state.rooms.get(&room).is_some_and(|r| r.members.contains(&agent)),
    }
}

/// The numbers in force.
pub(crate) async fn limits(ctx: &Context) -> Result<LimitsView, ApiError> {
    Ok(ctx.handle.query(|live| LimitsView::of(&live.state.limits, &live.state.policy)).await?)
}
