//! The address of a server, and how its certificate is verified.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use reqwest::redirect::Policy;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme};
use sha2::{Digest as _, Sha256};

use crate::error::ClientError;

/// Time to connect, with the TLS handshake. Calls have no time limit, because some wait for a message.
const CONNECT: Duration = Duration::from_secs(5);
/// The longest time for which an idle connection is kept.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// What a fingerprint begins with.
const SHA256: &str = "sha256:";
/// The variables with which a child process finds the same server.
const URL: &str = "LASTWORD_URL";
const PIN: &str = "LASTWORD_TLS_PIN";
const CA: &str = "LASTWORD_TLS_CA";
const CLIENT: &str = "LASTWORD_CLIENT";

/// The header with the id of the client (F1).
pub(crate) const CLIENT_HEADER: &str = "lastword-client";

/// The SHA-256 of a certificate in DER, as browsers and `openssl x509 -fingerprint -sha256` show it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; 32]);

impl Fingerprint {
    /// Returns the fingerprint of a certificate in DER.
    #[must_use]
    pub fn of(certificate: &[u8]) -> Self {
        Self(Sha256::digest(certificate).into())
    }

    /// Parses `sha256:` and 64 hexadecimal digits, of either case, with or without colons between the bytes.
    fn parse(text: &str) -> Option<Self> {
        let digits: Vec<u8> = text.strip_prefix(SHA256)?.bytes().filter(|byte| *byte != b':').collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
        let bytes: Option<Vec<u8>> =
            digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect();
        bytes?.try_into().ok().map(Self)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SHA256)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The certificates that are accepted, by their fingerprints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pin {
    /// These certificates.
    Fingerprints(Vec<Fingerprint>),
    /// Those that this file lists. It is read at each handshake, because the server rewrites it when its certificate
    /// changes.
    File(PathBuf),
}

impl Pin {
    /// Parses fingerprints with commas between them, or takes the path of a file that lists some.
    ///
    /// # Errors
    /// The text begins with `sha256:`, but isn't a fingerprint.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        if !text.starts_with(SHA256) {
            let path = std::path::absolute(text).map_err(|error| unusable(format!("the pin {text:?}: {error}")))?;
            return Ok(Self::File(path));
        }
        listed(text).map(Self::Fingerprints).map_err(unusable)
    }

    fn fingerprints(&self) -> Result<Vec<Fingerprint>, String> {
        match self {
            Self::Fingerprints(known) => Ok(known.clone()),
            Self::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| {
                    format!(
                        "the file with the pin, {}, can't be read: {error}. Name the fingerprint that `lastword serve` \
                         prints",
                        path.display()
                    )
                })?;
                listed(&text).map_err(|what| format!("{}: {what}", path.display()))
            }
        }
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fingerprints(known) => {
                f.write_str(&known.iter().map(ToString::to_string).collect::<Vec<_>>().join(","))
            }
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// Reads fingerprints with commas or white space between them; at least one.
fn listed(text: &str) -> Result<Vec<Fingerprint>, String> {
    let words = text.split([',', ' ', '\t', '\r', '\n']).filter(|word| !word.is_empty());
    let known: Result<Vec<_>, String> = words
        .map(|word| {
            Fingerprint::parse(word)
                .ok_or_else(|| format!("{word:?} isn't a fingerprint: it is `sha256:` and 64 hexadecimal digits"))
        })
        .collect();
    known.and_then(|known| if known.is_empty() { Err("there is no fingerprint".to_owned()) } else { Ok(known) })
}

/// How the certificate of a server is verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// By the system's root certificates, and the name in the address.
    #[default]
    System,
    /// By the certificates of this file, in PEM, and the name in the address.
    Authority(PathBuf),
    /// By its fingerprint alone; neither its name nor its dates count.
    Pinned(Pin),
}

/// The address of a server, how its certificate is verified, and the id under which this process calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    url: Box<str>,
    trust: Trust,
    client: Option<Box<str>>,
}

