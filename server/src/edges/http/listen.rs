//! Accepts connections, and ends those that hold something for too long.

use std::io;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::app;
use super::connections::{Connections, Peer};
use super::stall::WriteTimeout;
use crate::calls::{Context, ended};
use crate::edges::mcp::AnonymousMcp;

/// The time limit for sending a header, and for idling between requests.
const HEADER_TIME_MAX: Duration = Duration::from_secs(75);
/// The time in which a connection has to carry a valid token or session.
const PROOF_TIME_MAX: Duration = Duration::from_secs(15);
/// The time that an unproven connection gets to end its request once that time is over.
const PROOF_GRACE: Duration = Duration::from_secs(5);
/// The longest header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until the server shuts down, then lets every connection finish its request.
pub(crate) async fn serve(listener: TcpListener, ctx: Context, anonymous_mcp: Option<AnonymousMcp>) -> io::Result<()> {
    let mut stopping = ctx.stopping.clone();
    let routes = TowerToHyperService::new(app(ctx, anonymous_mcp));
    let all = Connections::new();
    let mut connections = JoinSet::new();
    loop {
        let stream = tokio::select! {
            () = ended(&mut stopping) => break,
            Some(_ended) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection without nodelay");
        }
        connections.spawn(connection(stream, routes.clone(), all.enter(), stopping.clone()));
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    Ok(())
}

/// Serves one connection until it ends, has to make room, or doesn't prove itself in time.
async fn connection(
    stream: TcpStream,
    routes: TowerToHyperService<Router>,
    peer: Peer,
    mut stopping: watch::Receiver<bool>,
) {
    let io = WriteTimeout::new(TokioIo::new(stream));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(io, OfPeer { routes, peer: peer.clone() });
    let mut connection = pin!(connection);
    let mut proof = pin!(sleep(PROOF_TIME_MAX));
    let (mut ends, mut awaits_proof) = (false, true);
    loop {
        tokio::select! {
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = peer.evicted() => return,
            () = &mut proof, if awaits_proof => {
                if peer.is_proven() {
                    awaits_proof = false;
                } else if ends {
                    return;
                } else {
                    connection.as_mut().graceful_shutdown();
                    proof.as_mut().reset(Instant::now() + PROOF_GRACE);
                    ends = true;
                }
            }
            () = ended(&mut stopping), if !ends => {
                connection.as_mut().graceful_shutdown();
                ends = true;
            }
        }
    }
}

/// The routes, which learn the connection of each request.
struct OfPeer {
    routes: TowerToHyperService<Router>,
    peer: Peer,
}

impl Service<Request<Incoming>> for OfPeer {
    type Response = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Response;
    type Error = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Error;
    type Future = <TowerToHyperService<Router> as Service<Request<Incoming>>>::Future;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(self.peer.clone());
        self.routes.call(request)
    }
}
