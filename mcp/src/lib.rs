//! MCP: how a model calls the broker. Tools, resources and a prompt, over streamable HTTP at `/mcp`, with or without a
//! handshake, and over stdio as a client of a running server.

mod args;
mod brief;
mod catalog;
mod closed;
mod door;
mod elicit;
mod exact;
mod human;
mod inbox;
mod listing;
mod permission;
mod permission_prompt;
mod prompts;
#[cfg(feature = "properties")]
pub mod properties;
mod remote;
mod resources;
mod sessions;
mod stdio;
mod tools;
mod trace;
mod wire;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::HeaderMap;
use axum::http::request::Parts;
use futures_util::future::BoxFuture;
use lastword_broker::ReadLane;
use lastword_server::calls::Caller;
use lastword_server::edges::http::{AnswerPermit, Peer, caller};
use lastword_server::{ApiError, Context};
use lastword_wire::Scope;
use rmcp::handler::server::ServerHandler;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelledNotificationParam, ErrorData, Extensions,
    GetPromptRequestParams, GetPromptResponse, Implementation, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams, ReadResourceResponse,
    ServerCapabilities, ServerConfig, SubscribeRequestParams, SubscriptionFilter, Tool, UnsubscribeRequestParams,
};
use rmcp::service::{NotificationContext, RequestContext, RoleServer, SubscriptionContext};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use self::brief::Output;
use self::catalog::Form;
use self::inbox::Listener;
use self::sessions::Sessions;
use self::trace::Trace;

pub use self::catalog::INSTRUCTIONS;
pub use self::door::{mount, mount_with_anonymous};
pub use self::listing::Selection;
pub use self::prompts::PRIMER;
pub use self::remote::Remote;
pub use self::stdio::{serve_nothing, serve_pipe, serve_stdio};

/// The MCP surface for agents, in the server's process or as a client of a running server.
#[derive(Clone)]
struct Surface {
    backend: Backend,
    offer: Offer,
    /// The inbox watch of a client with a session; it ends with the session.
    watching: Arc<Mutex<JoinSet<()>>>,
    /// The watch of the list of tools for a client with a session.
    listing: Arc<Mutex<JoinSet<()>>>,
}

/// The tools that a surface offers, by the kind of its callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offer {
    /// An agent's: all tools of the protocol.
    Agent,
    /// A human's: tools that read and decide. None sends, because each send of a human is a new grant.
    Human,
}

#[derive(Clone)]
enum Backend {
    /// The broker of this process. Each request's headers authenticate its caller.
    Local(Box<Context>, Arc<Sessions>),
    /// A running server, called with one agent's token.
    Remote(Arc<Remote>),
}

impl Surface {
    fn local(ctx: Context, sessions: Arc<Sessions>, offer: Offer) -> Self {
        Self {
            backend: Backend::Local(Box::new(ctx), sessions),
            offer,
            watching: Arc::default(),
            listing: Arc::default(),
        }
    }

    fn remote(remote: Remote) -> Self {
        let offer = remote.offer();
        Self { backend: Backend::Remote(Arc::new(remote)), offer, watching: Arc::default(), listing: Arc::default() }
    }
}

