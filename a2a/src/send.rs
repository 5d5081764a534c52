//! `SendMessage`: a new request, an answer to the agent's question, or a decision about a held call.

use axum::http::HeaderMap;
use lastword_broker::Live;
use lastword_broker::identity::hex;
use lastword_core::Principal;
use lastword_facts::envelope::fnv_of;
use lastword_facts::fact::Key;
use lastword_facts::ids::{ApprovalId, EscalationId};
use lastword_facts::names::RequestId;
use lastword_facts::{Code, MessageType, Refusal, TraceContext};
use lastword_server::calls::{Caller, approvals, escalations, messages};
use lastword_server::{ApiError, Context};
use lastword_wire::{DecideApproval, Envelope, EscalationAnswer, Scope, StoredMessage, TRACEPARENT};
use serde_json::{Value, json};

use crate::causality::{self, Causality, URI};
use crate::fault::{Fault, Kind};
use crate::model::{Message, Metadata, Part, Role, SendMessage, TaskState};
use crate::tasks::{self, KEPT, PREFIX, TaskSnapshot};

/// The bytes of the MAC that makes an id.
const ID_BYTES: usize = 12;
/// The bytes of the MAC that tells the tasks of a context apart.
const PLACE_BYTES: usize = 6;

/// What a message says, as a request has it.
pub(crate) struct Content {
    pub(crate) body: String,
    pub(crate) payload: Option<Value>,
}

/// Takes the parts of a message: texts become the body, data the payload.
pub(crate) fn content(parts: &[Part]) -> Result<Content, Fault> {
    if parts.is_empty() {
        return Err(Fault::field("message.parts", "is empty: a message has at least one part"));
    }
    let (mut texts, mut data) = (Vec::new(), Vec::new());
    for (place, part) in parts.iter().enumerate() {
        let files = [("raw", &part.raw), ("url", &part.url)];
        if let Some((name, _)) = files.iter().find(|(_, file)| file.is_some()) {
            let text = format!("message.parts[{place}] is a file (`{name}`): this agent takes text and data");
            return Err(Fault::new(Kind::ContentTypeNotSupported, text));
        }
        match (&part.text, &part.data) {
            (Some(text), None) => texts.push(text.as_str()),
            (None, Some(value)) => data.push(value.clone()),
            (Some(_), Some(_)) | (None, None) => {
                let field = format!("message.parts[{place}]");
                return Err(Fault::field(&field, "has to have one of `text`, `data`, `url` and `raw`"));
            }
        }
    }
    let payload = if data.len() > 1 { Some(Value::Array(data)) } else { data.pop() };
    Ok(Content { body: texts.join("\n\n"), payload })
}

/// Sends a message. Returns the id of its task.
pub(crate) async fn send(
    ctx: &Context,
    caller: Caller,
    agent: &str,
    headers: &HeaderMap,
    request: SendMessage,
) -> Result<TaskSnapshot, Fault> {
    let message = request.message;
    if message.message_id.is_empty() {
        return Err(Fault::field("message.messageId", "is missing"));
    }
    if message.role != Role::User {
        return Err(Fault::field("message.role", "has to be ROLE_USER"));
    }
    let content = content(&message.parts)?;
    if message.task_id.is_empty() {
        let id = begin(ctx, caller, agent, headers, &request.metadata, message, content).await?;
        return tasks::find(ctx, caller, agent, &id).await;
    }
    let known = tasks::find(ctx, caller, agent, &message.task_id).await?;
    if !message.context_id.is_empty() && message.context_id != known.context {
        return Err(Fault::field("message.contextId", "isn't that of the task"));
    }
    let key = key(ctx, caller, agent, &known, &message.message_id, &content)?;
    go_on(ctx, caller, &known, key, content).await?;
    tasks::find(ctx, caller, agent, &message.task_id).await
}

