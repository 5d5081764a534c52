//! Calls on escalations: questions to humans, and their answers (H1).

use std::sync::Arc;

use lastword_broker::Live;
use lastword_core::{Input, Principal, Reply, input};
use lastword_facts::fact::{EscalationCause, Key};
use lastword_facts::ids::EscalationId;
use lastword_facts::names::Ref;
use lastword_facts::status::EscalationState;
use lastword_facts::{Code, MessageType, Refusal, Seq};
use lastword_wire::{
    Envelope, EscalationAnswer, EscalationView, FieldError, NewEscalation, Page, Scope, StoredMessage,
};

use super::audit::{PAGE_BYTES_MAX, PageParams};
use super::messages::{self, Sent};
use super::{Caller, Context, admitted, check_sizes, checked, total};
use crate::error::ApiError;
use crate::views::{self, Shown};

/// Asks a human.
pub async fn escalate(ctx: &Context, caller: Caller, new: NewEscalation) -> Result<EscalationView, ApiError> {
    if new.message.trim().is_empty() {
        return Err(FieldError::new("message", "is empty").into());
    }
    check_sizes(ctx, [("message", new.message.len()), ("options", total(&new.options))])?;
    let question = input::Question {
        body: new.message.into(),
        options: new.options.into_iter().map(Into::into).collect(),
        reference: new.reference.map(|text| checked("ref", &text, Ref::new)).transpose()?,
        key: new.key,
    };
    let reply = ctx.handle.submit(Input::Escalate(caller.principal, caller.turn, question)).await;
    match admitted(reply)? {
        Reply::Escalated(id) => show(ctx, id).await,
        other => Err(ApiError::unexpected(&other)),
    }
}

/// Answers an escalation. Only a human may.
pub async fn answer(
    ctx: &Context,
    caller: Caller,
    id: EscalationId,
    answer: &EscalationAnswer,
) -> Result<EscalationView, ApiError> {
    caller.human()?;
    // It extends and resumes.
    caller.may(answer.lift.as_ref().map(|_| Scope::Control))?;
    // A lift needs no text, but an answer without both would settle nothing.
    if answer.lift.is_none() && answer.answer.trim().is_empty() {
        return Err(FieldError::new("answer", "is empty, and no `lift` is chosen").into());
    }
    answer_as(ctx, caller.principal, id, answer, None).await
}

/// Answers it on behalf of `human`: with a lift, which extends and resumes in one act, or with a text. Under a key a text
/// is taken once (Q1).
pub async fn answer_as(
    ctx: &Context,
    human: Principal,
    id: EscalationId,
    answer: &EscalationAnswer,
    key: Option<Key>,
) -> Result<EscalationView, ApiError> {
    check_sizes(ctx, [("answer", answer.answer.len())])?;
    let words = answer.answer.as_str();
    let input = match &answer.lift {
        None => Input::Answer(human, id, words.into(), key),
        Some(lift) => {
            let number = lift.strip_prefix("lift-").and_then(|number| number.parse().ok());
            let number =
                number.ok_or_else(|| FieldError::new("lift", format!("{lift:?} isn't a lift id such as lift-1")))?;
            Input::ChooseLift(human, id, number, (!words.is_empty()).then(|| words.into()))
        }
    };
    admitted(ctx.handle.submit(input).await)?;
    show(ctx, id).await
}

/// Asks once more, in the human's name, for what timed out: the same agent, or the one that `to` names. Then the
/// question about it is settled.
pub async fn ask_again(
    ctx: &Context,
    caller: Caller,
    id: EscalationId,
    to: Option<String>,
) -> Result<StoredMessage, ApiError> {
    caller.human()?;
    let look = move |live: &Live<'_>| {
        let known = live.state.escalations.get(&id)?;
        let task = live.state.tasks.get(&known.task?).filter(|_| known.cause == EscalationCause::TimedOut)?;
        let request = task.request.as_ref()?;
        let open = known.state == EscalationState::Open;
        Some((request.message, request.priority, live.state.name_of(task.agent).to_owned(), open))
    };
    let found = ctx.handle.query(look).await?;
    let (message, priority, agent, open) = found.ok_or_else(|| ApiError::unknown(&id.to_string()))?;
    if !open {
        return Err(Refusal::new(Code::AlreadySettled).about(id).into());
    }
    let shown = views::show(&ctx.handle, vec![message]).await?;
    let first = shown.into_iter().next().and_then(Shown::stored).ok_or_else(|| ApiError::unknown(&id.to_string()))?;
    let mut envelope = Envelope::new(MessageType::Request, &to.unwrap_or(agent), &first.body);
    envelope.reference = Some(first.reference);
    envelope.payload = first.payload;
    let mut draft = envelope.draft()?;
    draft.priority = priority;
    let Sent::One(sent, _) = messages::send::<StoredMessage>(ctx, caller, Box::new(draft), None).await? else {
        return Err(ApiError::new(Code::Malformed, "Name one agent to ask"));
    };
    let words = EscalationAnswer { answer: format!("asked {} again: {}", sent.to, sent.id), lift: None };
    answer_as(ctx, caller.principal, id, &words, None).await?;
    Ok(*sent)
}

