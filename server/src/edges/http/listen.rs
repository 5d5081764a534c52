//! Accepts connections: how many, how long they may take for a header, and how they end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::app;
use crate::calls::{Context, ended};
use crate::edges::mcp::AnonymousMcp;

/// The most open connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 16_384;
/// The time limit for sending a header, and for idling between requests.
const HEADER_TIME_MAX: Duration = Duration::from_secs(75);
/// The pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the server shuts down, then lets every connection finish its request.
pub(crate) async fn serve(listener: TcpListener, ctx: Context, anonymous_mcp: Option<AnonymousMcp>) -> io::Result<()> {
    let mut stopping = ctx.stopping.clone();
    let service = TowerToHyperService::new(app(ctx, anonymous_mcp));
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let graceful = GracefulShutdown::new();
    let mut connections = JoinSet::new();
    loop {
        // Before accepting: connections beyond the limit wait in the system's backlog.
        let permit = Arc::clone(&room).acquire_owned().await.map_err(io::Error::other)?;
        let stream = tokio::select! {
            () = ended(&mut stopping) => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection without nodelay");
        }
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIME_MAX)
            .serve_connection(TokioIo::new(stream), service.clone());
        let connection = graceful.watch(connection);
        connections.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
    while connections.join_next().await.is_some() {}
    Ok(())
}
