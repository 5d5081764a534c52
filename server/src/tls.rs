//! The server's certificate: from files, which are read again when they change, or made once in the data directory.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use lastword_broker::files::write_private;
use lastword_broker::identity::hex;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, KeyPair};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, ServerConfig, crypto, version};

/// The file in the data directory with the certificate that the server made, and its key.
pub const FILE_CERTIFICATE: &str = "tls.pem";
/// The file in the data directory with the fingerprints by which clients on this machine know the server.
pub const FILE_PIN: &str = "tls.pin";
/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The only version of HTTP that is spoken.
const PROTOCOL: &[u8] = b"http/1.1";
/// The bits of a key file's mode that let others read it.
const OTHERS: u32 = 0o077;

/// Where the server's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// From these files, in PEM.
    Files {
        /// The certificate, then those that lead to its authority.
        cert: PathBuf,
        /// Its private key, without a passphrase.
        key: PathBuf,
    },
    /// Self-signed, made once in the data directory. Clients know it by its fingerprint.
    Auto,
}

/// What is wrong with a certificate or a key, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{}: {what}", path.display())]
pub struct TlsError {
    path: PathBuf,
    what: String,
    hint: &'static str,
}

impl TlsError {
    fn new(path: &Path, what: impl std::fmt::Display, hint: &'static str) -> Self {
        Self { path: path.to_owned(), what: what.to_string(), hint }
    }

    /// Returns what to do.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        self.hint
    }
}

const HINT_CERT: &str = "name a file in PEM with the server's certificate, then those that lead to its authority";
const HINT_KEY: &str = "name a file in PEM with the certificate's private key, without a passphrase";

/// How callers reach the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over HTTP; a proxy in front of it may speak TLS.
    #[default]
    Plain,
    /// Over TLS, with a certificate that only clients with its fingerprint accept.
    SelfSigned,
    /// Over TLS, with a certificate that was given.
    Certified,
}

impl Transport {
    /// Returns how callers reach a server with this configuration.
    #[must_use]
    pub const fn of(tls: Option<&Tls>) -> Self {
        match tls {
            None => Self::Plain,
            Some(Tls::Auto) => Self::SelfSigned,
            Some(Tls::Files { .. }) => Self::Certified,
        }
    }

    /// Returns the scheme of its URLs.
    #[must_use]
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::Plain => "http",
            Self::SelfSigned | Self::Certified => "https",
        }
    }
}

/// Returns how this server verifies another: by the system's root certificates, which it reads.
///
/// # Errors
/// The system has none.
pub(crate) fn client_config() -> Result<ClientConfig, String> {
    config_of(roots()?)
}

fn roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _unreadable) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err("this system has no root certificates: install ca-certificates, or set SSL_CERT_FILE".into());
    }
    Ok(roots)
}

fn config_of(roots: RootCertStore) -> Result<ClientConfig, String> {
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Returns an HTTP client for an address of the configuration. It follows no redirect, which could lead a secret
/// elsewhere, and uses no proxy. Unless `secure`, it is for `http://` alone and trusts no certificate.
///
/// # Errors
/// The system's root certificates can't be read, or the client can't be built.
pub fn http_client(secure: bool, call_max: Duration) -> Result<reqwest::Client, String> {
    let tls = config_of(if secure { roots()? } else { RootCertStore::empty() })?;
    let builder = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).timeout(call_max).no_proxy();
    builder.tls_backend_preconfigured(tls).build().map_err(|error| error.to_string())
}

/// Returns the innermost cause, which says more than the sentence around it.
#[must_use]
pub fn cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The certificate in use.
pub struct Certificate {
    cert: PathBuf,
    key: PathBuf,
    /// The file with the fingerprints.
    pin: PathBuf,
    current: RwLock<Arc<ServerConfig>>,
    fingerprint: watch::Sender<String>,
}

/// A certificate and its fingerprint.
struct Loaded {
    config: Arc<ServerConfig>,
    fingerprint: String,
}

/// What changes in a file's entry when the file is replaced or rewritten: its inode, its size, and the time of the last
/// change in seconds and nanoseconds.
type Stamp = Option<(u64, u64, i64, i64)>;

