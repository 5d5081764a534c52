//! The tools: what each does with its arguments.

use std::time::Duration;

use lastword_core::input::Consumer;
use lastword_facts::MessageType;
use lastword_facts::fact::ClaimMode;
use lastword_facts::ids::{ApprovalId, ClaimId};
use lastword_server::calls::messages::{self, Sent};
use lastword_server::calls::taking::Taking;
use lastword_server::calls::{Caller, WAIT_MAX, agents, approvals, claims, escalations, inbox, requests, tree, turns};
use lastword_server::edges::http::arguments as without_absent;
use lastword_server::{ApiError, Context};
use lastword_wire::{
    ApprovalView, DecideApproval, Envelope, EscalationView, Finish, HeldCall, Inexact, Metadata, NewClaim,
    NewEscalation, Progress, StoredMessage, To, UseApproval, with_nearest,
};
use rmcp::model::JsonObject;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::brief::{self, Output};
use super::trace::Trace;
use super::{args, human, listing};

/// The default wait of `next_message`, in ms. Shorter than the time limit of clients for a call.
const NEXT_WAIT_MS: u64 = 25_000;
/// The time that `wait` allows for an answer.
const ANSWER_WAIT: Duration = Duration::from_secs(50);

/// The most held calls in one list.
const LISTED_MAX: usize = 16;
/// The most bytes of arguments and reason with which a call is listed in full.
const CALL_BYTES_MAX: usize = 2_048;

/// What the model is told while another client works.
const OTHER_CLIENT: &str =
    "Another live client of this agent works on what there is: you get the work that comes next.";

/// Calls a tool.
pub(super) async fn call(
    ctx: &Context,
    caller: Caller,
    name: &str,
    arguments: JsonObject,
    trace: &Trace,
) -> Result<Output, ApiError> {
    if name == "next_message" {
        return next(ctx, caller, read(arguments)?).await;
    }
    match human::call(ctx, caller, name, &arguments).await {
        Some(result) => result,
        None => call_agents(ctx, caller, name, arguments, trace).await,
    }
    .map(Output::from)
}

/// Calls a tool of agents whose whole result is for the model.
async fn call_agents(
    ctx: &Context,
    caller: Caller,
    name: &str,
    arguments: JsonObject,
    trace: &Trace,
) -> Result<Value, ApiError> {
    match name {
        "send_agent_message" => send(ctx, caller, read(arguments)?, trace).await,
        "escalate_to_user" => value(&escalate(ctx, caller, arguments).await?),
        "resolve_agent_approval" => resolve(ctx, caller, read(arguments)?).await,
        "finish_turn" => finish(ctx, caller, read(arguments)?).await,
        "report_progress" => report(ctx, caller, read(arguments)?).await,
        "request_approval" => approve(ctx, caller, read(arguments)?).await,
        "use_approval" => spend(ctx, caller, read(arguments)?).await,
        "check_request" => check(ctx, caller, read(arguments)?).await,
        "cancel_request" => {
            let args::ById { request_id } = read(arguments)?;
            value(&requests::cancel(ctx, caller, &request_id).await?)
        }
        "list_agents" => {
            let args::Nothing {} = read(arguments)?;
            Ok(brief::agents(agents::list(ctx).await?))
        }
        "get_conversation" => {
            let args::ByRef { reference } = read(arguments)?;
            value(&tree::conversation(ctx, caller, &reference, tree::MODEL_BYTES_MAX).await?)
        }
        "claim_resource" => claim(ctx, caller, read(arguments)?).await,
        "release_resource" => {
            let args::Release { claim_id } = read(arguments)?;
            let id = ClaimId::parse(&claim_id).ok_or_else(|| ApiError::unknown(&claim_id))?;
            claims::release(ctx, caller, id).await.map(|()| json!({ "released": claim_id }))
        }
        other => Err(ApiError::unknown(other)),
    }
}

pub(super) fn read<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, ApiError> {
    let arguments = Value::Object(arguments);
    if let Some(reason) = Inexact::marked(&arguments) {
        return Err(ApiError::new(lastword_facts::Code::Malformed, format!("the arguments: {reason}")));
    }
    if let Some(read) = arguments.as_object().and_then(without_absent) {
        return Ok(read);
    }
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        ApiError::new(
            lastword_facts::Code::Malformed,
            format!("`{}`: {}", error.path(), with_nearest(error.inner().to_string())),
        )
    })
}

