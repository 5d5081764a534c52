//! Signing in, with a human's token or the one-time link, and signing out.

use axum::extract::{Query, Request, State};
use axum::http::header::{LOCATION, SET_COOKIE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use lastword_broker::identity::{self, SESSION_MS, credential};
use lastword_broker::off_thread;
use lastword_core::Principal;
use lastword_facts::fact::Credential;
use lastword_facts::{Code, Time};
use lastword_server::calls::{humans, proven};
use lastword_server::edges::http::{attempt, read};
use lastword_server::{ApiError, Context};
use lastword_store::ReadError;
use maud::{Markup, html};
use serde::Deserialize;

use super::callback::BEGIN;
use super::forms::{Form, Nothing, fields, filled};
use super::frame::ErrorPage;
use super::layout;
use super::parts::{encoded, url};
use super::session::{cookie, set_cookie, set_cookie_for};

/// The path to which the code leads that hands a session over to another device.
pub(super) const DEVICE: &str = "/sign-in/device";

#[derive(Debug, Default, Deserialize)]
pub(super) struct NextParams {
    pub(super) next: Option<String>,
}

/// `GET /sign-in`. The code of a one-time link comes after `#`, which browsers never send; the script copies it into
/// the form.
pub(super) async fn page(State(ctx): State<Context>, Query(params): Query<NextParams>) -> Response {
    Html(form(&ctx, params.next.as_deref(), None).into_string()).into_response()
}

/// Shows the form, with what was refused.
fn form(ctx: &Context, next: Option<&str>, refused: Option<&str>) -> Markup {
    let main = html! {
        h1 { "Sign in" }
        @if let Some(words) = refused { div.flash.bad role="alert" { p { (words) } } }
        @if let Some(oidc) = &ctx.oidc {
            // A link, because a form may not lead to another site.
            p { a.button.main #provider href=(url(&begin_at(next))) { "Sign in with " (oidc.provider_host()) } }
        }
        form #sign-in method="post" action=(url("/sign-in")) {
            input type="hidden" name="next" value=(within(next));
            input #code type="hidden" name="code" value="";
            label for="token" { "Your token" }
            input #token type="password" name="token" autocomplete="current-password" autofocus spellcheck="false";
            button.main type="submit" { "Sign in" }
        }
        p.faint {
            "An owner makes a link for you under " i { "Team" } ", and a browser that is signed in makes one for your phone. On the server's machine, "
            code { "lastword console" } " opens this page signed in; the first owner's token is in " code { "operator.token" } " of its data directory."
        }
    };
    layout::bare("Sign in", &main)
}

/// Returns the path that leads to the provider and then on to `next`.
fn begin_at(next: Option<&str>) -> String {
    format!("{BEGIN}?next={}", encoded(within(next)))
}

#[derive(Debug, Default, Deserialize)]
struct Proof {
    #[serde(default)]
    token: String,
    #[serde(default)]
    code: String,
    #[serde(default)]
    next: String,
}

/// `POST /sign-in`: opens a session.
pub(super) async fn sign_in(
    State(ctx): State<Context>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, ErrorPage> {
    let (parts, body) = request.into_parts();
    let proof: Proof = fields(&read(&parts, body).await?)?;
    let proven = match filled(&proof.code) {
        Some(code) => by_code(&ctx, &code).await,
        None => by_token(&ctx, proof.token.trim()),
    };
    let Proven { token, principal, until, from } = match proven {
        Ok(proven) => proven,
        Err(fault) => {
            if fault.0.code == Code::Unauthenticated {
                attempt(&ctx, &parts.extensions)?;
            }
            let status = StatusCode::from_u16(fault.0.status).unwrap_or(StatusCode::UNAUTHORIZED);
            let page = form(&ctx, Some(&proof.next), Some(&fault.0.detail));
            return Ok((status, Html(page.into_string())).into_response());
        }
    };
    // Signing in counts as an act of the human (D12).
    humans::act(&ctx, principal).await?;
    let now = ctx.handle.now();
    let expires_at = now.plus(SESSION_MS).min(until);
    let value = ctx.handle.signer().sign_session(principal.agent(), &token, expires_at);
    let next = within(Some(&proof.next)).to_owned();
    if let Some(passkeys) = &ctx.passkeys {
        match &from {
            Some(from) => passkeys.began_from(from, credential(&value)),
            None => passkeys.began(credential(&value), now),
        }
    }
    let cookie = set_cookie_for(&ctx, &headers, &value, expires_at.since(now));
    Ok((StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, next)]).into_response())
}

