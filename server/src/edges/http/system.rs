//! Health, metrics, and the machine-readable descriptions of the API.

use std::borrow::Cow;

use axum::Json as Out;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use lastword_broker::Unserved;
use lastword_broker::metrics::TextFormat;
use lastword_wire::ReadyView;

use crate::base_path::url;
use crate::calls::Context;
use crate::calls::read_model::behind;
use crate::error::ApiError;
use crate::views;

/// Reports that the process is alive.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Reports whether the broker accepts inputs, regardless of its clock.
pub(super) async fn readyz(State(ctx): State<Context>) -> Response {
    match ctx.handle.query(|live| live.state.seq.0).await {
        Ok(_) if ctx.handle.disk().is_gone() => ApiError::from(Unserved::LogGone).into_response(),
        Ok(_) if !*ctx.stopping.borrow() => {
            let (clock, space) = (ctx.handle.clock(), ctx.handle.disk().space());
            let (read_model_behind, scrub) = (behind(&ctx), ctx.scrub.found());
            let stores_lagging = ctx.nodes.as_ref().map_or(0, |nodes| nodes.nodes().stores.len());
            let clock = views::clock(clock);
            Out(ReadyView { ready: true, clock, disk: space, read_model_behind, scrub, stores_lagging }).into_response()
        }
        Ok(_) => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n").into_response(),
        Err(unserved) => ApiError::from(unserved).into_response(),
    }
}

/// Shows the metrics, as OpenMetrics to whoever accepts it.
pub(super) async fn metrics(State(ctx): State<Context>, headers: HeaderMap) -> Response {
    let accepts = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let openmetrics = accepts.into_iter().any(|value| value.contains("application/openmetrics-text"));
    let format = if openmetrics { TextFormat::OpenMetrics } else { TextFormat::Prometheus };
    ([(CONTENT_TYPE, format.media_type()), (VARY, "accept")], format.text(&ctx.metrics())).into_response()
}

/// What the description of sessions says of the server.
const SERVER: &str = r#""protocol":"ws""#;

/// Returns a description, completed by the path under which a proxy serves the server: what is replaced, and by what.
fn described(text: &'static str, by: impl FnOnce(&str) -> (&'static str, String)) -> Cow<'static, str> {
    let path = url("");
    if path.is_empty() {
        return text.into();
    }
    let (member, completed) = by(&path);
    text.replacen(member, &completed, 1).into()
}

pub(super) async fn openapi() -> Response {
    (
        [(CONTENT_TYPE, "application/json")],
        described(super::OPENAPI, |path| ("{", format!(r#"{{"servers":[{{"url":"{path}"}}],"#))),
    )
        .into_response()
}

pub(super) async fn asyncapi() -> Response {
    (
        [(CONTENT_TYPE, "application/json")],
        described(super::ASYNCAPI, |path| (SERVER, format!(r#"{SERVER},"pathname":"{path}""#))),
    )
        .into_response()
}

pub(super) async fn message_schema() -> Response {
    ([(CONTENT_TYPE, "application/schema+json")], super::MESSAGE_SCHEMA).into_response()
}
