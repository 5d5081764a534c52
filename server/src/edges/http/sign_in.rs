//! The calls under `/v1/sign-in`: by them the command line gets a token, and a link to the console.

use axum::Json as Out;
use axum::body::Body;
use axum::extract::{FromRequest as _, Request, State};
use axum::http::StatusCode;
use lastword_wire::{IdToken, SignInLink, SignInProvider, SignedIn};

use super::extract::{Json, attempt, succeeded};
use crate::calls::{Caller, Context, sign_in, tokens};
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
    let Json(IdToken { id_token }) = Json::from_request(Request::<Body>::from_parts(parts, body), &ctx).await?;
    let signed_in =
        sign_in::by_id_token(&ctx, &id_token).await.inspect_err(|fault| ctx.handle.metrics().refuse(fault.0.code))?;
    succeeded(&ctx, &extensions);
    Ok((StatusCode::CREATED, Out(signed_in)))
}

pub(super) async fn link(
    State(ctx): State<Context>,
    caller: Caller,
) -> Result<(StatusCode, Out<SignInLink>), ApiError> {
    tokens::link(&ctx, caller).map(|link| (StatusCode::CREATED, Out(link)))
}
