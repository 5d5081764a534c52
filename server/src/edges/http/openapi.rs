//! Makes the documents of the surface (OpenAPI 3.1, and a JSON Schema of a message) from the wire types and the table of
//! calls. Compiled for tests only: the program serves the documents as `docs/` has them, and a test here compares.

use lastword_wire::{self as wire, CALLS, Call};
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;

use super::grammar;
use crate::cloud_event::BATCHED;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Lastword", description = "A message broker for teams of AI agents"),
    components(schemas(
        wire::Envelope,
        wire::StoredMessage,
        wire::Receipt,
        wire::Delivery,
        wire::Finish,
        wire::Finished,
        wire::Progress,
        wire::Renewed,
        wire::ConversationSummary,
        wire::ConversationView,
        wire::Extend,
        wire::Extended,
        wire::AgentView,
        wire::NewAgent,
        wire::AgentPatch,
        wire::AgentToken,
        wire::AgentGrant,
        wire::Prompt,
        wire::Unavailable,
        wire::TokenTerms,
        wire::NewToken,
        wire::NarrowedToken,
        wire::NewHuman,
        wire::IdToken,
        wire::SignInLink,
        wire::SignInProvider,
        wire::SignedIn,
        wire::HumanPatch,
        wire::RequestView,
        wire::EscalationView,
        wire::NewEscalation,
        wire::EscalationAnswer,
        wire::ApprovalView,
        wire::HeldCall,
        wire::DecideApproval,
        wire::UseApproval,
        wire::IncidentView,
        wire::RoomView,
        wire::NewRoom,
        wire::Post,
        wire::Posted,
        wire::NewSchedule,
        wire::ScheduleView,
        wire::ClaimView,
        wire::NewClaim,
        wire::Event,
        wire::Explanation,
        wire::LimitsView,
        wire::ClockView,
        wire::ArchivesView,
        wire::SegmentView,
        wire::MoveToArchive,
        wire::MovedToArchive,
        wire::FailedNotification,
        wire::Replay,
        wire::Resent,
        wire::Problem,
    ))
)]
struct Components;

/// What a call always gives leads on to other calls: the call, the member of its answer, the parameter that it is, and
/// the calls that have that parameter.
const LINKS: &[(&str, &str, &str, &[&str])] = &[
    ("addAgent", "name", "name", &["getAgent", "amendAgent", "removeAgent"]),
    ("addHuman", "name", "name", &["amendHuman"]),
    ("escalate", "id", "id", &["getEscalation", "answerEscalation"]),
    ("holdCall", "id", "id", &["getApproval", "decideOnCall", "spendApproval"]),
    ("openRoom", "name", "room", &["postToRoom"]),
    ("claimResource", "id", "id", &["releaseClaim"]),
];

/// The OpenAPI document, pretty and the same every time.
fn openapi() -> String {
    let mut document = serde_json::to_value(Components::openapi()).unwrap_or_default();
    document["components"]["schemas"] = Value::Object(all_schemas());
    document["openapi"] = json!("3.1.0");
    document["info"]["version"] = json!(env!("CARGO_PKG_VERSION"));
    document["security"] = json!([{ "token": [] }]);
    document["components"]["securitySchemes"] = json!({ "token": { "type": "http", "scheme": "bearer" } });
    let mut paths = Map::new();
    for call in CALLS {
        let path = paths.entry(format!("/v1{}", call.path)).or_insert_with(|| json!({}));
        path[call.method.to_ascii_lowercase()] = operation(call);
    }
    document["paths"] = Value::Object(paths);
    pretty(&document)
}

/// The schemas of the wire types, as their types alone tell them.
pub(crate) fn schemas() -> Map<String, Value> {
    let document = serde_json::to_value(Components::openapi()).unwrap_or_default();
    document["components"]["schemas"].as_object().cloned().unwrap_or_default()
}

/// The schemas of the wire types with their rules, and those of what calls return of several of them.
pub(crate) fn all_schemas() -> Map<String, Value> {
    let mut all = schemas();
    grammar::extend(&mut all);
    let pages = CALLS.iter().filter_map(|call| item(call.answer?)).chain(["Receipt"]);
    all.extend(pages.map(|item| (format!("{item}Page"), page(&schema(item)))));
    all.extend(sent());
    all
}

