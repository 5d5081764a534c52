//! The connection of a session: TCP, TLS as the endpoint says, and the handshake of the WebSocket.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use lastword_wire::session::{PATH, SUBPROTOCOL};
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::endpoint::{CLIENT_HEADER, Endpoint, TlsFault, tls_fault};
use crate::error::ClientError;
use crate::token::Token;

/// The time to connect, with the handshakes.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest frame of the server: a page of long messages.
const FRAME_BYTES_MAX: usize = 80 << 20;
const READ_BYTES: usize = 16 << 10;
const WRITE_BYTES: usize = 16 << 10;

/// The bytes of a session, with or without TLS.
pub(super) enum Wire {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

/// Opens the WebSocket.
pub(super) async fn connect(endpoint: &Endpoint, token: &Token) -> Result<WebSocketStream<Wire>, ClientError> {
    let late = |_| unreachable(endpoint, &format_args!("no answer within {} s", CONNECT.as_secs()));
    timeout(CONNECT, opened(endpoint, token)).await.map_err(late)?
}

async fn opened(endpoint: &Endpoint, token: &Token) -> Result<WebSocketStream<Wire>, ClientError> {
    let url = Url::parse(endpoint.url()).map_err(|error| ClientError::Unusable(error.to_string()))?;
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Err(ClientError::Unusable(format!("{:?} names no host", endpoint.url())));
    };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let tcp = TcpStream::connect((bare, port)).await.map_err(|error| unreachable(endpoint, &error))?;
    tcp.set_nodelay(true).map_err(|error| unreachable(endpoint, &error))?;
    let secure = url.scheme() == "https";
    let wire = if secure {
        let name = ServerName::try_from(bare.to_owned()).map_err(|error| ClientError::Unusable(error.to_string()))?;
        let connector = TlsConnector::from(Arc::new(endpoint.tls_config()?));
        let tls = connector.connect(name, tcp).await.map_err(|error| untrusted(endpoint, &error))?;
        Wire::Secure(Box::new(tls))
    } else {
        Wire::Plain(tcp)
    };
    let scheme = if secure { "wss" } else { "ws" };
    let address = format!("{scheme}://{host}:{port}{}{PATH}", url.path().trim_end_matches('/'));
    let mut request = address.into_client_request().map_err(|error| ClientError::Unusable(error.to_string()))?;
    request.headers_mut().insert(AUTHORIZATION, token.header());
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    if let Some(client) = endpoint.client() {
        let client = HeaderValue::from_str(client).map_err(|error| ClientError::Unusable(error.to_string()))?;
        request.headers_mut().insert(CLIENT_HEADER, client);
    }
    let mut config = WebSocketConfig::default().read_buffer_size(READ_BYTES).write_buffer_size(WRITE_BYTES);
    config = config.max_message_size(Some(FRAME_BYTES_MAX)).max_frame_size(Some(FRAME_BYTES_MAX));
    match client_async_with_config(request, wire, Some(config)).await {
        Ok((socket, _)) => Ok(socket),
        Err(error) => Err(refused(endpoint, error)),
    }
}

/// Returns the server's refusal of a session, or why there is none.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other error of the library is one of the connection")]
fn refused(endpoint: &Endpoint, error: Error) -> ClientError {
    match error {
        Error::Http(response) => {
            let problem = response.body().as_deref().and_then(|body| serde_json::from_slice(body).ok());
            match problem {
                Some(problem) => ClientError::Refused(problem),
                None => ClientError::Unexpected {
                    url: endpoint.url().to_owned(),
                    status: response.status().as_u16(),
                    detail: "the server opens no session".to_owned(),
                },
            }
        }
        // The server ended, or whatever is before it lost the connection.
        Error::Protocol(error @ ProtocolError::HandshakeIncomplete) => unreachable(endpoint, &error),
        Error::Protocol(error) => ClientError::Unexpected {
            url: endpoint.url().to_owned(),
            status: 0,
            detail: format!("the server opens no session: {error}"),
        },
        other => unreachable(endpoint, &other),
    }
}

fn untrusted(endpoint: &Endpoint, error: &std::io::Error) -> ClientError {
    let url = endpoint.url().to_owned();
    match tls_fault(error) {
        Some(TlsFault::Untrusted(reason)) => ClientError::Untrusted { url, reason },
        Some(TlsFault::Broken(reason)) => ClientError::Unreachable { url, reason },
        None => unreachable(endpoint, error),
    }
}

fn unreachable(endpoint: &Endpoint, reason: &dyn std::fmt::Display) -> ClientError {
    ClientError::Unreachable { url: endpoint.url().to_owned(), reason: reason.to_string() }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_read(cx, buffer),
            Self::Secure(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_write(cx, bytes),
            Self::Secure(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_flush(cx),
            Self::Secure(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut *self {
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Secure(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