impl Endpoint {
    /// Returns the server at `url` (`http://127.0.0.1:7171`), verified by the system's roots if it is `https://`.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.trim_end_matches('/').into(), trust: Trust::System, client: None }
    }

    /// Returns the same server, called under this id: the broker gives a delivery to one client of an agent, and again to
    /// that one alone (F1).
    #[must_use]
    pub fn called_by(self, client: Option<&str>) -> Self {
        Self { client: client.filter(|id| !id.is_empty()).map(Into::into), ..self }
    }

    /// Returns the same server, called under a new id.
    #[must_use]
    pub fn called_by_new(self) -> Self {
        Self { client: Some(new_id()), ..self }
    }

    /// Returns the id under which it is called.
    #[must_use]
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Returns the same server, verified like this.
    #[must_use]
    pub fn trusting(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// Returns the address, without a trailing slash.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns how the certificate is verified.
    #[must_use]
    pub const fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Returns the variables with which a child process finds the same server, and with which all that it starts calls as
    /// one client; `None` is one to remove.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, Option<OsString>); 4] {
        let (pin, authority) = match &self.trust {
            Trust::System => (None, None),
            Trust::Authority(path) => (None, Some(path.into())),
            Trust::Pinned(pin) => (Some(pin.to_string().into()), None),
        };
        let client = self.client.clone().unwrap_or_else(new_id);
        [(URL, Some((&*self.url).into())), (PIN, pin), (CA, authority), (CLIENT, Some((&*client).into()))]
    }

    /// Returns the global flags of `lastword` with which it calls the same server.
    #[must_use]
    pub fn flags(&self) -> Vec<String> {
        let trust = match &self.trust {
            Trust::System => None,
            Trust::Authority(path) => Some(("--tls-ca", path.display().to_string())),
            Trust::Pinned(pin) => Some(("--tls-pin", pin.to_string())),
        };
        let named = [("--url", self.url.to_string())].into_iter().chain(trust);
        named.flat_map(|(flag, value)| [flag.to_owned(), value]).collect()
    }

    /// Builds an HTTP client that verifies this server's certificate.
    ///
    /// # Errors
    /// The address has no `http://` or `https://`, a pin or an authority is named for `http://`, or the authority's
    /// file holds no certificate.
    pub fn http(&self) -> Result<reqwest::Client, ClientError> {
        let secure = self.url.starts_with("https://");
        if !secure && !self.url.starts_with("http://") {
            let bare = !self.url.is_empty() && !self.url.contains("://");
            let near = if bare { format!("; did you mean http://{}?", self.url) } else { String::new() };
            return Err(unusable(format!("{:?} isn't an address such as http://127.0.0.1:7171{near}", self.url)));
        }
        if let Err(error) = reqwest::Url::parse(&self.url) {
            return Err(unusable(format!("{:?} isn't an address such as http://127.0.0.1:7171: {error}", self.url)));
        }
        if !secure && self.trust != Trust::System {
            // Otherwise a token would be sent in clear where its owner took care to name a certificate.
            return Err(unusable(format!(
                "{} has no TLS, but a certificate to verify is named: use https:// or leave out the pin and the authority",
                self.url
            )));
        }
        // The roots take time to read, and http:// needs none.
        let config = if secure { self.tls_config()? } else { plain()? };
        // The server redirects no call. What something else answers with is shown, and a token stays where it was sent.
        let builder = reqwest::Client::builder().redirect(Policy::none()).connect_timeout(CONNECT);
        // Shorter than the server keeps one, so that no call meets a connection that it is closing.
        let builder = builder.tcp_nodelay(true).no_proxy().pool_idle_timeout(IDLE_MAX);
        builder.tls_backend_preconfigured(config).build().map_err(unusable)
    }

    /// Returns the configuration of TLS that verifies this server's certificate.
    pub(crate) fn tls_config(&self) -> Result<ClientConfig, ClientError> {
        let provider = Arc::new(ring::default_provider());
        let versions = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        let builder = versions.map_err(unusable)?;
        let builder = match &self.trust {
            Trust::System => builder.with_root_certificates(system()?),
            Trust::Authority(path) => builder.with_root_certificates(authority(path)?),
            Trust::Pinned(pin) => {
                let verifier = PinVerifier { pin: pin.clone(), provider };
                builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
            }
        };
        Ok(builder.with_no_client_auth())
    }
}

/// Returns an id that no other client has.
fn new_id() -> Box<str> {
    let random = std::hash::RandomState::new().build_hasher().finish();
    format!("{}-{random:016x}", std::process::id()).into()
}

/// Returns an HTTP client for `http://` alone: it trusts no certificate.
///
/// # Errors
/// The client can't be built.
pub fn plain_http() -> Result<reqwest::Client, ClientError> {
    reqwest::Client::builder().no_proxy().tls_backend_preconfigured(plain()?).build().map_err(unusable)
}

fn plain() -> Result<ClientConfig, ClientError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
    Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

fn system() -> Result<RootCertStore, ClientError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _unreadable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(unusable(
            "this system has no root certificates: install ca-certificates, or name the server's certificate with \
             --tls-pin or --tls-ca",
        ));
    }
    Ok(roots)
}