fn operation(call: &Call) -> Value {
    let &Call { path, about: summary, query, status, scope, role, .. } = call;
    let (method, body) = (call.method.to_ascii_lowercase(), call.body.unwrap_or_default());
    let mut parameters: Vec<Value> = path_names(path).map(|name| parameter(path, name, "path")).collect();
    parameters.extend(query.iter().map(|name| parameter(path, name, "query")));
    if is_keyed(body) {
        parameters.push(parameter(path, "Idempotency-Key", "header"));
    }
    if takes_turn(path, &method) {
        parameters.push(parameter(path, "Lastword-Turn", "header"));
    }
    if path == "/inbox" {
        parameters.push(parameter(path, "Lastword-Client", "header"));
    }
    let id = operation_id(call);
    let mut responses = Map::new();
    responses.insert(status.to_string(), done(&id, path, summary, call.answer.unwrap_or_default()));
    if let Some(nothing) = nothing(&id) {
        responses.insert("204".to_owned(), json!({ "description": nothing }));
    }
    if id == "sendMessage" {
        let list = json!({ "application/json": { "schema": schema("Outcomes") } });
        responses
            .insert("200".to_owned(), json!({ "description": "The results of a list, in its order", "content": list }));
    }
    let refused = json!({
        "description": "Refused",
        "content": { "application/problem+json": { "schema": schema("Problem") } },
    });
    responses.insert("default".to_owned(), refused);
    let mut operation =
        json!({ "operationId": id, "summary": summary, "parameters": parameters, "responses": responses });
    operation["tags"] = json!([path.split('/').nth(1)]);
    if path == "/sign-in" {
        // By it one gets a token.
        operation["security"] = json!([]);
    } else if let Some(scope) = scope {
        operation["security"] = json!([{ "token": [scope] }]);
    }
    operation["x-role"] = json!(role.word());
    if !body.is_empty() {
        operation["requestBody"] = request_body(body);
    }
    operation
}

/// The answer of a call that was done.
fn done(id: &str, path: &str, summary: &str, response: &str) -> Value {
    let mut done = json!({ "description": summary });
    if response == "Backup" {
        done["content"] = json!({ "application/octet-stream": {} });
    } else if response == "Checkpoint" {
        done["content"] = json!({ "text/plain": { "schema": { "type": "string" } } });
    } else if !response.is_empty() {
        let media = if path == "/events" { "text/event-stream" } else { "application/json" };
        let schema = if id == "sendMessage" { schema("Sent") } else { schema(response) };
        done["content"] = json!({ media: { "schema": schema } });
    }
    if path == "/events" {
        done["content"][BATCHED] = json!({ "schema": cloud_events() });
    }
    for (_, member, parameter, calls) in LINKS.iter().filter(|link| link.0 == id) {
        for call in *calls {
            let from = format!("$response.body#/{member}");
            done["links"][*call] = json!({ "operationId": call, "parameters": { *parameter: from } });
        }
    }
    done
}

/// A list of CloudEvents.
fn cloud_events() -> Value {
    let text = json!({ "type": "string" });
    let event = json!({
        "type": "object",
        "required": ["specversion", "id", "source", "type", "time", "datacontenttype", "data"],
        "properties": { "specversion": { "const": "1.0" }, "id": text, "source": text, "type": text, "subject": text,
            "time": text, "datacontenttype": text, "data": schema("Event") },
    });
    json!({ "type": "array", "items": event })
}

/// What comes of a send: the message, or its receipt, with its answer where the sender waited for it; one for each
/// addressee; or what a RESPONSE, or a REQUEST to the user, comes to. And the reply to a list of messages.
fn sent() -> [(String, Value); 5] {
    let answered = |name: &str| {
        let response = json!({ "type": "object", "properties": { "response": schema("StoredMessage") } });
        json!({ "allOf": [schema(name), response] })
    };
    let all = ["SentMessage", "SentReceipt", "StoredMessagePage", "ReceiptPage", "Finished", "EscalationView"];
    let outcome = json!({
        "type": "object",
        "required": ["status"],
        "properties": { "status": { "type": "integer" }, "body": schema("Sent"), "problem": schema("Problem") },
    });
    [
        ("SentMessage", answered("StoredMessage")),
        ("SentReceipt", answered("Receipt")),
        ("Sent", json!({ "anyOf": all.map(schema) })),
        ("MessageOutcome", outcome),
        (
            "Outcomes",
            json!({
                "type": "object",
                "required": ["items"],
                "properties": { "items": { "type": "array", "items": schema("MessageOutcome") } },
            }),
        ),
    ]
    .map(|(name, schema)| (name.to_owned(), schema))
}

/// When a call has nothing to give.
fn nothing(id: &str) -> Option<&'static str> {
    match id {
        "takeDelivery" => Some("No delivery"),
        "extendConversation" => Some("Nothing holds what was extended"),
        "sendMessage" => Some("Noted: a STATUS on a request"),
        _ => None,
    }
}

