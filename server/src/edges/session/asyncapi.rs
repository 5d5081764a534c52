//! Makes the AsyncAPI 3 document of sessions from the wire types and the table of calls. Compiled for tests only: the
//! program serves the document as `docs/` has it, and a test here compares.

use lastword_wire::CALLS;
use lastword_wire::session::{self, PATH, SUBPROTOCOL};
use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;

use crate::edges::http::grammar;
use crate::edges::http::openapi::{self, pretty, schema};

#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(
    session::SessionCall<'static>,
    session::SessionReply<'static>,
    session::PushedDelivery,
    session::PushedEnd,
    session::PushedEvent,
    session::Hello,
    session::Welcome,
    session::Watch,
    session::WatchDeliveries,
    session::WatchEvents,
    session::Watching,
    session::Ack,
)))]
struct Components;

/// One call in the document: its type, its name, what it does, its query parameters, its body, and the result.
struct Described {
    id: &'static str,
    name: &'static str,
    summary: &'static str,
    open: bool,
    query: &'static [&'static str],
    body: &'static str,
    result: &'static str,
}

fn described() -> Vec<Described> {
    let own = |id, name, summary, result| Described { id, name, summary, open: false, query: &[], body: id, result };
    let mut all = vec![
        own("Hello", session::HELLO, "Authenticate, and learn the limits of the session", "Welcome"),
        own("Watch", session::WATCH, "Say what is pushed from now on", "Watching"),
        own("Ack", session::ACK, "Acknowledge the deliveries up to a cursor", ""),
    ];
    all.extend(CALLS.iter().filter_map(|call| {
        let shape = |shape: Option<&'static str>| shape.unwrap_or_default();
        let (body, result) = (shape(call.body), shape(call.answer));
        let open = call.path.contains('{');
        Some(Described { id: call.id, name: call.name?, summary: call.about, open, query: call.query, body, result })
    }));
    all
}

fn info() -> Value {
    json!({
        "title": "Lastword sessions",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "One WebSocket carries every call of an agent's or a human's program. Each text message is one JSON \
            object. The client numbers its calls; replies come in any order.",
    })
}

fn asyncapi() -> String {
    let (mut messages, mut in_channel, mut operations) = (Map::new(), Map::new(), Map::new());
    let mut schemas = all_schemas();
    let mut add = |key: &str, message: Value| {
        messages.insert(key.to_owned(), message);
        in_channel.insert(key.to_owned(), json!({ "$ref": format!("#/components/messages/{key}") }));
    };
    let of_channel = |key: &str| json!({ "$ref": format!("#/channels/session/messages/{key}") });
    let channel = json!({ "$ref": "#/channels/session" });
    schemas.insert("RefusedReply".to_owned(), reply(Some(&schema("Problem")), "problem"));
    add("refused", json!({ "summary": "A call was refused", "payload": schema("RefusedReply") }));
    for call in described() {
        let (asks, answers) = (call.name.to_owned(), format!("{}_reply", call.name));
        let (frame, answered) = (format!("{}Call", call.id), format!("{}Reply", call.id));
        add(&asks, json!({ "summary": call.summary, "payload": schema(&frame) }));
        add(&answers, json!({ "summary": format!("The reply to {}", call.name), "payload": schema(&answered) }));
        if let Some(query) = query(&call) {
            schemas.insert(format!("{}Query", call.id), query);
        }
        schemas.extend([(frame, payload(&call)), (answered, answer(&call))]);
        let operation = json!({
            "action": "receive",
            "summary": call.summary,
            "channel": channel,
            "messages": [of_channel(&asks)],
            "reply": { "channel": channel, "messages": [of_channel(&answers), of_channel("refused")] },
        });
        operations.insert(call.name.to_owned(), operation);
    }
    for (key, summary, shape) in [
        ("delivery", "A delivery that `watch` asked for", "PushedDelivery"),
        ("ended", "The end of a turn whose deliveries `watch` asked for", "PushedEnd"),
        ("event", "An event that `watch` asked for", "PushedEvent"),
    ] {
        add(key, json!({ "summary": summary, "payload": schema(shape) }));
        let operation =
            json!({ "action": "send", "summary": summary, "channel": channel, "messages": [of_channel(key)] });
        operations.insert(format!("push_{key}"), operation);
    }
    pretty(&json!({
        "asyncapi": "3.0.0",
        "info": info(),
        "defaultContentType": "application/json",
        "servers": {
            "local": {
                "host": "127.0.0.1:7171",
                "protocol": "ws",
                "security": [{ "$ref": "#/components/securitySchemes/token" }],
            },
        },
        "channels": {
            "session": {
                "address": PATH,
                "description": format!("The WebSocket, with the subprotocol {SUBPROTOCOL}."),
                "messages": in_channel,
            },
        },
        "operations": operations,
        "components": {
            "messages": messages,
            "schemas": schemas,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "In the header Authorization; without the header, the first call is hello.",
                },
            },
        },
    }))
}

fn all_schemas() -> Map<String, Value> {
    let mut all = openapi::all_schemas();
    let own = serde_json::to_value(Components::openapi()).unwrap_or_default();
    all.extend(own["components"]["schemas"].as_object().cloned().unwrap_or_default());
    all
}

/// Returns the schema of a call's query parameters; `None` if it has none.
fn query(call: &Described) -> Option<Value> {
    let schema = |name: &'static str| match name {
        "return" => grammar::parameter("/messages", name),
        _ => json!({ "type": ["string", "number", "boolean"] }),
    };
    let parameters: Map<String, Value> = call.query.iter().map(|&name| (name.to_owned(), schema(name))).collect();
    (!parameters.is_empty()).then(|| json!({ "type": "object", "properties": parameters }))
}

/// Returns the schema of a call's frame.
fn payload(call: &Described) -> Value {
    let text = json!({ "type": "string" });
    let mut members =
        json!({ "id": { "type": "integer", "minimum": 0 }, "call": { "const": call.name }, "turn": text, "key": text });
    let mut required = vec!["id", "call"];
    if call.open {
        required.push("path");
        members["path"] = text.clone();
    }
    if !call.query.is_empty() {
        members["query"] = schema(&format!("{}Query", call.id));
    }
    match call.body {
        "" => {}
        "Envelope" => members["body"] = json!({ "oneOf": [schema("Envelope"), text] }),
        body => members["body"] = schema(body),
    }
    json!({ "type": "object", "required": required, "properties": members, "additionalProperties": false })
}

/// Returns the schema of the reply to a call that succeeded.
fn answer(call: &Described) -> Value {
    let body = match call.result {
        "" => None,
        // A signed note, which is text.
        "Checkpoint" => Some(json!({ "type": "string" })),
        _ if call.name == "send" => Some(schema("Sent")),
        result => Some(schema(result)),
    };
    reply(body.as_ref(), "body")
}

fn reply(result: Option<&Value>, member: &str) -> Value {
    let mut members = json!({ "id": { "type": "integer", "minimum": 0 }, "status": { "type": "integer" } });
    if let Some(result) = result {
        members[member] = result.clone();
    }
    json!({ "type": "object", "required": ["id", "status"], "properties": members })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edges::http::openapi::tests::check;

    #[test]
    fn the_document_is_up_to_date() {
        check("asyncapi.json", &asyncapi());
    }
}
