//! The webhook channel: one signed POST to an address that was checked.
//!
//! The connection is made here rather than by an HTTP client, which would resolve names again, follow redirects or use
//! a proxy: it goes to exactly the address that [`target`] has checked.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{HOST, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Request, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use lastword_broker::identity::{Secret, hex};
use lastword_facts::Time;
use reqwest::Url;
use sha2::Sha256;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::channel::{Target, Webhook};
use super::target::{self, Resolve};
use crate::tls::client_config;

/// The time limit of a call, from the lookup of the name to the status of the answer.
const CALL_MAX: Duration = Duration::from_secs(10);
/// The most bytes of an answer's head; its body isn't read.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Posts a notification, without retries.
pub(super) async fn post(
    hook: &Webhook,
    id: &str,
    mut headers: HeaderMap,
    body: Vec<u8>,
    at: Time,
    resolver: &impl Resolve,
) -> Result<(), String> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|error| error.to_string());
    headers.insert("lastword-id", value(id)?);
    headers.insert("lastword-signature", value(&signature(&hook.secret, at, &body)?)?);
    let seconds = (at.0 / 1000).to_string();
    headers.insert("webhook-signature", value(&standard_signature(&hook.secret, id, &seconds, &body)?)?);
    headers.insert("webhook-timestamp", value(&seconds)?);
    headers.insert("webhook-id", value(id)?);
    hook.target.post_by(headers, body, resolver).await
}

impl Target {
    /// Posts a body to it, without retries.
    ///
    /// # Errors
    /// Its name leads to a forbidden address, it can't be reached, or it refuses; in words.
    pub async fn post(&self, headers: HeaderMap, body: Vec<u8>) -> Result<(), String> {
        self.post_by(headers, body, &target::System).await
    }

    async fn post_by(&self, headers: HeaderMap, body: Vec<u8>, resolver: &impl Resolve) -> Result<(), String> {
        let status = self.call(headers, body, resolver).await?;
        if status.is_success() {
            Ok(())
        } else if status.is_redirection() {
            Err(format!("the receiver redirects ({status}), which is not followed: name the address that it leads to"))
        } else {
            Err(format!("the receiver answered {status}"))
        }
    }

    /// Posts a body to it, without retries; returns the status of the answer.
    pub(super) async fn call(
        &self,
        headers: HeaderMap,
        body: Vec<u8>,
        resolver: &impl Resolve,
    ) -> Result<StatusCode, String> {
        let host = self.url.host_str().unwrap_or_default();
        let port = self.url.port_or_known_default().unwrap_or_default();
        let request = request(&self.url, headers, body)?;
        let call = async {
            let addresses = target::addresses(host, port, self.allow_private, resolver).await?;
            let stream = connect(&addresses).await?;
            if self.url.scheme() == "https" {
                exchange(secure(host, stream).await?, request).await
            } else {
                exchange(stream, request).await
            }
        };
        timeout(CALL_MAX, call).await.map_err(|_| format!("no answer within {} s", CALL_MAX.as_secs()))?
    }
}

async fn connect(addresses: &[SocketAddr]) -> Result<TcpStream, String> {
    let mut last = String::new();
    // All of them were checked, so any may be connected to.
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = format!("can't connect to {address}: {error}"),
        }
    }
    Err(last)
}

async fn secure(host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
    // On a blocking thread because it reads files, and at each call so that renewed certificates count at once.
    let config = tokio::task::spawn_blocking(client_config).await.map_err(|error| error.to_string())??;
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|error| format!("{host}: {error}"))?;
    let secured = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    secured.map_err(|error| format!("no TLS with {host}: {error}"))
}

fn request(url: &Url, headers: HeaderMap, body: Vec<u8>) -> Result<Request<Body>, String> {
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    let request = Request::post(format!("{}{query}", url.path()))
        .header(HOST, authority(url))
        .header(USER_AGENT, concat!("lastword/", env!("CARGO_PKG_VERSION")))
        .body(Body::from(body));
    let mut request = request.map_err(|error| error.to_string())?;
    request.headers_mut().extend(headers);
    Ok(request)
}