impl ServerHandler for Surface {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_prompts()
            .enable_resources()
            .enable_resources_subscribe()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("lastword", env!("CARGO_PKG_VERSION")))
            .with_instructions(catalog::instructions(self.offer))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = match &self.backend {
            Backend::Local(ctx, _) => {
                let caller = who(ctx, &context.extensions).map_err(|fault| error_of(&fault))?;
                listing::list(ctx, caller, &selection(&context.extensions)?).await.map_err(|fault| error_of(&fault))?
            }
            Backend::Remote(remote) => remote.tools().await,
        };
        Ok(ListToolsResult::with_all_items(tools))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        catalog::tool(name, self.offer, Form::Full)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let listener = Listener::Session(context.peer.clone());
        if let Ok(watch) = self.watch(Watched::Tools, &context.extensions, listener) {
            replace(&self.listing, watch);
        }
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // An unknown tool is an error of the protocol. A refused call is a result, which the model gets to read.
        if catalog::known(&request.name, self.offer).is_none() {
            return Err(ErrorData::invalid_params(format!("there is no tool {}", request.name), None));
        }
        let trace = Trace::of(&context.meta);
        let span = trace.span(&request.name);
        let call = async {
            match &self.backend {
                Backend::Local(ctx, _) => Ok(call(ctx, request, &trace, &context).await),
                Backend::Remote(remote) => {
                    let arguments = request.arguments.unwrap_or_default();
                    // Handled apart, because this tool has to deny the call even if the server can't be reached.
                    if request.name == permission_prompt::TOOL {
                        return Ok(permission_prompt::remote(remote, arguments, &trace, &context).await.into());
                    }
                    remote.call(&request.name, arguments, &trace).await.map(Into::into)
                }
            }
        };
        let result = tokio::select! {
            result = call.instrument(span) => result?,
            // The client no longer waits. A message that was sent stays sent; a delivery that wasn't handed over stays
            // queued.
            () = self.given_up(&context) => CallToolResult::success(Vec::new()).into(),
        };
        Ok(result)
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Ok(ListResourcesResult::with_all_items(resources::all()))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(ListResourceTemplatesResult::with_all_items(resources::templates()))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let uri = request.uri.as_str();
        match &self.backend {
            Backend::Local(ctx, _) => {
                let caller = who(ctx, &context.extensions).map_err(|fault| error_of(&fault))?;
                caller.may(Some(Scope::Read)).map_err(|fault| error_of(&fault))?;
                let _room = room_to_answer(&context.extensions).await;
                let read = lane(caller).scope(resources::read(ctx, caller, uri)).await;
                let read = read.map_err(|fault| unread(uri, &fault))?;
                read.map(Into::into).ok_or_else(|| resources::unknown(uri))
            }
            Backend::Remote(remote) => remote.read(uri).await.map(Into::into),
        }
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        let wanted = requested.resource_subscriptions.iter().flatten().any(|uri| uri == resources::INBOX);
        let inbox = wanted.then_some(resources::INBOX);
        // Accepts only the part that can be served, so that the client knows what it will hear of.
        let mut accepted = SubscriptionFilter::builder().resource_subscriptions(inbox).build();
        accepted.tools_list_changed = requested.tools_list_changed.filter(|wanted| *wanted);
        Some(accepted)
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        // Of the resources only the inbox changes.
        let inbox = context.accepted().resource_subscriptions.iter().flatten().any(|uri| uri == resources::INBOX);
        let tools = context.accepted().tools_list_changed == Some(true);
        let watch = async |wanted: bool, watched: Watched| {
            if !wanted {
                std::future::pending::<()>().await;
            }
            let listener = Listener::Request(context.sink().clone());
            self.watch(watched, &context.request_context().extensions, listener)?.await;
            Ok(())
        };
        tokio::select! {
            ended = watch(inbox, Watched::Inbox) => ended,
            ended = watch(tools, Watched::Tools) => ended,
            () = self.ending() => Ok(()),
            () = context.cancelled() => Ok(()),
        }
    }

    async fn subscribe(
        &self,
        request: SubscribeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        if request.uri != resources::INBOX {
            let text = format!("only {} can be subscribed to", resources::INBOX);
            return Err(ErrorData::invalid_params(text, None));
        }
        let listener = Listener::Session(context.peer.clone());
        replace(&self.watching, self.watch(Watched::Inbox, &context.extensions, listener)?);
        Ok(())
    }

    async fn unsubscribe(
        &self,
        _request: UnsubscribeRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // Only the inbox can be subscribed to, so the URI doesn't matter.
        lock(&self.watching).abort_all();
        Ok(())
    }

    async fn on_cancelled(&self, notification: CancelledNotificationParam, context: NotificationContext<RoleServer>) {
        if let (Backend::Local(_, sessions), Some(call)) = (&self.backend, &notification.request_id)
            && let Some(session) = session(&context.extensions)
        {
            // The cancellation is a separate request; the session's table connects it to the call.
            sessions.take_back(session, call);
        }
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Ok(ListPromptsResult::with_all_items(prompts::all(self.offer)))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        prompts::get(&request.name).map(Into::into)
    }
}

