//! Signing humans in by an OpenID Connect provider: in a browser, by an authorization code with PKCE, and on the command
//! line, by the ID token of a device authorization.

use std::sync::Arc;

use lastword_broker::identity::{Secret, unhex};
use lastword_broker::{Live, off_thread};
use lastword_core::input::Registration;
use lastword_core::{Input, Principal, Reply};
use lastword_facts::fact::{Credential, Kind, Profile, Role};
use lastword_facts::{Code, Time};
use lastword_wire::{SignInProvider, SignedIn, rfc3339};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use sha2::{Digest as _, Sha256};

use super::{Context, admitted, agents, humans};
use crate::base_path::url;
use crate::error::ApiError;
use crate::oidc::{self, Accounts, Claims, NoSignIn, Oidc, Person, Provider};

/// The path to which the provider sends browsers back.
pub const CALLBACK: &str = "/sign-in/callback";
/// The time in which a human has to sign in at the provider, in ms.
pub const BEGUN_MS: u64 = 10 * 60 * 1000;
/// The claims that the provider is asked for.
const SCOPE: &str = "openid email";
/// Characters that a query may contain as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Sign-in by a provider.
pub struct SignIn {
    provider: Provider,
    accounts: Accounts,
    /// The console's address, without a trailing slash.
    console: String,
}

/// A sign-in that begins in a browser.
pub struct Begun {
    /// The provider's address to which the browser goes.
    pub location: String,
    /// The cookie that binds the sign-in to this browser.
    pub cookie: String,
}

/// A human who has signed in.
pub struct SignedInHuman {
    /// The human.
    pub principal: Principal,
    /// The hash of the human's own token, to which the session is bound.
    pub token: Credential,
    /// When the session ends.
    pub expires_at: Time,
    /// The time until then, in ms.
    pub valid_ms: u64,
    name: String,
}

impl SignIn {
    /// Signs humans in at this console, unless the settings name another address of it.
    pub(crate) fn new(oidc: Oidc, console: &str, accounts: Accounts) -> Self {
        let console = oidc.console.as_deref().unwrap_or(console).trim_end_matches('/').to_owned();
        Self { provider: Provider::new(Arc::new(oidc)), accounts, console }
    }

    /// Returns the provider's host, for humans to recognize.
    pub fn provider_host(&self) -> String {
        let url = Url::parse(&self.provider.oidc().issuer).ok();
        url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Returns the console's address if the request came under another one: the cookie would not reach the callback.
    pub fn elsewhere(&self, host: &str) -> Option<&str> {
        let (_, ours) = self.console.split_once("://")?;
        let ours = ours.split('/').next()?;
        (!ours.eq_ignore_ascii_case(host)).then_some(&self.console)
    }

    fn redirect_uri(&self) -> String {
        format!("{}{CALLBACK}", self.console)
    }
}

fn configured(ctx: &Context) -> Result<&Arc<SignIn>, ApiError> {
    let none = || {
        ApiError::new(
            Code::UnknownRequest,
            "This workspace has no provider to sign in with ([oidc] in lastword.toml); use a token",
        )
    };
    ctx.oidc.as_ref().ok_or_else(none)
}

/// Returns what the command line needs to sign a human in.
pub(crate) fn provider(ctx: &Context) -> Result<SignInProvider, ApiError> {
    let oidc = configured(ctx)?.provider.oidc();
    Ok(SignInProvider { issuer: oidc.issuer.clone(), client_id: oidc.cli_client_id.clone() })
}

/// Begins a sign-in in a browser. Everything that has to be checked later is derived from the cookie, so that nothing is
/// kept for a sign-in that a stranger begins and never ends.
pub async fn begin(ctx: &Context, next: &str) -> Result<Begun, ApiError> {
    let sign_in = configured(ctx)?;
    let now = ctx.handle.now();
    let seed = Secret::code().map_err(|error| ApiError::internal(&error.to_string()))?;
    let next = lastword_broker::identity::hex(next.as_bytes());
    let cookie = format!("{}.{}.{next}", now.plus(BEGUN_MS).0, seed.reveal());
    let endpoint = sign_in.provider.authorization_endpoint(now).await.map_err(refused)?;
    let signer = ctx.handle.signer();
    let challenge = base64url(&Sha256::digest(signer.derive("verifier", &cookie).as_bytes()));
    let query = [
        ("response_type", "code"),
        ("client_id", &sign_in.provider.oidc().client_id),
        ("redirect_uri", &sign_in.redirect_uri()),
        ("scope", SCOPE),
        ("state", &signer.derive("state", &cookie)),
        ("nonce", &signer.derive("nonce", &cookie)),
        ("code_challenge", &challenge),
        ("code_challenge_method", "S256"),
    ]
    .map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, PLAIN)))
    .join("&");
    let separator = if endpoint.contains('?') { '&' } else { '?' };
    Ok(Begun { location: format!("{endpoint}{separator}{query}"), cookie })
}

