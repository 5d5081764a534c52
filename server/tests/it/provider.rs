//! An OpenID Connect provider that consents to everything, and lies as a test tells it to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::rsa::PublicKeyComponents;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use ring::{hmac, rand};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const RSA: &[u8] = include_bytes!("../data/rsa.der");

/// How the provider signs its next ID tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signs {
    Es256,
    Rs256,
    /// With the secret of an HMAC that is the public key.
    Hs256,
    /// Not at all.
    Nothing,
    /// With a key that it doesn't publish, under the id of one that it does.
    Stranger,
}

/// What the provider does and has seen.
pub(crate) struct Script {
    pub(crate) signs: Signs,
    /// Claims in place of the usual ones; null leaves one out.
    pub(crate) claims: Value,
    /// The id of its key; the key set has it as soon as it is fetched again.
    /// The extensions that its tokens need.
    pub(crate) crit: Option<Value>,
    pub(crate) key_id: String,
    /// Whether it answers everything with status 500.
    pub(crate) down: bool,
    /// What it answers to polls of a device, before it consents.
    pub(crate) polls: Vec<&'static str>,
    /// How often its keys were fetched.
    pub(crate) key_fetches: usize,
    codes: BTreeMap<String, Value>,
    issuer: String,
}

/// A running provider.
pub(crate) struct Provider {
    pub(crate) issuer: String,
    pub(crate) script: Arc<Mutex<Script>>,
    keys: Arc<Keys>,
    _tasks: JoinSet<()>,
}

struct Keys {
    ec: EcdsaKeyPair,
    stranger: EcdsaKeyPair,
    rsa: RsaKeyPair,
}

type Shared = (Arc<Mutex<Script>>, Arc<Keys>);
type Fields = BTreeMap<String, String>;

fn elliptic() -> EcdsaKeyPair {
    let random = SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap()
}

impl Provider {
    /// Starts a provider on a free port. Its account is Ann's.
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = format!("http://{}", listener.local_addr().unwrap());
        let script = Script {
            signs: Signs::Es256,
            claims: json!({}),
            key_id: "first".into(),
            crit: None,
            down: false,
            polls: Vec::new(),
            key_fetches: 0,
            codes: BTreeMap::new(),
            issuer: issuer.clone(),
        };
        let keys = Keys { ec: elliptic(), stranger: elliptic(), rsa: RsaKeyPair::from_pkcs8(RSA).unwrap() };
        let (script, keys) = (Arc::new(Mutex::new(script)), Arc::new(keys));
        let routes = Router::new()
            .route("/.well-known/openid-configuration", get(metadata))
            .route("/keys", get(key_set))
            .route("/authorize", get(authorize))
            .route("/device", post(device))
            .route("/token", post(token))
            .with_state((Arc::clone(&script), Arc::clone(&keys)));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { issuer, script, keys, _tasks: tasks }
    }

    /// Changes what it does.
    pub(crate) fn now(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap());
    }

    /// Signs an ID token for a client.
    pub(crate) fn id_token(&self, client_id: &str) -> String {
        self.keys.id_token(&self.script.lock().unwrap(), client_id, None)
    }
}

impl Keys {
    #[allow(clippy::disallowed_methods, reason = "a token expires by the wall clock")]
    fn id_token(&self, script: &Script, client_id: &str, nonce: Option<&str>) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let unique = rand::generate::<[u8; 8]>(&SystemRandom::new()).unwrap().expose();
        let mut claims = json!({
            "iss": script.issuer, "sub": "ann-1", "aud": client_id, "iat": now, "exp": now + 300, "nonce": nonce,
            "email": "ann@example.com", "email_verified": true, "jti": base64url(&unique),
        });
        for (name, value) in script.claims.as_object().unwrap() {
            if value.is_null() {
                claims.as_object_mut().unwrap().remove(name);
            } else if name == "expired_for" {
                claims["exp"] = json!(now - value.as_u64().unwrap());
            } else {
                claims[name] = value.clone();
            }
        }
        let algorithm = match script.signs {
            Signs::Es256 | Signs::Stranger => "ES256",
            Signs::Rs256 => "RS256",
            Signs::Hs256 => "HS256",
            Signs::Nothing => "none",
        };
        let mut header = json!({ "alg": algorithm, "typ": "JWT", "kid": script.key_id });
        if let Some(crit) = &script.crit {
            header["crit"] = crit.clone();
        }
        let part = |value: &Value| base64url(value.to_string().as_bytes());
        let text = format!("{}.{}", part(&header), part(&claims));
        let (random, message) = (SystemRandom::new(), text.as_bytes());
        let signature = match script.signs {
            Signs::Es256 => self.ec.sign(&random, message).unwrap().as_ref().to_vec(),
            Signs::Stranger => self.stranger.sign(&random, message).unwrap().as_ref().to_vec(),
            Signs::Rs256 => {
                let mut signature = vec![0; self.rsa.public().modulus_len()];
                self.rsa.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).unwrap();
                signature
            }
            Signs::Hs256 => {
                let key = hmac::Key::new(hmac::HMAC_SHA256, self.ec.public_key().as_ref());
                hmac::sign(&key, message).as_ref().to_vec()
            }
            Signs::Nothing => Vec::new(),
        };
        format!("{text}.{}", base64url(&signature))
    }
}

