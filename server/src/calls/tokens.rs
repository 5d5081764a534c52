//! Narrowed tokens: a caller makes them of its own, and a human ends them.

use lastword_proto::wire::{FieldError, NarrowedToken, NewToken, rfc3339};
use lastword_proto::{Code, Refusal};

use super::{Caller, Context};
use crate::broker::{Live, off_thread};
use crate::error::ApiError;
use crate::identity::Scopes;

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
    let scopes = Scopes::of(&new.scopes);
    if !scopes.within(caller.scopes) {
        let text = "A narrowed token makes no token with more scopes than its own";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    let agent = caller.principal.agent();
    let named = move |live: &Live<'_>| live.state.agent(agent).and_then(|owner| owner.name.clone());
    let name = ctx.handle.query(named).await?;
    let (token, _) = ctx.handle.proof_of(agent).ok_or_else(|| ApiError::from(Refusal::new(Code::Unauthenticated)))?;
    if caller.credential != token {
        // It ends with the overlap; what it made would not.
        let text = "This token was replaced and ends soon: make a narrowed token with the new one";
        return Err(ApiError::new(Code::Forbidden, text));
    }
    let wanted = ctx.handle.now().plus(new.expires_in_ms);
    let until = caller.until.map_or(wanted, |own| wanted.min(own));
    Ok(NarrowedToken {
        name: name.map(|name| name.as_str().to_owned()).unwrap_or_default(),
        scopes: scopes.list(),
        token: ctx.handle.signer().sign_narrowed(agent, &token, scopes, until),
        expires_at: rfc3339(until),
    })
}

/// Ends the signed token of a human that makes this call; `text` is that token.
pub(crate) async fn end(ctx: &Context, caller: Caller, text: String) -> Result<(), ApiError> {
    let Some(until) = caller.until else {
        return Err(ApiError::pointless(&FieldError::new(
            "Authorization",
            "has a token of the log: a human with the role owner replaces it with `lastword agent token NAME`",
        )));
    };
    // Each ended token is a line of a file, which no agent may fill.
    caller.human()?;
    let handle = ctx.handle.clone();
    let ended = off_thread(move || Ok(handle.signer().end(&text, until, handle.now()))).await?;
    ended.map_err(|error| ApiError::internal(&error.to_string()))
}
