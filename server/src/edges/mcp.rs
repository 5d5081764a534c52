//! MCP: the tools through which a model talks to others. Streamable HTTP at `/mcp`, stateless; stdio as a
//! client of a running server.

mod args;
mod fixtures;
mod sessions;
mod stdio;
mod tools;
mod wire;

use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any};
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};

use self::fixtures::Fixtures;
use self::wire::Wire;
use super::http::caller;
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
    let door = Door::new(ctx.clone());
    any(move |request: Request| async move { door.enter(request).await })
}

/// Who reaches which surface.
#[derive(Clone)]
struct Door {
    ctx: Context,
    tools: Wire<Tools>,
    fixtures: Option<Wire<Fixtures>>,
}

impl Door {
    fn new(ctx: Context) -> Self {
        let stopping = ctx.stopping.clone();
        let tools = Tools(Backend::Local(Box::new(ctx.clone())));
        let tools = Wire::new(Arc::default(), stopping.clone(), move || tools.clone());
        let fixtures = ctx.conformance_fixtures.then(|| {
            let fixtures = Fixtures { stopping: stopping.clone() };
            Wire::new(Arc::default(), stopping, move || fixtures.clone())
        });
        Self { ctx, tools, fixtures }
    }

    /// Nobody reaches the tools without a token; without any, one reaches the fixtures, where there are some.
    async fn enter(&self, request: Request) -> Response {
        if let Some(fixtures) = &self.fixtures
            && !request.headers().contains_key(AUTHORIZATION)
        {
            return fixtures.handle(None, request).await;
        }
        match caller(&self.ctx, request.headers()) {
            Ok(caller) => self.tools.handle(Some(caller.principal.agent()), request).await,
            Err(fault) => fault.into_response(),
        }
    }
}
