//! Accepts connections, and ends those that hold something for too long.

use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt as _;
use hyper::Request;
use hyper::body::Incoming;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use lastword_facts::Code;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::connections::{Connections, Peer};
use super::stall::WriteTimeout;
use crate::calls::ended;
use crate::error::ApiError;
use crate::tls::Certificate;

/// The time limit for sending a header, and for idling between requests.
const HEADER_TIME_MAX: Duration = Duration::from_secs(75);
/// The time in which a connection has to carry a valid token or session, from when it was accepted: with TLS, the
/// handshake is part of it.
const PROOF_TIME_MAX: Duration = Duration::from_secs(15);
/// The time that an unproven connection gets to end its request once that time is over.
const PROOF_GRACE: Duration = Duration::from_secs(5);
/// The longest header.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// The first byte of every TLS handshake.
const HANDSHAKE: u8 = 0x16;
/// The most bytes of a request without TLS that are read before the connection ends.
const PLAIN_BYTES_MAX: u64 = 64 << 10;

/// Serves `routes` until `stopping` becomes true, gives idle connections the time `leaving` for one more request, then lets
/// every connection finish its request.
///
/// # Errors
/// The system refuses to listen further.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    certificate: Option<Arc<Certificate>>,
    mut stopping: watch::Receiver<bool>,
    leaving: Duration,
) -> io::Result<()> {
    let routes = TowerToHyperService::new(routes);
    let (all, ending) = (Connections::new(), stopping.clone());
    let mut connections = JoinSet::new();
    if let Some(certificate) = &certificate {
        connections.spawn(Arc::clone(certificate).follow(stopping.clone()));
    }
    let accept = |(stream, address): (TcpStream, IpAddr), connections: &mut JoinSet<()>| {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection without nodelay");
        }
        let conditions = Conditions { peer: all.enter(address), proof_by: Instant::now() + PROOF_TIME_MAX, leaving };
        match &certificate {
            None => {
                let io = TokioIo::new(stream);
                connections.spawn(connection(WriteTimeout::new(io), routes.clone(), conditions, ending.clone()))
            }
            // Not here: a handshake takes as long as the peer likes.
            Some(certificate) => {
                let certificate = Arc::clone(certificate);
                connections.spawn(secured(stream, certificate, routes.clone(), conditions, ending.clone()))
            }
        };
    };
    loop {
        tokio::select! {
            () = ended(&mut stopping) => break,
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => accept((stream, peer.ip()), &mut connections),
                Err(error) => {
                    tracing::warn!(%error, "a connection was not accepted");
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    // What waits to be accepted has a request, as likely as not: closing the listener would reset it.
    while let Some(Ok((stream, peer))) = listener.accept().now_or_never() {
        accept((stream, peer.ip()), &mut connections);
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
    all.end().await;
    Ok(())
}

/// A new connection, and until when it has to prove itself.
struct Conditions {
    peer: Peer,
    proof_by: Instant,
    /// How long it may stay idle once the server shuts down.
    leaving: Duration,
}

/// Serves one connection over TLS. The handshake ends like an unproven connection: for a newer one, or when the time to
/// prove itself is over, which no byte renews.
async fn secured(
    stream: TcpStream,
    certificate: Arc<Certificate>,
    routes: TowerToHyperService<Router>,
    conditions: Conditions,
    mut stopping: watch::Receiver<bool>,
) {
    let handshake = async {
        let mut first = [0];
        if stream.peek(&mut first).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if first != [HANDSHAKE] {
            return refuse_plain(stream).await;
        }
        // Below TLS, because its buffer takes what the peer doesn't read.
        let io = TokioIo::new(WriteTimeout::new(TokioIo::new(stream)));
        certificate.acceptor().accept(io).await
    };
    let stream = tokio::select! {
        stream = handshake => stream,
        () = conditions.peer.evicted() => return,
        () = sleep_until(conditions.proof_by) => return,
        () = ended(&mut stopping) => return,
    };
    match stream {
        Ok(stream) => connection(TokioIo::new(stream), routes, conditions, stopping).await,
        Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
    }
}

/// Tells a caller without TLS that the server speaks TLS, and ends the connection.
async fn refuse_plain<T>(mut stream: TcpStream) -> io::Result<T> {
    let refusal = ApiError::new(Code::Malformed, "This server speaks TLS: its address begins with https://")
        .hinted("Make the same call with https:// in the address.");
    let body = serde_json::to_vec(&refusal.0)?;
    let head = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await?;
    stream.shutdown().await?;
    // Closing a socket with unread data would discard the answer before the caller reads it.
    let _read = tokio::io::copy(&mut stream.take(PLAIN_BYTES_MAX), &mut tokio::io::sink()).await;
    Err(io::Error::new(io::ErrorKind::InvalidData, "the caller doesn't speak TLS"))
}

/// Waits until the server shuts down, and then for as long as an idle connection may stay.
async fn left(stopping: &mut watch::Receiver<bool>, leaving: Duration) {
    ended(stopping).await;
    sleep(leaving).await;
}

/// Serves one connection until it ends, has to make room, or doesn't prove itself in time.
async fn connection(
    io: impl Read + Write + Unpin + Send + 'static,
    routes: TowerToHyperService<Router>,
    Conditions { peer, proof_by, leaving }: Conditions,
    mut stopping: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX)
        .serve_connection(io, OfPeer { routes, peer: peer.clone() })
        // For sessions.
        .with_upgrades();
    let mut connection = pin!(connection);
    let mut proof = pin!(sleep_until(proof_by));
    let (mut ends, mut awaits_proof, mut makes_room) = (false, true, true);
    loop {
        tokio::select! {
            // The connection first: a request that is there already may prove it, and then it stays.
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            () = peer.evicted(), if makes_room => {
                if !peer.is_proven() {
                    return;
                }
                makes_room = false;
            }
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
            () = left(&mut stopping, leaving), if !ends => {
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
