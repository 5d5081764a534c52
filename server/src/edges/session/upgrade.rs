//! The handshake that turns an HTTP/1.1 connection into a WebSocket.

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use lastword_facts::Code;
use lastword_wire::session::SUBPROTOCOL;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::error::ApiError;

const WEBSOCKET: &str = "websocket";
const VERSION: &str = "13";

/// Checks a request to open a session. Returns the response that accepts it.
pub(super) fn accept(request: &Request) -> Result<Response, ApiError> {
    let headers = request.headers();
    if !lists(headers, &UPGRADE, WEBSOCKET) || !lists(headers, &CONNECTION, UPGRADE.as_str()) {
        return Err(needed("A session is a WebSocket: the request has to ask for the upgrade"));
    }
    if request.uri().query().is_some() {
        let text =
            "A session has no query parameters; the token goes into the header Authorization, or into the call hello";
        return Err(ApiError::new(Code::Malformed, text));
    }
    if !lists(headers, &SEC_WEBSOCKET_VERSION, VERSION) {
        return Err(needed("The server speaks WebSocket version 13"));
    }
    if !lists(headers, &SEC_WEBSOCKET_PROTOCOL, SUBPROTOCOL) {
        let text = format!("Sec-WebSocket-Protocol has to offer {SUBPROTOCOL}");
        return Err(ApiError::new(Code::Malformed, text));
    }
    let Some(key) = headers.get(SEC_WEBSOCKET_KEY) else {
        return Err(ApiError::new(Code::Malformed, "Sec-WebSocket-Key is missing"));
    };
    let accept = HeaderValue::from_str(&derive_accept_key(key.as_bytes()));
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static(WEBSOCKET));
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept.map_err(|_| ApiError::internal("the accept key is no header"))?);
    Ok(response)
}

/// Returns the refusal of a request that can't be upgraded.
pub(super) fn needed(text: &str) -> ApiError {
    let mut fault = ApiError::new(Code::Malformed, text);
    fault.0.status = StatusCode::UPGRADE_REQUIRED.as_u16();
    fault
}

/// Returns whether a header lists this word, in any case.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(word))
}