/// Ends a sign-in that began in this browser: exchanges the code, and returns the human and the path to go on to.
pub async fn finish(ctx: &Context, cookie: &str, state: &str, code: &str) -> Result<(SignedInHuman, String), ApiError> {
    let sign_in = configured(ctx)?;
    let (now, signer) = (ctx.handle.now(), ctx.handle.signer());
    let next = begun(cookie, now).ok_or_else(other_browser)?;
    // Hashes of both are compared, so that the time reveals nothing of the state.
    if lastword_broker::identity::credential(state)
        != lastword_broker::identity::credential(&signer.derive("state", cookie))
    {
        return Err(other_browser());
    }
    if !sign_in.accounts.use_state(state, now.plus(BEGUN_MS), now) {
        return Err(unproven(format!("This sign-in was used already: begin again at {}", url("/sign-in"))));
    }
    let (verifier, nonce) = (signer.derive("verifier", cookie), signer.derive("nonce", cookie));
    let redirect_uri = sign_in.redirect_uri();
    let code = oidc::Code { code, redirect_uri: &redirect_uri, verifier: &verifier, nonce: &nonce };
    let (_, claims) = sign_in.provider.exchange(&code, now).await.map_err(refused)?;
    Ok((admit(ctx, sign_in, claims).await?, next))
}

fn other_browser() -> ApiError {
    unproven(format!(
        "This sign-in began in another browser, under another address of the console, or more than 10 minutes ago: begin \
         again at {}",
        url("/sign-in")
    ))
}

/// Returns the path to go on to from a cookie that hasn't expired.
fn begun(cookie: &str, now: Time) -> Option<String> {
    let mut parts = cookie.split('.');
    let (until, seed, next) = (parts.next()?, parts.next()?, parts.next()?);
    let fresh = now < Time(until.parse().ok()?);
    let bytes: Option<Vec<u8>> =
        next.as_bytes().chunks(2).map(|pair| unhex::<1>(std::str::from_utf8(pair).ok()?).map(|[byte]| byte)).collect();
    let sound = fresh && unhex::<32>(seed).is_some() && parts.next().is_none();
    String::from_utf8(bytes?).ok().filter(|_| sound)
}

/// Signs a human in by an ID token that the command line got from the provider.
pub(crate) async fn by_id_token(ctx: &Context, id_token: &str) -> Result<SignedIn, ApiError> {
    let sign_in = configured(ctx)?;
    let now = ctx.handle.now();
    let client_id = &sign_in.provider.oidc().cli_client_id;
    let claims = sign_in.provider.verify(id_token, client_id, None, now).await.map_err(refused)?;
    // Kept as long as the token could be shown again, whatever the difference between the clocks.
    let until = Time(claims.exp.saturating_mul(1000)).max(now).plus(BEGUN_MS);
    let (shared, text) = (Arc::clone(sign_in), id_token.to_owned());
    let used = off_thread(move || Ok(shared.accounts.use_id_token(&text, until, now))).await?;
    if !used.map_err(|error| ApiError::internal(&format!("the list of used ID tokens: {error}")))? {
        return Err(unproven("This ID token was used already: get a new one from the provider".into()));
    }
    let SignedInHuman { principal, token, expires_at, name, .. } = admit(ctx, sign_in, claims).await?;
    let who = principal.agent();
    let role = ctx.handle.query(move |live: &Live<'_>| live.state.agent(who).map(|human| human.role)).await?;
    let token = ctx.handle.signer().sign_bearer(who, &token, expires_at);
    Ok(SignedIn { name, role: role.unwrap_or(Role::Viewer), token, expires_at: rfc3339(expires_at) })
}

/// Returns the human to whom the claims belong, and registers them at the first sign-in. Signing in is an act (D12).
async fn admit(ctx: &Context, sign_in: &Arc<SignIn>, claims: Claims) -> Result<SignedInHuman, ApiError> {
    let shared = Arc::clone(sign_in);
    // Writes a file at an account's first sign-in, so it must not run on a thread that serves other calls.
    let person =
        off_thread(move || Ok(shared.accounts.admit(shared.provider.oidc(), &claims))).await?.map_err(refused)?;
    let name = person.name.as_str().to_owned();
    let known = known(ctx, name.clone()).await?;
    let (token, principal) = match known {
        Some((id, true)) => {
            let proof = ctx.handle.proof_of(id);
            proof.ok_or_else(|| {
                let text = format!(
                    "{name}'s own token has expired, and a session hangs on it: a human with the role owner runs \
                     `lastword agent token {name}`"
                );
                ApiError::new(Code::Forbidden, text)
            })?
        }
        Some((_, false)) => {
            let text = format!("{name} is an agent here: [[oidc.human]] has to name a human");
            return Err(ApiError::new(Code::Forbidden, text));
        }
        None => register(ctx, &person).await?,
    };
    humans::act(ctx, principal).await?;
    let valid_ms = sign_in.provider.oidc().valid_ms;
    Ok(SignedInHuman { principal, token, expires_at: ctx.handle.now().plus(valid_ms), valid_ms, name })
}

/// Returns the live agent or human with this name, and whether it is a human.
async fn known(ctx: &Context, name: String) -> Result<Option<(lastword_facts::ids::AgentId, bool)>, ApiError> {
    let found = move |live: &Live<'_>| {
        let id = live.state.live(&name)?;
        Some((id, live.state.agent(id)?.is_human()))
    };
    Ok(ctx.handle.query(found).await?)
}

