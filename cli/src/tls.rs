//! TLS, as a command line or a configuration names it: the server's certificate, and how clients verify it.

use std::path::PathBuf;

use lastword_client::{Pin, Trust};
use lastword_server::Tls;
use serde::Deserialize;

use crate::failure::Failure;

/// A certificate that needs no files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TlsMode {
    /// Self-signed, made once in the data directory.
    Auto,
}

/// Returns the server's certificate from what a command line or a configuration says of it.
pub(crate) fn certificate(
    mode: Option<TlsMode>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
) -> Result<Option<Tls>, Failure> {
    match (mode, cert, key) {
        (None, None, None) => Ok(None),
        (Some(TlsMode::Auto), None, None) => Ok(Some(Tls::Auto)),
        (None, Some(cert), Some(key)) => Ok(Some(Tls::Files { cert, key })),
        (Some(TlsMode::Auto), ..) => Err(Failure::usage("TLS is auto, and a certificate is named as well")
            .hint("leave out either tls = \"auto\" (--tls auto) or tls_cert and tls_key")),
        (None, cert, _) => {
            let missing = if cert.is_some() { "tls_key" } else { "tls_cert" };
            Err(Failure::usage(format!("a certificate needs its key: {missing} is missing"))
                .hint("name both, tls_cert and tls_key (--tls-cert and --tls-key)"))
        }
    }
}

/// Returns how a server's certificate is verified from what a command line or a configuration says of it.
pub(crate) fn trust(pin: Option<String>, authority: Option<PathBuf>) -> Result<Option<Trust>, Failure> {
    match (pin.filter(|pin| !pin.is_empty()), authority.filter(|path| !path.as_os_str().is_empty())) {
        (None, None) => Ok(None),
        (Some(pin), None) => Ok(Some(Trust::Pinned(Pin::parse(&pin)?))),
        (None, Some(path)) => Ok(Some(Trust::Authority(std::path::absolute(path)?))),
        (Some(_), Some(_)) => Err(Failure::usage("both a pin and an authority are named for the server's certificate")
            .hint("leave out either --tls-pin (LASTWORD_TLS_PIN, tls_pin) or --tls-ca (LASTWORD_TLS_CA, tls_ca)")),
    }
}
