//! MCP over stdio: speaks the protocol here and forwards each request to a running server.

use futures_util::future::BoxFuture;
use rmcp::service::DynService;
use rmcp::{RoleServer, ServiceExt as _, transport};
use tokio::io::{AsyncRead, AsyncWrite};

use super::closed::Closed;
use super::{Remote, Surface, exact};

/// The most bytes between the client and the service.
const PIPE_BYTES: usize = 64 << 10;

/// Serves MCP on stdin and stdout until the client closes them.
///
/// # Errors
/// The connection broke; the text says how.
pub fn serve_stdio(remote: Remote) -> BoxFuture<'static, Result<(), String>> {
    let (read, write) = transport::stdio();
    Box::pin(serve_pipe(remote, read, write))
}

/// Serves MCP on stdin and stdout without any tool, for a client that may not act; its instructions are the reason.
///
/// # Errors
/// The connection broke; the text says how.
pub fn serve_nothing(reason: String) -> BoxFuture<'static, Result<(), String>> {
    let (read, write) = transport::stdio();
    Box::pin(serve_service(Closed::new(reason).into_dyn(), read, write))
}

/// Serves MCP on any pair of streams.
///
/// # Errors
/// The connection broke; the text says how.
pub async fn serve_pipe<R, W>(remote: Remote, read: R, write: W) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    serve_service(Surface::remote(remote).into_dyn(), read, write).await
}

/// Serves a service, whose type is erased: the library's code for it is compiled once.
async fn serve_service<R, W>(service: Box<dyn DynService<RoleServer>>, read: R, write: W) -> Result<(), String>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (passed, pipe) = tokio::io::duplex(PIPE_BYTES);
    let mut pass_on = std::pin::pin!(exact::pass_on(read, passed));
    let mut serve = std::pin::pin!(async {
        let running = service.serve((pipe, write)).await.map_err(|error| error.to_string())?;
        running.waiting().await.map(|_| ()).map_err(|error| error.to_string())
    });
    tokio::select! {
        served = &mut serve => served,
        // The client closed its end, which ends the service.
        _closed = &mut pass_on => serve.await,
    }
}