/// What a client watches.
#[derive(Clone, Copy)]
enum Watched {
    Inbox,
    /// The list of its tools.
    Tools,
}

impl Surface {
    /// Returns the watch that tells a client of changes.
    fn watch(
        &self,
        watched: Watched,
        extensions: &Extensions,
        listener: Listener,
    ) -> Result<BoxFuture<'static, ()>, ErrorData> {
        let (ctx, sessions) = match &self.backend {
            Backend::Local(ctx, sessions) => (ctx.clone(), sessions),
            Backend::Remote(remote) => {
                let remote = Arc::clone(remote);
                return Ok(Box::pin(async move {
                    match watched {
                        Watched::Inbox => remote.watch(&listener).await,
                        Watched::Tools => remote.watch_tools(&listener).await,
                    }
                }));
            }
        };
        let caller = who(&ctx, extensions).map_err(|fault| error_of(&fault))?;
        let selection = match watched {
            Watched::Inbox => caller.may(Some(Scope::Read)).map(|()| None).map_err(|fault| error_of(&fault))?,
            Watched::Tools => Some(selection(extensions)?),
        };
        let streams = match &listener {
            Listener::Request(_) => None,
            Listener::Session(_) => {
                // Without a session there is no stream on which a change could be reported.
                let sessionless = || ErrorData::invalid_request("a subscription needs a session: initialize", None);
                Some(session(extensions).and_then(|id| sessions.streams(id)).ok_or_else(sessionless)?)
            }
        };
        Ok(Box::pin(async move {
            let watch = || async {
                match &selection {
                    None => inbox::watch(&ctx, caller, &listener).await,
                    Some(selection) => listing::watch(&ctx, caller, selection, &listener).await,
                }
            };
            match streams {
                Some(streams) => while_streaming(streams, watch).await,
                None => watch().await,
            }
        }))
    }

    /// Waits until the client disconnects or cancels its call.
    async fn given_up(&self, context: &RequestContext<RoleServer>) {
        let call = match &self.backend {
            Backend::Local(_, sessions) => {
                session(&context.extensions).and_then(|session| sessions.call(session, &context.id))
            }
            Backend::Remote(_) => None,
        };
        match call {
            Some(call) => tokio::select! {
                () = call.taken_back() => {}
                () = context.ct.cancelled() => {}
            },
            // Outside a session, a client cancels a call by disconnecting.
            None => context.ct.cancelled().await,
        }
    }

    /// Waits until the server of this process shuts down.
    async fn ending(&self) {
        match &self.backend {
            Backend::Local(ctx, _) => lastword_server::ended(&mut ctx.stopping.clone()).await,
            Backend::Remote(_) => std::future::pending().await,
        }
    }
}

fn lock(tasks: &Mutex<JoinSet<()>>) -> MutexGuard<'_, JoinSet<()>> {
    tasks.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a watch in place of the one before: two would report everything twice.
fn replace(tasks: &Mutex<JoinSet<()>>, watch: BoxFuture<'static, ()>) {
    let mut tasks = lock(tasks);
    tasks.abort_all();
    tasks.spawn(watch);
}

/// Authenticates the caller. Each request proves its token, also within a session.
fn who(ctx: &Context, extensions: &Extensions) -> Result<Caller, ApiError> {
    let empty = HeaderMap::new();
    // Without headers there is no token, and the caller is refused.
    caller(ctx, headers(extensions).unwrap_or(&empty))
}