fn answer(script: &Mutex<Script>, make: impl FnOnce(&mut Script) -> (u16, Value)) -> Response {
    let mut script = script.lock().unwrap();
    let (status, body) = if script.down { (500, json!({})) } else { make(&mut script) };
    (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response()
}

async fn metadata(State((script, _)): State<Shared>) -> Response {
    answer(&script, |script| {
        let at = |path: &str| format!("{}{path}", script.issuer);
        let described = json!({
            "issuer": script.issuer, "authorization_endpoint": at("/authorize"), "token_endpoint": at("/token"),
            "jwks_uri": at("/keys"), "device_authorization_endpoint": at("/device"),
        });
        (200, described)
    })
}

async fn key_set(State((script, keys)): State<Shared>) -> Response {
    answer(&script, |script| {
        script.key_fetches += 1;
        let point = keys.ec.public_key().as_ref();
        let rsa: PublicKeyComponents<Vec<u8>> = keys.rsa.public().into();
        // A kind of key that nobody knows must not make the others unusable.
        let unknown = json!({ "kty": "FUTURE", "kid": "future", "use": "sig" });
        let elliptic = json!({
            "kty": "EC", "crv": "P-256", "kid": script.key_id, "use": "sig", "alg": "ES256",
            "x": base64url(&point[1..33]), "y": base64url(&point[33..]),
        });
        let rsa = json!({ "kty": "RSA", "kid": script.key_id, "n": base64url(&rsa.n), "e": base64url(&rsa.e) });
        let one = if script.signs == Signs::Rs256 { rsa } else { elliptic };
        (200, json!({ "keys": [unknown, one] }))
    })
}

async fn authorize(State((script, _)): State<Shared>, Query(asked): Query<Fields>) -> Response {
    let mut script = script.lock().unwrap();
    assert_eq!((asked["response_type"].as_str(), asked["code_challenge_method"].as_str()), ("code", "S256"));
    assert!(asked["scope"].split(' ').any(|scope| scope == "openid"), "{asked:?}");
    let code = format!("code-{}", script.codes.len());
    let location = format!("{}?code={code}&state={}", asked["redirect_uri"], asked["state"]);
    script.codes.insert(code, json!(asked));
    (StatusCode::SEE_OTHER, [("location", location)]).into_response()
}

async fn device(State((script, _)): State<Shared>) -> Response {
    answer(&script, |script| {
        let at = format!("{}/activate", script.issuer);
        let device = json!({
            "device_code": "device-1", "user_code": "WDJB-MJHT", "verification_uri": at, "expires_in": 600, "interval": 0,
        });
        (200, device)
    })
}

async fn token(State((script, keys)): State<Shared>, body: String) -> Response {
    let fields: Fields = body
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| {
            let value = percent_encoding::percent_decode_str(value).decode_utf8().unwrap();
            (name.to_owned(), value.replace('+', " "))
        })
        .collect();
    answer(&script, |script| {
        if fields["grant_type"].ends_with("device_code") {
            assert_eq!(fields["device_code"], "device-1");
            if !script.polls.is_empty() {
                return (400, json!({ "error": script.polls.remove(0) }));
            }
            return (
                200,
                json!({ "id_token": keys.id_token(script, &fields["client_id"], None), "token_type": "Bearer" }),
            );
        }
        // A code is for one use, one client, one address and one verifier.
        let Some(asked) = script.codes.remove(&fields["code"]) else {
            return (400, json!({ "error": "invalid_grant" }));
        };
        let challenge = base64url(digest(&SHA256, fields["code_verifier"].as_bytes()).as_ref());
        let same = |name: &str| asked[name].as_str() == fields.get(name).map(String::as_str);
        if asked["code_challenge"] != challenge.as_str() || !same("redirect_uri") || !same("client_id") {
            return (400, json!({ "error": "invalid_grant" }));
        }
        let token = keys.id_token(script, &fields["client_id"], asked["nonce"].as_str());
        (200, json!({ "id_token": token, "access_token": "unused", "token_type": "Bearer" }))
    })
}

/// Encodes bytes in base64 for URLs, without padding.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |n| byte >> n & 1)).collect();
    let digit = |six: &[u8]| six.iter().fold(0_usize, |n, bit| n << 1 | usize::from(*bit)) << (6 - six.len());
    bits.chunks(6).map(|six| char::from(digits[digit(six)])).collect()
}