/// Formats the `Host` header: the host, and the port unless it is the scheme's default.
fn authority(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// Signs the body: `t=SECONDS,v1=HMAC` over `SECONDS.BODY`. The time is signed too, so that a receiver can refuse a
/// replayed call.
fn signature(secret: &Secret, at: Time, body: &[u8]) -> Result<String, String> {
    let seconds = at.0 / 1000;
    let mac = mac(secret.reveal().as_bytes(), &format!("{seconds}."), body)?;
    Ok(format!("t={seconds},v1={}", hex(&mac)))
}

/// Signs the body as Standard Webhooks do: `v1,HMAC` over `ID.SECONDS.BODY`, in Base64.
fn standard_signature(secret: &Secret, id: &str, seconds: &str, body: &[u8]) -> Result<String, String> {
    let mac = mac(&key(secret)?, &format!("{id}.{seconds}."), body)?;
    Ok(format!("v1,{}", STANDARD.encode(mac)))
}

/// Returns the key that a secret is to Standard Webhooks: the bytes of `whsec_BASE64`, or those of any other text.
pub(super) fn key(secret: &Secret) -> Result<Vec<u8>, String> {
    match secret.reveal().strip_prefix("whsec_") {
        Some(encoded) => STANDARD
            .decode(encoded)
            .map_err(|_| "the webhook's secret begins with whsec_, and what follows is no Base64".to_owned()),
        None => Ok(secret.reveal().as_bytes().to_vec()),
    }
}

fn mac(key: &[u8], head: &str, body: &[u8]) -> Result<[u8; 32], String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(|error| error.to_string())?;
    mac.update(head.as_bytes());
    mac.update(body);
    Ok(mac.finalize().into_bytes().into())
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Body>,
) -> Result<StatusCode, String> {
    let broken = |error: hyper::Error| format!("the call broke off: {error}");
    let mut builder = http1::Builder::new();
    let (mut sender, connection) =
        builder.max_buf_size(ANSWER_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let driven = async {
        // The call below reports how the connection ended, so this only has to drive it.
        let _ended = connection.await;
        pending::<()>().await;
    };
    tokio::select! {
        answer = sender.send_request(request) => answer.map(|answer| answer.status()).map_err(broken),
        () = driven => Err("the connection ended".into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::task::JoinHandle;

    use super::*;

    const SECRET: &str = "canary-secret-of-a-webhook";

    /// A resolver that answers with one list of addresses after the other, repeating the last.
    struct Rebinding {
        answers: Vec<&'static str>,
        asked: Mutex<usize>,
    }

    impl Resolve for Rebinding {
        async fn resolve(&self, _host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            let mut asked = self.asked.lock().unwrap();
            let answer = self.answers[(*asked).min(self.answers.len() - 1)];
            *asked += 1;
            Ok(vec![SocketAddr::new(answer.parse().unwrap(), port)])
        }
    }

    fn resolver(answers: &[&'static str]) -> Rebinding {
        Rebinding { answers: answers.to_vec(), asked: Mutex::new(0) }
    }

    /// Receives one call and sends this answer; returns the port, and finally the call.
    async fn receiver(answer: &'static str) -> (u16, JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        #[allow(clippy::disallowed_methods, reason = "the test joins it")]
        let received = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (mut got, mut buffer) = (Vec::new(), [0; 4096]);
            while !got.ends_with(b"}") {
                let n = stream.read(&mut buffer).await.unwrap();
                assert!(n > 0, "the call broke off");
                got.extend_from_slice(&buffer[..n]);
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
            String::from_utf8(got).unwrap()
        });
        (port, received)
    }

    fn hook(host: &str, port: u16) -> Webhook {
        let url = format!("http://{host}:{port}/services/x?y=1");
        Webhook::new(&url, Secret::new(SECRET.into()), true).unwrap()
    }

    async fn posted(hook: &Webhook, resolver: &impl Resolve) -> Result<(), String> {
        post(hook, "ntf-1", HeaderMap::new(), b"{\"a\":1}".to_vec(), Time(1_700_000_000_999), resolver).await
    }

    #[tokio::test]
    async fn a_receiver_can_tell_by_the_signature_that_it_is_ours_and_new() {
        let (port, received) = receiver("HTTP/1.1 204 No Content\r\n\r\n").await;
        posted(&hook("127.0.0.1", port), &target::System).await.unwrap();
        let received = received.await.unwrap();
        let (head, body) = received.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /services/x?y=1 HTTP/1.1\r\n"), "{head}");
        let header = |name: &str| {
            let line =
                head.lines().find_map(|line| line.split_once(": ").filter(|(n, _)| n.eq_ignore_ascii_case(name)));
            line.unwrap_or_else(|| panic!("no {name} in {head}")).1
        };
        assert_eq!(header("lastword-id"), "ntf-1");
        assert_eq!(header("host"), format!("127.0.0.1:{port}"));
        assert_eq!(header("content-length"), body.len().to_string());
        let (time, mac) = header("lastword-signature").split_once(",v1=").unwrap();
        assert_eq!(time, "t=1700000000");
        // Computed by another program:
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac canary-secret-of-a-webhook
        assert_eq!(mac, "54c12067f608c07681d565f835143037335b0c6b3f8ec9ab19d967b082427b09");
        assert!(!received.contains(SECRET));
        // Computed by the library `standardwebhooks` of Python.
        assert_eq!((header("webhook-id"), header("webhook-timestamp")), ("ntf-1", "1700000000"));
        assert_eq!(header("webhook-signature"), "v1,wvX5SqqeldwqZQiHuaTRYW3wuHexNIYDc23MoFOteeI=");
        let encoded = Secret::new("whsec_bGFzdHdvcmQtY2FuYXJ5LXNlY3JldC1vZi1ob29r".into());
        let signed = standard_signature(&encoded, "ntf-1", "1700000000", body.as_bytes()).unwrap();
        assert_eq!(signed, "v1,KSvWQblwafRcyp4ZIYAsfk44reRjD7ewQDtfvb2u6sA=");
    }

    #[tokio::test]
    async fn an_answer_that_is_no_success_is_a_failure_and_a_redirect_is_not_followed() {
        for (answer, word) in [
            ("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "500"),
            ("HTTP/1.1 302 F\r\nlocation: http://169.254.169.254/latest\r\n\r\n", "redirects"),
            ("nonsense\r\n\r\n", "broke off"),
        ] {
            let (port, received) = receiver(answer).await;
            let failed = posted(&hook("127.0.0.1", port), &target::System).await.unwrap_err();
            assert!(failed.contains(word), "{failed}");
            received.await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_connection_goes_to_the_address_that_was_checked_and_the_name_is_asked_once() {
        let (port, received) = receiver("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let names = resolver(&["127.0.0.1", "169.254.169.254"]);
        posted(&hook("hooks.example", port), &names).await.unwrap();
        assert!(received.await.unwrap().contains(&format!("host: hooks.example:{port}")));
        assert_eq!(*names.asked.lock().unwrap(), 1);
        // The next call resolves the name again and checks its new addresses.
        let refused = posted(&hook("hooks.example", port), &names).await.unwrap_err();
        assert!(refused.contains("link-local"), "{refused}");
    }

    #[tokio::test]
    async fn a_public_name_that_leads_home_is_refused_before_anything_is_connected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("https://hooks.example:{port}/");
        let hook = Webhook::new(&url, Secret::new(SECRET.into()), false).unwrap();
        let refused = posted(&hook, &resolver(&["127.0.0.1"])).await.unwrap_err();
        assert!(refused.contains("loopback"), "{refused}");
        assert!(listener.accept().now_or_never().is_none(), "something connected");
    }

    #[tokio::test]
    async fn https_speaks_tls_and_trusts_nobody_whom_the_system_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        #[allow(clippy::disallowed_methods, reason = "the test joins it")]
        let hello = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut first = [0; 3];
            stream.read_exact(&mut first).await.unwrap();
            first
        });
        let url = format!("https://127.0.0.1:{port}/");
        let hook = Webhook::new(&url, Secret::new(SECRET.into()), true).unwrap();
        let failed = posted(&hook, &target::System).await.unwrap_err();
        if failed.contains("no root certificates") {
            hello.abort();
            return;
        }
        assert!(failed.contains("no TLS"), "{failed}");
        assert_eq!(hello.await.unwrap(), [0x16, 3, 1], "a handshake of TLS");
    }
}
