//! How to connect to NATS, and why an attempt failed.

use std::path::PathBuf;
use std::sync::Arc;

use async_nats::{Client, ConnectError, ConnectErrorKind, ConnectOptions};

use super::address::{Servers, shown_address};
use super::nats::NatsError;
use crate::registry::Sealing;

/// How to connect to NATS.
#[derive(Clone, Default)]
pub struct NatsOptions {
    /// The servers, such as `nats://10.0.0.1:4222`, `tls://nats.example`, `nats://user:password@host` or
    /// `nats://token@host`. One that answers is enough.
    pub servers: Vec<String>,
    /// A file with a JWT and its seed (`.creds`); `None` for other ways to authenticate.
    pub credentials: Option<PathBuf>,
    /// A file with the certificates (PEM) that the servers' must lead to; `None` for the system's.
    pub ca: Option<PathBuf>,
    /// The files with the certificate and the key (PEM) by which this client proves itself; `None` without.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The key that seals the registry's secrets; `None`: they lie open in NATS.
    pub sealing: Option<Sealing>,
}

impl NatsOptions {
    /// Options for these servers, with nothing else.
    #[must_use]
    pub fn new<S: Into<String>>(servers: impl IntoIterator<Item = S>) -> Self {
        Self { servers: servers.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The servers without their passwords and tokens.
    pub(super) fn shown(&self) -> String {
        self.servers.iter().map(|server| shown_address(server)).collect::<Vec<_>>().join(", ")
    }

    /// Returns how to connect, as the client library puts it.
    pub(super) async fn connecting(&self, servers: &Arc<Servers>) -> Result<ConnectOptions, NatsError> {
        let file = |place: &PathBuf, error: std::io::Error| NatsError::File {
            place: place.display().to_string(),
            reason: error.to_string(),
        };
        // Credentials in a file replace what addresses have.
        let mut connecting = match &self.credentials {
            Some(path) => ConnectOptions::with_credentials_file(path).await.map_err(|error| file(path, error))?,
            None => servers.logging_in().unwrap_or_default(),
        };
        for path in self.ca.iter().chain(self.certificate.iter().flat_map(|(cert, key)| [cert, key])) {
            if let Err(error) = std::fs::File::open(path) {
                return Err(file(path, error));
            }
        }
        if let Some(path) = &self.ca {
            connecting = connecting.add_root_certificates(path.clone());
        }
        if let Some((certificate, key)) = &self.certificate {
            connecting = connecting.add_client_certificate(certificate.clone(), key.clone());
        }
        Ok(connecting)
    }
}

impl std::fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NatsOptions").field("servers", &self.shown()).finish_non_exhaustive()
    }
}

/// Connects to the first server that accepts this client. With a choice of its own, the client library tries one at a time.
pub(super) async fn first(servers: &Servers, connecting: ConnectOptions) -> Result<Client, ConnectError> {
    let addresses = servers.addresses();
    let mut connected = connecting.clone().connect(addresses.as_slice()).await;
    for _ in 1..addresses.len() {
        if connected.is_ok() {
            break;
        }
        connected = connecting.clone().connect(addresses.as_slice()).await;
    }
    connected
}

/// Returns whether an attempt failed because one end doesn't accept the other: its login or its certificate.
pub(super) fn is_refusal(error: &ConnectError) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation | ConnectErrorKind::Authentication | ConnectErrorKind::ServerParse => {
            true
        }
        // A handshake of TLS that fails is data that isn't valid.
        ConnectErrorKind::Tls | ConnectErrorKind::Io => {
            source.is_some_and(|source| source.kind() == std::io::ErrorKind::InvalidData)
        }
        ConnectErrorKind::Dns | ConnectErrorKind::TimedOut | ConnectErrorKind::MaxReconnects => false,
    }
}
