//! The connection: address, token, and the function that makes every call.

use std::sync::Arc;

use lastword_wire::Problem;
use reqwest::header::AUTHORIZATION;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;

use crate::endpoint::{CLIENT_HEADER, Endpoint, TlsFault, tls_fault};
use crate::error::ClientError;
use crate::session::{Link, Pushes, Session};
use crate::token::Token;

/// Characters shown of an unexpected response.
const EXCERPT_CHARS: usize = 200;

/// A client of one server with one principal's token. Clones share their connections.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    endpoint: Endpoint,
    token: Option<Token>,
    turn: Option<Box<str>>,
    /// The session that carries the calls; `None` if HTTP does.
    link: Option<Arc<Link>>,
}

impl Client {
    /// Returns a client of this server.
    ///
    /// # Errors
    /// The address or what verifies the certificate is unusable: see [`Endpoint::http`].
    pub fn new(endpoint: &Endpoint, token: Option<Token>) -> Result<Self, ClientError> {
        Ok(Self { http: endpoint.http()?, endpoint: endpoint.clone(), token, turn: None, link: None })
    }

    /// Returns the same client, whose calls share one connection: a session, or HTTP if the server has none. For programs
    /// that stay.
    #[must_use]
    pub fn over_session(self) -> Self {
        Self { link: Some(Arc::default()), ..self }
    }

    /// Returns the same client, acting in the turn with this token.
    #[must_use]
    pub fn in_turn(&self, token: &str) -> Self {
        Self { turn: Some(token.into()), ..self.clone() }
    }

    /// Returns the token that this client authenticates with.
    #[must_use]
    pub const fn token(&self) -> Option<&Token> {
        self.token.as_ref()
    }

    /// Returns the server's address, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        self.endpoint.url()
    }

    /// Returns the server's address, and how its certificate is verified.
    #[must_use]
    pub const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Builds a call of `path`, whose variable segments must already be encoded.
    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.endpoint.url()));
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, token.header());
        }
        if let Some(client) = self.endpoint.client() {
            request = request.header(CLIENT_HEADER, client);
        }
        match &self.turn {
            Some(turn) => request.header("Lastword-Turn", &**turn),
            None => request,
        }
    }

    /// Makes the call; turns a refusal into an error.
    pub(crate) async fn answer(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = self.exchange(request).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let url = response.url().to_string();
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => Err(ClientError::Refused(Box::new(problem))),
            Err(_) => Err(ClientError::Unexpected { url, status: status.as_u16(), detail: excerpt(&bytes) }),
        }
    }

    async fn exchange(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let request = request.build().map_err(|error| self.unreachable(&error))?;
        if let Some(link) = &self.link
            && let Some(answered) = link.carry(&self.endpoint, self.token.as_ref(), &request).await
        {
            return answered;
        }
        self.http.execute(request).await.map_err(|error| self.unreachable(&error))
    }

    /// Watches events in the session; `None` if that has to be done over HTTP.
    pub(crate) async fn watch_events(&self, after: Option<u64>) -> Option<Result<(Session, Pushes, u64), ClientError>> {
        self.link.as_ref()?.events(&self.endpoint, self.token.as_ref(), after).await
    }

    /// Makes the call and parses the response's JSON; status 204 is read as `null`.
    pub(crate) async fn json<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.answer(request).await?;
        let (url, status) = (response.url().to_string(), response.status());
        let bytes = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        let json = if status == StatusCode::NO_CONTENT { b"null".as_slice() } else { &bytes };
        serde_json::from_slice(json).map_err(|error| ClientError::Unexpected {
            url,
            status: status.as_u16(),
            detail: format!("{error}: {}", excerpt(&bytes)),
        })
    }

    pub(crate) fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let url = self.endpoint.url().to_owned();
        match tls_fault(error) {
            Some(TlsFault::Untrusted(reason)) => return ClientError::Untrusted { url, reason },
            Some(TlsFault::Broken(reason)) => return ClientError::Unreachable { url, reason },
            None => {}
        }
        // The innermost cause is the plainest: "Connection refused".
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        ClientError::Unreachable { url, reason: cause.to_string() }
    }
}

fn excerpt(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).chars().take(EXCERPT_CHARS).collect()
}

/// Encodes a value as one segment of a path: every byte but the unreserved characters.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ => {
                out.push('%');
                for nibble in [byte >> 4, byte & 15] {
                    out.push(char::from(b"0123456789ABCDEF"[usize::from(nibble)]));
                }
            }
        }
    }
    // A segment of dots would be read as a step in the path.
    if out.chars().all(|c| c == '.') { out.replace('.', "%2E") } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ref_is_one_segment_of_the_path() {
        assert_eq!(segment("EDGA-1450/1#a:b"), "EDGA-1450%2F1%23a%3Ab");
        assert_eq!(segment("é ?"), "%C3%A9%20%3F");
        assert_eq!(segment(".."), "%2E%2E");
    }

    #[test]
    fn a_token_is_never_printed() {
        let token = Token::new(" lw_secret\n").unwrap();
        let client = Client::new(&Endpoint::new("http://127.0.0.1:1/"), Some(token)).unwrap();
        assert!(!format!("{client:?}").contains("secret"));
        assert!(Token::new("").is_err());
        assert!(Token::new("two words").is_err());
    }

    #[test]
    fn an_address_without_a_scheme_is_told_apart_from_a_dead_server() {
        assert!(matches!(Client::new(&Endpoint::new("127.0.0.1:7171"), None), Err(ClientError::Unusable(_))));
    }
}