/// Registers a human in the name of an owner, whose configuration lists them. Nobody learns the human's own token: it is
/// there for sessions to hang on, and ends them when it is replaced.
async fn register(ctx: &Context, person: &Person) -> Result<(Credential, Principal), ApiError> {
    let owners = |live: &Live<'_>| -> Vec<_> {
        let is_owner = |id: &lastword_facts::ids::AgentId| live.state.agent(*id).is_some_and(|agent| agent.is_owner());
        live.state.live_by_name().into_iter().filter(is_owner).collect()
    };
    let owners = ctx.handle.query(owners).await?;
    let owner = owners.into_iter().find_map(|id| ctx.handle.proof_of(id)).map(|(_, owner)| owner);
    let owner = owner.ok_or_else(|| {
        ApiError::new(Code::Forbidden, "No owner of this workspace has a valid token, so nobody new can sign in")
    })?;
    agents::distinct(ctx, &person.name).await?;
    let token = Secret::token().map_err(|error| ApiError::internal(&error.to_string()))?;
    let registration = Registration {
        name: person.name.clone(),
        kind: Kind::Human,
        profile: Profile { actions: Vec::new(), groups: Vec::new(), turns_max: 0 },
        credential: token.credential(),
        role: Some(person.role),
        display_name: None,
        key: None,
    };
    match admitted(ctx.handle.submit(Input::Register(owner, registration)).await) {
        Ok(Reply::Registered(agent)) => {
            tracing::info!(name = %person.name, role = %person.role, "a human signed in for the first time");
            ctx.handle.proof_of(agent).ok_or_else(|| ApiError::internal("the human was removed at once"))
        }
        Ok(other) => Err(ApiError::unexpected(&other)),
        // Another sign-in of the same human was first.
        Err(fault) if fault.0.code == Code::NameTaken => {
            let id = known(ctx, person.name.as_str().to_owned()).await?;
            id.and_then(|(id, human)| ctx.handle.proof_of(id).filter(|_| human)).ok_or(fault)
        }
        Err(fault) => Err(fault),
    }
}

fn refused(why: NoSignIn) -> ApiError {
    match why {
        NoSignIn::NotAllowed(text) => ApiError::new(Code::Forbidden, text),
        NoSignIn::Invalid(text) => unproven(text),
        NoSignIn::Provider(text) => {
            tracing::warn!(reason = %text, "the provider of sign-ins is unusable");
            let mut fault = ApiError::internal(&text);
            fault.0.status = 503;
            fault.0.title = "Signing in by the provider doesn't work at the moment".into();
            fault.0.hint = "Try again later, or sign in with a token.".into();
            fault
        }
    }
}

/// A sign-in that proves nobody.
fn unproven(text: String) -> ApiError {
    let mut fault = ApiError::new(Code::Unauthenticated, text);
    fault.0.title = "You are not signed in".into();
    fault.0.hint = "Sign in again, or with a token.".into();
    fault
}

/// Encodes bytes in the alphabet of base64 for URLs, without padding.
fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group =
            chunk.iter().fold(0_usize, |group, byte| group << 8 | usize::from(*byte)) << (8 * (3 - chunk.len()));
        text.extend((0..=chunk.len()).map(|n| char::from(ALPHABET[group >> (18 - 6 * n) & 63])));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_that_of_the_rfc() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(base64url(&Sha256::digest(verifier)), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn a_cookie_leads_on_to_its_path_until_it_expires() {
        let cookie = |until: u64| format!("{until}.{}.{}", "ab".repeat(32), lastword_broker::identity::hex(b"/agents"));
        assert_eq!(begun(&cookie(10), Time(9)).as_deref(), Some("/agents"));
        assert_eq!(begun(&cookie(10), Time(10)), None);
        for bad in ["", "10", "10.ab.2f", &format!("{}.x", cookie(10)), &cookie(10).replace("2f", "2")] {
            assert_eq!(begun(bad, Time(0)), None, "{bad}");
        }
    }
}
