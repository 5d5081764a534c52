//! Calls to the provider: what it says of itself, its keys, and the exchange of a code for an ID token.

use std::sync::Arc;
use std::time::Duration;

use jsonwebtoken::jwk::Jwk;
use lastword_facts::Time;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{ACCEPT, CONTENT_TYPE};
use reqwest::{Client, RequestBuilder, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;

use super::claims::{self, Claims, Expected};
use super::keys::ProviderKey;
use super::{NoSignIn, Oidc, safe_url};
use crate::tls::{cause, http_client};

/// The time limit of one call.
const CALL_MAX: Duration = Duration::from_secs(10);
/// The most bytes of an answer.
const ANSWER_BYTES_MAX: usize = 512 * 1024;
/// How long what the provider says of itself, and its keys, are used: a key that it withdraws counts no longer than this.
const FRESH_MS: u64 = 60 * 60 * 1000;
/// How soon the keys are fetched again for a key that isn't among them. Anybody can name such a key.
const AGAIN_MS: u64 = 10 * 1000;

/// The provider, with what is known of it.
pub(crate) struct Provider {
    oidc: Arc<Oidc>,
    known: Mutex<ProviderState>,
}

#[derive(Default)]
struct ProviderState {
    http: Option<Client>,
    metadata: Option<(Metadata, Time)>,
    keys: Vec<ProviderKey>,
    keys_at: Option<Time>,
}

/// What the provider says of itself, as far as it is used.
#[derive(Clone, Deserialize)]
struct Metadata {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    #[serde(default)]
    token_endpoint_auth_methods_supported: Vec<String>,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<Value>,
}

#[derive(Deserialize)]
struct Tokens {
    id_token: Option<String>,
}

#[derive(Deserialize)]
struct TokenRefusal {
    error: String,
}

/// A code that the provider gave to a browser, and what belongs to it.
pub(crate) struct Code<'a> {
    /// The code.
    pub(crate) code: &'a str,
    /// The address to which the browser was sent back.
    pub(crate) redirect_uri: &'a str,
    /// The secret of which the provider knows the hash (PKCE).
    pub(crate) verifier: &'a str,
    /// The nonce that the ID token has to carry.
    pub(crate) nonce: &'a str,
}

impl Provider {
    pub(crate) fn new(oidc: Arc<Oidc>) -> Self {
        Self { oidc, known: Mutex::default() }
    }

    /// Returns the settings.
    pub(crate) fn oidc(&self) -> &Oidc {
        &self.oidc
    }

    /// Returns the address at which a human signs in, without its query.
    pub(crate) async fn authorization_endpoint(&self, now: Time) -> Result<String, NoSignIn> {
        let mut known = self.known.lock().await;
        known.metadata(&self.oidc, now).await.map(|metadata| metadata.authorization_endpoint)
    }

    /// Exchanges a code for an ID token, and verifies it.
    pub(crate) async fn exchange(&self, code: &Code<'_>, now: Time) -> Result<(String, Claims), NoSignIn> {
        let (http, metadata) = {
            let mut known = self.known.lock().await;
            (known.http().await?, known.metadata(&self.oidc, now).await?)
        };
        let oidc = &self.oidc;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code.code),
            ("redirect_uri", code.redirect_uri),
            ("code_verifier", code.verifier),
        ];
        let mut request = http.post(&metadata.token_endpoint);
        match &oidc.client_secret {
            None => fields.push(("client_id", &oidc.client_id)),
            Some(secret) if metadata.takes_basic() => {
                // RFC 6749 has both encoded as in a form.
                let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
                request = request.basic_auth(encoded(&oidc.client_id), Some(encoded(secret.reveal())));
            }
            Some(secret) => fields.extend([("client_id", oidc.client_id.as_str()), ("client_secret", secret.reveal())]),
        }
        let body = serde_urlencoded::to_string(&fields).map_err(|error| NoSignIn::Provider(error.to_string()))?;
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded").body(body);
        let (status, bytes) = call(request, &metadata.token_endpoint).await?;
        if status.is_client_error() {
            let why = serde_json::from_slice::<TokenRefusal>(&bytes).map(|refused| refused.error);
            let why = why.unwrap_or_else(|_| status.to_string());
            return Err(if why == "invalid_client" || why == "unauthorized_client" {
                NoSignIn::Provider(format!(
                    "The provider refuses this server's client ({why}): check client_id and its secret"
                ))
            } else {
                NoSignIn::Invalid(format!("The provider refuses the code of this sign-in ({why}): sign in again"))
            });
        }
        let tokens: Tokens = parsed(status, &bytes, &metadata.token_endpoint)?;
        let token = tokens.id_token.ok_or_else(|| NoSignIn::Provider("The provider sent no ID token".into()))?;
        let claims = self.verify(&token, &oidc.client_id, Some(code.nonce), now).await?;
        Ok((token, claims))
    }

    /// Verifies an ID token for this client.
    pub(crate) async fn verify(
        &self,
        token: &str,
        client_id: &str,
        nonce: Option<&str>,
        now: Time,
    ) -> Result<Claims, NoSignIn> {
        let id = claims::key_id(token)?;
        let keys = self.known.lock().await.keys(&self.oidc, id.as_deref(), now).await?;
        let expected = Expected { issuer: &self.oidc.issuer, client_id, nonce };
        claims::verify(token, &keys.iter().collect::<Vec<_>>(), &expected)
    }
}