impl Certificate {
    /// Reads the certificate, or makes one for these host names, and writes down its fingerprint.
    ///
    /// # Errors
    /// A file can't be read or written, or has no usable certificate or key.
    pub fn open(tls: &Tls, data_dir: &Path, hosts: &[String]) -> Result<Self, TlsError> {
        let (cert, key) = match tls {
            Tls::Files { cert, key } => (cert.clone(), key.clone()),
            Tls::Auto => {
                let path = data_dir.join(FILE_CERTIFICATE);
                if !path.exists() {
                    make(&path, hosts)?;
                }
                (path.clone(), path)
            }
        };
        let Loaded { config, fingerprint } = load(&cert, &key)?;
        if fs::metadata(&key).is_ok_and(|file| file.mode() & OTHERS != 0) {
            tracing::warn!(key = %key.display(), "other users can read the server's private key: chmod 600");
        }
        let opened = Self {
            cert,
            key,
            pin: data_dir.join(FILE_PIN),
            current: RwLock::new(config),
            fingerprint: watch::Sender::new(fingerprint.clone()),
        };
        opened.note(&format!("{fingerprint}\n")).map_err(|error| {
            TlsError::new(
                &opened.pin,
                error,
                "check the data directory and its free space, then start the server again",
            )
        })?;
        Ok(opened)
    }

    /// Returns what accepts the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Returns the SHA-256 of the certificate, as `sha256:HEX`.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.fingerprint.borrow().clone()
    }

    /// Takes up each change of the files until `stopping` is true. Open connections keep the certificate that they began
    /// with.
    pub(crate) async fn follow(self: Arc<Self>, mut stopping: watch::Receiver<bool>) {
        // What changed before the first look is taken up, too.
        let mut known = [None, None];
        loop {
            let this = Arc::clone(&self);
            match tokio::task::spawn_blocking(move || this.look(known)).await {
                Ok(now) => known = now,
                Err(error) => return tracing::error!(%error, "changes of the certificate are no longer taken up"),
            }
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Takes the files up if they changed since they had these stamps; returns their stamps.
    fn look(&self, known: [Stamp; 2]) -> [Stamp; 2] {
        // Read first: a change during the look is found by the next one.
        let now = [stamp(&self.cert), stamp(&self.key)];
        if now != known
            && let Err(error) = self.reload()
        {
            tracing::error!(%error, hint = error.hint, "the certificate was not taken up; the server keeps the one it has");
        }
        now
    }

    fn reload(&self) -> Result<(), TlsError> {
        let Loaded { config, fingerprint } = load(&self.cert, &self.key)?;
        let before = self.fingerprint();
        if fingerprint != before {
            // Before the change, and with both: a client that connects meanwhile meets either.
            self.note(&format!("{fingerprint}\n{before}\n")).map_err(|error| {
                TlsError::new(
                    &self.pin,
                    error,
                    "check the data directory and its free space, then touch the certificate",
                )
            })?;
            tracing::info!(%fingerprint, "a new certificate is in use");
        }
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = config;
        self.fingerprint.send_replace(fingerprint);
        Ok(())
    }

    /// Writes the fingerprints down, unless they are.
    fn note(&self, text: &str) -> io::Result<()> {
        if fs::read_to_string(&self.pin).is_ok_and(|found| found == text) {
            return Ok(());
        }
        write_private(&self.pin, text.as_bytes())
    }
}

fn stamp(path: &Path) -> Stamp {
    fs::metadata(path).ok().map(|file| (file.ino(), file.size(), file.mtime(), file.mtime_nsec()))
}

fn load(cert: &Path, key: &Path) -> Result<Loaded, TlsError> {
    let read = |path: &Path, hint| fs::read(path).map_err(|error| TlsError::new(path, error, hint));
    let chain: Result<Vec<CertificateDer<'static>>, _> =
        CertificateDer::pem_slice_iter(&read(cert, HINT_CERT)?).collect();
    let chain = chain.map_err(|error| TlsError::new(cert, error, HINT_CERT))?;
    let Some(own) = chain.first() else {
        let what = "it holds no certificate in PEM (-----BEGIN CERTIFICATE-----)";
        return Err(TlsError::new(cert, what, HINT_CERT));
    };
    let fingerprint = format!("sha256:{}", hex(&Sha256::digest(own)));
    let bytes = read(key, HINT_KEY)?;
    let private = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
        let text = String::from_utf8_lossy(&bytes);
        if text.contains("ENCRYPTED") {
            let hint = "remove the passphrase: openssl pkey -in KEY -out KEY.plain";
            return TlsError::new(key, "its private key has a passphrase", hint);
        }
        TlsError::new(key, "it holds no private key in PEM (-----BEGIN PRIVATE KEY-----)", HINT_KEY)
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13, &version::TLS12])
        .map_err(|error| TlsError::new(cert, error, HINT_CERT))?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, private).map_err(|error| {
        if matches!(error, rustls::Error::InconsistentKeys(_)) {
            let what = format!("it isn't the key of the certificate in {}", cert.display());
            return TlsError::new(key, what, "name the certificate and the key that were made together");
        }
        if matches!(error, rustls::Error::InvalidCertificate(_)) {
            return TlsError::new(cert, error, HINT_CERT);
        }
        TlsError::new(key, error, HINT_KEY)
    })?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(Loaded { config: Arc::new(config), fingerprint })
}