/// Returns the human in front of the caller's own client, if the operator configured one.
pub async fn seated(ctx: &Context, caller: Caller) -> Result<Option<Principal>, ApiError> {
    if ctx.seats.is_empty() {
        return Ok(None);
    }
    let (seats, agent) = (Arc::clone(&ctx.seats), caller.principal.agent());
    let human = move |live: &Live<'_>| {
        let human = live.state.live(seats.get(live.state.name_of(agent))?)?;
        let (credential, _) = live.state.credentials.iter().find(|(_, holder)| **holder == human)?;
        live.state.prove(credential).filter(|principal| principal.is_human())
    };
    Ok(ctx.handle.query(human).await?)
}

/// Returns one escalation.
pub async fn show(ctx: &Context, id: EscalationId) -> Result<EscalationView, ApiError> {
    let found = by_ids(ctx, vec![id]).await?;
    found.into_iter().next().ok_or_else(|| ApiError::unknown(&id.to_string()))
}

/// Lists the escalations that `caller` may see, newest first, behind the one that the cursor names.
pub async fn list(ctx: &Context, caller: Caller, params: &PageParams) -> Result<Page<EscalationView>, ApiError> {
    let who = caller.principal;
    let before = params.behind(EscalationId::parse)?;
    let limit = params.limit();
    let all = move |live: &Live<'_>| -> Vec<EscalationId> {
        let known = live.state.escalations.iter().rev().filter(|(id, _)| before.is_none_or(|before| **id < before));
        let mine = known.filter(|(_, e)| who.is_human() || e.agent == who.agent());
        mine.map(|(id, _)| *id).take(limit + 1).collect()
    };
    let mut ids = ctx.handle.query(all).await?;
    let more = ids.len() > limit;
    ids.truncate(limit);
    let (items, cut) = within(ctx, ids, PAGE_BYTES_MAX).await?;
    let next = items.last().map(|last| last.id.clone()).filter(|_| more || cut);
    Ok(Page { items, next, behind: 0 })
}

/// Returns one escalation that `caller` may see: another agent's is as good as unknown.
pub(crate) async fn seen(ctx: &Context, caller: Caller, id: EscalationId) -> Result<Option<EscalationView>, ApiError> {
    let who = caller.principal;
    let look = move |live: &Live<'_>| {
        live.state.escalations.get(&id).is_some_and(|known| who.is_human() || known.agent == who.agent())
    };
    let ids = if ctx.handle.query(look).await? { vec![id] } else { Vec::new() };
    Ok(by_ids(ctx, ids).await?.pop())
}

/// Returns these escalations with the texts of their questions and answers.
pub(crate) async fn by_ids(ctx: &Context, ids: Vec<EscalationId>) -> Result<Vec<EscalationView>, ApiError> {
    within(ctx, ids, usize::MAX).await.map(|(views, _)| views)
}

/// Returns the first of these escalations, until they have this many bytes, and whether any are left.
pub async fn within(
    ctx: &Context,
    ids: Vec<EscalationId>,
    bytes_max: usize,
) -> Result<(Vec<EscalationView>, bool), ApiError> {
    loop {
        if let (Some(views), cut) = looked_up(ctx, ids.clone(), bytes_max).await? {
            return Ok((views, cut));
        }
    }
}

/// Looks escalations up; `None` if one of them was answered meanwhile, whose answer wasn't read.
async fn looked_up(
    ctx: &Context,
    mut ids: Vec<EscalationId>,
    bytes_max: usize,
) -> Result<(Option<Vec<EscalationView>>, bool), ApiError> {
    let wanted = ids.clone();
    let positions = move |live: &Live<'_>| -> Vec<Vec<Seq>> {
        let known = wanted.iter().map(|id| live.state.escalations.get(id));
        known.map(|e| e.map_or_else(Vec::new, |e| [Some(e.asked), e.answer].into_iter().flatten().collect())).collect()
    };
    // Two reads of the state, because the log can only be read off the broker's thread.
    let positions = ctx.handle.query(positions).await?;
    let (entries, cut) = ctx.handle.entries_within(positions.concat(), bytes_max).await?;
    if cut {
        // Whole escalations only, at least one.
        let mut read = entries.len();
        let whole = positions.iter().take_while(|each| {
            let fits = each.len() <= read;
            read = read.saturating_sub(each.len());
            fits
        });
        ids.truncate(whole.count().max(1));
    }
    let entries: std::collections::BTreeMap<_, _> = entries.into_iter().collect();
    let read: std::collections::BTreeSet<Seq> = positions.concat().into_iter().collect();
    let view = move |live: &Live<'_>| {
        let mut answers = ids.iter().filter_map(|id| live.state.escalations.get(id)?.answer);
        if !answers.all(|answer| read.contains(&answer)) {
            return None;
        }
        let one = |id: &EscalationId| {
            let known = live.state.escalations.get(id)?;
            let asked = entries.get(&known.asked).map(AsRef::as_ref);
            let answer = known.answer.and_then(|seq| entries.get(&seq)).map(AsRef::as_ref);
            views::escalation(live.state, *id, asked, answer)
        };
        Some(ids.iter().filter_map(one).collect())
    };
    Ok((ctx.handle.query(view).await?, cut))
}
