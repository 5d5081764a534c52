//! The claims of an ID token, once everything about it is verified.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation, decode, decode_header};
use serde::Deserialize;

use super::NoSignIn;
use super::keys::ProviderKey;

/// The longest ID token that is read, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;
/// The difference between the provider's clock and this machine's that is accepted, in seconds.
const LEEWAY_SECONDS: u64 = 60;

/// What a verified ID token says of a human.
#[derive(Clone, Debug)]
pub(crate) struct Claims {
    /// The provider's name for the account; it never goes to another.
    pub(crate) sub: String,
    /// The e-mail address, if the provider says one.
    pub(crate) email: Option<String>,
    /// Whether the provider has verified that address.
    pub(crate) email_verified: bool,
    /// When the token expires, in seconds since 1970.
    pub(crate) exp: u64,
}

/// What an ID token must say.
pub(super) struct Expected<'a> {
    pub(super) issuer: &'a str,
    pub(super) client_id: &'a str,
    /// The nonce of the browser's sign-in; `None` for the command line, whose flow has none.
    pub(super) nonce: Option<&'a str>,
}

/// The claims as the provider writes them. One that is of another type is an error.
#[derive(Deserialize)]
struct RawClaims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: u64,
    nonce: Option<String>,
    azp: Option<String>,
    email: Option<String>,
    email_verified: Option<Verified>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Some providers write the truth value as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Verified {
    Truth(bool),
    Text(String),
}

/// Returns the key by which a token says that it is signed.
pub(super) fn key_id(token: &str) -> Result<Option<String>, NoSignIn> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(invalid("it is too long"));
    }
    let header = decode_header(token).map_err(|_| invalid("it isn't a JWT that is signed with RS256 or ES256"))?;
    if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
        return Err(invalid("it isn't signed with RS256 or ES256"));
    }
    if header.crit.is_some() {
        // It names extensions without which the token must not be accepted, and none is known here.
        return Err(invalid("it needs an extension that isn't known here (crit)"));
    }
    Ok(header.kid)
}

/// Verifies an ID token with one of these keys.
pub(super) fn verify(token: &str, keys: &[&ProviderKey], expected: &Expected<'_>) -> Result<Claims, NoSignIn> {
    let mut why = invalid("none of the provider's keys has signed it");
    for key in keys {
        let mut validation = Validation::new(key.algorithm);
        validation.leeway = LEEWAY_SECONDS;
        validation.validate_nbf = true;
        validation.set_issuer(&[expected.issuer]);
        validation.set_audience(&[expected.client_id]);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        match decode::<RawClaims>(token, &key.key, &validation) {
            Ok(decoded) => return check(decoded.claims, expected),
            Err(error) => why = invalid(&wording(error.kind())),
        }
    }
    Err(why)
}

/// Checks what OpenID Connect asks for beyond the claims of a JWT.
fn check(claims: RawClaims, expected: &Expected<'_>) -> Result<Claims, NoSignIn> {
    let RawClaims { iss, sub, aud, exp, nonce, azp, email, email_verified } = claims;
    let (ours, several) = match &aud {
        Audience::One(one) => (one == expected.client_id, false),
        Audience::Several(all) => (all.iter().any(|one| one == expected.client_id), all.len() > 1),
    };
    if iss != expected.issuer {
        return Err(invalid("another issuer signed it"));
    }
    // A token for several clients must say which of them it was issued to.
    let authorized = azp.as_deref().map_or(!several, |azp| azp == expected.client_id);
    if !ours || !authorized {
        return Err(invalid("it was issued for another client"));
    }
    if expected.nonce.is_some() && nonce.as_deref() != expected.nonce {
        return Err(invalid("it belongs to another sign-in (nonce)"));
    }
    if sub.is_empty() {
        return Err(invalid("it names no subject"));
    }
    let email_verified = match email_verified {
        Some(Verified::Truth(verified)) => verified,
        Some(Verified::Text(text)) => text == "true",
        None => false,
    };
    Ok(Claims { sub, email: email.filter(|email| !email.is_empty()), email_verified, exp })
}

fn invalid(why: &str) -> NoSignIn {
    NoSignIn::Invalid(format!("The provider's ID token is not valid: {why}"))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the library may add kinds")]
fn wording(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::InvalidSignature => "its signature isn't the provider's".into(),
        ErrorKind::ExpiredSignature => "it has expired".into(),
        ErrorKind::ImmatureSignature => "it isn't valid yet".into(),
        ErrorKind::InvalidIssuer => "another issuer signed it".into(),
        ErrorKind::InvalidAudience => "it was issued for another client".into(),
        ErrorKind::MissingRequiredClaim(claim) => format!("it has no {claim}"),
        ErrorKind::InvalidAlgorithm => "its algorithm isn't that of the key".into(),
        ErrorKind::Json(error) => format!("it is malformed ({error})"),
        _ => "it is malformed".into(),
    }
}