/// Makes a certificate that is signed by itself, for this machine and these host names.
fn make(path: &Path, hosts: &[String]) -> Result<(), TlsError> {
    let hint = "a host name that clients use consists of letters, digits, dots and hyphens";
    let failed = |error: rcgen::Error| TlsError::new(path, error, hint);
    let here = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()].map(|ip| ip.to_string());
    let names = std::iter::once("localhost".to_owned()).chain(here).chain(hosts.iter().cloned());
    let mut params = CertificateParams::new(names.collect::<Vec<_>>()).map_err(failed)?;
    params.distinguished_name.push(DnType::CommonName, "Lastword");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(failed)?;
    let certificate = params.self_signed(&key).map_err(failed)?;
    // One file, so that no crash leaves the one without the other.
    let text = format!("{}{}", certificate.pem(), key.serialize_pem());
    write_private(path, text.as_bytes())
        .map_err(|error| TlsError::new(path, error, "check the data directory and its free space"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn files(dir: &Path) -> (PathBuf, PathBuf) {
        (dir.join("cert.pem"), dir.join("key.pem"))
    }

    fn write_pair(dir: &Path) -> (String, String) {
        let (cert, key) = files(dir);
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let (cert_text, key_text) = (pair.cert.pem(), pair.signing_key.serialize_pem());
        fs::write(cert, &cert_text).unwrap();
        fs::write(key, &key_text).unwrap();
        (cert_text, key_text)
    }

    #[test]
    fn what_is_wrong_with_a_certificate_or_key_is_named_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        let wrong = |file: &Path, text: &str| {
            let (was_cert, was_key) = write_pair(dir.path());
            fs::write(file, text.replace("{key}", &was_key).replace("{cert}", &was_cert)).unwrap();
            let error = load(&cert, &key).err().unwrap();
            assert_eq!(error.path, file, "{error}");
            assert!(!error.hint().is_empty());
            error.to_string()
        };
        assert!(wrong(&cert, "").contains("no certificate in PEM"));
        assert!(wrong(&cert, "{key}").contains("no certificate in PEM"));
        assert!(wrong(&key, "{cert}").contains("no private key in PEM"));
        let locked = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert!(wrong(&key, locked).contains("passphrase"));
        assert!(wrong(&cert, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").contains("certificate"));
        let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
        assert!(wrong(&key, &other).contains("isn't the key"));
        fs::remove_file(&key).unwrap();
        assert!(load(&cert, &key).err().unwrap().to_string().contains("No such file"));
        write_pair(dir.path());
        assert!(load(&cert, &key).is_ok());
    }

    #[test]
    fn a_certificate_is_made_once_and_only_its_owner_reads_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let open = || Certificate::open(&Tls::Auto, dir.path(), &["broker.example".to_owned()]).unwrap().fingerprint();
        let first = open();
        assert_eq!(open(), first);
        assert_eq!(fs::read_to_string(dir.path().join(FILE_PIN)).unwrap(), format!("{first}\n"));
        let mode = fs::metadata(dir.path().join(FILE_CERTIFICATE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_change_is_taken_up_and_a_bad_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (cert, key) = files(dir.path());
        write_pair(dir.path());
        let own = Certificate::open(&Tls::Files { cert: cert.clone(), key }, dir.path(), &[]).unwrap();
        let (first, known) = (own.fingerprint(), own.look([None, None]));
        assert_eq!((own.fingerprint(), own.look(known)), (first.clone(), known));
        fs::write(&cert, "half a certif").unwrap();
        let known = own.look(known);
        assert_eq!(own.fingerprint(), first);
        write_pair(dir.path());
        own.look(known);
        let second = own.fingerprint();
        assert_ne!(second, first);
        // Clients that connect during the change know either.
        assert_eq!(fs::read_to_string(dir.path().join(FILE_PIN)).unwrap(), format!("{second}\n{first}\n"));
    }
}