/// Waits for room to build a long answer to the caller.
async fn room_to_answer(extensions: &Extensions) -> Option<AnswerPermit> {
    let peer = extensions.get::<Parts>()?.extensions.get::<Peer>()?.clone();
    peer.answer().await
}

/// Returns the lane of the caller's reads: a session's calls run on tasks of their own.
const fn lane(caller: Caller) -> ReadLane {
    ReadLane::of(caller.principal.is_human())
}

/// Returns the tools that a client asks for in the address.
fn selection(extensions: &Extensions) -> Result<Selection, ErrorData> {
    let query = extensions.get::<Parts>().and_then(|parts| parts.uri.query());
    Selection::of_query(query).map_err(|problem| ErrorData::invalid_params(problem, None))
}

fn headers(extensions: &Extensions) -> Option<&HeaderMap> {
    extensions.get::<Parts>().map(|parts| &parts.headers)
}

/// Returns the session that a request belongs to.
fn session(extensions: &Extensions) -> Option<&str> {
    wire::session(headers(extensions)?)
}

async fn call(
    ctx: &Context,
    request: CallToolRequestParams,
    trace: &Trace,
    context: &RequestContext<RoleServer>,
) -> CallToolResponse {
    let name = request.name.clone();
    // Authenticates its caller itself: it has to deny rather than fail.
    if name == permission_prompt::TOOL {
        return permission_prompt::local(ctx, request.arguments.unwrap_or_default(), context).await.into();
    }
    let result = async {
        let caller = who(ctx, &context.extensions)?;
        caller.may(Some(catalog::scope(&name)))?;
        let human = elicit::human(ctx, caller, &name, context).await?;
        if human.is_some() || elicit::goes_on(&request) {
            return elicit::escalate(ctx, caller, human, request).await;
        }
        let arguments = request.arguments.unwrap_or_default();
        let _room = if name == "get_conversation" { room_to_answer(&context.extensions).await } else { None };
        let called = lane(caller).scope(tools::call(ctx, caller, &name, arguments, trace)).await;
        Ok(called?.result().into())
    };
    result.await.unwrap_or_else(|mut fault: ApiError| {
        tracing::debug!(tool = %name, code = %fault.0.code, "a call was refused");
        if let Some(lift) = &fault.0.lift {
            // A model reads only the hint; the commands in `lift` are for a human.
            let lifted = format!(" A human can lift this: ask with escalate_to_user. {}", lift.text);
            fault.0.hint.push_str(&lifted);
        }
        Output::refusal(serde_json::to_value(&fault.0).unwrap_or_default()).into()
    })
}

/// Watches for a client with a session, while it has a stream open that can report changes. Without a stream the client
/// would hear nothing, and the agent must not count as connected.
async fn while_streaming<W: Future<Output = ()>>(mut streams: watch::Receiver<usize>, watch: impl Fn() -> W) {
    loop {
        if streams.wait_for(|open| *open > 0).await.is_err() {
            return;
        }
        let mut closing = streams.clone();
        tokio::select! {
            () = watch() => return,
            closed = closing.wait_for(|open| *open == 0) => if closed.is_err() { return },
        }
    }
}

/// Converts a refusal outside of a tool call, or a fault of the server.
fn error_of(fault: &ApiError) -> ErrorData {
    let problem = serde_json::to_value(&fault.0).ok();
    let detail = fault.0.detail.clone();
    if fault.0.status >= 500 {
        ErrorData::internal_error(detail, problem)
    } else {
        ErrorData::invalid_params(detail, problem)
    }
}

/// Converts a refusal of a read. A resource that the caller may not see looks like an unknown one.
fn unread(uri: &str, fault: &ApiError) -> ErrorData {
    match fault.0.status {
        404 => resources::unknown(uri),
        _ => error_of(fault),
    }
}
