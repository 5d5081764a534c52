//! Escalations answered in the asking agent's own client. An agent could answer in its client's name, so this works
//! only where the operator configured which human uses that client. The answer is recorded as that human's.

use lastword_core::Principal;
use lastword_facts::{Code, visible};
use lastword_server::calls::{Caller, escalations};
use lastword_server::{ApiError, Context};
use lastword_wire::{EscalationAnswer, EscalationView, FieldError, LiftView};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, InputRequest, InputRequests, InputRequiredResult, InputResponses,
    ProtocolVersion,
};
use rmcp::service::{RequestContext, RoleServer};
use serde_json::{Value, json};

use super::brief::Output;
use super::tools;

const TOOL: &str = "escalate_to_user";
/// The id of the question, and the member of its form for a text or an option.
const ANSWER: &str = "answer";
/// The member of the form for a lift, if a limit caused the question (H6).
const LIFT: &str = "lift";

/// Returns the human to ask in the caller's client, if this call asks one, the client can, and the operator allows it.
pub(super) async fn human(
    ctx: &Context,
    caller: Caller,
    tool: &str,
    context: &RequestContext<RoleServer>,
) -> Result<Option<Principal>, ApiError> {
    let newest = context.protocol_version().is_some_and(|v| v.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
    let offered = context.client_capabilities().and_then(|capabilities| capabilities.elicitation);
    // A client that names no mode supports forms.
    let forms = offered.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
    if tool == TOOL && newest && forms { escalations::seated(ctx, caller).await } else { Ok(None) }
}

/// Returns whether a call brings back the state of an earlier reply.
pub(super) fn goes_on(request: &CallToolRequestParams) -> bool {
    request.name == TOOL && request.request_state.is_some()
}

/// Opens the escalation for all humans, then asks in the client. On the second call, records the answer that the client
/// brings.
pub(super) async fn escalate(
    ctx: &Context,
    caller: Caller,
    human: Option<Principal>,
    request: CallToolRequestParams,
) -> Result<CallToolResponse, ApiError> {
    let (signer, agent) = (ctx.handle.signer(), caller.principal.agent());
    let Some(state) = request.request_state else {
        let asked = tools::escalate(ctx, caller, request.arguments.unwrap_or_default()).await?;
        let id = lastword_facts::ids::EscalationId::parse(&asked.id).ok_or_else(|| ApiError::unknown(&asked.id))?;
        let question = InputRequests::from([(ANSWER.to_owned(), question(&asked)?)]);
        return Ok(InputRequiredResult::new(Some(question), Some(signer.sign_escalation(id, agent))).into());
    };
    let forged = || FieldError::new("requestState", "is not what this call was answered with");
    let id = signer.verify_escalation(&state, agent).ok_or_else(forged)?;
    let escalation = match human.zip(answer(request.input_responses.as_ref())) {
        Some((human, answer)) => match escalations::answer_as(ctx, human, id, &answer, None).await {
            // Another human answered first, somewhere else.
            Err(fault) if fault.0.code == Code::AlreadySettled => escalations::show(ctx, id).await,
            answered => answered,
        },
        // The client's human didn't answer or may no longer do so: the escalation stays open for the other humans.
        None => escalations::show(ctx, id).await,
    };
    Ok(Output::from(tools::value(&escalation?)?).result().into())
}

fn question(asked: &EscalationView) -> Result<InputRequest, ApiError> {
    let mut form = json!({ "type": "string", "description": "Your answer" });
    if !asked.options.is_empty() {
        form["enum"] = json!(asked.options);
    }
    let mut schema = json!({ "type": "object", "properties": { ANSWER: form }, "required": [ANSWER] });
    let mut message = format!("{} asks: {}", asked.agent, visible::escape(&asked.message));
    if let Some(limit) = asked.limit.as_ref().filter(|_| asked.offered().next().is_some()) {
        // The broker's sentence comes first: after the agent's text it could be the agent's.
        message.insert_str(0, &format!("{limit} A lift answers no question, and a text answer lifts no limit.\n"));
        let lifts: Vec<String> = asked.offered().map(choice).collect();
        schema["properties"][LIFT] =
            json!({ "type": "string", "enum": lifts, "description": "The lift to choose; omit it to choose none" });
        schema["required"] = json!([]);
    }
    let params = json!({ "mode": "form", "message": message, "requestedSchema": schema });
    serde_json::from_value(json!({ "method": "elicitation/create", "params": params }))
        .map_err(|error| ApiError::internal(&error.to_string()))
}

/// Formats a lift as an option of the form.
fn choice(lift: &LiftView) -> String {
    format!("{}: {}", lift.id, lift.text)
}

/// Returns the human's lift or text; `None` if the form was declined or is empty.
fn answer(responses: Option<&InputResponses>) -> Option<EscalationAnswer> {
    // `decline` and `cancel` leave the escalation open.
    let response = responses?.get(ANSWER).filter(|response| response["action"] == "accept")?;
    let filled = |member: &str| {
        let text = response["content"].get(member).and_then(Value::as_str);
        text.filter(|text| !text.trim().is_empty())
    };
    // The client returns the whole option, `lift-1: …`; only its id counts.
    let lift = filled(LIFT).and_then(|choice| choice.split(':').next()).map(str::to_owned);
    let answer = filled(ANSWER).unwrap_or_default().to_owned();
    (lift.is_some() || !answer.is_empty()).then_some(EscalationAnswer { answer, lift })
}