impl Metadata {
    fn takes_basic(&self) -> bool {
        let listed = &self.token_endpoint_auth_methods_supported;
        listed.is_empty() || listed.iter().any(|method| method == "client_secret_basic")
    }
}

impl ProviderState {
    /// Returns the HTTP client; made once, because it reads the system's root certificates.
    async fn http(&mut self) -> Result<Client, NoSignIn> {
        if let Some(http) = &self.http {
            return Ok(http.clone());
        }
        let http = tokio::task::spawn_blocking(|| http_client(true, CALL_MAX)).await;
        let http = http.map_err(|error| NoSignIn::Provider(error.to_string()))?.map_err(NoSignIn::Provider)?;
        self.http = Some(http.clone());
        Ok(http)
    }

    async fn metadata(&mut self, oidc: &Oidc, now: Time) -> Result<Metadata, NoSignIn> {
        if let Some((metadata, at)) = &self.metadata
            && now.since(*at) < FRESH_MS
        {
            return Ok(metadata.clone());
        }
        let url = format!("{}/.well-known/openid-configuration", oidc.issuer.trim_end_matches('/'));
        let metadata: Metadata = get(&self.http().await?, &url).await?;
        if metadata.issuer != oidc.issuer {
            return Err(NoSignIn::Provider(format!(
                "{url} describes the issuer {:?}: set issuer to exactly that, if it is the right one",
                metadata.issuer
            )));
        }
        for endpoint in [&metadata.authorization_endpoint, &metadata.token_endpoint, &metadata.jwks_uri] {
            safe_url(endpoint).map_err(|why| NoSignIn::Provider(format!("{url} names {endpoint:?}, which {why}")))?;
        }
        self.metadata = Some((metadata.clone(), now));
        Ok(metadata)
    }

    /// Returns the keys that may have signed a token: those with its id, or all if it names none.
    async fn keys(&mut self, oidc: &Oidc, id: Option<&str>, now: Time) -> Result<Vec<ProviderKey>, NoSignIn> {
        let age = self.keys_at.map(|at| now.since(at));
        let found = self.named(id);
        if !found.is_empty() && age.is_some_and(|age| age < FRESH_MS) {
            return Ok(found);
        }
        if age.is_none_or(|age| age >= AGAIN_MS) {
            let url = self.metadata(oidc, now).await?.jwks_uri;
            let set: KeySet = get(&self.http().await?, &url).await?;
            // A key of a kind that isn't known here leaves the others usable.
            let read = |key: Value| ProviderKey::of(&serde_json::from_value::<Jwk>(key).ok()?);
            self.keys = set.keys.into_iter().filter_map(read).collect();
            self.keys_at = Some(now);
        }
        Ok(self.named(id))
    }

    fn named(&self, id: Option<&str>) -> Vec<ProviderKey> {
        self.keys.iter().filter(|key| id.is_none() || key.id.as_deref() == id).cloned().collect()
    }
}

async fn get<T: DeserializeOwned>(http: &Client, url: &str) -> Result<T, NoSignIn> {
    let (status, bytes) = call(http.get(url), url).await?;
    parsed(status, &bytes, url)
}

async fn call(request: RequestBuilder, url: &str) -> Result<(StatusCode, Vec<u8>), NoSignIn> {
    let failed = |error: reqwest::Error| {
        NoSignIn::Provider(format!("The provider can't be reached at {url}: {}", cause(&error)))
    };
    let mut response = request.header(ACCEPT, "application/json").send().await.map_err(failed)?;
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER_BYTES_MAX {
            return Err(NoSignIn::Provider(format!("The answer of {url} is too long")));
        }
    }
    Ok((response.status(), bytes))
}

fn parsed<T: DeserializeOwned>(status: StatusCode, bytes: &[u8], url: &str) -> Result<T, NoSignIn> {
    if !status.is_success() {
        return Err(NoSignIn::Provider(format!("The provider answers {status} at {url}")));
    }
    let wrong = |error| NoSignIn::Provider(format!("The answer of {url} is not what OpenID Connect defines: {error}"));
    serde_json::from_slice(bytes).map_err(wrong)
}
