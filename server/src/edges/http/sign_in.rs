//! The calls of `/v1/sign-in`, which need no token: by them the command line gets one.

use axum::Json as Out;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use lastword_wire::{IdToken, SignInProvider, SignedIn};

use super::extract::{attempt, object, parse, succeeded};
use crate::calls::{Context, sign_in};
use crate::error::ApiError;

pub(super) async fn show(State(ctx): State<Context>) -> Result<Out<SignInProvider>, ApiError> {
    sign_in::provider(&ctx).map(Out)
}

pub(super) async fn sign_in(
    State(ctx): State<Context>,
    request: Request,
) -> Result<(StatusCode, Out<SignedIn>), ApiError> {
    sign_in::provider(&ctx)?;
    let (parts, body) = request.into_parts();
    let extensions = parts.extensions.clone();
    // Before the body is read and its signature verified, and taken back if the human is signed in.
    attempt(&ctx, &extensions)?;
    let IdToken { id_token } = parse(&object(&parts, body).await?)?;
    let signed_in =
        sign_in::by_id_token(&ctx, &id_token).await.inspect_err(|fault| ctx.handle.metrics().refuse(fault.0.code))?;
    succeeded(&ctx, &extensions);
    Ok((StatusCode::CREATED, Out(signed_in)))
}
