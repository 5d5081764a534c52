//! Narrowed tokens: a caller makes them of its own, and a human ends them.

use lastword_broker::identity::{Scopes, credential, is_of_sign_in};
use lastword_broker::{Live, off_thread};
use lastword_facts::fact::Credential;
use lastword_facts::ids::AgentId;
use lastword_facts::{Code, Refusal};
use lastword_wire::{AgentToken, FieldError, NarrowedToken, NewToken, SignInLink, rfc3339};

use super::agents::find;
use super::{Caller, Context};
use crate::error::ApiError;

/// The longest time for which a narrowed token may be valid, in ms: 366 days.
pub(crate) const VALID_MS_MAX: u64 = 366 * 24 * 60 * 60 * 1000;

/// Makes a narrowed token for the caller.
pub(crate) async fn narrow(ctx: &Context, caller: Caller, new: NewToken) -> Result<NarrowedToken, ApiError> {
    if new.scopes.is_empty() {
        return Err(FieldError::new("scopes", "has to name what the token may do").into());
    }
    if !(1..=VALID_MS_MAX).contains(&new.expires_in_ms) {
        return Err(FieldError::new("expires_in_ms", format!("has to be between 1 and {VALID_MS_MAX}")).into());
    }
    if caller.until.is_some() {
        // What it made would outlive its end.
        let text =
            "A narrowed token, or one of a sign-in, makes no other: use the token of `lastword agent token NAME`";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    let scopes = Scopes::of(&new.scopes);
    let agent = caller.principal.agent();
    let named = move |live: &Live<'_>| live.state.agent(agent).and_then(|owner| owner.name.clone());
    let name = ctx.handle.query(named).await?;
    let (token, _) = ctx.handle.proof_of(agent).ok_or_else(|| ApiError::from(Refusal::new(Code::Unauthenticated)))?;
    if caller.credential != token {
        // It ends with the overlap; what it made would not.
        let text = "This token was replaced and ends soon: make a narrowed token with the new one";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    let until = ctx.handle.now().plus(new.expires_in_ms);
    Ok(NarrowedToken {
        name: name.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        scopes: scopes.list(),
        token: ctx.handle.signer().sign_narrowed(agent, &token, scopes, until),
        expires_at: rfc3339(until),
    })
}

/// Makes a link that signs the human who calls in to the console, once.
pub(crate) fn link(ctx: &Context, caller: Caller) -> Result<SignInLink, ApiError> {
    caller.human()?;
    if caller.until.is_some() {
        // A session may do all that its human may.
        let text = "A narrowed token, or one of a sign-in, makes no link to the console: sign in there";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    linked(ctx, caller.credential, caller.principal.agent())
}

/// Makes a link that signs a human in to the console, once, for the owner who just made the human's token.
///
/// # Errors
/// The caller isn't human, or the name is unknown.
pub async fn invite(ctx: &Context, caller: Caller, made: &AgentToken) -> Result<SignInLink, ApiError> {
    caller.human()?;
    linked(ctx, credential(&made.token), find(ctx, &made.name).await?)
}

fn linked(ctx: &Context, credential: Credential, human: AgentId) -> Result<SignInLink, ApiError> {
    let minted = ctx.sign_in.mint(ctx.handle.now(), Some((credential, human)));
    let (code, until) = minted.map_err(|error| ApiError::internal(&format!("no randomness for a link: {error}")))?;
    Ok(SignInLink { path: format!("/sign-in#{}", code.reveal()), expires_at: rfc3339(until) })
}

/// Ends the token of a sign-in that makes this call; `text` is that token.
pub(crate) async fn end(ctx: &Context, caller: Caller, text: String) -> Result<(), ApiError> {
    // Each ended token is a line of a file, and anybody can make narrowed tokens as fast as the server answers.
    let Some(until) = caller.until.filter(|_| is_of_sign_in(&text)) else {
        return Err(ApiError::pointless(&FieldError::new(
            "Authorization",
            "has no token of a sign-in. A narrowed one ends when it expires or its owner's token is replaced; a human with \
             the role owner replaces a token with `lastword agent token NAME`",
        )));
    };
    let handle = ctx.handle.clone();
    let ended = off_thread(move || Ok(handle.signer().end(&text, until, handle.now()))).await?;
    ended.map_err(|error| ApiError::internal(&error.to_string()))
}