/// Sends a request. Its id follows from the caller's id of the message, so that a retry is the same request (Q1).
async fn begin(
    ctx: &Context,
    caller: Caller,
    agent: &str,
    headers: &HeaderMap,
    more: &Metadata,
    message: Message,
    content: Content,
) -> Result<String, Fault> {
    let who = caller.principal.agent();
    let mac = |label: &str| {
        let text = format!("{who}\n{agent}\n{}\n{}", message.context_id, message.message_id);
        ctx.handle.signer().mac_of(label, text.as_bytes())
    };
    let id = tasks::minted(ctx.handle.signer(), who, &mac("a2a task"));
    let reference = match message.context_id.as_str() {
        // In a turn the conversation follows from the turn (D3).
        "" if caller.turn().is_some() => None,
        "" => Some(format!("{PREFIX}{}", hex(&mac("a2a context")[..ID_BYTES]))),
        // A task of its own below the context: the next one in one conversation would go on with its depth (D2).
        context => {
            let above = conversation_of(ctx, caller, context).await?;
            Some(format!("{above}/{}", hex(&mac("a2a place")[..PLACE_BYTES])))
        }
    };
    let traceparent = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok());
    let context = traceparent.and_then(TraceContext::parse);
    let traceparent = traceparent.filter(|_| context.is_some());
    let (mut envelope, causality) = envelope(agent, more, message, content, traceparent)?;
    envelope.request_id = Some(id.clone());
    envelope.reference = reference;
    // What a message of this workspace caused is no new grant (D10).
    envelope.caused_by = causality::cause(ctx, &causality, context).await?.map(|seq| seq.to_string());
    let draft = envelope.draft().map_err(ApiError::from)?;
    messages::send::<StoredMessage>(ctx, caller, Box::new(draft), None).await?;
    Ok(id)
}

/// Returns what a message asks for, and the causality that it brings. Nothing else of it has a meaning to the broker.
pub(crate) fn envelope(
    agent: &str,
    more: &Metadata,
    message: Message,
    content: Content,
    traceparent: Option<&str>,
) -> Result<(Envelope, Causality), Fault> {
    let mut causality = Causality::of(&message.metadata);
    causality.tokens.extend(Causality::of(more).tokens);
    let mut envelope = Envelope::new(MessageType::Request, agent, &content.body);
    envelope.payload = content.payload;
    let mut kept = Message { parts: Vec::new(), role: Role::Unspecified, ..message };
    if !causality.tokens.is_empty() {
        kept.metadata.insert(URI.to_owned(), json!(causality));
    }
    let kept = serde_json::to_value(&kept).map_err(|error| Fault::new(Kind::InvalidParams, error.to_string()))?;
    envelope.metadata.unknown.insert(KEPT.to_owned(), kept);
    if let Some(traceparent) = traceparent {
        envelope.metadata.unknown.insert(TRACEPARENT.to_owned(), traceparent.into());
    }
    Ok((envelope, causality))
}

/// Returns the REF of the conversation above the tasks of a context: one that the caller chose, or that this edge made for it.
/// Another one is refused, and never replaced.
async fn conversation_of(ctx: &Context, caller: Caller, context: &str) -> Result<String, Fault> {
    if let Some(chosen) = tasks::chosen(ctx.handle.signer(), caller.principal.agent(), context) {
        return Ok(chosen);
    }
    let (who, named) = (caller.principal.agent(), context.to_owned());
    let look = move |live: &Live<'_>| {
        let conv = live.state.conv_of(&named).and_then(|conv| live.state.conversations.get(&conv));
        conv.is_some_and(|conv| conv.has_part(who))
    };
    let is_one = context.starts_with(PREFIX) && !context.contains('/');
    if is_one && ctx.handle.query(look).await.map_err(ApiError::from)? {
        return Ok(context.to_owned());
    }
    Err(Fault::field("message.contextId", "is none of this agent for this caller: leave it out, and a new one is made"))
}