pub(super) fn value(view: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(view).map_err(|error| ApiError::internal(&error.to_string()))
}

/// Returns a held call, with arguments whose numbers would be rounded here as a text.
pub(super) fn call_value(view: &ApprovalView) -> Result<Value, ApiError> {
    let mut item = value(view)?;
    for (name, arguments) in [("arguments", Some(&view.arguments)), ("requested", view.requested.as_ref())] {
        if let Some(arguments) = arguments.filter(|arguments| arguments.exact_value().is_err()) {
            item[name] = json!(arguments.as_str());
        }
    }
    Ok(item)
}

/// Returns the caller in the turn whose token is among the arguments.
fn within(ctx: &Context, caller: Caller, turn: Option<&str>) -> Result<Caller, ApiError> {
    turn.map_or(Ok(caller), |token| caller.within(&ctx.handle, token))
}

/// Returns what a model needs of a message that it sent.
fn brief_of_sent(message: &StoredMessage) -> Value {
    let mut sent = json!({ "request_id": message.request_id, "ref": message.reference, "to": message.to });
    if let Some(warning) = &message.warning {
        sent["warning"] = warning.as_str().into();
    }
    sent
}

async fn send(ctx: &Context, caller: Caller, args: args::Send, trace: &Trace) -> Result<Value, ApiError> {
    let caller = within(ctx, caller, args.turn.as_deref())?;
    let wait = args.wait.then_some(ANSWER_WAIT);
    let draft = match envelope(args, trace).draft() {
        Ok(draft) => draft,
        Err(error) => return Err(Box::pin(agents::by_display_name(ctx, error.into())).await),
    };
    match messages::send(ctx, caller, Box::new(draft), wait).await? {
        Sent::One(message, response) => {
            let mut sent = brief_of_sent(&message);
            if let Some(response) = response {
                sent["response"] = brief::message(*response);
            }
            Ok(sent)
        }
        Sent::Many(items) => Ok(json!({ "items": items.iter().map(brief_of_sent).collect::<Vec<_>>() })),
        Sent::Escalated(escalation) => value(&*escalation),
        Sent::Finished(finished) => value(&finished),
        Sent::Noted => Ok(json!({})),
    }
}

/// Returns the message that a model sends with these arguments.
pub(super) fn envelope(args: args::Send, trace: &Trace) -> Envelope {
    let mut envelope = Envelope::new(MessageType::Request, "", &args.message);
    envelope.to = Some(match args.target_agent_id {
        // Models sometimes put spaces around a name.
        To::One(name) => To::One(name.trim().to_owned()),
        many @ To::Many(_) => many,
    });
    envelope.reference = args.reference;
    envelope.action = args.action;
    envelope.payload = args.payload;
    envelope.metadata = Metadata { timeout_ms: args.timeout_ms, ..Metadata::default() };
    trace.mark(&mut envelope.metadata);
    envelope
}

/// Opens an escalation with these arguments.
pub(super) async fn escalate(ctx: &Context, caller: Caller, arguments: JsonObject) -> Result<EscalationView, ApiError> {
    let args: args::Escalate = read(arguments)?;
    let caller = within(ctx, caller, args.turn.as_deref())?;
    let new = NewEscalation { message: args.message, options: args.options, reference: args.reference, key: None };
    escalations::escalate(ctx, caller, new).await
}

async fn resolve(ctx: &Context, caller: Caller, args: args::Resolve) -> Result<Value, ApiError> {
    let id = ApprovalId::parse(&args.approval_id).ok_or_else(|| ApiError::unknown(&args.approval_id))?;
    let decision = DecideApproval {
        decision: args.decision,
        comment: args.comment,
        input: args.input.map(Into::into),
        digest: args.digest,
    };
    call_value(&approvals::decide(ctx, caller, id, decision, None).await?)
}

async fn next(ctx: &Context, caller: Caller, args: args::Next) -> Result<Output, ApiError> {
    let caller = within(ctx, caller, args.turn.as_deref())?;
    let wait = Duration::from_millis(args.wait_ms.unwrap_or(NEXT_WAIT_MS)).min(WAIT_MAX);
    match inbox::take(ctx, caller, Consumer::InTurns, wait).await? {
        Taking::Delivery(delivery) => {
            let agent = caller.principal.agent();
            let names_turn = ctx.handle.query(move |live| listing::has_several_turns(live, agent)).await?;
            Ok(brief::delivery(*delivery, names_turn))
        }
        Taking::Nothing { held: false } => Ok(json!({ "message": null }).into()),
        Taking::Nothing { held: true } => Ok(json!({ "message": null, "note": OTHER_CLIENT }).into()),
    }
}