/// What a sign-in proves.
struct Proven {
    /// The hash of the human's own token.
    token: Credential,
    principal: Principal,
    /// When the session ends at the latest.
    until: Time,
    /// The hash of the cookie of the session from which it was handed over.
    from: Option<Credential>,
}

async fn by_code(ctx: &Context, code: &str) -> Result<Proven, ApiError> {
    // Without scripts, the whole link is in the field.
    let code = code.trim().rsplit('#').next().unwrap_or_default();
    let now = ctx.handle.now();
    // The token may have been replaced since the link was made.
    let holder = |human, token| ctx.handle.proof_of(human).filter(|(current, _)| *current == token);
    let (human, from) = match (ctx.sign_in.spend(code, now), ctx.sign_in.handovers.spend(code, now)) {
        (Some(Some((token, human))), _) => (holder(human, token), None),
        (Some(None), _) => (humans::operator(ctx).await?, None),
        // The session may have ended since.
        (None, Some(from)) if !ctx.handle.signer().has_ended(&from.cookie) => {
            (holder(from.human, from.token), Some(from))
        }
        (None, _) => {
            ctx.handle.metrics().refuse(Code::Unauthenticated);
            let text = "This link was used already or is too old: one of a QR code is valid for 2 minutes, any other for 15. \
                        Make a new one, or sign in with your token";
            return Err(ApiError::new(Code::Unauthenticated, text));
        }
    };
    let nobody = || ApiError::new(Code::Unauthenticated, "No human is registered in this workspace");
    let (token, principal) = human.ok_or_else(nobody)?;
    let until = from.map_or(Time(u64::MAX), |from| from.until);
    Ok(Proven { token, principal, until, from: from.map(|from| from.cookie) })
}

fn by_token(ctx: &Context, token: &str) -> Result<Proven, ApiError> {
    let proof = ctx.handle.known_by(&credential(token));
    if proof == identity::Proof::Unknown {
        ctx.handle.metrics().refuse(Code::Unauthenticated);
        return Err(ApiError::new(Code::Unauthenticated, "Unknown token"));
    }
    let principal = proven(proof).inspect_err(|_| ctx.handle.metrics().refuse(Code::Unauthenticated))?;
    if !principal.is_human() {
        ctx.handle.metrics().refuse(Code::Forbidden);
        let text = "This is an agent's token. The console is for humans, who decide about what agents do: sign in with a \
                    human's token";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    Ok(Proven { token: credential(token), principal, until: Time(u64::MAX), from: None })
}

/// Returns a path of this server; never one that leads to another site.
pub(super) fn within(next: Option<&str>) -> &str {
    let ours = |path: &&str| {
        path.starts_with('/') && !path.starts_with("//") && !path.contains(|c: char| c == '\\' || c.is_control())
    };
    next.filter(ours).unwrap_or("/")
}

/// `POST /attend`: a human opened a page. The page's script sends it at most once an hour (D12).
pub(super) async fn attend(State(ctx): State<Context>, form: Form<Nothing>) -> Result<StatusCode, ErrorPage> {
    let Nothing {} = form.fields;
    humans::act(&ctx, form.viewer.caller.principal).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// `POST /sign-out`: ends the session, here and wherever else its cookie may be.
pub(super) async fn sign_out(State(ctx): State<Context>, headers: HeaderMap, form: Form<Nothing>) -> Response {
    let Nothing {} = form.fields;
    if let Some(value) = cookie(&headers) {
        let (handle, value) = (ctx.handle.clone(), value.to_owned());
        // Writes and syncs a file, so it must not run on a thread that serves other calls.
        let written = off_thread(move || {
            let gone = |error: std::io::Error| ReadError::Unavailable { reason: error.to_string() };
            handle.signer().end_session(&value, handle.now()).map_err(gone)
        });
        if let Err(error) = written.await {
            tracing::warn!(%error, "a session ended, which a restart would not know");
        }
    }
    let cookie = [(SET_COOKIE, set_cookie(&ctx, &headers, ""))];
    if form.viewer.partial {
        return (cookie, [("hx-redirect", "/sign-in")]).into_response();
    }
    (StatusCode::SEE_OTHER, cookie, [(LOCATION, "/sign-in")]).into_response()
}

#[cfg(test)]
mod tests {
    use super::within;

    #[test]
    fn signing_in_leads_nowhere_else() {
        assert_eq!(within(Some("/conversations?from=kilo")), "/conversations?from=kilo");
        for elsewhere in [
            None,
            Some(""),
            Some("//evil.example"),
            Some("https://evil.example"),
            Some("/\\evil.example"),
            Some("/\t/evil.example"),
        ] {
            assert_eq!(within(elsewhere), "/", "{elsewhere:?}");
        }
    }
}
