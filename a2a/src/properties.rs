//! Requests of A2A's clients, from their bytes down to the draft: each is an operation or refused with a reason, and no
//! member of a message sets what its sender may not choose.

use axum::http::{HeaderMap, HeaderValue, Method};
use lastword_facts::MessageType;
use lastword_facts::envelope::Priority;

use crate::binding::{called, route};
use crate::fault::Fault;
use crate::model::{Operation, SendMessage};
use crate::send::{content, envelope};

/// Checks one request: a body of JSON-RPC; or a method, a path with its query and a line break before a body of HTTP+JSON.
///
/// # Panics
/// Panics if the property is broken.
pub fn check(data: &[u8]) {
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    let operation = match data.iter().position(|byte| *byte == b'\n') {
        Some(end) if [b"GET ".as_slice(), b"POST ", b"DELETE "].iter().any(|method| data.starts_with(method)) => {
            let Ok(line) = std::str::from_utf8(&data[..end]) else { return };
            let Some((method, target)) = line.split_once(' ') else { return };
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let Ok(method) = method.parse::<Method>() else { return };
            let Ok(found) = route(&method, path) else { return };
            found.parsed(&headers, query, &data[end + 1..])
        }
        Some(_) | None => called(&headers, data).1,
    };
    match operation {
        Ok(Operation::Send(send) | Operation::SendStreaming(send)) => sent(*send),
        Ok(_) => {}
        Err(fault) => refused(&fault),
    }
}

fn refused(fault: &Fault) {
    let (rpc, rest) = (fault.rpc(), fault.rest());
    assert!(rpc["message"].as_str().is_some_and(|text| !text.is_empty()), "{rpc}");
    assert!(rpc["data"][0]["reason"].as_str().is_some_and(|text| !text.is_empty()), "{rpc}");
    assert_eq!(rpc["data"], rest["error"]["details"]);
}

fn sent(request: SendMessage) {
    let texts: usize = request.message.parts.iter().filter_map(|part| part.text.as_ref()).map(String::len).sum();
    let data = request.message.parts.iter().any(|part| part.data.is_some());
    let content = match content(&request.message.parts) {
        Ok(content) => content,
        Err(fault) => return refused(&fault),
    };
    assert!(content.body.len() >= texts && content.payload.is_some() == data, "every part is passed on");
    let made = envelope("coder", &request.metadata, request.message, content, None);
    let (envelope, causality) = match made {
        Ok(made) => made,
        Err(fault) => return refused(&fault),
    };
    assert!(causality.tokens.len() <= 16, "what is passed on has an end");
    let Ok(draft) = envelope.draft() else { return };
    assert_eq!((draft.kind, draft.priority), (MessageType::Request, Priority::Normal));
    assert!(draft.from.is_none() && draft.reference.is_none() && draft.depth.is_none() && draft.request_id.is_none());
    assert!(draft.caused_by.is_none() && draft.in_reply_to.is_none() && draft.action.is_none());
    assert!(draft.timeout_ms.is_none() && draft.deadline_ms.is_none() && draft.status.is_none());
}
