//! The token that a client authenticates with.

use std::fmt;

use reqwest::header::HeaderValue;

use crate::error::ClientError;

/// The scheme before a token in the `Authorization` header.
const BEARER: &str = "Bearer ";

/// A bearer token; its `Debug` form hides it.
#[derive(Clone)]
pub struct Token(HeaderValue);

impl Token {
    /// Takes a token from a file or variable; trims white space.
    ///
    /// # Errors
    /// The token is empty or has characters that no token has.
    pub fn new(text: &str) -> Result<Self, ClientError> {
        let text = text.trim();
        if text.starts_with(BEARER) {
            let what = format!("the token begins with `{}`, which is no part of it: leave it out", BEARER.trim_end());
            return Err(ClientError::Unusable(what));
        }
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ClientError::Unusable("the token is empty or has characters that no token has".to_owned()));
        }
        let mut value = HeaderValue::from_str(&format!("{BEARER}{text}"))
            .map_err(|_| ClientError::Unusable("the token has characters that no token has".to_owned()))?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// Returns the header that authenticates a call.
    pub(crate) fn header(&self) -> HeaderValue {
        self.0.clone()
    }

    /// Returns the token's text, to pass on to its agent.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.0.to_str().unwrap_or_default().trim_start_matches(BEARER)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}