/// Returns the idempotency key of a message to a task, from the id that the caller gave it. The open question is not part of
/// it: a repeat may find another question open.
fn key(
    ctx: &Context,
    caller: Caller,
    agent: &str,
    known: &TaskSnapshot,
    message: &str,
    content: &Content,
) -> Result<Key, Fault> {
    let text = format!("{}\n{agent}\n{message}", caller.principal.agent());
    let mac = ctx.handle.signer().mac_of("a2a message", text.as_bytes());
    let id = RequestId::new(&format!("{PREFIX}{}", hex(&mac[..ID_BYTES])));
    let id = id.map_err(|error| Fault::new(Kind::InvalidParams, error.to_string()))?;
    Ok(Key { id, fingerprint: fnv_of(format_args!("{}\n{}", known.id, said(content))) })
}

/// Returns whether a message was taken before, by `human` in the caller's seat or the caller itself. Refuses another
/// message under its id.
async fn was_taken(ctx: &Context, caller: Caller, human: Option<Principal>, key: &Key) -> Result<bool, Fault> {
    let (by, wanted) = ([human, Some(caller.principal)], key.clone());
    let look = move |live: &Live<'_>| {
        let mut made = by.iter().flatten().filter_map(|by| live.state.made.get(&(by.agent(), wanted.id.clone())));
        made.next().map(|made| made.fingerprint == wanted.fingerprint)
    };
    match ctx.handle.query(look).await.map_err(ApiError::from)? {
        Some(false) => Err(ApiError::from(Refusal::new(Code::IdempotencyConflict).about(&key.id)).into()),
        found => Ok(found.is_some()),
    }
}

/// Gives a task what it waits for: the answer to its question from a caller with a seat, or a decision about its held
/// call, which the core allows to whom the policy names (H3). A message is taken once (Q1).
async fn go_on(ctx: &Context, caller: Caller, known: &TaskSnapshot, key: Key, content: Content) -> Result<(), Fault> {
    let human = escalations::seated(ctx, caller).await?;
    if was_taken(ctx, caller, human, &key).await? {
        return Ok(());
    }
    let state = known.state(ctx).await?;
    match state {
        TaskState::InputRequired => {
            let asked: Option<EscalationId> = known.fold.asked.keys().next().copied();
            if let (Some(human), Some(id)) = (human, asked) {
                caller.may(Some(Scope::Decide))?;
                let answer = EscalationAnswer { answer: said(&content), lift: None };
                escalations::answer_as(ctx, human, id, &answer, Some(key)).await?;
                return Ok(());
            }
        }
        TaskState::AuthRequired => {
            let decision = content.payload.as_ref().and_then(|data| data.get("decision"));
            let held: Option<ApprovalId> = known.fold.held.keys().next().copied();
            if let (Some(_), Some(id)) = (decision, held) {
                caller.may(Some(Scope::Decide))?;
                let wrong =
                    |error: serde_json::Error| Fault::field("message.parts", format!("is no decision: {error}"));
                let payload = content.payload.unwrap_or_default();
                let decision: DecideApproval = serde_json::from_value(payload).map_err(wrong)?;
                approvals::decide(ctx, caller, id, decision, Some(key)).await?;
                return Ok(());
            }
            let text = "The held call is decided by a person, at Lastword. Who is named for it may send `data` with \
                        `decision` and `digest`";
            return Err(Fault::new(Kind::UnsupportedOperation, text));
        }
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::Rejected => {}
    }
    let text = if state.is_terminal() {
        "The task has ended: send a new message, with its contextId to stay in the same context"
    } else {
        "The task takes no message while the agent works: wait for its answer, or cancel it"
    };
    Err(Fault::new(Kind::UnsupportedOperation, text))
}

/// Returns the answer to a question as one text.
fn said(content: &Content) -> String {
    match &content.payload {
        Some(data) if content.body.is_empty() => data.to_string(),
        Some(data) => format!("{}\n\n{data}", content.body),
        None => content.body.clone(),
    }
}
