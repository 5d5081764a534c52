//! MCP: the tools through which a model talks to others. Streamable HTTP at `/mcp`, stateless; stdio as a
//! client of a running server.

mod args;
mod stdio;
mod tools;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use super::http::{REQUEST_BYTES_MAX, caller};
use crate::calls::Context;

pub use self::stdio::{Remote, serve_pipe, serve_stdio};
pub use self::tools::INSTRUCTIONS;

/// Serves the tools, in process or through a running server.
#[derive(Clone)]
struct Tools(Backend);

#[derive(Clone)]
enum Backend {
    /// The broker of this process; who calls stands in the request's headers.
    Local(Box<Context>),
    /// A running server; who calls is fixed.
    Remote(Arc<Remote>),
}

impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("lastword", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools::all()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools::all().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !tools::exists(&request.name) {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        }
        let arguments = request.arguments.unwrap_or_default();
        let result = match &self.0 {
            Backend::Local(ctx) => local(ctx, &request.name, arguments, &context).await,
            Backend::Remote(remote) => tokio::select! {
                result = remote.call(&request.name, arguments) => result?,
                () = context.ct.cancelled() => CallToolResult::success(Vec::new()),
            },
        };
        Ok(result.into())
    }
}

async fn local(
    ctx: &Context,
    name: &str,
    arguments: rmcp::model::JsonObject,
    context: &RequestContext<RoleServer>,
) -> CallToolResult {
    let empty = axum::http::HeaderMap::new();
    let parts = context.extensions.get::<axum::http::request::Parts>();
    let result = match caller(ctx, parts.map_or(&empty, |parts| &parts.headers)) {
        Ok(caller) => tools::call(ctx, caller, name, arguments).await,
        Err(fault) => Err(fault),
    };
    match result {
        Ok(value) => CallToolResult::structured(value),
        Err(fault) => CallToolResult::structured_error(serde_json::to_value(&fault.0).unwrap_or_default()),
    }
}

/// The route of `/mcp`. Hosts and origins are checked before it, as for every other route.
pub(crate) fn route(ctx: &Context) -> MethodRouter<Context> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_max_request_body_bytes(REQUEST_BYTES_MAX);
    let tools = Tools(Backend::Local(Box::new(ctx.clone())));
    let service =
        StreamableHttpService::new(move || Ok(tools.clone()), Arc::new(NeverSessionManager::default()), config);
    let ctx = ctx.clone();
    any(move |request: Request| enter(ctx, service, request))
}

/// Nobody reaches the protocol without a token.
async fn enter(ctx: Context, service: StreamableHttpService<Tools, NeverSessionManager>, request: Request) -> Response {
    match caller(&ctx, request.headers()) {
        Ok(_) => service.handle(request).await.map(Body::new),
        Err(fault) => fault.into_response(),
    }
}