async fn finish(ctx: &Context, caller: Caller, args: args::FinishTurn) -> Result<Value, ApiError> {
    let caller = within(ctx, caller, args.turn.as_deref())?;
    let finish = Finish {
        answer: args.answer,
        status: args.status,
        payload: args.payload,
        completed: args.completed,
        failed: args.failed,
        reason: args.reason,
        // A model doesn't know its usage; the broker estimates it from the texts.
        usage: None,
    };
    value(&turns::finish(ctx, caller, None, Box::new(finish)).await?)
}

async fn report(ctx: &Context, caller: Caller, args: args::Report) -> Result<Value, ApiError> {
    let caller = within(ctx, caller, args.turn.as_deref())?;
    let report = Progress { note: args.note, eta_ms: args.eta_ms, ..Progress::default() };
    value(&turns::progress(ctx, caller, None, report).await?)
}

async fn approve(ctx: &Context, caller: Caller, args: args::Approve) -> Result<Value, ApiError> {
    let caller = within(ctx, caller, args.turn.as_deref())?;
    let call = HeldCall { tool: args.tool_name, arguments: args.input.into(), reason: args.reason, key: None };
    call_value(&approvals::hold(ctx, caller, call).await?)
}

async fn spend(ctx: &Context, caller: Caller, args: args::Use) -> Result<Value, ApiError> {
    let id = ApprovalId::parse(&args.approval_id).ok_or_else(|| ApiError::unknown(&args.approval_id))?;
    call_value(
        &approvals::spend(
            ctx,
            caller,
            id,
            UseApproval { tool: args.tool_name, arguments: args.input.into(), key: None },
        )
        .await?,
    )
}

async fn check(ctx: &Context, caller: Caller, args: args::Check) -> Result<Value, ApiError> {
    let Some(wanted) = args.request_id else { return to_decide(ctx, caller).await };
    // Ids of claims and approvals have a prefix of their own; all other ids are of requests.
    if let Some(id) = ClaimId::parse(&wanted) {
        return Ok(match claims::until_ended(ctx, caller, id, CLAIM_WAIT).await? {
            Some(claim) => json!({ "state": "held", "claim": value(&claim)? }),
            None => json!({ "state": "ended", "note": "What it covered may have changed: read it again first." }),
        });
    }
    let Some(id) = ApprovalId::parse(&wanted) else { return value(&requests::show(ctx, caller, &wanted).await?) };
    let view = approvals::show(ctx, caller, id, Duration::ZERO).await?;
    ctx.shown.remember_views(caller.principal.agent(), [&view]);
    call_value(&view)
}

/// The longest wait for the end of a claim.
const CLAIM_WAIT: Duration = Duration::from_mins(2);

/// Lists the held calls that the caller may decide. A call with long arguments is only named, and doesn't count as
/// shown.
async fn to_decide(ctx: &Context, caller: Caller) -> Result<Value, ApiError> {
    let all = approvals::to_decide(ctx, caller).await?;
    let more = all.len().saturating_sub(LISTED_MAX);
    let mut items = Vec::new();
    for view in all.into_iter().take(LISTED_MAX) {
        let mut item = call_value(&view)?;
        let bytes = item["arguments"].to_string().len() + view.reason.as_ref().map_or(0, String::len);
        if bytes > CALL_BYTES_MAX {
            let text = format!("{bytes} bytes, omitted here: read {} with check_request before you decide", view.id);
            // Not remembered as shown: the caller has to read it in full before it decides (H2).
            (item["arguments"], item["reason"]) = (json!(text), Value::Null);
        } else {
            ctx.shown.remember_views(caller.principal.agent(), [&view]);
        }
        items.push(item);
    }
    Ok(json!({ "items": items, "more": more }))
}

async fn claim(ctx: &Context, caller: Caller, args: args::Claim) -> Result<Value, ApiError> {
    let mode = args.mode.unwrap_or(ClaimMode::Exclusive);
    let claim = NewClaim { resource: args.resource, mode, ttl_ms: args.ttl_ms, wait_ms: args.wait_ms, key: None };
    value(&claims::take(ctx, caller, claim).await?)
}
