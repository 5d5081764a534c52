//! Makes the AsyncAPI 3 document of sessions from the wire types and the table of calls. Compiled for tests only: the
//! program serves the document as `docs/` has it, and a test here compares.

use lastword_wire::CALLS;
use lastword_wire::session::{self, PATH, SUBPROTOCOL};
use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;

use crate::edges::http::grammar;
use crate::edges::http::openapi::{pretty, schema, schemas, sent};

#[derive(utoipa::OpenApi)]
#[openapi(components(schemas(
    session::SessionCall<'static>,
    session::SessionReply<'static>,
    session::PushedDelivery,
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

/// One call in the document: its name, what it does, its query parameters, its body, and the result.
struct Described {
    name: &'static str,
    summary: &'static str,
    open: bool,
    query: &'static [&'static str],
    body: &'static str,
    result: &'static str,
}

fn described() -> Vec<Described> {
    let own = |name, summary, body, result| Described { name, summary, open: false, query: &[], body, result };
    let mut all = vec![
        own(session::HELLO, "Authenticate, and learn the limits of the session", "Hello", "Welcome"),
        own(session::WATCH, "Say what is pushed from now on", "Watch", "Watching"),
        own(session::ACK, "Acknowledge the deliveries up to a cursor", "Ack", ""),
    ];
    all.extend(CALLS.iter().filter_map(|call| {
        let shape = |shape: Option<&'static str>| shape.unwrap_or_default();
        let (body, result) = (shape(call.body), shape(call.answer));
        let open = call.path.contains('{');
        Some(Described { name: call.name?, summary: call.about, open, query: call.query, body, result })
    }));
    all
}

fn asyncapi() -> String {
    let (mut messages, mut in_channel, mut operations) = (Map::new(), Map::new(), Map::new());
    let mut add = |key: &str, message: Value| {
        messages.insert(key.to_owned(), message);
        in_channel.insert(key.to_owned(), json!({ "$ref": format!("#/components/messages/{key}") }));
    };
    let of_channel = |key: &str| json!({ "$ref": format!("#/channels/session/messages/{key}") });
    let channel = json!({ "$ref": "#/channels/session" });
    add("refused", json!({ "summary": "A call was refused", "payload": reply(Some(schema("Problem")), "problem") }));
    for call in described() {
        let (asks, answers) = (call.name.to_owned(), format!("{}_reply", call.name));
        add(&asks, json!({ "summary": call.summary, "payload": payload(&call) }));
        add(&answers, json!({ "summary": format!("The reply to {}", call.name), "payload": answer(&call) }));
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
        ("event", "An event that `watch` asked for", "PushedEvent"),
    ] {
        add(key, json!({ "summary": summary, "payload": schema(shape) }));
        let operation =
            json!({ "action": "send", "summary": summary, "channel": channel, "messages": [of_channel(key)] });
        operations.insert(format!("push_{key}"), operation);
    }
    pretty(&json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Lastword sessions",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "One WebSocket carries every call of an agent's or a human's program. Each text message is one JSON \
                object. The client numbers its calls; replies come in any order.",
        },
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
            "schemas": all_schemas(),
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
    let mut all = schemas();
    grammar::extend(&mut all);
    let own = serde_json::to_value(Components::openapi()).unwrap_or_default();
    all.extend(own["components"]["schemas"].as_object().cloned().unwrap_or_default());
    all
}

/// Returns the schema of a call's frame.
fn payload(call: &Described) -> Value {
    let mut properties = Map::new();
    properties.insert("call".to_owned(), json!({ "const": call.name }));
    let mut required = vec!["id", "call"];
    if call.open {
        required.push("path");
    }
    if !call.query.is_empty() {
        let parameters: Map<String, Value> = call
            .query
            .iter()
            .map(|&name| {
                let schema = match name {
                    "return" => grammar::parameter("/messages", name),
                    _ => json!({ "type": ["string", "number", "boolean"] }),
                };
                (name.to_owned(), schema)
            })
            .collect();
        properties.insert("query".to_owned(), json!({ "type": "object", "properties": parameters }));
    }
    if !call.body.is_empty() {
        let body = match call.body {
            "Envelope" => json!({ "oneOf": [schema("Envelope"), { "type": "string" }] }),
            other => schema(other),
        };
        properties.insert("body".to_owned(), body);
    }
    json!({ "allOf": [schema("SessionCall"), { "type": "object", "required": required, "properties": properties }] })
}

/// Returns the schema of the reply to a call that succeeded.
fn answer(call: &Described) -> Value {
    let body = match call.result {
        "" => None,
        // A signed note, which is text.
        "Checkpoint" => Some(json!({ "type": "string" })),
        _ if call.name == "send" => Some(sent()),
        result => Some(schema(result)),
    };
    reply(body, "body")
}

fn reply(result: Option<Value>, member: &str) -> Value {
    let properties: Map<String, Value> = result.into_iter().map(|schema| (member.to_owned(), schema)).collect();
    json!({ "allOf": [schema("SessionReply"), { "type": "object", "properties": properties }] })
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