fn request_body(body: &str) -> Value {
    let mut content = Map::new();
    let mut json = schema(body);
    if body == "Envelope" {
        let list = json!({ "type": "array", "items": json, "minItems": 1, "maxItems": super::messages::LIST_MAX });
        json = json!({ "oneOf": [json, list] });
    }
    content.insert("application/json".to_owned(), json!({ "schema": json }));
    if body == "Envelope" {
        content.insert("text/plain".to_owned(), json!({ "schema": grammar::text() }));
    }
    // A body whose members may all be left out may be left out itself.
    json!({ "required": !matches!(body, "Finish" | "Progress" | "Extend" | "TokenTerms"), "content": content })
}

/// Whether a call makes something, so that a key makes its retry the same call (Q1).
fn is_keyed(body: &str) -> bool {
    matches!(
        body,
        "Envelope"
            | "Post"
            | "NewAgent"
            | "NewHuman"
            | "NewEscalation"
            | "HeldCall"
            | "UseApproval"
            | "NewRoom"
            | "NewClaim"
    )
}

/// Whether a call may be made in a turn, which the header names by its token.
fn takes_turn(path: &str, method: &str) -> bool {
    let work = matches!(path, "/messages" | "/escalations" | "/approvals" | "/claims");
    path == "/inbox" || (work && method == "post")
}

fn path_names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameter(path: &str, name: &str, place: &str) -> Value {
    json!({ "name": name, "in": place, "required": place == "path", "schema": grammar::parameter(path, name) })
}

/// Returns the name of a call as programs write functions: `sendMessage`.
fn operation_id(call: &Call) -> String {
    let (first, rest) = call.id.split_at(1);
    first.to_ascii_lowercase() + rest
}

/// Returns the name of the items of a list's type, `Page<X>`.
fn item(name: &str) -> Option<&str> {
    name.strip_prefix("Page<")?.strip_suffix('>')
}

fn page(item: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": { "items": { "type": "array", "items": item }, "next": { "type": "string" },
            "behind": { "type": "integer", "minimum": 0 } },
    })
}

/// A reference to the schema of a type.
pub(crate) fn schema(name: &str) -> Value {
    let name = item(name).map_or_else(|| name.to_owned(), |item| format!("{item}Page"));
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

/// The JSON Schema of the envelope (E2).
fn message_schema() -> String {
    let mut known = schemas();
    grammar::extend(&mut known);
    let mut root = known.get("Envelope").cloned().unwrap_or_default();
    known.retain(|name, _| matches!(name.as_str(), "Metadata" | "To" | "MessageType" | "Priority" | "FinishStatus"));
    root["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    root["$id"] = json!("urn:lastword:message");
    root["title"] = json!("Lastword message");
    root["$defs"] = Value::Object(known);
    // Here a rule is one like any other.
    pretty(&root).replace("#/components/schemas/", "#/$defs/").replace(grammar::ALSO, "allOf")
}

/// With sorted keys, whatever order the map of `serde_json` is built with. Indented by one space: the program carries it.
pub(crate) fn pretty(value: &Value) -> String {
    let mut text = Vec::new();
    let mut form = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    let written = sorted(value).serialize(&mut form);
    text.push(b'\n');
    written.ok().and_then(|()| String::from_utf8(text).ok()).unwrap_or_default()
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut pairs: Vec<_> = members.iter().collect();
            pairs.sort_by(|a, b| a.0.cmp(b.0));
            Value::Object(pairs.into_iter().map(|(key, value)| (key.clone(), sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    pub(crate) fn check(name: &str, now: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&path, now).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(kept == now, "{} is out of date: run this test with UPDATE=1", path.display());
    }

    #[test]
    fn the_documents_are_up_to_date() {
        check("openapi.json", &openapi());
        check("message.schema.json", &message_schema());
    }

    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    if key == "$ref" {
                        found.extend(value.as_str().map(str::to_owned));
                    }
                    references(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn what_is_composed_takes_the_name_of_no_type() {
        let types = schemas();
        for (name, _) in sent() {
            assert!(!types.contains_key(&name), "{name} is a type of the wire");
        }
    }

    #[test]
    fn every_schema_that_is_named_is_there() {
        for text in [openapi(), message_schema()] {
            let document: Value = serde_json::from_str(&text).unwrap();
            let mut found = Vec::new();
            references(&document, &mut found);
            assert!(!found.is_empty());
            for reference in found {
                let pointer = reference.trim_start_matches('#');
                assert!(document.pointer(pointer).is_some(), "{reference}");
            }
        }
    }
}