fn authority(path: &Path) -> Result<RootCertStore, ClientError> {
    let failed = |what: &dyn fmt::Display| unusable(format!("--tls-ca {}: {what}", path.display()));
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in found {
        roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(roots)
}

fn unusable(what: impl fmt::Display) -> ClientError {
    ClientError::Unusable(what.to_string())
}

/// Accepts the certificates that a pin lists, once the server has proven that it holds their key.
#[derive(Debug)]
struct PinVerifier {
    pin: Pin,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let refused = |what: String| rustls::Error::Other(OtherError(Arc::new(Mismatch(what))));
        let known = self.pin.fingerprints().map_err(refused)?;
        let shown = Fingerprint::of(certificate);
        if known.contains(&shown) {
            return Ok(ServerCertVerified::assertion());
        }
        let known = known.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ");
        Err(refused(format!("its certificate is {shown}, and the pin is {known}")))
    }

    // The fingerprint only names a certificate, which anyone can copy: the signature proves that the server has its key.
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Why a pin doesn't accept a certificate.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Mismatch(String);

/// What a failed call says of the server's certificate or its TLS.
pub(crate) enum TlsFault {
    /// The certificate isn't accepted; the reason.
    Untrusted(String),
    /// The handshake failed for another reason.
    Broken(String),
}

/// Looks for an error of TLS among the causes of an error.
pub(crate) fn tls_fault(error: &(dyn Error + 'static)) -> Option<TlsFault> {
    let mut cause = Some(error);
    while let Some(at) = cause {
        if let Some(found) = at.downcast_ref::<rustls::Error>() {
            return Some(worded(found));
        }
        // An I/O error names the causes of what it holds as its own, and so passes over that itself.
        let held = at.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        cause = held.map(|held| held as &(dyn Error + 'static)).or_else(|| at.source());
    }
    None
}

fn worded(error: &rustls::Error) -> TlsFault {
    let unknown = [CertificateError::UnknownIssuer, CertificateError::BadSignature];
    if let rustls::Error::Other(OtherError(other)) = error {
        TlsFault::Untrusted(other.to_string())
    } else if let rustls::Error::InvalidCertificate(why) = error
        && unknown.contains(why)
    {
        TlsFault::Untrusted(
            "its certificate isn't issued by an authority that this program trusts. Name the fingerprint that \
             `lastword serve` prints with --tls-pin, or the authority with --tls-ca"
                .to_owned(),
        )
    } else if matches!(error, rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) {
        TlsFault::Untrusted(error.to_string())
    } else if matches!(error, rustls::Error::InvalidMessage(_)) {
        TlsFault::Broken(format!("it doesn't speak TLS ({error}); without TLS its address begins with http://"))
    } else {
        TlsFault::Broken(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_browsers_and_openssl_write_it() {
        let plain = Fingerprint::of(b"certificate");
        let text = plain.to_string();
        assert_eq!(text.len(), 71, "{text}");
        let digits = text.trim_start_matches(SHA256).to_uppercase();
        let pairs: Vec<&str> = (0..32).map(|n| &digits[2 * n..2 * n + 2]).collect();
        for spelling in [text.clone(), format!("sha256:{digits}"), format!("sha256:{}", pairs.join(":"))] {
            assert_eq!(Pin::parse(&spelling).unwrap(), Pin::Fingerprints(vec![plain]), "{spelling}");
        }
        let two = Pin::parse(&format!("{text},{}", Fingerprint::of(b"next"))).unwrap();
        assert_eq!(two, Pin::Fingerprints(vec![plain, Fingerprint::of(b"next")]));
        assert_eq!(Pin::parse(&two.to_string()).unwrap(), two);
        for bad in ["sha256:", "sha256:12", &format!("{text}0"), &format!("{text}00"), &format!("{}g", &text[..70])] {
            assert!(Pin::parse(bad).is_err(), "{bad}");
        }
        assert_eq!(Pin::parse("/x/tls.pin").unwrap(), Pin::File("/x/tls.pin".into()));
    }

    #[test]
    fn no_certificate_is_named_for_an_address_without_tls() {
        let pin = Trust::Pinned(Pin::Fingerprints(vec![Fingerprint::of(b"x")]));
        let refused = Endpoint::new("http://127.0.0.1:1").trusting(pin.clone()).http().unwrap_err();
        assert!(refused.to_string().contains("https://"), "{refused}");
        Endpoint::new("https://127.0.0.1:1").trusting(pin).http().unwrap();
        assert!(Endpoint::new("127.0.0.1:1").http().is_err());
    }

    #[test]
    fn a_child_gets_the_address_and_the_trust_and_nothing_of_another() {
        let endpoint = Endpoint::new("https://h:1/").trusting(Trust::Pinned(Pin::File("/x/tls.pin".into())));
        let [url, pin, authority, client] = endpoint.variables();
        assert_eq!(url, (URL, Some("https://h:1".into())));
        assert_eq!((pin, authority), ((PIN, Some("/x/tls.pin".into())), (CA, None)));
        assert_ne!(client, endpoint.variables()[3], "each program is a client of its own");
        let named = endpoint.clone().called_by(Some("a"));
        assert_eq!(named.variables()[3], (CLIENT, Some("a".into())), "unless this process is one");
        assert_eq!(endpoint.flags(), ["--url", "https://h:1", "--tls-pin", "/x/tls.pin"]);
        let endpoint = Endpoint::new("https://h").trusting(Trust::Authority("/x/ca.pem".into()));
        assert_eq!(endpoint.flags()[2..], ["--tls-ca", "/x/ca.pem"]);
        assert_eq!(Endpoint::new("http://h").flags(), ["--url", "http://h"]);
    }
}
