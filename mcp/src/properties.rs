//! Messages of MCP clients, from their bytes down to the draft: the method that picks the session is the one that is
//! handled, a tool takes only the arguments that it lists, and no argument sets what a model may not choose.

use lastword_facts::MessageType;
use lastword_server::ApiError;
use rmcp::model::{
    CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, JsonObject, JsonRpcMessage, RequestMetaObject,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::catalog::{self, Form};
use super::trace::Trace;
use super::wire::method;
use super::{Offer, Selection, args, permission_prompt, tools};

/// Checks one message: its JSON; or, behind a `?`, the query of the address.
///
/// # Panics
/// Panics if the property is broken.
pub fn check(data: &[u8]) {
    if let Some(query) = data.strip_prefix(b"?") {
        let Ok(query) = std::str::from_utf8(query) else { return };
        // A selection is read or refused with the reason.
        return assert!(Selection::of_query(Some(query)).err().is_none_or(|reason| !reason.is_empty()));
    }
    let Ok(message) = serde_json::from_slice::<ClientJsonRpcMessage>(data) else { return };
    let JsonRpcMessage::Request(request) = message else { return };
    assert_eq!(method(data).as_deref(), Some(request.request.method()), "the method that picks the session");
    if let ClientRequest::CallToolRequest(call) = request.request {
        tool(call.params);
    }
}

fn tool(params: CallToolRequestParams) {
    let arguments = params.arguments.unwrap_or_default();
    for offer in [Offer::Agent, Offer::Human] {
        let Some(name) = catalog::known(&params.name, offer) else { continue };
        let Some(Ok(())) = reads(name, &arguments) else { continue };
        let tool = catalog::tool(name, offer, Form::Full).expect("a known tool");
        let listed = tool.input_schema.get("properties").and_then(Value::as_object).expect("an object");
        let unknown = arguments.keys().find(|key| !listed.contains_key(*key));
        assert!(
            unknown.is_none() || name == permission_prompt::TOOL,
            "{name} takes {unknown:?}, which it doesn't list"
        );
    }
    if params.name == "send_agent_message" {
        send(arguments, &params.meta.unwrap_or_default());
    }
}

/// Reads a tool's arguments; `None` for a tool that isn't in the table.
fn reads(name: &str, arguments: &JsonObject) -> Option<Result<(), ApiError>> {
    fn of<T: DeserializeOwned>(arguments: &JsonObject) -> Result<(), ApiError> {
        tools::read::<T>(arguments.clone()).map(drop)
    }
    Some(match name {
        "next_message" => of::<args::Next>(arguments),
        "send_agent_message" => of::<args::Send>(arguments),
        "escalate_to_user" => of::<args::Escalate>(arguments),
        "resolve_agent_approval" => of::<args::Resolve>(arguments),
        "finish_turn" => of::<args::FinishTurn>(arguments),
        "report_progress" => of::<args::Report>(arguments),
        "request_approval" => of::<args::Approve>(arguments),
        "use_approval" => of::<args::Use>(arguments),
        permission_prompt::TOOL => of::<args::Permit>(arguments),
        "check_request" => of::<args::Check>(arguments),
        "cancel_request" => of::<args::ById>(arguments),
        "list_agents" | "list_escalations" => of::<args::Nothing>(arguments),
        "get_conversation" => of::<args::ByRef>(arguments),
        "claim_resource" => of::<args::Claim>(arguments),
        "release_resource" => of::<args::Release>(arguments),
        "answer_escalation" => of::<args::Answer>(arguments),
        _ => return None,
    })
}

fn send(arguments: JsonObject, meta: &RequestMetaObject) {
    let Ok(args) = tools::read::<args::Send>(arguments) else { return };
    let (message, trace) = (args.message.clone(), Trace::of(meta));
    let Ok(draft) = tools::envelope(args, &trace).draft() else { return };
    assert_eq!(draft.kind, MessageType::Request, "a model only asks");
    assert_eq!(*draft.body, *message);
    let chosen = (draft.from, draft.depth, draft.request_id, draft.caused_by, draft.in_reply_to, draft.status);
    assert_eq!(chosen, (None, None, None, None, None, None), "none of these is a model's choice");
    let passed: Value = draft.metadata.as_deref().map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"));
    let members = passed.as_object().into_iter().flat_map(|object| object.keys());
    for member in members {
        assert!(member == "traceparent" || member == "tracestate", "{member} is passed on");
    }
}

#[test]
fn the_table_has_every_tool() {
    for name in catalog::names(Offer::Agent).chain(catalog::names(Offer::Human)) {
        assert!(reads(name, &JsonObject::default()).is_some(), "{name}");
    }
}
